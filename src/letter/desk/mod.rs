//! The desk: what becomes of each dead letter. It is posted to the topic of dead letters; what that topic does not take
//! within the grace, or never will, goes to the disk; what lies there is posted when the topic works again.
//!
//! Promises: each letter that was taken is reported exactly once: durable in the topic or on disk, or refused by both for
//! good. While both are blocked it waits. Nothing here reads a clock or starts a thread.
//! Costs: memory is sized at the start; a letter is copied in once, and once more on its way out.

mod writing;

use super::account::{DeskCounts, DeskLimits, Settled, TakeError};
use super::links::{Links, List, NONE};
use super::notes::{META_BYTES_MAX, meta_len, write_meta};
use super::shelf::Shelf;
use super::store::Store;
use super::{Letter, LetterSink, PostBusy, Posted};
use crate::spill::{Disk, RecordId, Recovery, Spill};
use crate::units::{Nanos, PartitionId};

/// Marks the token of a letter that was posted from the disk.
const FROM_DISK: u64 = 1 << 63;
/// Error codes whose words are kept.
const WORDS_KEPT: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    /// To be posted.
    Waiting,
    /// The sink has it.
    Posted,
    /// The topic refused it for good; to be written.
    Refused,
    /// In the batch, under this sequence.
    Appended(u64),
    /// On disk under this sequence, reported, and still with the sink.
    Shadow(u64),
}

#[derive(Clone, Copy)]
struct Place {
    token: u64,
    taken: Nanos,
    head: u32,
    len: u32,
    meta: u32,
    partition: PartitionId,
    state: State,
    /// What the topic refused it with.
    code: Option<i32>,
    /// The sink holds it.
    with_sink: bool,
    /// Reported while it was in the batch: the topic has it.
    is_reported: bool,
    /// The disk cannot take it, ever.
    never_on_disk: bool,
}

