//! The arena: keys as records in a log of equal segments, one allocation, never split, never grown.
//!
//! A record is three words (first seen; hash; owner, key length and state) and the key's stored form, padded to whole
//! words. Records are appended at the head and leave at the tail; what must outlive the tail is carried to the head.
//!
//! Why segments and not one ring: a ring walks through all of its memory whatever it holds, and the arena must be large
//! enough for in-flight keys of the longest ids there may be. A segment that the tail has left is the next one the head
//! takes (last in, first out), so the memory in use is that of the live keys, and the head writes to lines that the
//! tail has just read.

use crate::prefetch::{prefetch, prefetch_for_write_at};
use crate::trigger::{KEY_BYTES_MAX, Key};
use crate::units::Nanos;

/// A place in the arena: the index of a record's first word.
pub(super) type Place = u32;

const WORD: usize = size_of::<u64>();
const HEADER_WORDS: usize = 3;
const KEY_LEN_SHIFT: u32 = 32;
const STATE_SHIFT: u32 = 48;
/// No segment: the end of a chain.
const NONE: u32 = u32::MAX;
/// The end of a tail segment that is still being filled.
const OPEN: usize = usize::MAX;

/// The longest record, in words.
pub(super) const RECORD_WORDS_MAX: usize = record_words(KEY_BYTES_MAX);

const _: () = assert!(KEY_BYTES_MAX <= u16::MAX as usize, "a key's length is kept in 16 bits");

/// What has become of a record's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nobody looks for it: released, or replaced by a later record of the same key. A zeroed word is dead.
    Dead = 0,
    /// In flight under its owner's token.
    Pending = 1,
    /// A repeat of it is a duplicate until its time is over.
    Settled = 2,
    /// As settled, but its trigger waits on disk under its owner's number, and will ask again.
    Parked = 3,
}

/// A record's fixed part, read in one go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub first_seen: Nanos,
    pub hash: u64,
    pub owner: u32,
    pub state: State,
    pub words: usize,
}

/// How many words a record with a key of `key_bytes` takes.
pub(super) const fn record_words(key_bytes: usize) -> usize {
    HEADER_WORDS + key_bytes.div_ceil(WORD)
}

/// How an arena is cut: worked out without making one, so that the sum of memory can be printed before the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub segment_words: usize,
    /// All segments.
    pub segments: usize,
    /// Free segments that are always there when a key comes, so that carrying records never finds the arena full.
    pub reserve: usize,
    /// Below this many free segments, asks begin to carry live records out of the oldest segments.
    pub low: usize,
}

impl Cut {
    /// The cut that holds `live_words` of live records at any time, however they are mixed with dead ones.
    ///
    /// A segment may waste less than one longest record at its end, so it surely holds `usable` words, and `dense`
    /// segments hold everything live. Half as many again are for the dead: when all others are in use, at least a
    /// quarter of what the tail passes is dead, so carrying costs at most three records for one that is dropped. The
    /// reserve covers what repacking may waste at the ends of segments, one turn of the whole log long.
    pub(super) fn of(live_words: usize, segment_words: usize) -> Cut {
        assert!(segment_words.is_power_of_two(), "a segment is a power of two of words: {segment_words}");
        assert!(segment_words >= 2 * RECORD_WORDS_MAX, "a segment of {segment_words} words holds no two records");
        let usable = segment_words - (RECORD_WORDS_MAX - 1);
        let dense = (live_words + RECORD_WORDS_MAX).div_ceil(usable);
        let reserve = 3 + (dense * RECORD_WORDS_MAX).div_ceil(usable);
        let low = reserve + dense / 8;
        Cut { segment_words, segments: dense + dense / 2 + reserve + 2, reserve, low }
    }

    pub(super) const fn words(&self) -> usize {
        self.segments * self.segment_words
    }

    pub(super) const fn memory_bytes(&self) -> usize {
        self.words() * WORD + self.segments * 2 * size_of::<u32>()
    }
}

/// The log of records.
pub(super) struct Arena {
    words: Vec<u64>,
    /// The chain of segments in use from the oldest on, and the stack of free ones, in one array.
    next: Vec<u32>,
    /// Where the records of a sealed segment end.
    ends: Vec<u32>,
    segment_shift: u32,
    /// Where the next record goes, and the end of its segment.
    head: usize,
    head_limit: usize,
    /// The oldest record, and where the records of its segment end: `OPEN` while that segment is the head's too.
    tail: usize,
    tail_end: usize,
    free_top: u32,
    free_count: usize,
    pub(super) cut: Cut,
}

