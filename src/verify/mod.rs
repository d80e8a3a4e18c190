//! The checkers: what the topic holds against what was promised. They recompute everything the slow, obvious way and
//! use none of the rooms they check: their own frame reader, their own murmur2, their own idempotency key.
//!
//! - [`Ledger`]: what was accepted, 12 bytes a trigger, kept by each thread that submits.
//! - [`Checker`]: takes every record of the topic, then the ledgers, and gives a [`Verdict`]: lost, repeated, reordered.
//! - [`Stream`]: the same without a ledger and in bounded memory, for a topic that someone else fills.
//! - [`conservation`]: the counters add up.
//!
//! What each count of a verdict means is said at its field, once, in [`Verdict`].

mod checker;
pub mod conservation;
pub mod frame;
mod identity;
mod latency;
mod ledger;
pub mod murmur2;
mod stream;
mod verdict;

pub use checker::{Checker, CheckerOptions};
pub use ledger::Ledger;
pub use stream::{Finding, Record, Stream, StreamOptions};
pub use verdict::Verdict;