/// Who is told what became of a letter.
pub type Tell<'a> = &'a mut dyn FnMut(u64, Settled<'_>);

/// Dead letters under way. One thread's own.
pub struct Desk<L: LetterSink, D: Disk> {
    sink: L,
    core: Core<D>,
}

struct Core<D: Disk> {
    limits: DeskLimits,
    store: Store,
    /// One letter, put together.
    scratch: Box<[u8]>,
    places: Box<[Place]>,
    free: Vec<u32>,
    /// In the order they were taken: what is not durable yet and may still be written.
    ages: Links,
    age: List,
    /// By state.
    lists: Links,
    waiting: List,
    refused: List,
    appended: List,
    shelf: Option<Shelf<D>>,
    /// Letters the sink holds.
    with_sink: usize,
    /// Since when there was something for the topic and no answer from it.
    blocked_since: Option<Nanos>,
    /// It has made none for the grace.
    is_stalled: bool,
    post_again_at: Nanos,
    drains_first: bool,
    is_closing: bool,
    words: Vec<(i32, Box<str>)>,
    trouble: String,
    counts: DeskCounts,
}

impl<L: LetterSink, D: Disk> Desk<L, D> {
    /// A desk in front of a topic, with a spill of its own for what the topic does not take, if there is a disk.
    ///
    /// # Panics
    /// If one letter would not fit the memory.
    #[must_use]
    pub fn new(sink: L, disk: Option<(Spill<D>, &Recovery)>, limits: DeskLimits) -> Desk<L, D> {
        let store = Store::new(limits.memory_bytes);
        assert!(limits.letter_bytes <= limits.memory_bytes, "one letter fits the memory: {limits:?}");
        // A letter that is on disk keeps its place while the sink still has it, but no block.
        let places = 2 * store.blocks();
        let shelf =
            disk.map(|(spill, recovery)| Shelf::new(spill, recovery, limits.partitions, limits.drain_letters.max(1)));
        let empty = Place {
            token: 0,
            taken: Nanos(0),
            head: NONE,
            len: 0,
            meta: 0,
            partition: PartitionId(0),
            state: State::Free,
            code: None,
            with_sink: false,
            is_reported: false,
            never_on_disk: false,
        };
        let core = Core {
            limits,
            store,
            scratch: vec![0; limits.letter_bytes.max(META_BYTES_MAX)].into(),
            places: vec![empty; places].into(),
            free: (0..places as u32).rev().collect(),
            ages: Links::new(places),
            age: List::EMPTY,
            lists: Links::new(places),
            waiting: List::EMPTY,
            refused: List::EMPTY,
            appended: List::EMPTY,
            shelf,
            with_sink: 0,
            blocked_since: None,
            is_stalled: false,
            post_again_at: Nanos(0),
            drains_first: false,
            is_closing: false,
            words: Vec::with_capacity(WORDS_KEPT),
            trouble: String::new(),
            counts: DeskCounts::default(),
        };
        Desk { sink, core }
    }

    /// Takes a copy of a letter; what becomes of it is reported under the token.
    ///
    /// # Errors
    /// [`TakeError`].
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn take(&mut self, token: u64, letter: &Letter<'_>, now: Nanos) -> Result<(), TakeError> {
        self.core.take(token, letter, now)
    }

    /// One turn: hears what became of posted letters, writes to the disk what has waited too long, posts the rest and a
    /// part of what lies on disk. Never waits for the topic; one sync of the disk at most, or one for each full batch.
    pub fn turn(&mut self, now: Nanos, each: Tell<'_>) {
        let Desk { sink, core } = self;
        sink.collect(&mut |token, posted| core.on_report(token, posted, now, each));
        core.judge(now);
        core.write(now, each);
        // By turns: where the sink takes few, neither has to wait for the other to end.
        core.drains_first = !core.drains_first;
        if core.drains_first {
            core.drain(sink, now);
            core.post(sink, now);
        } else {
            core.post(sink, now);
            core.drain(sink, now);
        }
    }

    /// From now on nothing is drained, and every letter goes to the disk at once; turns go on. Says how many letters are
    /// not reported: those that neither has taken.
    pub fn shutdown(&mut self, now: Nanos, each: Tell<'_>) -> u64 {
        if !std::mem::replace(&mut self.core.is_closing, true)
            && let Some(shelf) = &mut self.core.shelf
        {
            shelf.again_at = now;
        }
        self.turn(now, each);
        self.core.counts().waiting
    }

    /// What happened since the start.
    #[must_use]
    pub fn counts(&self) -> DeskCounts {
        self.core.counts()
    }

    /// Whether the topic has made no progress for the grace.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        self.core.is_stalled
    }

    /// The last words of the topic or the disk about what did not work; empty: nothing yet.
    #[must_use]
    pub fn trouble(&self) -> &str {
        &self.core.trouble
    }

    /// Whether there is nothing in memory, nothing with the sink, and nothing on disk.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let counts = self.core.counts();
        counts.waiting == 0 && counts.on_disk == 0 && self.core.sink_holds() == 0
    }

    /// Letters at the sink whose outcome is due, those from the disk included.
    #[must_use]
    pub fn at_sink(&self) -> usize {
        self.core.sink_holds()
    }

    /// Where the letters go.
    pub fn sink(&mut self) -> &mut L {
        &mut self.sink
    }

    /// The spill, for a look at its room.
    #[must_use]
    pub fn spill(&self) -> Option<&Spill<D>> {
        self.core.shelf.as_ref().map(|shelf| &shelf.spill)
    }

    /// The spill, for a test or a simulator that looks into it.
    pub fn spill_mut(&mut self) -> Option<&mut Spill<D>> {
        self.core.shelf.as_mut().map(|shelf| &mut shelf.spill)
    }

    /// Bytes of memory, sized at the start; the sink's are its own.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let core = &self.core;
        core.store.memory_bytes()
            + core.scratch.len()
            + size_of_val(&*core.places)
            + core.free.capacity() * size_of::<u32>()
            + core.ages.memory_bytes()
            + core.lists.memory_bytes()
            + core.shelf.as_ref().map_or(0, Shelf::memory_bytes)
    }
}

