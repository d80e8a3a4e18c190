//! From hash to place: lines of seven buckets, each line one cache line.
//!
//! A key's home is a line that the upper half of its hash chooses; the lower half is kept beside the place, and compared
//! seven at a time. A line has three keys or so, so that a probe waits for memory once and branches almost never:
//! three keys in a hundred find their home full and go to the next line with room. Each line counts the keys
//! that went past it, which is how long a probe goes on, once around at the most; an erase counts them down again.
//!
//! So there are no tombstones, nothing ever moves, and no hash makes it allocate after [`Table::new`]. (A table with
//! tombstones gathers them in a window that loses its oldest key for each new one, until one insert has to put the whole of
//! it in order.) A hash that spreads badly costs longer walks, never a key.
//!
//! Measured before choosing: submit and turn of one trigger with short and with long ids, medians of 7 rounds of
//! `benches/turn.rs` in alternating runs, the lower and the higher of two; 2026-12-01, two shared cores of an Intel Xeon, load 1 to 2.
//!
//! | table | 100,000 keys | of those the window alone, in its floor | 1,000,000 keys |
//! |---|---|---|---|
//! | hashbrown 0.17 in parts of 2,048 buckets, 9 bytes a bucket in two places | 149 to 152, 198 to 206 ns | 42, 54 ns | 234 (groups read ahead), 366 ns |
//! | linear probing, 8 bytes a bucket, an erase moves back what follows | 152 to 155, 188 to 189 ns | 53, 67 ns | |
//! | lines of seven | 131 to 136, 168 to 175 ns | 39, 50 ns | |
//! | lines of seven, each asked for one key ahead | 104 to 109, 131 to 146 ns | 34, 45 ns | 147 to 151, 206 ns |
//!
//! Linear probing touches as little memory, but its loops end where the processor does not foresee it.

use super::arena::Place;
use crate::prefetch::prefetch;
use bytemuck::{Pod, Zeroable};

/// What is compared at once.
const LANES: usize = 8;
/// Buckets of a line; what is left of it is the count.
const BUCKETS: usize = LANES - 1;
/// Keys for which a table has a line: three new ones in a hundred find theirs full then.
const KEYS_A_LINE: usize = 3;

/// One cache line: zeros are an empty one.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line {
    /// Place plus one of each key; 0: free. The last is no bucket: it counts the keys that began here or before and are in
    /// a line behind this one.
    places: [u32; LANES],
    /// The lower half of each key's hash. The last one is not used.
    hashes: [u32; LANES],
}

const _: () = assert!(size_of::<Line>() == 64, "one cache line");

impl Line {
    #[inline]
    fn passed(&mut self) -> &mut u32 {
        &mut self.places[BUCKETS]
    }

    /// Whether a key that begins here may be in a line behind this one.
    #[inline]
    fn is_passed(&self) -> bool {
        self.places[BUCKETS] != 0
    }
}

/// The buckets of a line that hold `wanted`, as bits.
#[inline]
fn equal(lanes: &[u32; LANES], wanted: u32) -> u32 {
    let mut bits = 0;
    for (at, lane) in lanes.iter().enumerate() {
        bits |= u32::from(*lane == wanted) << at;
    }
    bits & ((1 << BUCKETS) - 1)
}

/// The first bucket of a line that holds `wanted`.
#[inline]
fn first(lanes: &[u32; LANES], wanted: u32) -> Option<usize> {
    let bits = equal(lanes, wanted);
    (bits != 0).then_some(bits.trailing_zeros() as usize)
}

/// The table of one window.
pub(super) struct Table {
    lines: Box<[Line]>,
    len: usize,
}

/// What a probe has found: the bucket of the key, or that there is none.
pub(super) enum Probe<'a> {
    Found(Found<'a>),
    Vacant(Vacant<'a>),
}

pub(super) struct Found<'a>(&'a mut u32);

pub(super) struct Vacant<'a> {
    table: &'a mut Table,
    hash: u64,
}

impl Found<'_> {
    #[inline]
    pub(super) fn place(&self) -> Place {
        *self.0 - 1
    }

    #[inline]
    pub(super) fn set(self, place: Place) {
        *self.0 = place + 1;
    }
}

impl Vacant<'_> {
    #[inline]
    pub(super) fn insert(self, place: Place) {
        self.table.insert(self.hash, place);
    }
}

impl Table {
    pub(super) fn new(capacity: usize) -> Table {
        // With mimalloc, zeroed memory comes from the system untouched: an empty table is address space, not memory. The
        // system's allocator writes the zeros itself where it has to align them.
        Table { lines: bytemuck::allocation::zeroed_slice_box(lines_for(capacity)), len: 0 }
    }