impl Arena {
    pub(super) fn new(cut: Cut) -> Arena {
        assert!(cut.words() <= u32::MAX as usize, "a place is 32 bits: {} words are too many", cut.words());
        assert!(cut.segments >= 2 && cut.reserve < cut.segments);
        // Segment 0 is the first head; the others are a stack with segment 1 on top. Zeroed memory comes from the
        // system untouched: an empty arena is address space, not memory.
        let next = (0..cut.segments as u32)
            .map(|segment| if segment == 0 || segment + 1 == cut.segments as u32 { NONE } else { segment + 1 })
            .collect();
        Arena {
            words: vec![0; cut.words()],
            next,
            ends: vec![0; cut.segments],
            segment_shift: cut.segment_words.trailing_zeros(),
            head: 0,
            head_limit: cut.segment_words,
            tail: 0,
            tail_end: OPEN,
            free_top: 1,
            free_count: cut.segments - 1,
            cut,
        }
    }

    pub(super) fn free_count(&self) -> usize {
        self.free_count
    }

    /// Appends a pending record of `key`.
    #[inline]
    pub(super) fn append(&mut self, key: &Key<'_>, hash: u64, first_seen: Nanos, owner: u32) -> Place {
        let key_len = key.stored_len();
        debug_assert!(key_len <= KEY_BYTES_MAX, "submit refuses ids this long");
        let count = record_words(key_len);
        let place = self.room(count);
        let record = &mut self.words[place..place + count];
        record[0] = first_seen.0;
        record[1] = hash;
        record[2] = u64::from(owner) | (key_len as u64) << KEY_LEN_SHIFT | (State::Pending as u64) << STATE_SHIFT;
        key.write_to(bytemuck::cast_slice_mut(&mut record[HEADER_WORDS..]));
        place as Place
    }

    /// Copies the record at `place` to the head as it is.
    pub(super) fn carry(&mut self, place: Place, count: usize) -> Place {
        let from = place as usize;
        let to = self.room(count);
        self.words.copy_within(from..from + count, to);
        to as Place
    }

    /// `count` words at the head, all in one segment.
    #[inline]
    fn room(&mut self, count: usize) -> usize {
        if self.head_limit - self.head < count {
            self.open_segment();
        }
        let place = self.head;
        self.head += count;
        place
    }

    #[cold]
    fn open_segment(&mut self) {
        let fresh = self.free_top;
        assert!(fresh != NONE, "the reserve of free segments was not kept");
        self.free_top = self.next[fresh as usize];
        self.free_count -= 1;
        self.next[fresh as usize] = NONE;
        // The head is never at the start of its own segment here (two longest records fit in one), so the word before
        // it names the segment.
        let sealed = (self.head - 1) >> self.segment_shift;
        self.ends[sealed] = self.head as u32;
        self.next[sealed] = fresh;
        if self.tail_end == OPEN {
            self.tail_end = self.head;
        }
        self.head = (fresh as usize) << self.segment_shift;
        self.head_limit = self.head + self.cut.segment_words;
    }

    /// The oldest record, dead or alive; `None` when there is none.
    #[inline]
    pub(super) fn tail(&mut self) -> Option<Place> {
        if self.tail == self.tail_end {
            self.free_tail_segment();
        }
        // Only in the head's own segment do equal places mean "empty": the head of a segment filled to its last word
        // stands where another segment begins.
        let is_empty = self.tail_end == OPEN && self.tail == self.head;
        (!is_empty).then_some(self.tail as Place)
    }

    #[cold]
    fn free_tail_segment(&mut self) {
        let done = (self.tail - 1) >> self.segment_shift;
        let following = self.next[done];
        debug_assert!(following != NONE, "a sealed segment has a follower");
        self.next[done] = self.free_top;
        self.free_top = done as u32;
        self.free_count += 1;
        self.tail = (following as usize) << self.segment_shift;
        let is_head = self.head_limit == self.tail + self.cut.segment_words;
        self.tail_end = if is_head { OPEN } else { self.ends[following as usize] as usize };
    }

