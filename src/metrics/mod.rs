//! Numbers about the work: one page per shard and per ingress, written by one thread, readable by any.
//!
//! A counter is a plain load and store (no locked instruction), a histogram record two of them: about 2 ns. The memory
//! is fixed: a histogram has 1,024 buckets of 8 bytes, 32 to each power of two, so a value is off by at most 1/32.

mod histogram;
mod pages;

pub use histogram::{Histogram, Snapshot, Streak};
pub use pages::{IngressPage, ShardPage, SpillPage};

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread writes and any may read.
///
/// Orderings: stores and loads are `Relaxed`. A reader sees each number whole and not older than the last time it
/// looked; two numbers need not be of the same moment. Where an exact sum is promised (a stopped router), the thread
/// has been joined, which orders everything.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds. Only the owning thread may: two writers would lose counts.
    pub fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    /// Overwrites, for what goes up and down.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The value now.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
