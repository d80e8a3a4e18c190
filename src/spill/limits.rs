//! How much the spill may take, of the disk and of memory. Checked once, at open.

use super::format::{PAYLOAD_MAX, SEGMENT_HEADER, checkpoint_bytes, control_bytes, record_bytes};
use std::ops::RangeInclusive;

/// How many partitions there may be.
pub const PARTITIONS: RangeInclusive<u32> = 1..=100_000;
/// The longest record's payload.
pub const RECORD_BYTES: RangeInclusive<usize> = 1..=PAYLOAD_MAX as usize;
/// A segment file.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;
/// Marks out of turn that one commit takes.
pub const MARKS_A_COMMIT: usize = 1_024;
/// Commits of cursors alone that fit even when nothing else does.
const CURSOR_COMMITS: u64 = 8;
/// Segments beyond the reserve that the limit must have room for: one to write, one to copy forward into, two to free.
const SEGMENTS_MIN: u64 = 4;

/// How much the spill may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpillLimits {
    /// Partitions of the topic.
    pub partitions: u32,
    /// Bytes of all segment files, allocated ahead or written.
    pub limit_bytes: u64,
    /// Bytes of log that only [`super::Spill::append_from_reserve`] may use: for what is accepted and unsettled.
    pub reserve_bytes: u64,
    /// Bytes that one partition's live records may take; the reserve is not held against it.
    pub partition_bytes: u64,
    /// Bytes of a segment file.
    pub segment_bytes: u64,
    /// Bytes that may wait for a commit.
    pub batch_bytes: usize,
    /// Bytes of a record's metadata and frame.
    pub record_bytes: usize,
    /// Records that may be done with out of their turn at one time.
    pub marks: usize,
}

impl SpillLimits {
    /// The defaults for a topic of so many partitions: 4 GiB in all, a reserve of 256 MiB, a quarter for one partition,
    /// segments of 64 MiB.
    #[must_use]
    pub fn new(partitions: u32) -> SpillLimits {
        SpillLimits {
            partitions,
            limit_bytes: 4 << 30,
            reserve_bytes: 256 << 20,
            partition_bytes: 1 << 30,
            segment_bytes: 64 << 20,
            batch_bytes: 8 << 20,
            record_bytes: 64 << 10,
            marks: 65_536,
        }
    }

    /// Whether they fit together.
    ///
    /// # Errors
    /// The first that does not, with what came and what is allowed.
    pub fn check(&self) -> Result<(), LimitError> {
        let range = |name, got: u64, least: u64, most: u64| {
            if (least..=most).contains(&got) { Ok(()) } else { Err(LimitError { name, got, least, most }) }
        };
        range("partitions", self.partitions.into(), (*PARTITIONS.start()).into(), (*PARTITIONS.end()).into())?;
        range("record_bytes", self.record_bytes as u64, *RECORD_BYTES.start() as u64, *RECORD_BYTES.end() as u64)?;
        let record = self.record_bytes_max() as u64;
        range("batch_bytes", self.batch_bytes as u64, record, 1 << 30)?;
        range("marks", self.marks as u64, 0, 1 << 24)?;
        range("segment_bytes", self.segment_bytes, 2 * self.segment_overhead(), SEGMENT_BYTES_MAX)?;
        let least = (self.spares() + SEGMENTS_MIN) * self.segment_bytes;
        range("limit_bytes", self.limit_bytes, least, 1 << 50)?;
        range("partition_bytes", self.partition_bytes, record, self.limit_bytes)
    }

    /// The longest record on disk.
    pub(super) fn record_bytes_max(&self) -> usize {
        record_bytes(self.record_bytes)
    }

    /// The longest record that closes a commit.
    pub(super) fn control_bytes_max(&self) -> usize {
        control_bytes(self.partitions as usize, self.marks_a_commit())
    }

    /// Marks that one commit takes.
    pub(super) fn marks_a_commit(&self) -> usize {
        self.marks.min(MARKS_A_COMMIT)
    }

    /// The longest checkpoint, written twice.
    pub(super) fn checkpoint_bytes_max(&self) -> usize {
        2 * checkpoint_bytes(self.partitions as usize, self.marks)
    }

    /// What is kept free at the end for commits of cursors alone: without them nothing would ever be freed.
    pub(super) fn cursor_room(&self) -> u64 {
        CURSOR_COMMITS * self.control_bytes_max() as u64
    }

    /// What a segment may not hold of records: its header, the checkpoint, the last commit, the cut at its end.
    pub(super) fn segment_overhead(&self) -> u64 {
        let fixed = SEGMENT_HEADER + self.checkpoint_bytes_max() + self.control_bytes_max() + self.record_bytes_max();
        fixed as u64 + self.cursor_room()
    }

    /// What a segment surely holds.
    pub(super) fn segment_room(&self) -> u64 {
        self.segment_bytes - self.segment_overhead()
    }

    /// Segments that are allocated ahead, so that the reserve is space and not a number.
    pub(super) fn spares(&self) -> u64 {
        self.reserve_bytes.div_ceil(self.segment_room().max(1)).max(1)
    }

    /// The smallest segment worth making when the volume is nearly full.
    pub(super) fn segment_bytes_min(&self) -> u64 {
        self.segment_overhead() + self.record_bytes_max() as u64
    }
}

/// A limit that does not fit the others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("spill: {name} = {got}, allowed {least} to {most} with the other limits as they are")]
pub struct LimitError {
    /// Which.
    pub name: &'static str,
    /// What came.
    pub got: u64,
    /// The least allowed.
    pub least: u64,
    /// The most allowed.
    pub most: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_fit_together_from_one_partition_to_the_most() {
        for partitions in [1, 24, 10_000, *PARTITIONS.end()] {
            SpillLimits::new(partitions).check().unwrap();
        }
    }

    #[test]
    fn each_bound_is_checked_at_its_edges() {
        let at = |change: fn(&mut SpillLimits)| {
            let mut limits = SpillLimits::new(24);
            change(&mut limits);
            limits.check().map_err(|error| error.name)
        };
        assert_eq!(at(|l| l.partitions = 0), Err("partitions"));
        assert_eq!(at(|l| l.partitions = 100_001), Err("partitions"));
        assert_eq!(at(|l| l.record_bytes = 0), Err("record_bytes"));
        assert_eq!(at(|l| l.record_bytes = PAYLOAD_MAX as usize), Ok(()));
        assert_eq!(at(|l| l.record_bytes = PAYLOAD_MAX as usize + 1), Err("record_bytes"));
        assert_eq!(at(|l| l.batch_bytes = l.record_bytes_max()), Ok(()));
        assert_eq!(at(|l| l.batch_bytes = l.record_bytes_max() - 1), Err("batch_bytes"));
        assert_eq!(at(|l| l.segment_bytes = 2 * l.segment_overhead() - 1), Err("segment_bytes"));
        assert_eq!(at(|l| l.segment_bytes = SEGMENT_BYTES_MAX + 1), Err("segment_bytes"));
        assert_eq!(at(|l| l.limit_bytes = (l.spares() + SEGMENTS_MIN) * l.segment_bytes - 1), Err("limit_bytes"));
        assert_eq!(at(|l| l.partition_bytes = l.limit_bytes), Ok(()));
        assert_eq!(at(|l| l.partition_bytes = l.limit_bytes + 1), Err("partition_bytes"));
        assert_eq!(at(|l| l.marks = (1 << 24) + 1), Err("marks"));
    }
}
