//! From hash to place: hashbrown's table, cut into parts, because of what its tombstones do in a full window.
//!
//! hashbrown 0.17 marks an erased bucket free only if no 16 buckets in a row around it are in use; else it leaves a
//! tombstone. Such a row is never broken up again: an erase inside it leaves another tombstone, and keys at its edge
//! make it longer. In a table that always loses its oldest key for a new one, at any load, rows begin by chance, grow
//! and merge until keys and tombstones take 7 in 8 of the buckets, and then the next insert puts the *whole* table in
//! order (measured: within 2 million new keys in 131,072 buckets at a load of 0.44, within 40 million at 0.22). For a
//! million keys that is one insert that waits for a million cache misses.
//!
//! So the table is cut into parts of 2,048 buckets for 640 keys. The upper half of the hash chooses the part; the
//! lower half is kept in the bucket and is all that hashbrown sees, so a part puts itself in order without reading the
//! arena: 6.5 µs at the median, 12 µs at the most, once in about 110,000 new keys of a part (179 times in 20 million
//! new keys over 64 full parts, 2026-11-30). It does so in place, without allocating, as long as it has at most
//! 896 keys (`items + 1 <= full_capacity / 2` in `reserve_rehash_inner`): ten standard deviations above the mean. A
//! hash that spreads badly costs an allocation, never a key. A window that needs one part only is within the bound
//! whatever its hash is.

use super::arena::Place;
use hashbrown::HashTable;
use hashbrown::hash_table::{Entry, VacantEntry};
use std::hint::black_box;

const PART_BUCKETS: usize = 2_048;
const PART_KEYS: usize = 640;
/// How many keys hashbrown takes in a part before it puts it in order or grows it.
const PART_CAPACITY: usize = PART_BUCKETS / 8 * 7;
/// How many control bytes hashbrown reads at once; it repeats so many at the end.
const GROUP: usize = if cfg!(target_feature = "sse2") { 16 } else { 8 };

const _: () = assert!(size_of::<Bucket>() == 8, "eight buckets a cache line");

/// Where the record is, and enough of its hash to keep strangers out of the arena.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    place: Place,
    hash_low: u32,
}

/// The table of one window.
pub(super) struct Table {
    parts: Vec<HashTable<Bucket>>,
    len: usize,
}

/// What a probe has found: the bucket of the key, or a free one for it.
pub(super) enum Probe<'a> {
    Found(Found<'a>),
    Vacant(Vacant<'a>),
}

pub(super) struct Found<'a>(&'a mut Place);

pub(super) struct Vacant<'a> {
    entry: VacantEntry<'a, Bucket>,
    hash_low: u32,
    len: &'a mut usize,
}

impl Found<'_> {
    #[inline]
    pub(super) fn place(&self) -> Place {
        *self.0
    }

    #[inline]
    pub(super) fn set(self, place: Place) {
        *self.0 = place;
    }
}

impl Vacant<'_> {
    #[inline]
    pub(super) fn insert(self, place: Place) {
        self.entry.insert(Bucket { place, hash_low: self.hash_low });
        *self.len += 1;
    }
}

impl Table {
    pub(super) fn new(capacity: usize) -> Table {
        let (count, each) = parts_of(capacity);
        Table { parts: (0..count).map(|_| HashTable::with_capacity(each)).collect(), len: 0 }
    }

    /// What a table for `capacity` keys allocates, known without making one.
    pub(super) fn memory_of(capacity: usize) -> usize {
        let (count, each) = parts_of(capacity);
        // As hashbrown does it: a power of two, at most 7 in 8 full; small tables leave one bucket free.
        let buckets = match each {
            0..4 => 4,
            4..8 => 8,
            8..15 => 16,
            _ => (each * 8 / 7).next_power_of_two(),
        };
        let bytes = (buckets * size_of::<Bucket>()).next_multiple_of(16) + buckets + GROUP;
        count * (bytes + size_of::<HashTable<Bucket>>())
    }

