//! The spill: records on disk, in order per partition, for one thread that owns it. It knows partitions, sequences and
//! bytes; what they mean is its caller's.
//!
//! Promises: what a commit reported is there after any crash, byte for byte, until its release was committed, and not
//! after; one sync a commit, whatever the number of partitions; a damaged record costs itself, and is counted by its
//! sequence; no partition pins the space of the others; a sync that failed is never asked again: its records are written
//! anew in another segment.
//!
//! Costs: memory is sized at open ([`Spill::memory_bytes`]) and follows the segments, not the records: about 48 bytes for
//! each partition of each segment. Appending copies a record into the batch; a commit seals and writes it. Reading a
//! partition steps over the records of the others, header by header.
//!
//! Reading order: `format` (the bytes), `line` (what is alive), `scan` (the reader), `survey` and `open` (start), this file,
//! `commit`, `copy`.
#![forbid(unsafe_code)]

mod commit;
mod copy;
pub mod disk;
#[cfg(any(test, feature = "sim"))]
pub mod faulty;
pub mod format;
mod limits;
mod line;
mod open;
mod outside;
mod read;
mod scan;
mod survey;
#[cfg(test)]
mod tests;

pub use commit::{CommitError, CommitWhy, Committed};
pub use disk::{Disk, DiskFile, RealDisk};
pub use format::Kind;
pub use limits::{LimitError, MARKS_A_COMMIT, PARTITIONS, RECORD_BYTES, SEGMENT_BYTES_MAX, SpillLimits};
pub use open::{PartitionFound, verify};
pub use outside::read_all;
pub use read::{Budget, ReadDone};
pub use survey::{LOST_NAMED, Lost, Recovery, SurveyError};

use crate::units::PartitionId;
use copy::Copying;
use format::{Entry, RECORD_HEADER, SEQUENCE_MAX, own_header, put_record, record_bytes};
use line::{Freed, Line};
use scan::Scanner;
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use survey::Marks;

/// What a caller stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// In whose line.
    pub partition: PartitionId,
    /// What it is.
    pub kind: Kind,
    /// The caller's own notes, at most 65,535 bytes.
    pub meta: &'a [u8],
    /// The frame, byte for byte.
    pub frame: &'a [u8],
}

/// Which record: the n-th of its partition. Rises by one; never used again for another that was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId {
    /// Whose.
    pub partition: PartitionId,
    /// Its place, from 1.
    pub sequence: u64,
}

/// A stored record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored<'a> {
    /// Which.
    pub id: RecordId,
    /// What was stored.
    pub record: Record<'a>,
}

/// Why a record was not taken. Nothing of it was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The batch is full; commit, then it fits.
    #[error("spill: the batch is full, commit first")]
    CommitFirst,
    /// Only the reserve is left. [`Spill::append_from_reserve`] may still take it.
    #[error("spill: no space: {left} bytes are left, {reserve} of them kept for what is accepted; raise spill.limit")]
    NoSpace {
        /// Bytes of log that are left.
        left: u64,
        /// Bytes of them that only what is accepted may use.
        reserve: u64,
    },
    /// The partition has its share.
    #[error("spill: {partition} holds {bytes} bytes, spill.partition_limit = {limit}")]
    PartitionFull {
        /// Which.
        partition: PartitionId,
        /// What it holds.
        bytes: u64,
        /// What it may hold.
        limit: u64,
    },
    /// Longer than the limits allow.
    #[error("spill: a record of {got} bytes, allowed up to {most}")]
    TooLong {
        /// Bytes of metadata and frame.
        got: usize,
        /// The most.
        most: usize,
    },
    /// There is no such partition.
    #[error("spill: partition {got}, there are {partitions}")]
    NoPartition {
        /// Which was asked for.
        got: u32,
        /// How many there are.
        partitions: u32,
    },
    /// The last sequence there is was used.
    #[error("spill: the sequences of this partition are used up")]
    NoSequence,
}

/// Why a spill did not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The limits.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The directory.
    #[error(transparent)]
    Survey(#[from] SurveyError),
}

/// How far a partition is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionState {
    /// Done with up to here, as asked; durable with the next commit.
    pub released: u64,
    /// Committed up to here.
    pub committed: u64,
    /// Appended up to here.
    pub appended: u64,
    /// Committed records that are neither done with nor lost.
    pub records: u64,
    /// Their bytes on disk.
    pub bytes: u64,
}

/// How much room there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Bytes of log that can still be written.
    pub left_bytes: u64,
    /// Bytes of them that [`Spill::append`] leaves alone.
    pub kept_bytes: u64,
    /// Bytes of all files.
    pub used_bytes: u64,
    /// Whether [`Spill::append`] would refuse a record for want of space.
    pub only_reserve: bool,
    /// Whether the volume had no space for a file that the limit allows.
    pub volume_full: bool,
}

