//! Dead letters: what cannot be delivered as it should, kept for a person to judge. They go to a topic of their own with
//! notes that say why, and to the disk while that topic makes no progress.
//!
//! Reading order: `notes` (what a letter says about itself).
#![forbid(unsafe_code)]

pub mod notes;

pub use notes::{Header, Headers, Notes, Reason};
