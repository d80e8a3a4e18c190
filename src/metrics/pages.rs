//! The pages: what a shard and an ingress count. The names are those of the conservation sum and of the JSON.

use super::{Counter, Histogram};

/// What one shard counts. Written by its thread alone.
#[derive(Default)]
pub struct ShardPage {
    /// Triggers taken out of the rings.
    pub taken: Counter,
    /// Settled: acknowledged by the broker.
    pub delivered: Counter,
    /// Settled: a repeat of a trigger that is settled itself.
    pub deduplicated: Counter,
    /// Settled: durable as dead letters.
    pub dead_lettered: Counter,
    /// Handed back by `take_failed`: nothing durable took them.
    pub failed: Counter,
    /// Found on disk at start.
    pub recovered: Counter,
    /// Settled in a record that the disk lost.
    pub corrupt: Counter,
    /// Settled on disk, with a fate to come.
    pub in_spill: Counter,
    /// Settled by a record on disk that is its only copy.
    pub spilled: Counter,
    /// Records that came back from the disk.
    pub drained: Counter,
    /// Of those, found in the topic by the start.
    pub found_in_topic: Counter,
    /// Of those, not readable by this version.
    pub unreadable: Counter,
    /// Times the disk refused what a partition wanted to write.
    pub refused_spills: Counter,
    /// Times a partition was diverted.
    pub diversions: Counter,
    /// Partitions that are diverted, or have something on disk.
    pub diverted: Counter,
    /// Taken and not settled: waiting, at the broker, on the way to the disk, or repeats of such.
    pub in_flight: Counter,
    /// Of those: not handed to the client library yet.
    pub waiting: Counter,
    /// Of the partition that has the most of them and is not diverted; up to some milliseconds old.
    pub fullest_window: Counter,
    /// Acknowledged, but after `publish.timeout`.
    pub late: Counter,
    /// Batches a broker refused.
    pub refused_batches: Counter,
    /// Times a partition's breaker opened.
    pub breakers_opened: Counter,
    /// Failed, since a later trigger of the device had been handed over already.
    pub would_reorder: Counter,
    /// Re-sent although they may be in the log already; the same key, so that a reader can collapse them.
    pub uncertain: Counter,
    /// Handles given up and replaced.
    pub producer_rebuilds: Counter,
    /// Errors the client library raised that are not about one frame.
    pub client_errors: Counter,
    /// Keys the dedup window gave up before their time to live had passed.
    pub dedup_evicted_early: Counter,
    /// Keys in the dedup window.
    pub dedup_keys: Counter,
    /// Turns in which there was work.
    pub busy_turns: Counter,
    /// Turns in which the slab was full and a ring had to wait.
    pub stalled_turns: Counter,
    /// Bytes of frames that a lost handle may still read: never used again.
    pub leaked_bytes: Counter,
    /// Ring wait: accepted to taken.
    pub queue: Histogram,
    /// Taken to handed over, of the turns that were sampled.
    pub dedup: Histogram,
    /// Handed over to acknowledged.
    pub publish: Histogram,
    /// Accepted to acknowledged.
    pub settle: Histogram,
}

/// What the disk thread counts of the spill. Written by its thread alone.
#[derive(Default)]
pub struct SpillPage {
    /// Commits that wrote something.
    pub commits: Counter,
    /// Syncs of a file.
    pub syncs: Counter,
    /// Records made durable for the first time.
    pub records: Counter,
    /// Records copied forward.
    pub copied: Counter,
    /// Writes or syncs that failed.
    pub failed_writes: Counter,
    /// Bytes of all files.
    pub used_bytes: Counter,
    /// Bytes of log that triggers which are not accepted yet may use.
    pub left_bytes: Counter,
    /// 1 while only the reserve is left.
    pub no_space: Counter,
}

/// What became of the dead letters that one ingress's caller gave. Written by the disk thread alone.
#[derive(Default)]
pub struct LetterPage {
    /// Settled: durable.
    pub dead_lettered: Counter,
    /// Handed back.
    pub failed: Counter,
}

/// What one ingress counts. Written by its thread alone.
#[derive(Default)]
pub struct IngressPage {
    /// Triggers queued.
    pub accepted: Counter,
    /// Refused: the ring was too full for the priority.
    pub shed_ring: Counter,
    /// Refused: the partition is blocked.
    pub shed_partition: Counter,
    /// Refused: too many seqs are unsettled.
    pub shed_window: Counter,
    /// Refused: the lane of dead letters is full.
    pub shed_letters: Counter,
    /// Given to the dead letters by the caller; part of `accepted`.
    pub lettered: Counter,
    /// Refused: breaks a rule.
    pub rejected: Counter,
    /// Answered with `SlowDown`.
    pub slowed: Counter,
    /// The time a submit takes, of every 64th.
    pub emit: Histogram,
}

impl ShardPage {
    /// Bytes of one page.
    pub const BYTES: usize = size_of::<ShardPage>() + 4 * Histogram::BYTES;
}

impl IngressPage {
    /// Bytes of one page.
    pub const BYTES: usize = size_of::<IngressPage>() + Histogram::BYTES;

    /// Everything that was shed.
    #[must_use]
    pub fn shed(&self) -> u64 {
        self.shed_ring.get() + self.shed_partition.get() + self.shed_window.get() + self.shed_letters.get()
    }
}