/// What happened since open. Each only rises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpillCounts {
    /// Commits that wrote something.
    pub commits: u64,
    /// Syncs of a file for a commit.
    pub syncs: u64,
    /// Segments begun, each with a sync of its own and one of the directory.
    pub segments: u64,
    /// Records committed for the first time.
    pub records: u64,
    /// Records copied forward.
    pub copied: u64,
    /// Settled records that could not be read again.
    pub lost: u64,
    /// Writes or syncs that failed, each of which sealed its segment.
    pub failed_writes: u64,
    /// Files that could not be cut, renamed aside or removed; tried again where it matters.
    pub failed_tidying: u64,
}

/// A segment that is there.
struct Segment<F> {
    id: u64,
    path: PathBuf,
    file: F,
    /// Bytes the file takes.
    size: u64,
    /// Where its committed records end.
    end: u64,
    /// Live records in it.
    records: u64,
    /// Their bytes.
    bytes: u64,
}

/// A file allocated ahead.
struct Spare<F> {
    id: u64,
    path: PathBuf,
    file: F,
    size: u64,
}

/// A file that has one of two names, and is to go.
struct Leftover {
    names: [PathBuf; 2],
    size: u64,
}

/// Where the next record of a partition was last looked for.
#[derive(Clone, Copy, Default)]
struct Hint {
    segment: u64,
    /// The start of its run.
    run: u64,
    sequence: u64,
    at: u64,
}

/// A partition, at work.
#[derive(Default)]
struct Lane {
    line: Line,
    /// The next sequence to give.
    next: u64,
    /// Committed up to here.
    high: u64,
    /// Of what was found at open, a later write proves that it was synced up to here.
    proven: u64,
    /// Up to here with the part being written.
    writing: u64,
    /// Done with up to here, as asked.
    released: u64,
    /// Bytes in the batch.
    waiting_bytes: u64,
    /// Marks of this partition.
    marks: u32,
    /// Whether it is in `changed`.
    touched: bool,
    hint: Hint,
}

/// Records on disk. Owned by one thread.
pub struct Spill<D: Disk> {
    disk: D,
    dir: PathBuf,
    limits: SpillLimits,
    slots: Vec<Option<Segment<D::File>>>,
    /// The segment begun last; it holds the cursors, so it is never removed.
    newest: Option<u32>,
    /// `newest`, while it takes records.
    active: bool,
    /// The last commit found at open, by segment and offset, until it is written anew: it can be read, and that does not
    /// prove that it was synced. After a failed sync it would not be there after the next crash of the machine.
    unproven: Option<(u32, u64)>,
    spares: VecDeque<Spare<D::File>>,
    /// Files that could not be begun as a segment, nor removed: they take space until they are.
    leftovers: Vec<Leftover>,
    lanes: Vec<Lane>,
    /// Partitions whose cursors the next commit writes.
    changed: Vec<u32>,
    /// Records that wait for a commit: fresh ones and copies.
    batch: Vec<u8>,
    /// Bytes of copies in it.
    batch_copies: usize,
    /// Closing records and checkpoints are put together here.
    scratch: Vec<u8>,
    marks: Marks,
    /// Marks the next commit writes.
    new_marks: Vec<format::Mark>,
    commit: u64,
    next_id: u64,
    scanner: Scanner,
    copying: Option<Copying>,
    lost: Vec<Lost>,
    counts: SpillCounts,
    files_bytes: u64,
    /// Commits to wait before the volume is asked for space again; 0: it was not full.
    full_wait: u32,
    /// Bytes of log beyond the active segment.
    room_beyond: u64,
}

fn less(counter: &mut u64, by: u64) {
    debug_assert!(*counter >= by, "{by} leave a counter of {counter}");
    *counter = counter.saturating_sub(by);
}

impl<F> Segment<F> {
    fn free(&mut self, gone: Freed) {
        less(&mut self.records, gone.records);
        less(&mut self.bytes, gone.bytes);
    }
}

fn free<F>(slots: &mut [Option<Segment<F>>], gone: Freed) {
    slots[gone.slot as usize].as_mut().expect("a run lies in a segment that is there").free(gone);
}

impl<D: Disk> Spill<D> {
    /// Takes a record into the batch; it is durable once a commit says so.
    ///
    /// # Errors
    /// [`AppendError`]; the record is still the caller's.
    pub fn append(&mut self, record: Record<'_>) -> Result<RecordId, AppendError> {
        self.take(record, self.kept_bytes())
    }

    /// As [`Spill::append`], down to the last byte: for what was accepted before the space ran out.
    ///
    /// # Errors
    /// [`AppendError`]; the record is still the caller's.
    pub fn append_from_reserve(&mut self, record: Record<'_>) -> Result<RecordId, AppendError> {
        self.take(record, 0)
    }

