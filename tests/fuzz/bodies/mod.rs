//! What holds for any bytes at all, one function a reader: `check` takes the bytes and panics where a promise is broken.
//! The same function is called by `cargo test` (with the corpus, and with what luck makes of it) and by the fuzzers of
//! `fuzz/`; it calls nothing but what the package shows to everybody.

pub mod config;
pub mod frame;
pub mod frames;
mod input;
pub mod letter;
pub mod ndjson;
#[cfg(feature = "sim")]
pub mod segments;
mod stream;

/// A body, by the name of its target and its folder in the corpus.
pub type Body = (&'static str, fn(&[u8]));

/// All of them. The one of the segments needs a disk that lives in memory, which is in the feature `sim`.
pub const BODIES: &[Body] = &[
    ("config", config::check),
    ("frame", frame::check),
    ("frames", frames::check),
    ("letter", letter::check),
    ("ndjson", ndjson::check),
    #[cfg(feature = "sim")]
    ("segments", segments::check),
];
