//! The start: what the survey found becomes a spill, and the commit that a crash left unproven is written anew.

use super::commit::{CommitWhy, Committed};
use super::copy;
use super::disk::{Disk, DiskFile};
use super::format::{self, CORRUPT_END, Entry, NEW_END, SEGMENT_END, id_of};
use super::limits::{self, SpillLimits};
use super::scan::{self, Scanner};
use super::survey::{self, LOST_NAMED, Marks, Recovery, Survey, SurveyError, Verdict};
use super::{Lane, OpenError, Segment, Spill, SpillCounts, lane_of, less, touch};
use crate::units::PartitionId;
use std::collections::VecDeque;
use std::path::Path;

impl<D: Disk> Spill<D> {
    /// Opens the directory, mends what a crash left, and says what is in it.
    ///
    /// The caller holds the directory's lock. On a full volume it opens all the same, so that it can be drained.
    ///
    /// # Errors
    /// [`OpenError`]. Nothing is removed then that holds a record.
    pub fn open(disk: D, dir: &Path, limits: SpillLimits) -> Result<(Spill<D>, Recovery), OpenError> {
        Spill::open_watched(disk, dir, limits, |_| true)
    }

    /// As [`Spill::open`]; `watch` is told the bytes read so far, every record, and stops it with `false`.
    ///
    /// # Errors
    /// [`OpenError`]; [`SurveyError::Stopped`] when told to stop.
    pub fn open_watched(
        mut disk: D,
        dir: &Path,
        limits: SpillLimits,
        watch: impl FnMut(u64) -> bool,
    ) -> Result<(Spill<D>, Recovery), OpenError> {
        limits.check()?;
        let io = SurveyError::io;
        disk.make_dir(dir).map_err(|error| io("making", dir, error))?;
        let mut next_id = 1;
        for name in disk.list(dir).map_err(|error| io("listing", dir, error))? {
            if let Some(id) = [SEGMENT_END, CORRUPT_END, NEW_END].iter().find_map(|end| id_of(&name, end)) {
                next_id = next_id.max(id + 1);
            }
            if id_of(&name, NEW_END).is_some() {
                let path = dir.join(&name);
                disk.remove(&path).map_err(|error| io("removing", &path, error))?;
            }
        }
        let mut scanner = Scanner::new();
        let survey = survey::survey(&mut disk, dir, limits.partitions, true, &mut scanner, watch)?;
        let recovery = survey.recovery.clone();
        let mut spill = Spill::with(disk, dir, limits, scanner, next_id, &survey);
        spill.adopt(survey)?;
        // Without space there is nothing to write to yet; all else is said by the first commit.
        match spill.begin_segment(&mut Committed::default()) {
            Ok(()) | Err(CommitWhy::NoSpace { .. }) => {}
            Err(CommitWhy::Io { operation, path, error }) => {
                return Err(SurveyError::Io { operation, path, error }.into());
            }
        }
        spill.tidy();
        Ok((spill, recovery))
    }

    fn with(
        disk: D,
        dir: &Path,
        limits: SpillLimits,
        scanner: Scanner,
        next_id: u64,
        survey: &Survey<D::File>,
    ) -> Spill<D> {
        let segments = (limits.limit_bytes / limits.segment_bytes) as usize + survey.segments.len();
        let mut lanes = Vec::with_capacity(limits.partitions as usize);
        lanes.resize_with(limits.partitions as usize, Lane::default);
        let scratch = limits.control_bytes_max().max(limits.checkpoint_bytes_max() + format::SEGMENT_HEADER);
        let marks = limits.marks.max(survey.marks.len());
        Spill {
            disk,
            dir: dir.to_path_buf(),
            slots: Vec::with_capacity(segments + 16),
            newest: None,
            active: false,
            unproven: None,
            spares: VecDeque::with_capacity(limits.spares() as usize),
            leftovers: Vec::new(),
            lanes,
            changed: Vec::with_capacity(limits.partitions as usize),
            batch: Vec::with_capacity(limits.batch_bytes + copy::copy_bytes(&limits)),
            batch_copies: 0,
            scratch: Vec::with_capacity(scratch),
            marks: Marks::with_capacity_and_hasher(marks, foldhash::fast::RandomState::default()),
            new_marks: Vec::with_capacity(limits.marks_a_commit()),
            commit: survey.commit,
            next_id,
            scanner,
            copying: None,
            lost: Vec::with_capacity(LOST_NAMED),
            counts: SpillCounts::default(),
            files_bytes: 0,
            full_wait: 0,
            room_beyond: 0,
            limits,
        }
    }

