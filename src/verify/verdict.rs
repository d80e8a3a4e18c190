//! What a check found: counts that say what they count, and the first examples of each fault as sentences.

use serde::Serialize;
use std::fmt;

/// What a [`Checker`](super::Checker) or a [`Stream`](super::Stream) found. A fault is any count of [`Verdict::faults`]
/// that is not 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Whether there was a ledger to compare with. Without one `accepted`, `lost` and `foreign` stay 0.
    pub against_ledger: bool,
    /// Records read, each (partition, offset) once.
    pub records: u64,
    /// Different idempotency keys among them.
    pub distinct: u64,
    /// Different idempotency keys in the ledgers: a repeat that was accepted counts with its original.
    pub accepted: u64,
    /// Accepted keys that no record has and that were not set aside.
    pub lost: u64,
    /// Records whose idempotency key an earlier record has.
    pub repeated: u64,
    /// With a ledger: first records of a key that stand behind one that the same ingress accepted later, for the same
    /// device (and salt). One that comes late counts once, however many it missed. Without a ledger: `hlc_regressions`.
    /// A replayed record is outside of this.
    pub reordered: u64,
    /// First records of a key whose clock stamp is not above all earlier ones of the same device (and salt) and router.
    pub hlc_regressions: u64,
    /// First records of a key whose event time is below an earlier one of the same device and router. No fault: a late
    /// device is in order as soon as it is in the order of its submits.
    pub event_time_falls: u64,
    /// Readable records whose key nobody accepted.
    pub foreign: u64,
    /// Records whose value is no frame.
    pub unreadable: u64,
    /// Records in a partition that murmur2 of their Kafka key does not name.
    pub wrong_partition: u64,
    /// Records whose Kafka key is not the device, or `device#salt` for a salted one.
    pub key_mismatch: u64,
    /// Holes and falls of the numbers that a router gives out per incarnation and partition. A hole that was set aside
    /// or replayed in full is none.
    pub seq_gaps: u64,
    /// How many numbers are missing in those holes.
    pub seq_missing: u64,
    /// Records that came back from the dead letters.
    pub replayed: u64,
    /// Keys that were found elsewhere, in the dead letters or the spill, and are not in the topic.
    pub set_aside: u64,
    /// Records handed over a second time by the reader, known by their offset; not checked again.
    pub rereads: u64,
    /// Records or acceptances beyond what the checker may hold: while this is not 0, nothing else is certain.
    pub unchecked: u64,
    /// Keys that are too long ago to be remembered: a repeat of them goes unseen. Only without a ledger.
    pub keys_forgotten: u64,
    /// Records with an arrival time, and the quantiles of acceptance to arrival in microseconds, up to 1/32 above.
    pub timed: u64,
    /// Half of them took at most this long.
    pub deliver_us_p50: u64,
    /// 95 % of them.
    pub deliver_us_p95: u64,
    /// 99 % of them.
    pub deliver_us_p99: u64,
    /// The slowest, exactly.
    pub deliver_us_max: u64,
    /// Those that arrived before they were accepted, by two clocks that differ; counted as 0 µs.
    pub arrived_before_accepted: u64,
    /// The first of each fault, in sentences that name device, partition and offset.
    pub first_examples: Vec<String>,
}

impl Verdict {
    /// Each kind of fault, with how many there are.
    #[must_use]
    pub const fn faults(&self) -> [(&'static str, u64); 10] {
        [
            ("lost", self.lost),
            ("repeated", self.repeated),
            ("reordered", self.reordered),
            ("foreign", self.foreign),
            ("unreadable", self.unreadable),
            ("wrong_partition", self.wrong_partition),
            ("key_mismatch", self.key_mismatch),
            ("seq_gaps", self.seq_gaps),
            ("hlc_regressions", self.hlc_regressions),
            ("unchecked", self.unchecked),
        ]
    }

    /// Whether nothing is wrong and everything was checked.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.faults().iter().all(|fault| fault.1 == 0)
    }
}

impl fmt::Display for Verdict {
    /// One line, then an example a line.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} records, {} distinct", self.records, self.distinct)?;
        if self.against_ledger {
            write!(out, " of {} accepted", self.accepted)?;
        }
        if self.is_clean() {
            write!(out, ": nothing lost, repeated or reordered")?;
        } else {
            let mut separator = ": ";
            for (name, count) in self.faults().into_iter().filter(|fault| fault.1 > 0) {
                write!(out, "{separator}{count} {name}")?;
                separator = ", ";
            }
        }
        for example in &self.first_examples {
            write!(out, "\n  {example}")?;
        }
        Ok(())
    }
}

/// The faults of which examples are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Lost,
    Repeated,
    Reordered,
    Foreign,
    Unreadable,
    WrongPartition,
    KeyMismatch,
    SeqGap,
    HlcRegression,
}

/// The first few examples of each fault.
#[derive(Clone, Debug)]
pub(super) struct Examples {
    per_fault_max: usize,
    kept: Vec<(Fault, String)>,
}

impl Examples {
    pub(super) fn new(per_fault_max: usize) -> Examples {
        Examples { per_fault_max, kept: Vec::new() }
    }

    /// Keeps the sentence if it is among the first of its fault. It is made only then.
    pub(super) fn add(&mut self, fault: Fault, sentence: impl FnOnce() -> String) {
        if self.kept.iter().filter(|kept| kept.0 == fault).count() < self.per_fault_max {
            self.kept.push((fault, sentence()));
        }
    }

    pub(super) fn sentences(&self) -> Vec<String> {
        self.kept.iter().map(|kept| kept.1.clone()).collect()
    }
}