    fn take(&mut self, record: Record<'_>, keep: u64) -> Result<RecordId, AppendError> {
        let (partition, partitions) = (record.partition.0, self.limits.partitions);
        let got = record.meta.len() + record.frame.len();
        let left = self.left_bytes();
        let Some(lane) = self.lanes.get_mut(partition as usize) else {
            return Err(AppendError::NoPartition { got: partition, partitions });
        };
        if got > self.limits.record_bytes || record.meta.len() > usize::from(u16::MAX) {
            let most = if got > self.limits.record_bytes { self.limits.record_bytes } else { usize::from(u16::MAX) };
            return Err(AppendError::TooLong { got, most });
        }
        let cost = record_bytes(got);
        if self.batch.len() - self.batch_copies + cost > self.limits.batch_bytes {
            return Err(AppendError::CommitFirst);
        }
        if left < cost as u64 + keep {
            return Err(AppendError::NoSpace { left, reserve: keep });
        }
        let bytes = lane.line.bytes() + lane.waiting_bytes;
        if keep > 0 && bytes + cost as u64 > self.limits.partition_bytes {
            let (partition, limit) = (record.partition, self.limits.partition_bytes);
            return Err(AppendError::PartitionFull { partition, bytes, limit });
        }
        if lane.next > SEQUENCE_MAX {
            return Err(AppendError::NoSequence);
        }
        let sequence = lane.next;
        lane.next += 1;
        lane.waiting_bytes += cost as u64;
        put_record(&mut self.batch, Entry::Data(record.kind), partition, sequence, record.meta, record.frame);
        touch(&mut self.changed, lane, partition);
        Ok(RecordId { partition: record.partition, sequence })
    }

    /// Says that every record of the partition up to `upto` is done with. Durable, and its space free, with the next
    /// commit. Going back is ignored.
    ///
    /// # Panics
    /// If there is no such record or partition: that is a mistake of the caller's.
    pub fn release(&mut self, partition: PartitionId, upto: u64) {
        let lane = &mut self.lanes[partition.0 as usize];
        assert!(upto < lane.next, "partition {partition}: release up to {upto}, and {} is the next", lane.next);
        if upto <= lane.released {
            return;
        }
        lane.released = upto;
        if lane.marks > 0 {
            // Marks that follow on are passed at once; those passed are no longer needed.
            while self.marks.remove(&(partition.0, lane.released + 1)) {
                lane.released += 1;
                lane.marks -= 1;
            }
            let (before, released) = (self.marks.len(), lane.released);
            self.marks.retain(|&(of, sequence)| of != partition.0 || sequence > released);
            lane.marks -= (before - self.marks.len()) as u32;
        }
        touch(&mut self.changed, lane, partition.0);
    }

    /// Says that one record is done with, out of its turn: an acknowledged shadow behind one that is not. Durable with
    /// the next commit. False when as many marks wait for a commit, or are alive, as there is room for: the record then
    /// stays, and is read again after a crash.
    ///
    /// # Panics
    /// If there is no such record or partition.
    pub fn mark(&mut self, id: RecordId) -> bool {
        let lane = &mut self.lanes[id.partition.0 as usize];
        assert!(id.sequence < lane.next, "{id:?} is not there, {} is the next", lane.next);
        if id.sequence <= lane.released {
            return true;
        }
        if id.sequence == lane.released + 1 {
            self.release(id.partition, id.sequence);
            return true;
        }
        let mark = (id.partition.0, id.sequence);
        if self.marks.contains(&mark) {
            return true;
        }
        if self.new_marks.len() == self.limits.marks_a_commit() || self.marks.len() >= self.limits.marks {
            return false;
        }
        self.marks.insert(mark);
        self.new_marks.push(mark);
        lane.marks += 1;
        true
    }

    /// Hands back what waits for a commit, in order, and forgets it: after a commit that failed for good.
    pub fn take_back(&mut self, mut each: impl FnMut(Stored<'_>)) {
        let mut at = 0;
        while at < self.batch.len() {
            let header = own_header(&self.batch[at..]);
            if let Entry::Data(kind) = header.entry
                && header.sequence > self.lanes[header.partition as usize].high
            {
                let payload = &self.batch[at + RECORD_HEADER..][..header.length as usize];
                each(stored(&header, kind, payload));
            }
            at += header.record_bytes();
        }
        self.batch.clear();
        self.batch_copies = 0;
        self.copying = None;
        self.gather_unproven();
        for lane in &mut self.lanes {
            lane.next = lane.high.max(lane.released) + 1;
            lane.waiting_bytes = 0;
        }
        let (lanes, marks) = (&mut self.lanes, &mut self.marks);
        self.new_marks.retain(|mark| {
            let lane = &mut lanes[mark.0 as usize];
            let stays = mark.1 < lane.next;
            if !stays && marks.remove(mark) {
                lane.marks -= 1;
            }
            stays
        });
    }

    /// How far a partition is.
    ///
    /// # Panics
    /// If there is no such partition.
    #[must_use]
    pub fn partition(&self, partition: PartitionId) -> PartitionState {
        let lane = &self.lanes[partition.0 as usize];
        PartitionState {
            released: lane.released,
            committed: lane.high,
            appended: lane.next - 1,
            records: lane.line.records(),
            bytes: lane.line.bytes(),
        }
    }

    /// Records of a partition that are marked: done with, though not all before them are.
    ///
    /// # Panics
    /// If there is no such partition.
    #[must_use]
    pub fn marked(&self, partition: PartitionId) -> u64 {
        self.lanes[partition.0 as usize].marks.into()
    }

    /// Committed records of all partitions that are neither done with nor lost.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.line.records()).sum()
    }

