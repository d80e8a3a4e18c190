//! Reading a partition in its order. Nothing is done with until it is released: a refused delivery is read again.

use super::disk::Disk;
use super::format::{Entry, Header};
use super::scan::Step;
use super::{Hint, Kind, Spill, Stored, stored};
use crate::units::PartitionId;

/// How much one call may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Records to hand over.
    pub records: usize,
    /// Bytes of metadata and frames; the last record may go beyond.
    pub bytes: usize,
    /// Bytes of log to step over, other partitions' records included. It bounds the time of one call.
    pub scanned: u64,
}

impl Default for Budget {
    /// 1,024 records, 256 KiB, 4 MiB of log.
    fn default() -> Budget {
        Budget { records: 1_024, bytes: 256 << 10, scanned: 4 << 20 }
    }
}

/// How a read ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadDone {
    /// Where the next read goes on.
    pub next: u64,
    /// Records handed over.
    pub records: usize,
    /// Records before `next` left out, since they are marked; to the last committed one when there are no more.
    pub marked: usize,
    /// Whether there may be more that is committed.
    pub more: bool,
}

/// Where a record is.
pub(super) enum Sought {
    /// Here; its payload is the scanner's.
    Found {
        /// Its header.
        header: Header,
        /// What it is.
        kind: Kind,
        /// Where it begins.
        at: u64,
    },
    /// There is none from there on.
    Gone,
    /// Not found yet; the next call goes on where this one ended.
    Pause,
}

impl<D: Disk> Spill<D> {
    /// Hands over the committed records of a partition from sequence `from` on, in order. What is marked or lost is left
    /// out. Reading changes nothing that is durable.
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn read(
        &mut self,
        partition: PartitionId,
        from: u64,
        budget: Budget,
        mut each: impl FnMut(Stored<'_>),
    ) -> ReadDone {
        let lane = &self.lanes[partition.0 as usize];
        let first = from.max(lane.released + 1);
        let mut done = ReadDone { next: first, records: 0, marked: 0, more: true };
        let (mut bytes, mut scanned) = (0, budget.scanned);
        while done.records < budget.records && bytes < budget.bytes {
            match self.seek(partition.0, done.next, &mut scanned) {
                Sought::Found { header, kind, at } => {
                    done.next = header.sequence + 1;
                    let marks = self.lanes[partition.0 as usize].marks;
                    if marks > 0 && self.marks.contains(&(partition.0, header.sequence)) {
                        continue;
                    }
                    bytes += header.length as usize;
                    done.records += 1;
                    each(stored(&header, kind, self.scanner.payload(at, &header)));
                }
                Sought::Gone => {
                    done.more = false;
                    break;
                }
                Sought::Pause => break,
            }
        }
        let lane = &self.lanes[partition.0 as usize];
        if lane.marks > 0 {
            // Also those whose records have left the line: they are not there, and not lost.
            let passed = first..if done.more { done.next } else { lane.high + 1 };
            let marked = self.marks.iter().filter(|(of, sequence)| *of == partition.0 && passed.contains(sequence));
            done.marked = marked.count();
        }
        done
    }

    /// Hands over the newest committed record of a partition, marked or not, if it can be read: one look at its place.
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn read_newest(&mut self, partition: PartitionId, each: impl FnOnce(Stored<'_>)) {
        let Some(run) = self.lanes[partition.0 as usize].line.runs().back().copied() else { return };
        let segment = self.slots[run.slot as usize].as_ref().expect("a run lies in a segment that is there");
        let ours = |header: &Header| (header.partition, header.sequence) == (partition.0, run.last);
        if let Step::Record { header, at, .. } =
            self.scanner.step(&segment.file, segment.id, run.end, segment.end, ours)
            && ours(&header)
            && let Entry::Data(kind) = header.entry
        {
            each(stored(&header, kind, self.scanner.payload(at, &header)));
        }
    }

    /// The first live record of the partition from `from` on. Those that should be there and are not are lost.
    pub(super) fn seek(&mut self, partition: u32, from: u64, scanned: &mut u64) -> Sought {
        loop {
            let lane = &self.lanes[partition as usize];
            let Some(run) = lane.line.run_at_or_after(from).copied() else { return Sought::Gone };
            let wanted = from.max(run.first);
            let segment = self.slots[run.slot as usize].as_ref().expect("a run lies in a segment that is there");
            let (id, hint) = (segment.id, lane.hint);
            // Only within one run do offsets rise with the sequences.
            let known = (hint.segment, hint.run, hint.sequence) == (id, run.start, wanted);
            let mut at = if known { hint.at } else { run.start };
            loop {
                if *scanned == 0 {
                    self.lanes[partition as usize].hint = Hint { segment: id, run: run.start, sequence: wanted, at };
                    return Sought::Pause;
                }
                let ours = |header: &Header| {
                    header.partition == partition
                        && (wanted..=run.last).contains(&header.sequence)
                        && matches!(header.entry, Entry::Data(_))
                };
                match self.scanner.step(&segment.file, id, at, segment.end, ours) {
                    Step::Record { header, at: place, next } => {
                        *scanned = scanned.saturating_sub(next - place);
                        at = next;
                        let Entry::Data(kind) = header.entry else { continue };
                        if !ours(&header) {
                            continue;
                        }
                        if header.sequence > wanted {
                            self.lose(partition, wanted, header.sequence - 1);
                        }
                        let sequence = header.sequence + 1;
                        self.lanes[partition as usize].hint = Hint { segment: id, run: run.start, sequence, at };
                        return Sought::Found { header, kind, at: place };
                    }
                    Step::Damaged { at: place, next, .. } => {
                        *scanned = scanned.saturating_sub(next - place);
                        at = next;
                    }
                    Step::End { .. } => {
                        self.lose(partition, wanted, run.last);
                        break;
                    }
                }
            }
        }
    }
}
