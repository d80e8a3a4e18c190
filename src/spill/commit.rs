//! Commits, and the life of a segment: begun aside and renamed, written by one commit after another, sealed, removed.

use super::disk::{Disk, DiskFile, is_full};
use super::format::{self, Cursor, NEW_END, SEGMENT_END, own_header, put_checkpoint, put_commit, seal_record};
use super::{Leftover, Segment, Spare, Spill, failed, free, less};
use crate::canary::{Canary, is_planted};
use std::io;
use std::path::PathBuf;

/// Segments that one commit tries before it gives up for now.
const ATTEMPTS: u32 = 2;
/// Commits between two questions whether a full volume has space again: 160 ms at the usual pace.
const FULL_WAIT: u32 = 32;

/// What a commit made durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// Records that were appended.
    pub records: u64,
    /// Their bytes on disk.
    pub bytes: u64,
    /// Syncs it took: 1, or 0 when there was nothing to do; more when a segment filled up or failed.
    pub syncs: u32,
    /// Nothing was written though something was released: no space is left, and what is kept for cursors is only spent
    /// where that frees a segment. The release is durable with a later commit.
    pub deferred: bool,
}

/// A commit that did not make everything durable. What is left waits in the batch: commit again, or take it back.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct CommitError {
    /// Why.
    pub why: CommitWhy,
    /// What it made durable before: the oldest part of the batch.
    pub done: Committed,
}

/// Why a commit failed.
#[derive(Debug, thiserror::Error)]
pub enum CommitWhy {
    /// There is no space for another segment.
    #[error(
        "spill: no space for another segment of {segment_bytes} bytes: {used_bytes} of spill.limit = {limit_bytes} are used"
    )]
    NoSpace {
        /// Bytes of a segment.
        segment_bytes: u64,
        /// Bytes of all files.
        used_bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// The disk refused, in more than one segment.
    #[error("spill: {operation} {path:?}: {error}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
}

impl<D: Disk> Spill<D> {
    /// Makes durable what was appended, released and marked since the last commit: one sync for all partitions.
    ///
    /// Also copies live records of mostly dead segments forward when space gets scarce, and removes dead segments.
    ///
    /// # Errors
    /// [`CommitError`]. Nothing is lost: what is not durable still waits.
    pub fn commit(&mut self) -> Result<Committed, CommitError> {
        self.copy_forward();
        let mut done = Committed::default();
        if self.batch.is_empty() && self.new_marks.is_empty() && self.left_bytes() == 0 && !self.frees_a_segment() {
            done.deferred = !self.changed.is_empty();
            self.tidy();
            return Ok(done);
        }
        let outcome = self.write_batch(&mut done);
        self.tidy();
        outcome.map(|()| done).map_err(|why| CommitError { why, done })
    }

    /// Whether some sealed segment has no live record left once what was released is durable.
    fn frees_a_segment(&self) -> bool {
        self.slots.iter().enumerate().any(|(slot, segment)| {
            let sealed = self.newest != Some(slot as u32) && segment.is_some();
            let mut lanes = self.lanes.iter();
            sealed
                && lanes.all(|lane| {
                    let mut runs = lane.line.runs().iter();
                    runs.all(|run| run.slot != slot as u32 || run.last <= lane.released)
                })
        })
    }

    fn write_batch(&mut self, done: &mut Committed) -> Result<(), CommitWhy> {
        let mut failures = 0;
        while self.is_dirty() {
            if !self.active {
                match self.begin_segment(done) {
                    Ok(()) => {}
                    Err(CommitWhy::Io { .. }) if failures + 1 < ATTEMPTS => {
                        failures += 1;
                        continue;
                    }
                    Err(why) => return Err(why),
                }
            }
            if let Err(why) = self.write_part(done) {
                // Nothing is known about what was written since the last good sync, and a second sync would not say: the
                // segment ends where it was, and the records go to another one.
                self.counts.failed_writes += 1;
                self.seal();
                failures += 1;
                if failures == ATTEMPTS {
                    return Err(why);
                }
            }
        }
        Ok(())
    }

