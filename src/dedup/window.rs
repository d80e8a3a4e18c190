//! The window: a table of places over the arena, the tokens of what is pending, and the order in which keys leave.

use super::arena::{Arena, Cut, Header, Place, State, record_words};
use super::limits::WindowLimits;
use super::table::{Probe, Table};
use crate::canary::{Canary, is_planted};
use crate::prefetch::prefetch;
use crate::trigger::Key;
use crate::units::Nanos;

/// Expired records that one new key may reclaim: two for one, so that a full window empties as fast as it filled.
const EXPIRED_PER_ASK: u32 = 2;
/// Records that one new key moves along while free segments run low: what [`Cut::of`] counts on to keep up.
const MOVED_PER_ASK: u32 = 4;

/// The answer to an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Not in the window; it is now, as pending under the asker's token.
    New,
    /// The original is in flight under this token: the repeat's fate is the original's.
    Pending(u32),
    /// The original has settled within the time-to-live: a duplicate.
    Settled,
}

/// One shard's window. See the [room's head](super) for what it promises.
pub struct Window {
    table: Table,
    arena: Arena,
    /// By token: the place of its pending record plus one; 0 when the token is not in use.
    pending: Vec<u32>,
    pending_len: usize,
    /// The words of live records.
    live_words: usize,
    evicted_early: u64,
    carried: u64,
    capacity: usize,
    live_words_max: usize,
    ttl: Nanos,
}

impl Window {
    /// Allocates everything the window will ever use. Most of it is address space until keys come.
    ///
    /// # Panics
    /// On limits that cannot work: see [`WindowLimits::capacity_min`] and [`WindowLimits::key_bytes_min`].
    #[must_use]
    pub fn new(limits: WindowLimits) -> Window {
        Window::with_cut(limits, limits.default_cut())
    }

    pub(super) fn with_cut(limits: WindowLimits, cut: Cut) -> Window {
        limits.assert_sound();
        Window {
            table: Table::new(limits.capacity),
            arena: Arena::new(cut),
            pending: vec![0; limits.tokens as usize],
            pending_len: 0,
            live_words: 0,
            evicted_early: 0,
            carried: 0,
            capacity: limits.capacity,
            live_words_max: limits.live_words_max(),
            ttl: limits.ttl,
        }
    }

    /// Has this key been seen within the window? If not, it is admitted as pending under `token`.
    ///
    /// `hash` is the key's own ([`Key::hash_with`]), the same for the same key as long as the window lives.
    ///
    /// Cost: one probe run; a new key also writes its record and pushes out at most what it displaces (see the room's
    /// head for the figures).
    ///
    /// # Panics
    /// If the key is new and `token` is in use, or not below the limit.
    #[inline]
    pub fn ask(&mut self, key: Key<'_>, hash: u64, now: Nanos, token: u32) -> Seen {
        let Window { table, arena, .. } = self;
        let place = match table.probe(hash, |place| arena.holds(place, &key)) {
            Probe::Found(found) => {
                let old = arena.header(found.place());
                match old.state {
                    State::Pending if is_planted(Canary::KeySettledAtAdmission) => return Seen::Settled,
                    State::Pending => return Seen::Pending(old.owner),
                    State::Settled if is_planted(Canary::TimeRefreshed) && now.since(old.first_seen) < self.ttl => {
                        arena.set_state(found.place(), State::Dead);
                        self.live_words -= old.words;
                        let place = arena.append(&key, hash, now, 0);
                        found.set(place);
                        self.arena.set_state(place, State::Settled);
                        self.live_words += record_words(key.stored_len());
                        self.make_room(now);
                        return Seen::Settled;
                    }
                    State::Settled | State::Parked if now.since(old.first_seen) < self.ttl => return Seen::Settled,
                    // Its time is over: the key begins anew, in the same bucket.
                    State::Settled | State::Parked => {
                        arena.set_state(found.place(), State::Dead);
                        self.live_words -= old.words;
                        let place = arena.append(&key, hash, now, token);
                        found.set(place);
                        place
                    }
                    State::Dead => unreachable!("a dead record has no bucket"),
                }
            }
            Probe::Vacant(vacant) => {
                let place = arena.append(&key, hash, now, token);
                vacant.insert(place);
                place
            }
        };
        self.begin_pending(place, token, record_words(key.stored_len()), now);
        Seen::New
    }