    /// Whether anything waits for a commit.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        !self.batch.is_empty() || !self.changed.is_empty() || !self.new_marks.is_empty()
    }

    /// How much room there is.
    #[must_use]
    pub fn room(&self) -> Room {
        let (left_bytes, kept_bytes) = (self.left_bytes(), self.kept_bytes());
        Room {
            left_bytes,
            kept_bytes,
            used_bytes: self.files_bytes,
            only_reserve: left_bytes < kept_bytes + self.limits.record_bytes_max() as u64,
            volume_full: self.full_wait > 0,
        }
    }

    /// What happened since open.
    #[must_use]
    pub fn counts(&self) -> SpillCounts {
        self.counts
    }

    /// Hands over what turned out to be lost since the last call; at most 1,024 ranges wait, `counts().lost` is exact.
    pub fn take_lost(&mut self, each: impl FnMut(Lost)) {
        self.lost.drain(..).for_each(each);
    }

    /// Bytes of memory, sized at open.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Option<Segment<D::File>>>()
            + self.lanes.iter().map(|lane| size_of::<Lane>() + lane.line.memory_bytes()).sum::<usize>()
            + self.changed.capacity() * size_of::<u32>()
            + self.batch.capacity()
            + self.scratch.capacity()
            + (self.marks.capacity() + self.new_marks.capacity()) * size_of::<format::Mark>()
            + self.lost.capacity() * size_of::<Lost>()
            + self.scanner.memory_bytes()
    }

    /// Bytes of log that can still be written, beyond what waits for a commit and what the last cursors need.
    fn left_bytes(&self) -> u64 {
        let tail = self.active_segment().map_or(0, |segment| {
            let used = segment.end + (self.limits.control_bytes_max() + self.limits.record_bytes_max()) as u64;
            segment.size.saturating_sub(used)
        });
        (tail + self.room_beyond).saturating_sub(self.batch.len() as u64 + self.limits.cursor_room())
    }

    /// What [`Spill::append`] leaves alone: the reserve, and a segment to copy forward into, without which nothing
    /// would come free again.
    fn kept_bytes(&self) -> u64 {
        self.limits.reserve_bytes + self.limits.segment_room()
    }

    fn active_segment(&self) -> Option<&Segment<D::File>> {
        self.newest.filter(|_| self.active).and_then(|slot| self.slots[slot as usize].as_ref())
    }

    /// Takes settled records that cannot be read out of the line, and counts them.
    fn lose(&mut self, partition: u32, first: u64, last: u64) {
        let slots = &mut self.slots;
        let mut gone = 0;
        self.lanes[partition as usize].line.cut(first, last, |freed| {
            gone += freed.records;
            free(slots, freed);
        });
        self.counts.lost += gone;
        if gone > 0 && self.lost.len() < LOST_NAMED {
            self.lost.push(Lost { partition, first, last });
        }
    }
}

/// The lane of a record on disk; `None`: its payload is damaged, so it was never counted, and there is no such partition.
fn lane_of<'a>(lanes: &'a [Lane], header: &format::Header) -> Option<&'a Lane> {
    lanes.get(header.partition as usize)
}

fn touch(changed: &mut Vec<u32>, lane: &mut Lane, partition: u32) {
    if !lane.touched {
        lane.touched = true;
        changed.push(partition);
    }
}

fn stored<'a>(header: &format::Header, kind: Kind, payload: &'a [u8]) -> Stored<'a> {
    let (meta, frame) = payload.split_at(usize::from(header.meta));
    let partition = PartitionId(header.partition);
    Stored { id: RecordId { partition, sequence: header.sequence }, record: Record { partition, kind, meta, frame } }
}

/// An error with what was tried on which file.
fn failed(operation: &'static str, path: &Path, error: io::Error) -> CommitWhy {
    CommitWhy::Io { operation, path: path.to_path_buf(), error }
}
