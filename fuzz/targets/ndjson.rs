//! Fuzzes `tests/fuzz/bodies/ndjson.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fencepost_fuzz::bodies::ndjson::check(bytes));
