//! Letters on disk: which of them are on their way to the topic, and how far each line is. A line is posted in its order;
//! what the topic refuses for good stays where it is and holds up nothing behind it, until the next run tries again.

use super::{Letter, LetterSink, PostBusy, Posted};
use crate::spill::{AppendError, Budget, CommitError, Disk, Kind, Record, RecordId, Recovery, Spill};
use crate::units::{Nanos, PartitionId};

/// Lines that one turn looks at.
const LINES_A_TURN: usize = 1_024;
/// Letters of one line that are under way at a time: a line that is stuck leaves room for the others.
const OF_A_LINE: usize = 32;
/// Between two commits that only say what is done with.
const COMMIT_INTERVAL: Nanos = Nanos::from_millis(100);
/// The same while the disk is full.
const FULL_INTERVAL: Nanos = Nanos::from_millis(20);

/// How far a line is.
#[derive(Clone, Copy, Default)]
struct Line {
    /// The next to post.
    next: u64,
    /// Where to begin again once nothing is under way; 0: nowhere.
    again: u64,
    /// Posted from here and not reported.
    under_way: u32,
    /// Posted from memory before they were written here, and not reported.
    shadows: u32,
}

/// The disk's side of the desk.
pub(super) struct Shelf<D: Disk> {
    pub(super) spill: Spill<D>,
    lines: Box<[Line]>,
    /// What is under way, by its token.
    under_way: Box<[RecordId]>,
    free: Vec<u32>,
    at: usize,
    /// Nothing is written before: the disk was full, or failed.
    pub(super) again_at: Nanos,
    /// The last letter that was to be written found no space.
    had_no_space: bool,
    /// What is done with is committed then.
    commit_at: Nanos,
    /// Found at open.
    pub(super) recovered: u64,
    /// Of those, lost before open.
    lost_before: u64,
    /// Written since.
    pub(super) written: u64,
    /// Acknowledged by the topic, and taken off.
    pub(super) drained: u64,
    /// Read, and not understood: they stay.
    pub(super) unreadable: u64,
}

impl<D: Disk> Shelf<D> {
    pub(super) fn new(spill: Spill<D>, recovery: &Recovery, partitions: u32, under_way: usize) -> Shelf<D> {
        Shelf {
            spill,
            lines: vec![Line::default(); partitions as usize].into(),
            under_way: vec![RecordId { partition: PartitionId(0), sequence: 0 }; under_way].into(),
            free: (0..under_way as u32).rev().collect(),
            at: 0,
            again_at: Nanos(0),
            had_no_space: false,
            commit_at: Nanos(0),
            recovered: recovery.recovered(),
            lost_before: recovery.lost,
            written: 0,
            drained: 0,
            unreadable: 0,
        }
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost_before + self.spill.counts().lost
    }

    /// Letters that are here and not in the topic, as far as is known.
    pub(super) fn on_disk(&self) -> u64 {
        (self.recovered + self.written).saturating_sub(self.drained + self.lost())
    }

    pub(super) fn append(&mut self, partition: PartitionId, meta: &[u8], frame: &[u8]) -> Result<u64, AppendError> {
        let record = Record { partition, kind: Kind::DeadLetter, meta, frame };
        let answer = self.spill.append_from_reserve(record).map(|id| id.sequence);
        self.had_no_space = matches!(answer, Err(AppendError::NoSpace { .. }));
        answer
    }

    /// Whether to commit: when letters wait for it, at once, unless the disk has just failed; what is done with, now and
    /// then. On a full disk also with nothing to write: a commit is what makes room, and its count is how often the spill
    /// asks a full volume for space again.
    pub(super) fn wants_commit(&self, now: Nanos, has_letters: bool, at_once: bool) -> bool {
        let is_due = has_letters || at_once || now >= self.commit_at;
        let may_write = now >= self.again_at || (self.is_full() && !has_letters);
        is_due && may_write && (self.spill.is_dirty() || self.is_full())
    }

    fn is_full(&self) -> bool {
        self.had_no_space || self.spill.room().volume_full
    }

    pub(super) fn commit(&mut self, now: Nanos) -> Result<(), CommitError> {
        self.commit_at = now + if self.is_full() { FULL_INTERVAL } else { COMMIT_INTERVAL };
        self.spill.commit().map(|_| ())
    }