    /// What a table for `capacity` keys allocates, known without making one.
    pub(super) const fn memory_of(capacity: usize) -> usize {
        lines_for(capacity) * size_of::<Line>()
    }

    /// Looks for the record that has this hash and that `is` the one.
    #[inline]
    pub(super) fn probe(&mut self, hash: u64, mut is: impl FnMut(Place) -> bool) -> Probe<'_> {
        let home = self.home(hash);
        let mut at = home;
        loop {
            let line = &self.lines[at];
            let mut alike = equal(&line.hashes, hash as u32);
            while alike != 0 {
                let bucket = alike.trailing_zeros() as usize;
                let place = line.places[bucket];
                if place != 0 && is(place - 1) {
                    return Probe::Found(Found(&mut self.lines[at].places[bucket]));
                }
                alike &= alike - 1;
            }
            if !line.is_passed() {
                break;
            }
            at = self.after(at);
            if at == home {
                break;
            }
        }
        Probe::Vacant(Vacant { table: self, hash })
    }

    #[inline]
    fn insert(&mut self, hash: u64, place: Place) {
        let mut at = self.home(hash);
        self.len += 1;
        // Ends: there are more than twice as many buckets as keys.
        loop {
            let line = &mut self.lines[at];
            if let Some(bucket) = first(&line.places, 0) {
                (line.places[bucket], line.hashes[bucket]) = (place + 1, hash as u32);
                return;
            }
            *line.passed() += 1;
            at = self.after(at);
        }
    }

    /// Takes out the record at `place`. A place is of one record, so the arena is not read.
    #[inline]
    pub(super) fn remove(&mut self, hash: u64, place: Place) {
        let mut at = self.home(hash);
        self.len -= 1;
        loop {
            let line = &mut self.lines[at];
            if let Some(bucket) = first(&line.places, place + 1) {
                line.places[bucket] = 0;
                return;
            }
            *line.passed() = line.passed().checked_sub(1).expect("a live record has a bucket");
            at = self.after(at);
        }
    }

    /// The record has moved.
    pub(super) fn replace(&mut self, hash: u64, from: Place, to: Place) {
        let (line, bucket) = self.find(hash, from).expect("a live record has a bucket");
        self.lines[line].places[bucket] = to + 1;
    }

    pub(super) fn contains(&self, hash: u64, place: Place) -> bool {
        self.find(hash, place).is_some()
    }

    /// Asks the memory for what a probe, an insert or an erase of this hash will touch, and does not wait for it.
    #[inline]
    pub(super) fn foresee(&self, hash: u64) {
        prefetch(&self.lines[self.home(hash)]);
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.lines)
    }

    fn find(&self, hash: u64, place: Place) -> Option<(usize, usize)> {
        let home = self.home(hash);
        let mut at = home;
        loop {
            let line = &self.lines[at];
            if let Some(bucket) = first(&line.places, place + 1) {
                return Some((at, bucket));
            }
            at = self.after(at);
            if !line.is_passed() || at == home {
                return None;
            }
        }
    }

    /// The line of a hash, by its upper half and without a division.
    #[inline]
    fn home(&self, hash: u64) -> usize {
        (((hash >> 32) * self.lines.len() as u64) >> 32) as usize
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        if at + 1 == self.lines.len() { 0 } else { at + 1 }
    }
}