    #[inline]
    fn begin_pending(&mut self, place: Place, token: u32, words: usize, now: Nanos) {
        self.live_words += words;
        let slot = &mut self.pending[token as usize];
        assert!(*slot == 0, "token {token} is in use");
        *slot = place + 1;
        self.pending_len += 1;
        self.make_room(now);
    }

    /// Asks the memory for what an ask with this hash will need, and does not wait for it. Changes nothing.
    #[inline]
    pub fn foresee(&self, hash: u64) {
        self.table.foresee(hash);
        self.arena.foresee_head();
    }

    /// Asks the memory for what [`Window::foresee_commit`] will need.
    #[inline]
    pub fn foresee_token(&self, token: u32) {
        prefetch(&self.pending[token as usize]);
    }

    /// Asks the memory for what a commit of this token will need, and does not wait for it. Changes nothing.
    #[inline]
    pub fn foresee_commit(&self, token: u32) {
        if let Some(place) = self.pending[token as usize].checked_sub(1) {
            self.arena.foresee(place);
        }
    }

    /// The key under `token` has settled: repeats are duplicates from now on, until its time is over. Frees the token.
    ///
    /// # Panics
    /// If nothing is pending under `token`.
    #[inline]
    pub fn commit(&mut self, token: u32) {
        let place = self.take_pending(token);
        self.arena.set_state(place, State::Settled);
        if is_planted(Canary::NewestEvicted) && self.table.len() >= self.capacity {
            let header = self.arena.header(place);
            self.forget(place, &header);
            self.arena.set_state(place, State::Dead);
        }
    }

    /// The key under `token` has settled on disk, as the trigger with this number of its partition: repeats are duplicates
    /// from now on, until its time is over or the trigger comes back from there. Frees the token.
    ///
    /// # Panics
    /// If nothing is pending under `token`.
    pub fn park(&mut self, token: u32, number: u32) {
        let place = self.take_pending(token);
        self.arena.set_owner(place, number, State::Parked);
    }

    /// As [`Window::ask`], for a trigger that comes back from disk: a key that is parked there, by this trigger or by a
    /// later one, is this one's from now on, and its time begins anew. [`Seen::Pending`] may name a later trigger: see
    /// [`Window::pass_on`].
    ///
    /// # Panics
    /// As [`Window::ask`].
    pub fn ask_drained(&mut self, key: Key<'_>, hash: u64, now: Nanos, token: u32) -> Seen {
        let Window { table, arena, .. } = self;
        if let Probe::Found(found) = table.probe(hash, |place| arena.holds(place, &key)) {
            let old = arena.header(found.place());
            if old.state == State::Parked {
                arena.set_state(found.place(), State::Dead);
                self.live_words -= old.words;
                let place = arena.append(&key, hash, now, token);
                found.set(place);
                self.begin_pending(place, token, record_words(key.stored_len()), now);
                return Seen::New;
            }
        }
        self.ask(key, hash, now, token)
    }

    /// What is pending under one token is pending under another one from now on.
    ///
    /// # Panics
    /// If nothing is pending under `from`, or `to` is in use.
    pub fn pass_on(&mut self, from: u32, to: u32) {
        let place = self.take_pending(from);
        self.arena.set_owner(place, to, State::Pending);
        let slot = &mut self.pending[to as usize];
        assert!(*slot == 0, "token {to} is in use");
        *slot = place + 1;
        self.pending_len += 1;
    }

