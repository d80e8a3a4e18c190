//! Publishing again: which of a batch of dead letters the topic already holds, and how far a replay has come. Decisions
//! only: reading, publishing and saving are the caller's.
//!
//! Reading order: `bloom` (is this key surely not in the batch?), `wanted` (the batch's keys, exactly), `positions` (up to
//! where everything is done).
#![forbid(unsafe_code)]

mod bloom;
mod positions;
mod wanted;

pub use bloom::Bloom;
pub use positions::Positions;
pub use wanted::Wanted;
