//! The bodies of `tests/fuzz`, for the fuzzers: what `cargo test` runs on its corpus, they run on whatever they find.

#[path = "../../tests/fuzz/bodies/mod.rs"]
pub mod bodies;
