//! Fuzzes `tests/fuzz/bodies/frames.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fencepost_fuzz::bodies::frames::check(bytes));