impl<D: Disk> Core<D> {
    fn take(&mut self, token: u64, letter: &Letter<'_>, now: Nanos) -> Result<(), TakeError> {
        let partitions = self.limits.partitions;
        assert!(letter.partition.0 < partitions, "partition {}, there are {partitions}", letter.partition);
        let meta = letter.meta();
        let value = letter.value.unwrap_or_default();
        let meta_bytes = meta_len(&meta);
        if meta_bytes > META_BYTES_MAX {
            return Err(TakeError::TooLong { got: meta_bytes, most: META_BYTES_MAX });
        }
        let (got, most) = (meta_bytes + value.len(), self.limits.letter_bytes);
        if got > most {
            return Err(TakeError::TooLong { got, most });
        }
        let Some(&place) = self.free.last() else { return Err(TakeError::Full) };
        write_meta(&meta, &mut self.scratch).expect("its length was looked at");
        let Some(head) = self.store.put(&self.scratch[..meta_bytes], value) else { return Err(TakeError::Full) };
        self.free.pop();
        self.places[place as usize] = Place {
            token,
            taken: now,
            head,
            len: got as u32,
            meta: meta_bytes as u32,
            partition: letter.partition,
            state: State::Waiting,
            code: None,
            with_sink: false,
            is_reported: false,
            never_on_disk: false,
        };
        self.ages.push_back(&mut self.age, place);
        self.lists.push_back(&mut self.waiting, place);
        self.counts.taken += 1;
        Ok(())
    }

    fn counts(&self) -> DeskCounts {
        let waiting = self.counts.taken - self.counts.durable - self.counts.refused;
        let Some(shelf) = &self.shelf else { return DeskCounts { waiting, ..self.counts } };
        DeskCounts {
            waiting,
            to_disk: shelf.written,
            recovered: shelf.recovered,
            on_disk: shelf.on_disk(),
            drained: shelf.drained,
            lost: shelf.lost(),
            unreadable: shelf.unreadable,
            ..self.counts
        }
    }

    fn sink_holds(&self) -> usize {
        self.with_sink + self.shelf.as_ref().map_or(0, Shelf::under_way)
    }

    fn say(&mut self, text: &str) {
        self.trouble.clear();
        self.trouble.push_str(super::notes::cut(text, super::notes::DETAIL_BYTES));
    }

    fn tell(&mut self, place: u32, settled: Settled<'_>, each: Tell<'_>) {
        match settled {
            Settled::Durable { .. } => self.counts.durable += 1,
            Settled::Refused { .. } => self.counts.refused += 1,
        }
        each(self.places[place as usize].token, settled);
    }

    fn tell_refused(&mut self, place: u32, each: Tell<'_>) {
        let code = self.places[place as usize].code.expect("the topic refused it");
        let words = std::mem::take(&mut self.words);
        let known = words.iter().find(|(known, _)| *known == code);
        match known {
            Some((_, text)) => self.tell(place, Settled::Refused { text }, each),
            None => self.tell(place, Settled::Refused { text: &format!("error code {code}") }, each),
        }
        self.words = words;
    }

    fn free_bytes(&mut self, place: u32) {
        let head = std::mem::replace(&mut self.places[place as usize].head, NONE);
        self.store.free(head);
    }

    /// A letter that is in no list any more leaves.
    fn free(&mut self, place: u32) {
        if self.places[place as usize].head != NONE {
            self.free_bytes(place);
        }
        self.places[place as usize].state = State::Free;
        self.free.push(place);
    }

    /// Out of the order of age, in which only those are that may still be written.
    fn leave_age(&mut self, place: u32) {
        if !self.places[place as usize].never_on_disk {
            self.ages.remove(&mut self.age, place);
        }
    }

