//! Reads a directory of segments and says what is alive in it, what is lost, and what never was settled. Changes nothing.
//!
//! Sequences of a partition have no gaps, so a loss is a gap between what was released and what was committed, whatever
//! else is damaged. What was committed is known from three sides: a commit's closing record; any byte of a later commit
//! (it is begun only after the earlier one's sync); and the checkpoint a later segment opens with, which has the last
//! word on everything before it. Records that none of them vouches for are unsettled: of these each partition keeps
//! those that follow on without a gap, since they may as well be there, and none behind a gap, since order matters more.

use super::disk::{Disk, DiskFile};
use super::format::{
    Cursor, Entry, Header, Mark, SEGMENT_END, SEGMENT_HEADER, SegmentHeader, id_of, read_control, read_segment_header,
};
use super::line::{Freed, Line};
use super::scan::{Scanner, Step};
use foldhash::fast::RandomState;
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

/// Ranges of lost sequences that are named; beyond that they are only counted.
pub const LOST_NAMED: usize = 1_024;

/// Marks, in memory.
pub type Marks = HashSet<Mark, RandomState>;

/// Sequences of a partition that were settled and that the disk no longer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Whose.
    pub partition: u32,
    /// The first.
    pub first: u64,
    /// The last.
    pub last: u64,
}

/// What a directory holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Segments that hold records.
    pub segments: u64,
    /// Records that are there and to be drained.
    pub records: u64,
    /// Their bytes on disk.
    pub bytes: u64,
    /// Settled records that the disk lost: exact, unless a segment in `quarantined` was the newest.
    pub lost: u64,
    /// Which; at most [`LOST_NAMED`] ranges.
    pub lost_ranges: Vec<Lost>,
    /// Places where bytes were not what they should be.
    pub damaged: u64,
    /// Pages that could not be read.
    pub unreadable_pages: u64,
    /// Bytes of a write that a crash cut short. Nothing in them was settled.
    pub torn_bytes: u64,
    /// Records nobody was told are settled, and that are there all the same; part of `records`.
    pub unsettled_kept: u64,
    /// Records nobody was told are settled, behind a gap, and so left out.
    pub unsettled_dropped: u64,
    /// Files without one record that is whole. They keep their bytes, as `.corrupt`.
    pub quarantined: Vec<String>,
    /// Files with nothing in them, removed.
    pub removed: u64,
    /// Bytes of segments that were read.
    pub read_bytes: u64,
}

impl Recovery {
    /// Settled, or maybe settled, by an earlier run: what is there and what is lost. The `recovered` of the sum of all
    /// triggers, of which `lost` are `corrupt`.
    #[must_use]
    pub fn recovered(&self) -> u64 {
        self.records.saturating_add(self.lost)
    }

    /// Whether there was not one file of a segment.
    #[must_use]
    pub fn has_no_files(&self) -> bool {
        self.segments == 0 && self.removed == 0 && self.quarantined.is_empty()
    }

    /// Whether the disk kept its word.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.lost == 0 && self.damaged == 0 && self.unreadable_pages == 0 && self.quarantined.is_empty()
    }
}

/// Why a directory cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    /// The file system said no.
    #[error("spill: {operation} {path:?}: {error}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A later version wrote it.
    #[error("spill: {path:?} has format {got}, this program knows {known}: drain it with the version that wrote it")]
    Version {
        /// Which file.
        path: PathBuf,
        /// Its version.
        got: u16,
        /// Ours.
        known: u16,
    },
    /// It holds records of a partition that is not there.
    #[error(
        "spill: {path:?} holds records of partition {got}, and the topic has {partitions}: \
         the directory belongs to another topic, or the partition count was pinned anew"
    )]
    Partition {
        /// Which file.
        path: PathBuf,
        /// The partition.
        got: u32,
        /// How many there are.
        partitions: u32,
    },
    /// Whoever watched said stop.
    #[error("spill: stopped while reading the directory")]
    Stopped,
}

impl SurveyError {
    pub(super) fn io(operation: &'static str, path: &Path, error: io::Error) -> SurveyError {
        SurveyError::Io { operation, path: path.to_path_buf(), error }
    }
}