    /// Takes over what was found: sets garbage aside, removes what is empty, cuts the last segment's torn tail.
    fn adopt(&mut self, survey: Survey<D::File>) -> Result<(), OpenError> {
        let io = SurveyError::io;
        let mut renamed = false;
        for segment in survey.segments {
            let path = self.dir.join(&segment.name);
            match segment.verdict {
                Verdict::Good => {
                    let Segments { id, file, size, end, records, bytes } = Segments::of(segment);
                    self.files_bytes += size;
                    self.newest = Some(self.slots.len() as u32);
                    self.slots.push(Some(Segment { id, path, file, size, end, records, bytes }));
                    continue;
                }
                Verdict::Empty => self.disk.remove(&path).map_err(|error| io("removing", &path, error))?,
                Verdict::Garbage => {
                    let aside = self.dir.join(format::file_name(segment.id, CORRUPT_END));
                    self.disk.rename(&path, &aside).map_err(|error| io("renaming", &path, error))?;
                }
            }
            renamed = true;
            self.slots.push(None);
        }
        if renamed {
            self.disk.sync_dir(&self.dir).map_err(|error| io("syncing", &self.dir, error))?;
        }
        if let Some(last) = self.newest.and_then(|slot| self.slots[slot as usize].as_mut()) {
            // What was found there is about to be vouched for by a checkpoint, so it must be on the disk and not only in
            // the page cache; what comes behind it must never be taken for a record.
            last.file.truncate(last.end).map_err(|error| io("cutting", &last.path, error))?;
            last.file.sync().map_err(|error| io("syncing", &last.path, error))?;
            less(&mut self.files_bytes, last.size - last.end);
            last.size = last.end;
        }
        let runs = self.slots.len() + (self.limits.limit_bytes / self.limits.segment_bytes) as usize;
        for (partition, lane) in self.lanes.iter_mut().enumerate() {
            if let Some(found) = survey.found.get(partition) {
                let (high, proven, released) = (found.high, found.proven, found.released);
                *lane = Lane { line: found.line.clone(), high, proven, released, ..Lane::default() };
            }
            lane.next = lane.high.max(lane.released) + 1;
            lane.line.reserve(runs + 2);
        }
        for &(partition, _) in &survey.marks {
            self.lanes[partition as usize].marks += 1;
        }
        self.marks.extend(survey.marks);
        self.unproven = survey.tail;
        self.gather_unproven();
        Ok(())
    }

    /// Puts what is alive of the unproven commit in front of the batch.
    pub(super) fn gather_unproven(&mut self) {
        let Some((slot, mut at)) = self.unproven else { return };
        loop {
            let segment = self.slots[slot as usize].as_ref().expect("it is removed only after it was written anew");
            let lanes = &self.lanes;
            let live = |header: &format::Header| {
                matches!(header.entry, Entry::Data(_))
                    && lane_of(lanes, header).is_some_and(|lane| lane.line.slot_of(header.sequence) == Some(slot))
            };
            match self.scanner.step(&segment.file, segment.id, at, segment.end, live) {
                scan::Step::Record { header, at: place, next } => {
                    if live(&header) {
                        self.push_copy(&header, place);
                    }
                    at = next;
                }
                scan::Step::Damaged { next, .. } => at = next,
                scan::Step::End { .. } => break,
            }
        }
        for (partition, lane) in self.lanes.iter_mut().enumerate() {
            if lane.high != lane.proven {
                touch(&mut self.changed, lane, partition as u32);
            }
        }
    }
}

/// What is kept of a surveyed segment.
struct Segments<F> {
    id: u64,
    file: F,
    size: u64,
    end: u64,
    records: u64,
    bytes: u64,
}

impl<F> Segments<F> {
    fn of(found: survey::Surveyed<F>) -> Segments<F> {
        let survey::Surveyed { id, file, size, end, records, bytes, .. } = found;
        Segments { id, file, size, end, records, bytes }
    }
}

/// What `fencepost spill verify` says of a directory, read and not touched.
///
/// # Errors
/// [`SurveyError`].
pub fn verify<D: Disk>(
    disk: &mut D,
    dir: &Path,
    watch: impl FnMut(u64) -> bool,
) -> Result<(Recovery, Vec<PartitionFound>), SurveyError> {
    let mut scanner = Scanner::new();
    let survey = survey::survey(disk, dir, *limits::PARTITIONS.end(), false, &mut scanner, watch)?;
    let found = survey.found.iter().enumerate().filter(|(_, found)| found.high > 0);
    let rows = found.map(|(partition, found)| PartitionFound {
        partition: PartitionId(partition as u32),
        released: found.released,
        committed: found.high,
        records: found.line.records(),
        bytes: found.line.bytes(),
    });
    let rows = rows.collect();
    Ok((survey.recovery, rows))
}

/// One partition of a directory that was verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionFound {
    /// Which.
    pub partition: PartitionId,
    /// Done with up to here.
    pub released: u64,
    /// Committed up to here.
    pub committed: u64,
    /// Records to be drained.
    pub records: u64,
    /// Their bytes on disk.
    pub bytes: u64,
}