    /// Puts in a key that has settled before this window was made. One that is parked has settled by that, and not only on
    /// disk: what comes back from there is its repeat. One that is pending stays as it is, and its token is returned: what
    /// holds it is a repeat.
    pub fn restore(&mut self, key: Key<'_>, hash: u64, now: Nanos) -> Option<u32> {
        let Window { table, arena, .. } = self;
        let place = match table.probe(hash, |place| arena.holds(place, &key)) {
            Probe::Found(found) => {
                let old = arena.header(found.place());
                match old.state {
                    State::Pending => return Some(old.owner),
                    State::Parked => {}
                    State::Settled | State::Dead => return None,
                }
                arena.set_state(found.place(), State::Dead);
                self.live_words -= old.words;
                let place = arena.append(&key, hash, now, 0);
                found.set(place);
                place
            }
            Probe::Vacant(vacant) => {
                let place = arena.append(&key, hash, now, 0);
                vacant.insert(place);
                place
            }
        };
        self.arena.set_state(place, State::Settled);
        self.live_words += record_words(key.stored_len());
        self.make_room(now);
        None
    }

    /// The key under `token` is forgotten: it may come again as new. Frees the token.
    ///
    /// # Panics
    /// If nothing is pending under `token`.
    #[inline]
    pub fn release(&mut self, token: u32) {
        let place = self.take_pending(token);
        let header = self.arena.header(place);
        self.arena.set_state(place, State::Dead);
        self.live_words -= header.words;
        self.table.remove(header.hash, place);
    }