/// One partition, as found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Its live records.
    pub line: Line,
    /// Done with up to here.
    pub released: u64,
    /// Committed up to here.
    pub high: u64,
    /// Up to here, something written later proves that it was synced.
    pub proven: u64,
}

/// What to do with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds records, or cursors.
    Good,
    /// It holds nothing.
    Empty,
    /// It holds bytes, and no record.
    Garbage,
}

/// One file, as found.
pub struct Surveyed<F> {
    /// The segment's number, from its name.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Open.
    pub file: F,
    /// Its length.
    pub size: u64,
    /// Where its records end.
    pub end: u64,
    /// What to do with it.
    pub verdict: Verdict,
    /// Live records in it.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The directory, as found.
pub struct Survey<F> {
    /// In the order of their numbers.
    pub segments: Vec<Surveyed<F>>,
    /// By partition.
    pub found: Vec<Found>,
    /// Records done with out of their turn.
    pub marks: Marks,
    /// The highest commit seen.
    pub commit: u64,
    /// Where the last commit begins, by segment and offset; nothing proves that it was synced.
    pub tail: Option<(u32, u64)>,
    /// The sums.
    pub recovery: Recovery,
    partitions: u32,
    batch: Batch,
    /// The commit that the checkpoint read last belongs to.
    checkpoint: u64,
}

/// What is known about the commit being read.
#[derive(Default)]
struct Batch {
    /// Which it is.
    commit: u64,
    /// Partitions it brought forward, with where they were before.
    before: Vec<(u32, u64)>,
    /// Records of this commit were seen, and its closing record was not.
    open: Option<u64>,
    /// Something in it looks as if it had never reached the disk.
    torn: bool,
    /// Closed, and torn: settled only if a later commit shows up.
    doubtful: Option<(u64, Vec<Cursor>)>,
}

/// Reads all segments of `dir`. `watch` is told the bytes read so far and says whether to go on.
///
/// # Errors
/// [`SurveyError`].
pub fn survey<D: Disk>(
    disk: &mut D,
    dir: &Path,
    partitions: u32,
    to_write: bool,
    scanner: &mut Scanner,
    mut watch: impl FnMut(u64) -> bool,
) -> Result<Survey<D::File>, SurveyError> {
    let names = disk.list(dir).map_err(|error| SurveyError::io("listing", dir, error))?;
    let mut ids: Vec<u64> = names.iter().filter_map(|name| id_of(name, SEGMENT_END)).collect();
    ids.sort_unstable();
    let mut survey = Survey {
        segments: Vec::with_capacity(ids.len()),
        found: Vec::new(),
        marks: Marks::default(),
        commit: 0,
        tail: None,
        recovery: Recovery::default(),
        partitions,
        batch: Batch::default(),
        checkpoint: 0,
    };
    for id in ids {
        let name = super::format::file_name(id, SEGMENT_END);
        let path = dir.join(&name);
        let file = disk.open(&path, to_write).map_err(|error| SurveyError::io("opening", &path, error))?;
        let size = file.bytes().map_err(|error| SurveyError::io("measuring", &path, error))?;
        let (end, verdict, records, bytes) = (size, Verdict::Empty, 0, 0);
        survey.segments.push(Surveyed { id, name, file, size, end, verdict, records, bytes });
        survey.segment(&path, scanner, &mut watch)?;
    }
    survey.finish();
    survey.recovery.unreadable_pages = scanner.unreadable_pages;
    Ok(survey)
}

impl<F: DiskFile> Survey<F> {
    /// Reads the segment that was pushed last.
    fn segment(
        &mut self,
        path: &Path,
        scanner: &mut Scanner,
        watch: &mut impl FnMut(u64) -> bool,
    ) -> Result<(), SurveyError> {
        let slot = self.segments.len() - 1;
        let (id, size) = (self.segments[slot].id, self.segments[slot].size);
        if size == 0 {
            return Ok(());
        }
        let mut front = [0; SEGMENT_HEADER];
        // A front that cannot be read is a damaged one.
        let got = self.segments[slot].file.read_at(&mut front, 0).unwrap_or(0);
        let header = read_segment_header(&front[..got]);
        if let SegmentHeader::OtherVersion(got) = header {
            let path = path.to_path_buf();
            return Err(SurveyError::Version { path, got, known: super::format::VERSION });
        }
        let good_header = header == SegmentHeader::Good(id);
        let (mut at, mut records, mut damaged) = (SEGMENT_HEADER as u64, 0_u64, 0);
        let junk = loop {
            match scanner.step(&self.segments[slot].file, id, at, size, |_| true) {
                Step::Record { header, at: place, next } => {
                    records += 1;
                    self.record(path, slot, &header, place, scanner)?;
                    at = next;
                }
                Step::Damaged { next, torn, .. } => {
                    damaged += 1;
                    self.batch.torn |= torn;
                    at = next;
                }
                Step::End { at: end, junk } => {
                    at = end;
                    break junk;
                }
            }
            if !watch(self.recovery.read_bytes + at) {
                return Err(SurveyError::Stopped);
            }
        };
        self.recovery.read_bytes += size;
        let segment = &mut self.segments[slot];
        segment.end = at.min(size);
        segment.verdict = if records > 0 {
            Verdict::Good
        } else if junk == 0 && damaged == 0 && (good_header || front[..got].iter().all(|&byte| byte == 0)) {
            Verdict::Empty
        } else {
            Verdict::Garbage
        };
        if records > 0 {
            self.recovery.damaged += damaged + u64::from(!good_header);
            self.recovery.torn_bytes += junk;
        }
        Ok(())
    }

