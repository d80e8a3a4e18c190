//! One partition of a tail: where it begins and ends, how far back a search went, and how far it was read. Pure.

use super::{Began, PartRead, TailPart};
use crate::units::{Nanos, PartitionId, UnixMicros};
use std::time::Instant;

/// The first step back from the end, in offsets. Each further one is twice as long.
const STEP: i64 = 1_000;

/// Where a partition begins, how far it can be read, and where it ends.
#[derive(Clone, Copy)]
pub(super) struct Edges {
    pub(super) low: i64,
    pub(super) readable: i64,
    pub(super) end: i64,
}

/// One partition.
pub(super) struct Part {
    pub(super) partition: PartitionId,
    pub(super) low: i64,
    /// How far it can be read.
    pub(super) end: i64,
    /// Records behind that, which an open transaction holds back.
    pub(super) is_held_back: bool,
    /// Where the present reading began, where it ends, and what it expects next.
    pub(super) from: i64,
    pub(super) until: i64,
    pub(super) next: i64,
    pub(super) is_open: bool,
    /// Since when it says that it ends before `until`.
    pub(super) held: Option<Instant>,
    pub(super) was_held: bool,
    pub(super) is_damaged: bool,
    pub(super) is_other: bool,
    pub(super) records: u64,
    pub(super) began: Began,
    /// No search goes below.
    pub(super) floor: i64,
    pub(super) is_found: bool,
    /// The first frame of the present step.
    pub(super) first: Option<UnixMicros>,
    pub(super) newest: Option<UnixMicros>,
    /// Whether an earlier step told the newest frame: then the first of this one is all that is asked for.
    pub(super) knows_newest: bool,
}

impl Part {
    pub(super) fn new(known: &TailPart, edges: Edges, records_max: u64) -> Part {
        let is_other =
            known.from.is_some_and(|from| from > edges.end) || known.acked.is_some_and(|acked| acked >= edges.end);
        let (low, end) = (edges.low.min(edges.readable), edges.readable);
        let from = known.from.filter(|_| !is_other);
        let began = if from.is_some_and(|from| from >= low) { Began::Known } else { Began::Low };
        Part {
            partition: known.partition,
            low,
            end,
            is_held_back: edges.readable < edges.end,
            from: from.unwrap_or(end).clamp(low, end),
            until: end,
            next: end,
            is_open: false,
            held: None,
            was_held: false,
            is_damaged: false,
            is_other,
            records: 0,
            began,
            floor: end.saturating_sub(i64::try_from(records_max).unwrap_or(i64::MAX)).max(low),
            is_found: from.is_some(),
            first: None,
            newest: None,
            knows_newest: false,
        }
    }

    /// One step further back, or the last one, which nothing needs to be read for.
    pub(super) fn step_back(&mut self) {
        let step = if self.from == self.end { STEP } else { (self.end - self.from).saturating_mul(2) };
        self.until = self.from;
        self.from = self.end.saturating_sub(step).max(self.floor);
        if self.from == self.floor {
            self.is_found = true;
            self.began = if self.floor == self.low { Began::Low } else { Began::Limit };
        }
        (self.first, self.knows_newest) = (None, self.newest.is_some());
    }

    /// Whether the step that was read is far enough back.
    pub(super) fn judge(&mut self, ttl: Nanos) {
        let ttl_us = i64::try_from(ttl.0 / 1_000).unwrap_or(i64::MAX);
        if let (Some(first), Some(newest)) = (self.first, self.newest)
            && first.0 < newest.0.saturating_sub(ttl_us)
        {
            self.is_found = true;
            self.began = Began::Searched;
        }
    }

    pub(super) fn as_read(&self) -> PartRead {
        PartRead {
            partition: self.partition,
            from: self.from,
            end: self.end,
            upto: self.next,
            records: self.records,
            began: self.began,
        }
    }
}