    /// Live keys: pending, settled, and those whose time is over but whose turn to leave has not come.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether no key is in the window.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    /// Keys that are pending.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending_len
    }

    /// Settled keys that had to leave before their time was over, since the window was made.
    #[must_use]
    pub fn evicted_early(&self) -> u64 {
        self.evicted_early
    }

    /// Records copied from the tail to the head since the window was made: a measure of what keys that stay pending,
    /// or a storm of releases, cost.
    #[must_use]
    pub fn carried(&self) -> u64 {
        self.carried
    }

    /// The most live keys.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// What the table has allocated, in bytes.
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        self.table.memory_bytes()
    }

    /// What the window has allocated, in bytes of address space: [`WindowLimits::memory_bytes`], measured.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes() + self.arena.cut.memory_bytes() + self.pending.len() * size_of::<u32>()
    }

    /// After each new key: the limits hold again, some of what has expired is gone, and the arena has its reserve.
    #[inline]
    fn make_room(&mut self, now: Nanos) {
        for _ in 0..EXPIRED_PER_ASK {
            if !self.drop_spent_tail(now) {
                break;
            }
        }
        // Ends: what exceeds the limits cannot be all pending (`WindowLimits::assert_sound`), so a settled key comes.
        while self.table.len() > self.capacity || self.live_words > self.live_words_max {
            self.evict_or_carry_tail(now);
        }
        if self.arena.free_count() < self.arena.cut.low {
            self.compact(now);
        }
        // The next one to leave: the next new key will want its bucket.
        if let Some(place) = self.arena.tail() {
            self.table.foresee(self.arena.header(place).hash);
        }
    }

    /// Drops the oldest record if it is dead or its time is over.
    #[inline]
    fn drop_spent_tail(&mut self, now: Nanos) -> bool {
        let Some(place) = self.arena.tail() else { return false };
        let header = self.arena.header(place);
        match header.state {
            State::Dead => {}
            State::Settled | State::Parked if self.is_over(&header, now) => self.forget(place, &header),
            State::Pending | State::Settled | State::Parked => return false,
        }
        self.arena.pass(header.words);
        true
    }

    /// One step at the tail when the limits are exceeded: the oldest record goes, unless it is pending.
    #[inline]
    fn evict_or_carry_tail(&mut self, now: Nanos) {
        let place = self.arena.tail().expect("the limits are exceeded by live keys");
        let header = self.arena.header(place);
        match header.state {
            State::Dead => {}
            State::Settled | State::Parked => {
                self.evicted_early += u64::from(!self.is_over(&header, now));
                self.forget(place, &header);
            }
            State::Pending => self.carry(place, &header),
        }
        self.arena.pass(header.words);
    }

    /// Free segments are low though the live keys are within their limits: the dead lie between them. Squeezes some of
    /// the dead out, and never leaves less than the reserve.
    #[cold]
    fn compact(&mut self, now: Nanos) {
        let mut moved = 0;
        while moved < MOVED_PER_ASK || self.arena.free_count() < self.arena.cut.reserve {
            let Some(place) = self.arena.tail() else { return };
            let header = self.arena.header(place);
            match header.state {
                State::Dead => {}
                State::Settled | State::Parked if self.is_over(&header, now) => self.forget(place, &header),
                State::Pending | State::Settled | State::Parked => self.carry(place, &header),
            }
            self.arena.pass(header.words);
            moved += 1;
        }
    }

    fn is_over(&self, header: &Header, now: Nanos) -> bool {
        now.since(header.first_seen) >= self.ttl
    }

    /// Takes a settled record out of the table; the arena passes it.
    #[inline]
    fn forget(&mut self, place: Place, header: &Header) {
        self.live_words -= header.words;
        self.table.remove(header.hash, place);
    }

    #[cold]
    fn carry(&mut self, place: Place, header: &Header) {
        let to = self.arena.carry(place, header.words);
        self.table.replace(header.hash, place, to);
        if header.state == State::Pending {
            self.pending[header.owner as usize] = to + 1;
        }
        self.carried += 1;
    }

    #[inline]
    fn take_pending(&mut self, token: u32) -> Place {
        let slot = &mut self.pending[token as usize];
        assert!(*slot != 0, "nothing is pending under token {token}");
        let place = *slot - 1;
        *slot = 0;
        self.pending_len -= 1;
        place
    }

    /// Panics unless table, arena and tokens agree and the limits hold. Slow: for tests and the simulator.
    #[doc(hidden)]
    pub fn assert_consistent(&self) {
        self.arena.assert_consistent();
        let (mut live, mut pending, mut words) = (0, 0, 0);
        for place in self.arena.places() {
            let header = self.arena.header(place);
            let in_table = self.table.contains(header.hash, place);
            assert_eq!(in_table, header.state != State::Dead, "record at {place} is {:?}", header.state);
            if in_table {
                live += 1;
                words += header.words;
            }
            if header.state == State::Pending {
                assert_eq!(self.pending[header.owner as usize], place + 1, "token {} points elsewhere", header.owner);
                pending += 1;
            }
        }
        assert_eq!(live, self.table.len(), "live records and buckets");
        assert_eq!(words, self.live_words, "words of live records");
        assert_eq!(pending, self.pending_len, "pending records");
        assert_eq!(pending, self.pending.iter().filter(|slot| **slot != 0).count(), "tokens in use");
        assert!(live <= self.capacity && words <= self.live_words_max, "the limits are exceeded");
        assert!(self.arena.free_count() >= self.arena.cut.reserve, "the arena has lost its reserve");
    }

    /// Whether a key is pending under `token`.
    #[cfg(test)]
    pub(super) fn is_pending(&self, token: u32) -> bool {
        self.pending[token as usize] != 0
    }

    /// The keys in the order in which they would leave, with what is known of them.
    #[cfg(test)]
    pub(super) fn keys(&self) -> Vec<(Vec<u8>, State, Nanos)> {
        let live = self.arena.places().map(|place| (place, self.arena.header(place)));
        live.filter(|(_, header)| header.state != State::Dead)
            .map(|(place, header)| (self.arena.key_bytes(place).to_vec(), header.state, header.first_seen))
            .collect()
    }
}