    /// Writes as much of the batch as the active segment takes, with the record that closes it, and syncs.
    fn write_part(&mut self, done: &mut Committed) -> Result<(), CommitWhy> {
        let slot = self.newest.expect("a segment is active");
        let segment = self.slots[slot as usize].as_ref().expect("the newest is there");
        let control = format::control_bytes(self.changed.len(), self.new_marks.len());
        let room = (segment.size - segment.end) as usize;
        self.commit += 1;
        let (commit, id, start) = (self.commit, segment.id, segment.end);
        let (prefix, records) = self.seal_batch(commit, id, start, room.saturating_sub(control));
        if control > room || (prefix == 0 && !self.batch.is_empty()) {
            self.seal();
            return Ok(());
        }
        self.scratch.clear();
        self.put_closing(records, commit, id, start + prefix as u64);
        let segment = self.slots[slot as usize].as_mut().expect("the newest is there");
        segment
            .file
            .write_at(&self.batch[..prefix], start)
            .and_then(|()| segment.file.write_at(&self.scratch, start + prefix as u64))
            .map_err(|error| failed("writing", &segment.path, error))?;
        done.syncs += 1;
        self.counts.syncs += 1;
        let mut synced = if is_planted(Canary::SyncLeftOut) { Ok(()) } else { segment.file.sync() };
        if synced.is_err() && is_planted(Canary::SyncRetried) {
            synced = segment.file.sync();
        }
        synced.map_err(|error| failed("syncing", &segment.path, error))?;
        segment.end += (prefix + self.scratch.len()) as u64;
        self.counts.commits += 1;
        self.apply(slot, start, prefix, done);
        Ok(())
    }

    /// Gives the records at the front of the batch their commit and their places, as many as fit `room`: their bytes and
    /// their number.
    fn seal_batch(&mut self, commit: u64, id: u64, start: u64, room: usize) -> (usize, u64) {
        for &partition in &self.changed {
            let lane = &mut self.lanes[partition as usize];
            lane.writing = lane.high;
        }
        let (mut prefix, mut records) = (0, 0);
        while prefix < self.batch.len() {
            let header = own_header(&self.batch[prefix..]);
            let bytes = header.record_bytes();
            if prefix + bytes > room {
                break;
            }
            seal_record(&mut self.batch[prefix..], commit, id, start + prefix as u64);
            let lane = &mut self.lanes[header.partition as usize];
            if header.sequence > lane.high {
                lane.writing = header.sequence;
            }
            prefix += bytes;
            records += 1;
        }
        (prefix, records)
    }

    /// Appends the record that closes the commit to the scratch; it belongs at `at`.
    fn put_closing(&mut self, records: u64, commit: u64, id: u64, at: u64) {
        let start = self.scratch.len();
        let lanes = &self.lanes;
        let cursors = self.changed.iter().map(|&partition| {
            let lane = &lanes[partition as usize];
            Cursor { partition, released: lane.released, high: lane.writing }
        });
        put_commit(&mut self.scratch, records, cursors, self.new_marks.iter().copied());
        seal_record(&mut self.scratch[start..], commit, id, at);
    }

    /// The first `prefix` bytes of the batch are durable at `start`: they are alive now, and what was released is dead.
    fn apply(&mut self, slot: u32, start: u64, prefix: usize, done: &mut Committed) {
        let slots = &mut self.slots;
        let mut at = 0;
        while at < prefix {
            let header = own_header(&self.batch[at..]);
            let bytes = header.record_bytes() as u64;
            let (partition, sequence) = (header.partition, header.sequence);
            let lane = &mut self.lanes[partition as usize];
            let fresh = sequence > lane.high;
            if fresh {
                done.records += 1;
                done.bytes += bytes;
                self.counts.records += 1;
                less(&mut lane.waiting_bytes, bytes);
            } else {
                self.counts.copied += 1;
                self.batch_copies -= bytes as usize;
            }
            // A copy of what was released or lost meanwhile is dead on arrival.
            if fresh || lane.line.slot_of(sequence).is_some() {
                let segment = slots[slot as usize].as_mut().expect("it was written to");
                segment.records += 1;
                segment.bytes += bytes;
                lane.line.place(sequence, slot, start + at as u64, bytes, |gone| free(slots, gone));
            }
            at += bytes as usize;
        }
        for &partition in &self.changed {
            let lane = &mut self.lanes[partition as usize];
            lane.high = lane.writing;
            lane.line.cut(0, lane.released, |gone| free(slots, gone));
        }
        // A mark may be of a record that is only now alive, so marks come last; those whose record still waits stay.
        self.new_marks.retain(|&(partition, sequence)| {
            let lane = &mut self.lanes[partition as usize];
            lane.line.cut(sequence, sequence, |gone| free(slots, gone));
            sequence > lane.high
        });
        if prefix == self.batch.len() {
            self.batch.clear();
            for partition in self.changed.drain(..) {
                self.lanes[partition as usize].touched = false;
            }
        } else {
            self.batch.drain(..prefix);
        }
    }

