//! How many triggers went into a ring and how many came out: two counters, each with one writer, shared with whoever
//! watches. This is all that the ring's two ends share beside `rtrb` itself, and the lines themselves are guarded by
//! `rtrb`'s own head and tail: these counts guard no memory.

use crate::sync::atomic::{AtomicU64, Ordering};
use crossbeam::utils::CachePadded;
use std::sync::Arc;

/// Each counter on lines of its own: the writer stores one, the reader the other.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pushed: CachePadded<AtomicU64>,
    taken: CachePadded<AtomicU64>,
}

impl Counts {
    /// The writer's half: `pushed` triggers are about to be visible. Called before the lines are published.
    #[inline]
    pub(super) fn publish_pushed(&self, pushed: u64) {
        // Relaxed: no reader needs it alone. It is ordered before rtrb's Release store of the tail, which follows it;
        // the reader's Acquire load of that tail is the partner, and through `taken` the pair reaches `in_ring`.
        self.pushed.store(pushed, Ordering::Relaxed);
    }

    /// The reader's half: `taken` triggers have left. Called after their lines were freed.
    #[inline]
    pub(super) fn publish_taken(&self, taken: u64) {
        // Release: partner of the Acquire loads in `taken`. Who sees the count also sees rtrb's head behind those
        // lines (writer), and the `pushed` that let them be taken (gauge). The gauge needs it: weaker, it counts below none
        // (tests/loom, ring). The writer's bound holds without, since the lines are counted by rtrb's own head.
        self.taken.store(taken, Ordering::Release);
    }

    /// Triggers that have left. May lag behind: what it says is in the ring is never less than what is.
    #[inline]
    pub(super) fn taken(&self) -> u64 {
        // Acquire: partner of the Release store in `publish_taken`.
        self.taken.load(Ordering::Acquire)
    }
}

/// A view of a ring's counts for any thread that watches; costs the ring nothing but the line it reads.
#[derive(Clone, Debug)]
pub struct RingGauge(pub(super) Arc<Counts>);

impl RingGauge {
    /// Triggers published to the reader since the start.
    #[must_use]
    pub fn pushed(&self) -> u64 {
        // Relaxed: a number alone, no other memory is read on its word.
        self.0.pushed.load(Ordering::Relaxed)
    }

    /// Triggers taken by the reader since the start.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.0.taken()
    }

    /// Triggers published and not yet taken. Never negative; while the ends move, it may count some as inside that
    /// left meanwhile.
    #[must_use]
    pub fn in_ring(&self) -> u64 {
        // In this order: whoever took a trigger saw its `pushed` first, so `pushed`, read second, is at least `taken`.
        let taken = self.0.taken();
        self.pushed() - taken
    }
}
