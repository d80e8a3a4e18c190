//! Copying forward: live records of a mostly dead segment move to the newest one, so that its space comes free and a
//! partition that is away for days pins nobody's. Copies ride on the commits: no sync of their own.
//!
//! A copied record keeps its sequence. Until the copy's commit is durable the old one counts; after it the new one does,
//! and the old segment goes when nothing in it is alive. A line that is scattered over very many runs is gathered in the
//! same way, its lightest neighbours first.

use super::disk::Disk;
use super::format::{Entry, Header, put_record, record_bytes};
use super::read::Sought;
use super::scan::Step;
use super::{Lane, Spill, SpillLimits, lane_of};

/// Bytes of log that one commit steps over in search of live records.
const SCANNED_A_COMMIT: u64 = 4 << 20;
/// Runs that are gathered into one at a time.
const GATHERED: usize = 16;

/// Bytes of copies that one commit takes, at most.
pub fn copy_bytes(limits: &SpillLimits) -> usize {
    ((limits.segment_bytes / 8) as usize).min(1 << 20).max(limits.record_bytes_max())
}

/// What is being copied.
#[derive(Clone, Copy, Debug)]
pub enum Copying {
    /// All that is alive in a segment, from `at` on.
    Segment { slot: u32, at: u64, end: bool },
    /// Records `next..=last` of a partition.
    Line { partition: u32, next: u64, last: u64 },
}

impl Copying {
    /// The segment that must stay for it.
    pub fn slot(&self) -> Option<u32> {
        match *self {
            Copying::Segment { slot, .. } => Some(slot),
            Copying::Line { .. } => None,
        }
    }
}

impl<D: Disk> Spill<D> {
    /// Adds copies to the batch, as many as one commit takes.
    pub(super) fn copy_forward(&mut self) {
        if self.batch_copies > 0 {
            return; // Those of a commit that failed still wait.
        }
        if let Some(Copying::Segment { slot, end: true, .. }) = self.copying {
            self.give_up_on_rest(slot);
            self.copying = None;
        }
        if self.copying.is_none() {
            self.copying = self.scattered();
            if self.copying.is_some() {
                // A segment never holds a record twice, or a reader could take the dead one's place for a gap: what is
                // gathered may lie in the active segment, so it goes to the next.
                self.seal();
            } else {
                self.copying = self.victim();
            }
        }
        let mut scanned = SCANNED_A_COMMIT;
        match self.copying {
            Some(Copying::Segment { slot, at, .. }) => self.copy_segment(slot, at, scanned),
            Some(Copying::Line { partition, next, last }) => self.copy_line(partition, next, last, &mut scanned),
            None => {}
        }
    }

    /// A partition whose records lie in too many places.
    fn scattered(&self) -> Option<Copying> {
        let most = 2 * (self.limits.limit_bytes / self.limits.segment_bytes) as usize + GATHERED;
        self.lanes.iter().enumerate().find(|(_, lane)| lane.line.runs().len() > most).and_then(|(partition, lane)| {
            let (next, last) = lane.line.lightest(GATHERED)?;
            Some(Copying::Line { partition: partition as u32, next, last })
        })
    }

    /// The sealed segment that gives most for least, if space is scarce or files are many.
    fn victim(&self) -> Option<Copying> {
        let (left, kept, segment_room) = (self.left_bytes(), self.kept_bytes(), self.limits.segment_room());
        // Half dead will do as long as there is time; later an eighth must.
        let dead_eighths = match left {
            left if left < kept + segment_room => 1,
            left if left < kept + 3 * segment_room => 4,
            _ => 8,
        };
        let files = self.slots.iter().flatten().count() as u64;
        let many = files > 2 * (self.limits.limit_bytes / self.limits.segment_bytes) + 64;
        let sealed = self.slots.iter().enumerate().filter(|&(slot, _)| self.newest != Some(slot as u32));
        let (slot, segment) = sealed
            .filter_map(|(slot, segment)| segment.as_ref().map(|segment| (slot, segment)))
            .filter(|(_, segment)| segment.records > 0)
            .filter(|(_, segment)| many || segment.bytes * 8 <= segment.size * (8 - dead_eighths))
            .min_by_key(|(_, segment)| if many { segment.bytes } else { segment.bytes * 1_024 / segment.size })?;
        let reserve = self.limits.reserve_bytes;
        (left >= reserve + segment.bytes.min(segment_room)).then_some(Copying::Segment {
            slot: slot as u32,
            at: super::format::SEGMENT_HEADER as u64,
            end: false,
        })
    }

    /// Whether one more copy of this size fits this commit, and leaves the reserve alone.
    fn copy_fits(&self, bytes: usize) -> bool {
        self.batch_copies + bytes <= copy_bytes(&self.limits)
            && self.left_bytes() >= self.limits.reserve_bytes + bytes as u64
    }

    fn copy_segment(&mut self, slot: u32, mut at: u64, mut scanned: u64) {
        let mut end = false;
        while scanned > 0 {
            let segment = self.slots[slot as usize].as_ref().expect("a segment being copied stays");
            let lanes = &self.lanes;
            let live = |header: &Header| {
                let is_of =
                    |lane: &Lane| lane.released < header.sequence && lane.line.slot_of(header.sequence) == Some(slot);
                matches!(header.entry, Entry::Data(_)) && lane_of(lanes, header).is_some_and(is_of)
            };
            match self.scanner.step(&segment.file, segment.id, at, segment.end, live) {
                Step::Record { header, at: place, next } => {
                    if live(&header) {
                        if !self.copy_fits(header.record_bytes()) {
                            break;
                        }
                        self.push_copy(&header, place);
                    }
                    scanned = scanned.saturating_sub(next - place);
                    at = next;
                }
                Step::Damaged { at: place, next, .. } => {
                    scanned = scanned.saturating_sub(next - place);
                    at = next;
                }
                Step::End { .. } => {
                    end = true;
                    break;
                }
            }
        }
        self.copying = Some(Copying::Segment { slot, at, end });
    }

    fn copy_line(&mut self, partition: u32, mut next: u64, last: u64, scanned: &mut u64) {
        loop {
            match self.seek(partition, next, scanned) {
                Sought::Found { header, at, .. } if header.sequence <= last => {
                    if !self.copy_fits(header.record_bytes()) {
                        break;
                    }
                    self.push_copy(&header, at);
                    next = header.sequence + 1;
                }
                Sought::Found { .. } | Sought::Gone => {
                    self.copying = None;
                    return;
                }
                Sought::Pause => break,
            }
        }
        self.copying = Some(Copying::Line { partition, next, last });
    }

    pub(super) fn push_copy(&mut self, header: &Header, at: u64) {
        let payload = self.scanner.payload(at, header);
        let (meta, frame) = payload.split_at(usize::from(header.meta));
        put_record(&mut self.batch, header.entry, header.partition, header.sequence, meta, frame);
        self.batch_copies += record_bytes(payload.len());
    }

    /// All that could be read of a segment was copied, and that is durable. What is still said to be alive in it is not
    /// there.
    fn give_up_on_rest(&mut self, slot: u32) {
        for partition in 0..self.lanes.len() {
            // What is released dies with the next commit anyway.
            let released = self.lanes[partition].released;
            while let Some(run) = {
                let mut runs = self.lanes[partition].line.runs().iter();
                runs.find(|run| run.slot == slot && run.last > released).copied()
            } {
                self.lose(partition as u32, run.first.max(released + 1), run.last);
            }
        }
    }
}