    /// Ends the active segment where its last commit ended, and gives back what was allocated behind it.
    pub(super) fn seal(&mut self) {
        self.active = false;
        let Some(segment) = self.newest.and_then(|slot| self.slots[slot as usize].as_mut()) else { return };
        match segment.file.truncate(segment.end) {
            Ok(()) => {
                less(&mut self.files_bytes, segment.size - segment.end);
                segment.size = segment.end;
            }
            // The space stays allocated; the next segment's checkpoint says where this one ended.
            Err(_) => self.counts.failed_tidying += 1,
        }
    }

    /// Begins a segment: written aside with every cursor there is, synced, renamed, the directory synced.
    ///
    /// The first one after open also holds the commit that open found last, so that there is no moment at which neither
    /// the old copy nor the new one is vouched for.
    pub(super) fn begin_segment(&mut self, done: &mut Committed) -> Result<(), CommitWhy> {
        let least = self.segment_bytes_least();
        let spare = match self.spares.front() {
            Some(spare) if spare.size >= least => self.spares.pop_front().expect("it is the front"),
            _ => self.allocate_any(least)?,
        };
        let unproven = self.unproven.is_some();
        let Spare { id, path: aside, mut file, size } = spare;
        self.commit += 1;
        self.scratch.clear();
        self.scratch.extend_from_slice(&format::segment_header(id));
        // Twice: when the older segments are gone nothing else says how far each partition is.
        for _ in 0..2 {
            let cursors = self.lanes.iter().enumerate().map(|(partition, lane)| Cursor {
                partition: partition as u32,
                released: lane.released,
                high: if unproven { lane.proven } else { lane.high },
            });
            put_checkpoint(&mut self.scratch, cursors, self.marks.iter().copied());
        }
        let mut at = format::SEGMENT_HEADER;
        while at < self.scratch.len() {
            let bytes = own_header(&self.scratch[at..]).record_bytes();
            seal_record(&mut self.scratch[at..], self.commit, id, at as u64);
            at += bytes;
        }
        let start = self.scratch.len() as u64;
        let (mut prefix, mut end) = (0, start);
        let mut written = file.write_at(&self.scratch, 0);
        if unproven {
            self.commit += 1;
            let room = size.saturating_sub(start) as usize - self.limits.control_bytes_max();
            let records;
            (prefix, records) = self.seal_batch(self.commit, id, start, room);
            assert!(prefix >= self.batch_copies, "the file was made for them");
            self.scratch.clear();
            self.put_closing(records, self.commit, id, start + prefix as u64);
            end = start + (prefix + self.scratch.len()) as u64;
            written = written
                .and_then(|()| file.write_at(&self.batch[..prefix], start))
                .and_then(|()| file.write_at(&self.scratch, start + prefix as u64));
        }
        let path = self.dir.join(format::file_name(id, SEGMENT_END));
        let begun = written
            .map_err(|error| failed("writing", &aside, error))
            .and_then(|()| file.sync().map_err(|error| failed("syncing", &aside, error)))
            .and_then(|()| self.disk.rename(&aside, &path).map_err(|error| failed("renaming", &aside, error)))
            .and_then(|()| self.disk.sync_dir(&self.dir).map_err(|error| failed("syncing", &self.dir, error)));
        if let Err(why) = begun {
            // Under which name it is now is not known. If it stays, it holds nothing that the next one does not say again.
            self.leftovers.push(Leftover { names: [aside, path], size });
            self.remove_leftovers();
            self.counts.failed_writes += 1;
            self.measure_room();
            return Err(why);
        }
        let segment = Segment { id, path, file, size, end, records: 0, bytes: 0 };
        let slot = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if slot == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[slot] = Some(segment);
        self.newest = Some(slot as u32);
        self.active = true;
        self.counts.segments += 1;
        if unproven {
            self.unproven = None;
            self.apply(slot as u32, start, prefix, done);
        }
        self.measure_room();
        Ok(())
    }

