//! The report: what became of every trigger, in counters that add up, and how long each stage took.

use super::assembly::Common;
use crate::clock::Clock;
use crate::metrics::Snapshot;
use crate::ring::RingGauge;
use std::fmt;

/// Counters over all shards and ingresses. The names are those of the conservation sum:
/// `accepted + recovered = delivered + deduplicated + dead_lettered + failed + corrupt + in_spill + in_flight + in_rings`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Taken by `submit`.
    pub accepted: u64,
    /// Found on disk at start.
    pub recovered: u64,
    /// Acknowledged by the broker.
    pub delivered: u64,
    /// Repeats of such.
    pub deduplicated: u64,
    /// Durable in the dead-letter topic.
    pub dead_lettered: u64,
    /// Handed back by `take_failed`.
    pub failed: u64,
    /// Settled in a record that the disk lost later.
    pub corrupt: u64,
    /// Settled on disk, to be sent.
    pub in_spill: u64,
    /// In a shard: waiting, at the broker, or repeats of such.
    pub in_flight: u64,
    /// Not taken by a shard yet.
    pub in_rings: u64,
    /// Refused for pressure; never part of the sum.
    pub shed: u64,
    /// Refused for breaking a rule; never part of the sum.
    pub rejected: u64,
    /// Answered with `SlowDown`.
    pub slowed: u64,
    /// Acknowledged after `publish.timeout`.
    pub late: u64,
    /// Batches the broker refused.
    pub refused_batches: u64,
    /// Times a partition's breaker opened.
    pub breakers_opened: u64,
    /// Failed, since sending them would have reordered their device.
    pub would_reorder: u64,
    /// Re-sent although they may be in the log already.
    pub uncertain: u64,
    /// Producer handles replaced.
    pub producer_rebuilds: u64,
    /// Errors of the client library that are not about one frame.
    pub client_errors: u64,
    /// Dedup keys given up before their time to live had passed.
    pub dedup_evicted_early: u64,
    /// Dedup keys remembered now.
    pub dedup_keys: u64,
    /// Settled by a record on disk that was their only copy.
    pub spilled: u64,
    /// Records that came back from the disk.
    pub drained: u64,
}

/// The stages of a trigger's way, over all shards.
#[derive(Clone, Debug, Default)]
pub struct Stages {
    /// The time a `submit` takes.
    pub emit: Snapshot,
    /// Accepted to taken by the shard.
    pub queue: Snapshot,
    /// Taken to handed over.
    pub dedup: Snapshot,
    /// Handed over to acknowledged.
    pub publish: Snapshot,
    /// Accepted to acknowledged.
    pub settle: Snapshot,
}

/// What a stopped router says.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The counters, exact.
    pub counts: Counts,
    /// How long things took.
    pub stages: Stages,
    /// Shards whose thread did not end in time, or panicked; their counters may be off by what moved meanwhile.
    pub lost_shards: Vec<u16>,
    /// Whether the disk thread made its last commit; true without one.
    pub is_synced: bool,
}

impl Counts {
    /// The two sides of the conservation sum: what came in, and where it is.
    #[must_use]
    pub fn sides(&self) -> (u64, u64) {
        let settled = self.delivered + self.deduplicated + self.dead_lettered + self.failed + self.corrupt;
        (self.accepted + self.recovered, settled + self.in_spill + self.in_flight + self.in_rings)
    }

    /// Whether the sum holds.
    #[must_use]
    pub fn add_up(&self) -> bool {
        let (came_in, is_somewhere) = self.sides();
        came_in == is_somewhere
    }

    /// Triggers that nothing durable has taken.
    #[must_use]
    pub fn unsettled(&self) -> u64 {
        self.in_flight + self.in_rings
    }

    pub(crate) fn of<C: Clock>(common: &Common<C>) -> Counts {
        let mut counts = Counts::default();
        for page in &common.ingress_pages {
            counts.accepted += page.accepted.get();
            counts.shed += page.shed();
            counts.rejected += page.rejected.get();
            counts.slowed += page.slowed.get();
        }
        for page in &common.shard_pages {
            counts.delivered += page.delivered.get();
            counts.deduplicated += page.deduplicated.get();
            counts.failed += page.failed.get();
            counts.recovered += page.recovered.get();
            counts.dead_lettered += page.dead_lettered.get();
            counts.corrupt += page.corrupt.get();
            counts.in_spill += page.in_spill.get();
            counts.spilled += page.spilled.get();
            counts.drained += page.drained.get();
            counts.in_flight += page.in_flight.get();
            counts.late += page.late.get();
            counts.refused_batches += page.refused_batches.get();
            counts.breakers_opened += page.breakers_opened.get();
            counts.would_reorder += page.would_reorder.get();
            counts.uncertain += page.uncertain.get();
            counts.producer_rebuilds += page.producer_rebuilds.get();
            counts.client_errors += page.client_errors.get();
            counts.dedup_evicted_early += page.dedup_evicted_early.get();
            counts.dedup_keys += page.dedup_keys.get();
        }
        // What a ring holds, and what a batch under way has accepted and not published yet.
        let pushed: u64 = common.gauges.iter().map(RingGauge::pushed).sum();
        let in_rings: u64 = common.gauges.iter().map(RingGauge::in_ring).sum();
        counts.in_rings = in_rings + counts.accepted.saturating_sub(pushed);
        counts
    }
}

impl Stages {
    pub(crate) fn of<C: Clock>(common: &Common<C>) -> Stages {
        let mut stages = Stages::default();
        for page in &common.ingress_pages {
            stages.emit.merge(&page.emit.snapshot());
        }
        for page in &common.shard_pages {
            stages.queue.merge(&page.queue.snapshot());
            stages.dedup.merge(&page.dedup.snapshot());
            stages.publish.merge(&page.publish.snapshot());
            stages.settle.merge(&page.settle.snapshot());
        }
        stages
    }

    /// Each stage with its name, in the order a trigger meets them.
    #[must_use]
    pub fn named(&self) -> [(&'static str, &Snapshot); 5] {
        [
            ("emit", &self.emit),
            ("queue", &self.queue),
            ("dedup", &self.dedup),
            ("publish", &self.publish),
            ("settle", &self.settle),
        ]
    }
}

impl fmt::Display for Counts {
    /// The conservation sum with its figures, on two lines.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (came_in, is_somewhere) = self.sides();
        let sign = if self.add_up() { "=" } else { "≠" };
        writeln!(out, "accepted {} + recovered {} {sign}", self.accepted, self.recovered)?;
        write!(
            out,
            "delivered {} + deduplicated {} + dead_lettered {} + failed {} + corrupt {} + in_spill {} + in_flight {} + in_rings {}",
            self.delivered,
            self.deduplicated,
            self.dead_lettered,
            self.failed,
            self.corrupt,
            self.in_spill,
            self.in_flight,
            self.in_rings
        )?;
        if !self.add_up() {
            write!(out, "\n{came_in} came in, {is_somewhere} are accounted for")?;
        }
        Ok(())
    }
}
