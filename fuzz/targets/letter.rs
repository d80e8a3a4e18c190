//! Fuzzes `tests/fuzz/bodies/letter.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fencepost_fuzz::bodies::letter::check(bytes));
