//! Fuzzes `tests/fuzz/bodies/frame.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fencepost_fuzz::bodies::frame::check(bytes));