    /// Looks for the record that has this hash and that `is` the one.
    #[inline]
    pub(super) fn probe(&mut self, hash: u64, mut is: impl FnMut(Place) -> bool) -> Probe<'_> {
        let hash_low = hash as u32;
        let part = self.part(hash);
        let found = self.parts[part].entry(
            spread(hash_low),
            |bucket| bucket.hash_low == hash_low && is(bucket.place),
            |bucket| spread(bucket.hash_low),
        );
        match found {
            Entry::Occupied(entry) => Probe::Found(Found(&mut entry.into_mut().place)),
            Entry::Vacant(entry) => Probe::Vacant(Vacant { entry, hash_low, len: &mut self.len }),
        }
    }

    /// Takes out the record at `place`. A place is of one record, so the arena is not read.
    #[inline]
    pub(super) fn remove(&mut self, hash: u64, place: Place) {
        let part = self.part(hash);
        match self.parts[part].find_entry(spread(hash as u32), |bucket| bucket.place == place) {
            Ok(entry) => entry.remove(),
            Err(_) => unreachable!("a live record has a bucket"),
        };
        self.len -= 1;
    }

    /// The record has moved.
    pub(super) fn replace(&mut self, hash: u64, from: Place, to: Place) {
        let part = self.part(hash);
        let bucket = self.parts[part].find_mut(spread(hash as u32), |bucket| bucket.place == from);
        bucket.expect("a live record has a bucket").place = to;
    }

    /// Reads what a probe for this hash will read and, where the key is new, write: the control bytes, and the cache line
    /// of the first bucket. A line is read by way of a bucket in use; at a third full, one of the first four mostly is.
    #[inline]
    pub(super) fn foresee(&self, hash: u64) {
        let part = &self.parts[self.part(hash)];
        let home = hash as u32 as usize;
        let used = (home..home + 4).find_map(|at| part.get_bucket(at & (part.num_buckets() - 1)));
        black_box(used.copied());
    }

    #[inline]
    pub(super) fn contains(&self, hash: u64, place: Place) -> bool {
        self.parts[self.part(hash)].find(spread(hash as u32), |bucket| bucket.place == place).is_some()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.parts.iter().map(|part| part.allocation_size() + size_of::<HashTable<Bucket>>()).sum()
    }

    /// The most keys and the most tombstones in one part.
    #[cfg(test)]
    pub(super) fn fullest(&self) -> (usize, usize) {
        let keys = self.parts.iter().map(HashTable::len).max();
        // `capacity` is what is in use and what may still be; the tombstones are what is missing of it.
        let tombstones = self.parts.iter().map(|part| PART_CAPACITY - part.capacity()).max();
        (keys.unwrap_or(0), tombstones.unwrap_or(0))
    }

    /// A part by the upper half of the hash, without a division.
    #[inline]
    fn part(&self, hash: u64) -> usize {
        (((hash >> 32) * self.parts.len() as u64) >> 32) as usize
    }
}

/// How many parts a table for `capacity` keys has, and for how many keys each is made.
const fn parts_of(capacity: usize) -> (usize, usize) {
    if capacity <= PART_KEYS {
        // The keys are at most `capacity + 1`, for the moment before the oldest makes way.
        (1, 2 * (capacity + 1))
    } else {
        (capacity.div_ceil(PART_KEYS), PART_CAPACITY)
    }
}

/// hashbrown takes the bucket from the low bits and the tag from the top 7: both must come from what a bucket keeps.
#[inline]
const fn spread(hash_low: u32) -> u64 {
    hash_low as u64 | (hash_low as u64) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mix(n: u64) -> u64 {
        let x = (n ^ (n >> 30)).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A table whose oldest key makes way for each new one.
    fn churn(capacity: usize, cycles: u64, mut after: impl FnMut(&Table)) {
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
            after(&table);
        }
        assert_eq!((table.len(), table.memory_bytes()), (capacity, memory), "a part has grown");
    }

    #[test]
    fn parts_stay_below_the_bound_for_putting_them_in_order_in_place() {
        let capacity = 64 * PART_KEYS;
        let (mut keys_max, mut tombstones_max, mut turn) = (0, 0, 0);
        churn(capacity, 2_000_000, |table| {
            turn += 1;
            if turn % 97 == 0 {
                let (keys, tombstones) = table.fullest();
                (keys_max, tombstones_max) = (keys_max.max(keys), tombstones_max.max(tombstones));
            }
        });
        assert!(keys_max < PART_CAPACITY / 2, "{keys_max} keys in one part");
        // The reason for the parts. Should this ever fail, hashbrown has learnt to do without them.
        assert!(tombstones_max > PART_BUCKETS / 4, "{tombstones_max} tombstones at most");
    }

    #[test]
    fn small_tables_never_grow() {
        for capacity in [1, 2, 3, 6, 7, 13, 14, 27, 28, PART_KEYS - 1, PART_KEYS, PART_KEYS + 1] {
            churn(capacity, 100_000, |_| {});
        }
    }

    #[test]
    fn memory_is_known_without_a_table() {
        for capacity in [1, 2, 3, 6, 7, 13, 100, PART_KEYS, PART_KEYS + 1, 100_000] {
            assert_eq!(Table::new(capacity).memory_bytes(), Table::memory_of(capacity), "capacity {capacity}");
        }
    }
}
