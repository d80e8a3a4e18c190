//! Fuzzes `tests/fuzz/bodies/config.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fencepost_fuzz::bodies::config::check(bytes));
