//! Fuzzes `tests/fuzz/bodies/segments.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fencepost_fuzz::bodies::segments::check(bytes));