    /// Leaves the oldest record behind, `count` words long.
    #[inline]
    pub(super) fn pass(&mut self, count: usize) {
        self.tail += count;
    }

    #[inline]
    pub(super) fn header(&self, place: Place) -> Header {
        let place = place as usize;
        let [first_seen, hash, rest] =
            *self.words[place..].first_chunk::<HEADER_WORDS>().expect("a place names a record");
        Header {
            first_seen: Nanos(first_seen),
            hash,
            owner: rest as u32,
            state: state_of(rest),
            words: record_words(key_len_of(rest)),
        }
    }

    /// Whether the record at `place` is of `key`, byte for byte.
    #[inline]
    pub(super) fn holds(&self, place: Place, key: &Key<'_>) -> bool {
        let place = place as usize;
        let key_len = key_len_of(self.words[place + 2]);
        let stored = &self.words[place + HEADER_WORDS..place + record_words(key_len)];
        key.is_stored_as(&bytemuck::cast_slice(stored)[..key_len])
    }

    /// Asks the memory for the two lines behind the one that the next record begins in.
    #[inline]
    pub(super) fn foresee_head(&self) {
        let head = self.words.as_ptr().wrapping_add(self.head + 8);
        prefetch_for_write_at(head.cast());
        prefetch_for_write_at(head.wrapping_add(8).cast());
    }

    /// Asks the memory for a record's header.
    #[inline]
    pub(super) fn foresee(&self, place: Place) {
        prefetch(&self.words[place as usize + 2]);
    }

    #[inline]
    pub(super) fn set_state(&mut self, place: Place, state: State) {
        let word = &mut self.words[place as usize + 2];
        *word = *word & !(0xff << STATE_SHIFT) | (state as u64) << STATE_SHIFT;
    }

    #[inline]
    pub(super) fn set_owner(&mut self, place: Place, owner: u32, state: State) {
        let word = &mut self.words[place as usize + 2];
        *word = *word & 0xffff << KEY_LEN_SHIFT | u64::from(owner) | (state as u64) << STATE_SHIFT;
    }

    /// All records from the oldest on: for checks and tests.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> + '_ {
        let mut at = self.tail;
        let mut end = self.tail_end;
        std::iter::from_fn(move || {
            while at == end {
                let following = self.next[(at - 1) >> self.segment_shift] as usize;
                at = following << self.segment_shift;
                let is_head = self.head_limit == at + self.cut.segment_words;
                end = if is_head { OPEN } else { self.ends[following] as usize };
            }
            if end == OPEN && at == self.head {
                return None;
            }
            let place = at as Place;
            at += self.header(place).words;
            Some(place)
        })
    }

    /// The stored key at `place`.
    #[cfg(test)]
    pub(super) fn key_bytes(&self, place: Place) -> &[u8] {
        let place = place as usize;
        let key_len = key_len_of(self.words[place + 2]);
        &bytemuck::cast_slice(&self.words[place + HEADER_WORDS..])[..key_len]
    }

    /// Panics unless each segment is either in the chain or in the stack, once.
    pub(super) fn assert_consistent(&self) {
        let mut seen = vec![false; self.cut.segments];
        let mut count = |mut segment: u32| {
            let mut length = 0;
            while segment != NONE {
                assert!(!std::mem::replace(&mut seen[segment as usize], true), "segment {segment} is chained twice");
                length += 1;
                segment = self.next[segment as usize];
            }
            length
        };
        assert_eq!(count(self.free_top), self.free_count, "free segments");
        // A tail that has come to the end of a sealed segment still names it by the word before.
        let oldest = if self.tail == self.tail_end { self.tail - 1 } else { self.tail } >> self.segment_shift;
        assert_eq!(count(oldest as u32), self.cut.segments - self.free_count, "segments in use");
        assert!(self.head <= self.head_limit);
    }
}

#[inline]
const fn key_len_of(word: u64) -> usize {
    (word >> KEY_LEN_SHIFT) as u16 as usize
}

#[inline]
fn state_of(word: u64) -> State {
    match (word >> STATE_SHIFT) as u8 {
        1 => State::Pending,
        2 => State::Settled,
        3 => State::Parked,
        _ => State::Dead,
    }
}