    fn on_report(&mut self, token: u64, posted: Posted<'_>, now: Nanos, each: Tell<'_>) {
        match posted {
            Posted::Acked => self.counts.acked += 1,
            Posted::Refused { code, text } => {
                self.counts.topic_refused += 1;
                if self.words.len() < WORDS_KEPT && !self.words.iter().any(|(known, _)| *known == code) {
                    self.words.push((code, super::notes::cut(text, super::notes::DETAIL_BYTES).into()));
                }
                self.say(text);
            }
            Posted::Retry { text } => {
                self.post_again_at = now + self.limits.retry_pause;
                self.say(text);
            }
        }
        if !matches!(posted, Posted::Retry { .. }) {
            // An answer is progress, also one that says no.
            self.is_stalled = false;
            self.blocked_since = None;
        }
        if token & FROM_DISK != 0 {
            let shelf = self.shelf.as_mut().expect("it was posted from there");
            return shelf.on_report((token & !FROM_DISK) as u32, posted);
        }
        self.with_sink -= 1;
        let place = token as u32;
        let letter = &mut self.places[place as usize];
        letter.with_sink = false;
        let id = |sequence| RecordId { partition: letter.partition, sequence };
        match (letter.state, posted) {
            (State::Posted, Posted::Acked) => {
                self.leave_age(place);
                self.tell(place, Settled::Durable { on_disk: false }, each);
                self.free(place);
            }
            (State::Posted, Posted::Refused { code, .. }) => {
                letter.code = Some(code);
                let no_disk = self.shelf.is_none() || letter.never_on_disk;
                self.leave_age(place);
                if no_disk {
                    self.tell_refused(place, each);
                    self.free(place);
                } else {
                    self.places[place as usize].state = State::Refused;
                    self.lists.push_back(&mut self.refused, place);
                }
            }
            (State::Posted, Posted::Retry { .. }) => {
                letter.state = State::Waiting;
                // In front: a sink may want to have it alone now.
                self.lists.push_front(&mut self.waiting, place);
            }
            (State::Appended(_), Posted::Acked) => {
                letter.is_reported = true;
                self.tell(place, Settled::Durable { on_disk: false }, each);
            }
            (State::Appended(_), Posted::Refused { code, .. }) => letter.code = Some(code),
            (State::Appended(_), Posted::Retry { .. }) => {}
            (State::Shadow(sequence), posted) => {
                let id = id(sequence);
                let shelf = self.shelf.as_mut().expect("it was written there");
                shelf.end_shadow(id, posted == Posted::Acked);
                self.free(place);
            }
            (state @ (State::Free | State::Waiting | State::Refused), _) => {
                unreachable!("a letter that is {state:?} is not with the sink");
            }
        }
    }

    /// Whether the topic makes progress.
    fn judge(&mut self, now: Nanos) {
        if self.blocked_since.is_none() && (self.sink_holds() > 0 || self.waiting.len > 0) {
            self.blocked_since = Some(now);
        }
        // Only an answer ends it: that the disk has taken what was there for the topic does not make the topic work.
        self.is_stalled |= self.blocked_since.is_some_and(|since| now.since(since) >= self.limits.grace);
    }

    fn post<L: LetterSink>(&mut self, sink: &mut L, now: Nanos) {
        while now >= self.post_again_at && self.waiting.head != NONE {
            let place = self.waiting.head;
            let Place { head, len, meta, partition, .. } = self.places[place as usize];
            let (meta, frame) = self.store.read(head, len as usize, &mut self.scratch).split_at(meta as usize);
            let letter = Letter::from_stored(partition, meta, frame).expect("it was written by this desk");
            if sink.post(place.into(), &letter).is_err() {
                return;
            }
            self.lists.remove(&mut self.waiting, place);
            let letter = &mut self.places[place as usize];
            (letter.state, letter.with_sink) = (State::Posted, true);
            self.with_sink += 1;
            self.counts.posted += 1;
        }
    }

    /// Posts from the disk: a bounded number; one alone, to see whether the topic is back, while it is stalled.
    fn drain<L: LetterSink>(&mut self, sink: &mut L, now: Nanos) {
        let holds = self.sink_holds();
        let Some(shelf) = &mut self.shelf else { return };
        if self.is_closing || now < self.post_again_at {
            return;
        }
        let room = match self.is_stalled {
            false => self.limits.drain_letters.saturating_sub(shelf.under_way()),
            true => usize::from(holds == 0),
        };
        if room > 0 {
            let (posted, busy) = shelf.drain(sink, FROM_DISK, room);
            self.counts.posted += posted as u64;
            if busy == Some(PostBusy::NotReady) {
                // Each try reads the disk.
                self.post_again_at = now + self.limits.retry_pause;
            }
        }
    }
}