/// There is one key more for the moment before the oldest makes way.
const fn lines_for(capacity: usize) -> usize {
    (capacity + 1).div_ceil(KEYS_A_LINE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn mix(n: u64) -> u64 {
        let x = (n ^ (n >> 30)).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A table whose oldest key makes way for each new one.
    fn churn(capacity: usize, cycles: u64) -> Table {
        let mut table = Table::new(capacity);
        let memory = table.memory_bytes();
        for n in 0..cycles {
            match table.probe(mix(n), |_| false) {
                Probe::Found(_) => unreachable!("no key is the same"),
                Probe::Vacant(vacant) => vacant.insert(n as Place),
            }
            if let Some(oldest) = n.checked_sub(capacity as u64) {
                table.remove(mix(oldest), oldest as Place);
            }
        }
        assert_eq!((table.len(), table.memory_bytes()), (capacity, memory), "a table never grows");
        let in_use =
            table.lines.iter().flat_map(|line| line.places.into_iter().take(BUCKETS)).filter(|place| *place != 0);
        assert_eq!(in_use.count(), capacity, "nothing is left behind");
        table
    }

    /// The reason for the counts: after many generations no more keys are away from home than chance puts there.
    #[test]
    fn a_full_window_that_turns_over_for_long_has_its_keys_at_home() {
        let table = churn(30_000, 2_000_000);
        let passed: u32 = table.lines.iter().map(|line| line.places[BUCKETS]).sum();
        assert!(passed < 30_000 / 25, "{passed} of 30,000 keys are away from home");
    }

    #[test]
    fn small_tables_never_grow() {
        for capacity in [0, 1, 2, 3, 5, 6, 8, 9, 640] {
            churn(capacity, 100_000);
        }
    }

    /// Each line has once been full while a key of it came, and that key is still there: all of them are passed.
    #[test]
    fn a_probe_ends_where_every_line_was_passed() {
        let mut table = Table::new(11);
        let lines = table.lines.len() as u64;
        let hash = |line: u64, nth: u64| ((line << 32).div_ceil(lines) << 32) | nth;
        let put = |table: &mut Table, hash: u64| match table.probe(hash, |place| u64::from(place) == hash % 1_000) {
            Probe::Vacant(vacant) => vacant.insert((hash % 1_000) as Place),
            Probe::Found(_) => unreachable!("each comes once"),
        };
        for line in 0..lines {
            let fillers = BUCKETS as u64 - u64::from(line > 0);
            (0..fillers).for_each(|nth| put(&mut table, hash(line, nth)));
            put(&mut table, hash(line, 100));
            (0..fillers).for_each(|nth| table.remove(hash(line, nth), (hash(line, nth) % 1_000) as Place));
        }
        assert_eq!(table.len() as u64, lines);
        assert!(table.lines.iter().all(Line::is_passed), "each line has a key behind it");
        assert!((0..lines).all(|line| matches!(table.probe(hash(line, 7), |_| true), Probe::Vacant(_))));
        assert!((0..lines).all(|line| !table.contains(hash(line, 7), 7)));
        assert!((0..lines).all(|line| table.contains(hash(line, 100), (hash(line, 100) % 1_000) as Place)));
    }

    #[test]
    fn memory_is_known_without_a_table() {
        for capacity in [0, 1, 2, 3, 5, 6, 100, 640, 100_000] {
            assert_eq!(Table::new(capacity).memory_bytes(), Table::memory_of(capacity), "capacity {capacity}");
        }
    }

    proptest! {
        /// With few homes, at the end of the lines too: what was put in is found, and nothing else.
        #[test]
        fn a_table_is_a_map(steps in prop::collection::vec((0u8..4, 0u64..40, any::<bool>()), 1..400)) {
            let mut table = Table::new(31);
            let lines = table.lines.len() as u64;
            let mut model: HashMap<u64, Place> = HashMap::new();
            // Forty keys of four homes around the end, four to six of them with one hash.
            let hash = |key: u64| {
                let home = (key % 4 + lines - 2) % lines;
                ((home << 32).div_ceil(lines) << 32) | (key / 4 % 2)
            };
            let mut place = 0;
            for (kind, key, moves) in steps {
                if kind == 0 && let Some(old) = model.remove(&key) {
                    table.remove(hash(key), old);
                } else if model.len() < 31 || model.contains_key(&key) {
                    place += 1;
                    match (table.probe(hash(key), |place| model.get(&key) == Some(&place)), model.get(&key)) {
                        (Probe::Vacant(vacant), None) => vacant.insert(place),
                        (Probe::Found(found), Some(old)) if moves => {
                            prop_assert_eq!(found.place(), *old);
                            found.set(place);
                        }
                        (Probe::Found(_), Some(old)) => table.replace(hash(key), *old, place),
                        (Probe::Found(_), None) => prop_assert!(false, "found what is not there"),
                        (Probe::Vacant(_), Some(_)) => prop_assert!(false, "lost key {}", key),
                    }
                    model.insert(key, place);
                }
                prop_assert_eq!(table.len(), model.len());
                for key in 0..40 {
                    let probed = match table.probe(hash(key), |place| model.get(&key) == Some(&place)) {
                        Probe::Found(found) => Some(found.place()),
                        Probe::Vacant(_) => None,
                    };
                    prop_assert_eq!(probed, model.get(&key).copied());
                    prop_assert!(model.get(&key).is_none_or(|place| table.contains(hash(key), *place)));
                }
            }
            for (key, place) in model {
                table.remove(hash(key), place);
            }
            prop_assert!(table.lines.iter().all(|line| line.places == [0; LANES]));
        }
    }
}