    /// A letter is in memory's hands and here; the topic may still take it from there.
    pub(super) fn add_shadow(&mut self, partition: PartitionId) {
        self.lines[partition.0 as usize].shadows += 1;
    }

    /// The topic has spoken about such a letter.
    pub(super) fn end_shadow(&mut self, id: RecordId, is_acked: bool) {
        self.lines[id.partition.0 as usize].shadows -= 1;
        if is_acked {
            self.take_off(id);
        }
    }

    /// The topic has it. Without room for the mark it stays here, and the next run posts it again.
    pub(super) fn take_off(&mut self, id: RecordId) {
        if self.spill.mark(id) {
            self.drained += 1;
        }
    }

    /// Posts what lies here, up to `room` letters; returns how many, and why the sink takes no more, if it does not.
    pub(super) fn drain<L: LetterSink>(
        &mut self,
        sink: &mut L,
        token_bit: u64,
        room: usize,
    ) -> (usize, Option<PostBusy>) {
        let mut posted = 0;
        if self.spill.records() == 0 {
            return (0, None);
        }
        for _ in 0..self.lines.len().min(LINES_A_TURN) {
            let partition = PartitionId(self.at as u32);
            let (count, busy) = self.drain_line(partition, sink, token_bit, room - posted);
            posted += count;
            if busy.is_some() {
                return (posted, busy);
            }
            self.at = (self.at + 1) % self.lines.len();
            if posted == room {
                break;
            }
        }
        (posted, None)
    }

    fn drain_line<L: LetterSink>(
        &mut self,
        partition: PartitionId,
        sink: &mut L,
        token_bit: u64,
        room: usize,
    ) -> (usize, Option<PostBusy>) {
        let line = &mut self.lines[partition.0 as usize];
        let state = self.spill.partition(partition);
        // A shadow would be posted twice; a second way through the line before the first has ended, all of it.
        if state.records == 0 || line.shadows > 0 || (line.again > 0 && line.under_way > 0) {
            return (0, None);
        }
        if line.again > 0 {
            line.next = std::mem::take(&mut line.again);
        }
        let room = room.min(OF_A_LINE.saturating_sub(line.under_way as usize));
        let mut posted = 0;
        while posted < room && line.next <= state.committed {
            let Some(&place) = self.free.last() else { return (posted, None) };
            let (mut busy, mut is_posted) = (None, false);
            let (under_way, unreadable) = (&mut self.under_way, &mut self.unreadable);
            let done = self.spill.read(partition, line.next, Budget { records: 1, ..Budget::default() }, |stored| {
                match Letter::from_stored(partition, stored.record.meta, stored.record.frame) {
                    None => *unreadable += 1,
                    Some(letter) => {
                        busy = sink.post(token_bit | u64::from(place), &letter).err();
                        is_posted = busy.is_none();
                        under_way[place as usize] = stored.id;
                    }
                }
            });
            if busy.is_some() {
                return (posted, busy);
            }
            line.next = done.next;
            if is_posted {
                self.free.pop();
                line.under_way += 1;
                posted += 1;
            } else if done.records == 0 {
                // The end, or a long way over other lines' records, which the next turn goes on with.
                break;
            }
        }
        (posted, None)
    }

    /// The topic has spoken about a letter that was posted from here.
    pub(super) fn on_report(&mut self, place: u32, posted: Posted<'_>) {
        let id = self.under_way[place as usize];
        self.free.push(place);
        let line = &mut self.lines[id.partition.0 as usize];
        line.under_way -= 1;
        match posted {
            Posted::Acked => self.take_off(id),
            Posted::Refused { .. } => {}
            Posted::Retry { .. } if line.again == 0 => line.again = id.sequence,
            Posted::Retry { .. } => line.again = line.again.min(id.sequence),
        }
    }

    /// Letters posted from here and not reported.
    pub(super) fn under_way(&self) -> usize {
        self.under_way.len() - self.free.len()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.spill.memory_bytes()
            + size_of_val(&*self.lines)
            + size_of_val(&*self.under_way)
            + self.free.capacity() * size_of::<u32>()
    }
}