    /// What the next segment must have room for, and for what found at open it must hold, whatever the limits were then.
    fn segment_bytes_least(&self) -> u64 {
        let found = if self.unproven.is_some() { self.batch_copies as u64 } else { 0 };
        self.limits.segment_bytes_min() + found
    }

    /// A file of a segment's size, or of the largest part of it that the volume has.
    fn allocate_any(&mut self, least: u64) -> Result<Spare<D::File>, CommitWhy> {
        let mut size = self.limits.segment_bytes.max(least);
        loop {
            match self.allocate(size) {
                Err(CommitWhy::NoSpace { .. }) if size / 2 >= least => size /= 2,
                other => return other,
            }
        }
    }

    fn allocate(&mut self, size: u64) -> Result<Spare<D::File>, CommitWhy> {
        let no_space = CommitWhy::NoSpace {
            segment_bytes: size,
            used_bytes: self.files_bytes,
            limit_bytes: self.limits.limit_bytes,
        };
        if self.files_bytes + size > self.limits.limit_bytes {
            return Err(no_space);
        }
        let id = self.next_id;
        let path = self.dir.join(format::file_name(id, NEW_END));
        match self.disk.create(&path, size) {
            Ok(file) => {
                self.next_id += 1;
                self.files_bytes += size;
                Ok(Spare { id, path, file, size })
            }
            Err(error) if is_full(&error) => {
                self.full_wait = FULL_WAIT;
                Err(no_space)
            }
            Err(error) => Err(failed("making", &path, error)),
        }
    }

    /// Removes files that could not be begun. Those that stay go on counting against the limit, or a disk that fails for
    /// long would be filled with them.
    fn remove_leftovers(&mut self) {
        let Spill { leftovers, disk, files_bytes, counts, .. } = self;
        leftovers.retain(|Leftover { names, size }| {
            let answers = names.each_ref().map(|name| disk.remove(name));
            let is_not_there =
                |answer: &io::Result<()>| answer.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
            let is_gone = answers.iter().any(Result::is_ok) || answers.iter().all(is_not_there);
            if is_gone {
                less(files_bytes, *size);
            } else {
                counts.failed_tidying += 1;
            }
            !is_gone
        });
    }

    /// Removes what is dead, allocates what the reserve needs, and measures.
    pub(super) fn tidy(&mut self) {
        self.remove_leftovers();
        let copying = self.copying.as_ref().and_then(super::copy::Copying::slot);
        let mut removed = false;
        for slot in 0..self.slots.len() {
            let unproven = self.unproven.map(|(slot, _)| slot);
            let needed = [self.newest, copying, unproven].contains(&Some(slot as u32));
            let Some(segment) = self.slots[slot].as_ref().filter(|segment| segment.records == 0 && !needed) else {
                continue;
            };
            if self.disk.remove(&segment.path).is_err() {
                self.counts.failed_tidying += 1;
                continue;
            }
            less(&mut self.files_bytes, segment.size);
            self.slots[slot] = None;
            removed = true;
        }
        if removed {
            self.full_wait = 0;
            // A name that comes back after a crash is of a segment whose records are all done with.
            if self.disk.sync_dir(&self.dir).is_err() {
                self.counts.failed_tidying += 1;
            }
        }
        if self.full_wait > 1 {
            self.full_wait -= 1;
        } else {
            self.full_wait = 0;
            while (self.spares.len() as u64) < self.limits.spares() {
                match self.allocate(self.limits.segment_bytes) {
                    Ok(spare) => self.spares.push_back(spare),
                    Err(CommitWhy::NoSpace { .. }) => break,
                    Err(CommitWhy::Io { .. }) => {
                        self.counts.failed_tidying += 1;
                        break;
                    }
                }
            }
        }
        self.measure_room();
    }

    fn measure_room(&mut self) {
        let spares: u64 =
            self.spares.iter().map(|spare| spare.size.saturating_sub(self.limits.segment_overhead())).sum();
        let more = match self.full_wait {
            0 => self.limits.limit_bytes.saturating_sub(self.files_bytes) / self.limits.segment_bytes,
            _ => 0,
        };
        self.room_beyond = spares + more * self.limits.segment_room();
    }
}