    fn record(
        &mut self,
        path: &Path,
        slot: usize,
        header: &Header,
        at: u64,
        scanner: &Scanner,
    ) -> Result<(), SurveyError> {
        self.commit = self.commit.max(header.commit);
        if let Some((commit, cursors)) = self.batch.doubtful.take_if(|(commit, _)| *commit < header.commit) {
            debug_assert!(commit < header.commit);
            for cursor in cursors {
                let found = grown(&mut self.found, path, cursor.partition, self.partitions)?;
                found.high = found.high.max(cursor.high);
            }
        }
        if self.batch.open.is_some_and(|open| open < header.commit) {
            // Its closing record is damaged, and a later commit shows that it was synced: all that is there of it counts.
            if !matches!(header.entry, Entry::Checkpoint { .. }) {
                for found in &mut self.found {
                    found.high = found.high.max(found.line.last());
                }
            }
            (self.batch.open, self.batch.torn) = (None, false);
        }
        if !matches!(header.entry, Entry::Checkpoint { .. }) && self.batch.commit != header.commit {
            self.batch.commit = header.commit;
            self.batch.before.clear();
            self.tail = Some((slot as u32, at));
        }
        match header.entry {
            Entry::Data(_) => {
                self.batch.open = Some(header.commit);
                let segments = &mut self.segments;
                let bytes = header.record_bytes() as u64;
                let found = grown(&mut self.found, path, header.partition, self.partitions)?;
                if header.sequence > found.released {
                    segments[slot].records += 1;
                    segments[slot].bytes += bytes;
                    found.line.place(header.sequence, slot as u32, at, bytes, |gone| free(segments, gone));
                }
            }
            Entry::Commit => {
                let Some((cursors, marks)) = read_control(scanner.payload(at, header)) else {
                    self.recovery.damaged += 1;
                    return Ok(());
                };
                self.marks.extend(marks);
                let mut doubtful = Vec::new();
                for cursor in cursors {
                    let found = grown(&mut self.found, path, cursor.partition, self.partitions)?;
                    found.released = found.released.max(cursor.released);
                    if self.batch.torn {
                        doubtful.push(cursor);
                    } else {
                        self.batch.before.push((cursor.partition, found.high));
                        found.high = found.high.max(cursor.high);
                    }
                }
                self.batch.doubtful = self.batch.torn.then_some((header.commit, doubtful));
                (self.batch.open, self.batch.torn) = (None, false);
            }
            Entry::Checkpoint { .. } => {
                let Some((cursors, marks)) = read_control(scanner.payload(at, header)) else {
                    self.recovery.damaged += 1;
                    return Ok(());
                };
                // Behind the end of an earlier segment a failed commit may have left its marks and cursors.
                if self.checkpoint != header.commit {
                    self.checkpoint = header.commit;
                    self.marks.clear();
                }
                self.marks.extend(marks);
                for cursor in cursors {
                    let found = grown(&mut self.found, path, cursor.partition, self.partitions)?;
                    (found.released, found.high) = (cursor.released, cursor.high);
                    let segments = &mut self.segments;
                    cut_behind(&mut found.line, cursor.high, |gone| free(segments, gone));
                }
                self.batch = Batch::default();
                self.tail = None;
            }
        }
        Ok(())
    }

    /// Nothing comes after: settle what is open, drop what is done with, count what is missing.
    fn finish(&mut self) {
        let recovery = &mut self.recovery;
        let mut marked: Vec<Mark> = self.marks.iter().copied().collect();
        marked.sort_unstable();
        for found in &mut self.found {
            found.proven = found.high;
        }
        for &(partition, before) in &self.batch.before {
            self.found[partition as usize].proven = before;
        }
        for (partition, found) in self.found.iter_mut().enumerate() {
            let partition = partition as u32;
            let segments = &mut self.segments;
            found.high = found.high.max(found.released);
            found.proven = found.proven.max(found.released);
            found.line.cut(0, found.released, |gone| free(segments, gone));
            let mut high = found.high;
            for run in found.line.runs() {
                if run.last > high && run.first <= high + 1 {
                    high = run.last;
                }
            }
            recovery.unsettled_kept += high - found.high;
            found.high = high;
            cut_behind(&mut found.line, high, |gone| {
                recovery.unsettled_dropped += gone.records;
                free(segments, gone);
            });
            let marks = &marked[marked.partition_point(|mark| *mark <= (partition, found.released))
                ..marked.partition_point(|mark| *mark <= (partition, high))];
            for &(_, sequence) in marks {
                found.line.cut(sequence, sequence, |gone| free(segments, gone));
            }
            let mut marks = marks.iter().map(|&(_, sequence)| sequence).peekable();
            let mut next = found.released + 1;
            let ends = found.line.runs().iter().map(|run| (run.first, run.last)).chain([(high + 1, high)]);
            for (first, last) in ends {
                // From `next` up to `first` nothing is there; what of it is marked is not missing.
                while next < first {
                    let stop = marks.next_if(|&mark| mark < first);
                    let missing = stop.unwrap_or(first) - next;
                    if missing > 0 {
                        recovery.lost = recovery.lost.saturating_add(missing);
                        if recovery.lost_ranges.len() < LOST_NAMED {
                            recovery.lost_ranges.push(Lost { partition, first: next, last: next + missing - 1 });
                        }
                    }
                    next = stop.map_or(first, |mark| mark + 1);
                }
                next = last + 1;
            }
            recovery.records += found.line.records();
            recovery.bytes += found.line.bytes();
        }
        self.marks.retain(|&(partition, sequence)| {
            self.found
                .get(partition as usize)
                .is_some_and(|found| (found.released + 1..=found.high).contains(&sequence))
        });
        for segment in &self.segments {
            match segment.verdict {
                Verdict::Good => recovery.segments += 1,
                Verdict::Empty => recovery.removed += 1,
                Verdict::Garbage => recovery.quarantined.push(segment.name.clone()),
            }
        }
    }
}

fn grown<'a>(
    found: &'a mut Vec<Found>,
    path: &Path,
    partition: u32,
    partitions: u32,
) -> Result<&'a mut Found, SurveyError> {
    if partition >= partitions {
        return Err(SurveyError::Partition { path: path.to_path_buf(), got: partition, partitions });
    }
    let index = partition as usize;
    if index >= found.len() {
        found.resize_with(index + 1, Found::default);
    }
    Ok(&mut found[index])
}

fn free<F>(segments: &mut [Surveyed<F>], gone: Freed) {
    let segment = &mut segments[gone.slot as usize];
    segment.records -= gone.records;
    segment.bytes -= gone.bytes;
}

/// Cuts all above `high`.
fn cut_behind(line: &mut Line, high: u64, freed: impl FnMut(Freed)) {
    if let Some(first) = high.checked_add(1) {
        line.cut(first, u64::MAX, freed);
    }
}
