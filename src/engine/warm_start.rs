//! What a start takes from the tail of the topic, from the decoded frames alone: the keys that the dedup windows shall
//! know, the highest stamp, and which records are there already.
//!
//! - **Keys**: per shard, oldest first, at most as many keys and bytes as its window holds. What is too much goes from the
//!   oldest on, by the time of acceptance, whichever partition was read first. The shard is the device's, whatever partition
//!   a record was found in.
//! - **Already there**: an exact set of (router, incarnation, partition, number) of every frame that was read. Numbers of one
//!   run follow on one another, so it is kept as ranges; should there be more of them than its limit, further records are
//!   left out and counted. Then a record may be published again, and none is ever taken for delivered that is not there.
//! - **Foreign records** are counted and skipped.
//!
//! Pure: no clock, no client. Cost a frame: decode, one look into the ranges, one copy of the key.

use crate::hlc::Hlc;
use crate::partition::{partition_of, shard_of};
use crate::trigger::{KEY_BYTES_MAX, Key};
use crate::units::{PartitionId, ShardId, UnixMicros};
use crate::wire::{self, Frame};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// What is taken at the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarmLimits {
    /// Shards of the router.
    pub shards: u16,
    /// The pinned partition count.
    pub partitions: u32,
    /// Keys of one shard: its window's capacity.
    pub keys_per_shard: usize,
    /// Bytes of one shard's keys: its window's.
    pub key_bytes_per_shard: usize,
    /// Ranges of numbers that are told apart, over all routers and partitions; a run that lost nothing takes one for each
    /// partition.
    pub ranges: usize,
}

impl WarmLimits {
    /// What a start holds at the most until the windows are filled: keys and their entries twice (their queues double),
    /// a little for each queue, and the ranges with the nodes of their tree at least half full. It is let go when the
    /// router runs.
    #[must_use]
    pub const fn memory_bytes_max(&self) -> usize {
        let keys = 2 * (self.key_bytes_per_shard + KEY_BYTES_MAX + (self.keys_per_shard + 1) * size_of::<Entry>());
        let (partitions, most) = (self.partitions as usize, self.keys_per_shard + 1);
        let queues = if partitions < most { partitions } else { most } * Queue::BYTES_MORE;
        self.shards as usize * (keys + queues) + self.ranges * AlreadyThere::RANGE_BYTES_MAX
    }
}

/// When a frame was accepted, for the search of the tail's beginning; `None`: these bytes are no frame.
#[must_use]
pub fn accepted_of(value: &[u8]) -> Option<UnixMicros> {
    wire::decode(value).ok().map(|decoded| decoded.frame.accepted)
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    accepted: UnixMicros,
    key_len: u16,
}

/// Keys of one partition, oldest first.
#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<Entry>,
    bytes: VecDeque<u8>,
}

impl Queue {
    /// Room of a queue that may be more than twice what is in it.
    const SLACK: usize = 16;
    /// Bytes that a queue takes besides twice its content.
    const BYTES_MORE: usize = Queue::SLACK * (size_of::<Entry>() + 1) + size_of::<Queue>();

    fn pop(&mut self) -> Option<usize> {
        let len = self.entries.pop_front()?.key_len.into();
        self.bytes.drain(..len);
        // Partitions may come one after the other, each pushing out the one before: room must not stay behind.
        if self.entries.capacity() > 2 * self.entries.len() + Queue::SLACK {
            self.entries.shrink_to(self.entries.len() / 2 * 3);
        }
        if self.bytes.capacity() > 2 * self.bytes.len() + Queue::SLACK {
            self.bytes.shrink_to(self.bytes.len() / 2 * 3);
        }
        Some(len)
    }
}

/// Keys of one shard, and which partition has the oldest of them.
#[derive(Debug, Default)]
struct Shelf {
    queues: BTreeMap<PartitionId, Queue>,
    /// The head of each queue that is not empty.
    heads: BinaryHeap<Reverse<(UnixMicros, PartitionId)>>,
    keys: usize,
    bytes: usize,
}

impl Shelf {
    fn push(&mut self, partition: PartitionId, accepted: UnixMicros, key: &[u8]) {
        let queue = self.queues.entry(partition).or_default();
        if queue.entries.is_empty() {
            self.heads.push(Reverse((accepted, partition)));
        }
        queue.entries.push_back(Entry { accepted, key_len: key.len() as u16 });
        queue.bytes.extend(key);
        self.keys += 1;
        self.bytes += key.len();
    }

    /// The partition whose head is the oldest leaves the heap, for [`Shelf::put_back`] to bring its next one in.
    fn oldest(&mut self) -> Option<PartitionId> {
        self.heads.pop().map(|Reverse((_, partition))| partition)
    }

    fn put_back(&mut self, partition: PartitionId) {
        match self.queues[&partition].entries.front() {
            Some(head) => self.heads.push(Reverse((head.accepted, partition))),
            None => drop(self.queues.remove(&partition)),
        }
    }

    fn drop_oldest(&mut self) {
        let partition = self.oldest().expect("there is more than the limit, so there is one");
        let len = self.queues.get_mut(&partition).and_then(Queue::pop).expect("a head is of a queue that is not empty");
        self.keys -= 1;
        self.bytes -= len;
        self.put_back(partition);
    }

    fn memory_bytes(&self) -> usize {
        let of =
            |queue: &Queue| size_of::<Queue>() + queue.bytes.capacity() + queue.entries.capacity() * size_of::<Entry>();
        self.queues.values().map(of).sum()
    }
}

/// Collects what a start needs from records, partition by partition in order.
#[derive(Debug)]
pub struct WarmStart {
    limits: WarmLimits,
    shelves: Vec<Shelf>,
    highest: Hlc,
    already: AlreadyThere,
    frames: u64,
    foreign: u64,
    stamps_refused: u64,
    keys_dropped: u64,
}

/// What was collected.
#[derive(Debug)]
pub struct Warm {
    /// By shard.
    pub shards: Vec<WarmKeys>,
    /// The highest stamp of any frame; [`Hlc::ZERO`] if there was none.
    pub highest: Hlc,
    /// Which records are there.
    pub already: AlreadyThere,
    /// Frames that were read.
    pub frames: u64,
    /// Records that are no frame of a version this program knows.
    pub foreign: u64,
    /// Frames whose stamp is no date: they do not count for `highest`.
    pub stamps_refused: u64,
    /// Keys beyond what the windows hold: the oldest.
    pub keys_dropped: u64,
}

/// The keys of one shard, oldest first.
#[derive(Debug)]
pub struct WarmKeys(Shelf);

impl WarmStart {
    /// Takes no memory yet; [`WarmLimits::memory_bytes_max`] says how much it may become.
    ///
    /// # Panics
    /// If there are no shards or no partitions.
    #[must_use]
    pub fn new(limits: WarmLimits) -> WarmStart {
        assert!(limits.shards >= 1 && limits.partitions >= 1);
        WarmStart {
            limits,
            shelves: (0..limits.shards).map(|_| Shelf::default()).collect(),
            highest: Hlc::ZERO,
            already: AlreadyThere::new(limits.ranges),
            frames: 0,
            foreign: 0,
            stamps_refused: 0,
            keys_dropped: 0,
        }
    }

    /// Takes one record's value.
    pub fn record(&mut self, partition: PartitionId, value: &[u8]) {
        match wire::decode(value) {
            Ok(decoded) => self.frame(partition, &decoded.frame),
            Err(_) => self.foreign += 1,
        }
    }

    /// Takes one frame.
    pub fn frame(&mut self, partition: PartitionId, frame: &Frame<'_>) {
        self.frames += 1;
        if frame.hlc > Hlc::OBSERVED_MAX {
            self.stamps_refused += 1;
        } else {
            self.highest = self.highest.max(frame.hlc);
        }
        self.already.insert(frame.router_id, frame.incarnation, partition, frame.partition_seq);
        // A salted device has its window in its own shard; and a foreign producer may have used another partition.
        let home = partition_of(frame.device_id, self.limits.partitions);
        let shelf = &mut self.shelves[usize::from(shard_of(home, self.limits.shards).0)];
        let mut place = [0; KEY_BYTES_MAX];
        let len = frame.key().write_to(&mut place);
        shelf.push(partition, frame.accepted, &place[..len]);
        while shelf.keys > self.limits.keys_per_shard || shelf.bytes > self.limits.key_bytes_per_shard {
            shelf.drop_oldest();
            self.keys_dropped += 1;
        }
    }

    /// What it takes now.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.shelves.iter().map(Shelf::memory_bytes).sum::<usize>() + self.already.memory_bytes()
    }

    /// All that was collected.
    #[must_use]
    pub fn finish(self) -> Warm {
        Warm {
            shards: self.shelves.into_iter().map(WarmKeys).collect(),
            highest: self.highest,
            already: self.already,
            frames: self.frames,
            foreign: self.foreign,
            stamps_refused: self.stamps_refused,
            keys_dropped: self.keys_dropped,
        }
    }
}

impl Warm {
    /// The keys of one shard.
    #[must_use]
    pub fn keys_of(&mut self, shard: ShardId) -> &mut WarmKeys {
        &mut self.shards[usize::from(shard.0)]
    }
}

impl WarmKeys {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.keys
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.keys == 0
    }

    /// Hands over each key and the partition it was found in, oldest first, and forgets it. The same key can come twice.
    pub fn drain(&mut self, each: &mut dyn FnMut(Key<'_>, PartitionId)) {
        let shelf = &mut self.0;
        let mut place = [0; KEY_BYTES_MAX];
        while let Some(partition) = shelf.oldest() {
            let queue = shelf.queues.get_mut(&partition).expect("a head is of a queue");
            let len = usize::from(queue.entries.front().expect("a head is of a queue that is not empty").key_len);
            for (byte, kept) in place.iter_mut().zip(queue.bytes.range(..len)) {
                *byte = *kept;
            }
            queue.pop();
            shelf.put_back(partition);
            each(Key::read_from(&place[..len]).expect("it was written by `write_to`"), partition);
        }
        *shelf = Shelf::default();
    }
}

/// Where a range of numbers begins: the router, by its place in the list of names, its run, its partition, the number.
type Begin = (u32, u64, u32, u64);

/// The exact set of the records that were read.
#[derive(Debug)]
pub struct AlreadyThere {
    routers: HashMap<Box<[u8]>, u32, RandomState>,
    /// To the last number of the range.
    ranges: BTreeMap<Begin, u64>,
    ranges_max: usize,
    left_out: u64,
}

impl AlreadyThere {
    /// A range in a tree whose nodes are half full, and a router's name and its place in the table, should each range be of
    /// a router of its own.
    const RANGE_BYTES_MAX: usize =
        2 * size_of::<(Begin, u64)>() + *wire::ROUTER_ID_BYTES.end() + 3 * size_of::<(Box<[u8]>, u32)>();

    fn new(ranges_max: usize) -> AlreadyThere {
        AlreadyThere {
            routers: HashMap::with_hasher(RandomState::default()),
            ranges: BTreeMap::new(),
            ranges_max,
            left_out: 0,
        }
    }

    /// Whether this very record was read.
    #[must_use]
    pub fn contains(&self, router_id: &[u8], incarnation: u64, partition: PartitionId, number: u64) -> bool {
        let Some(router) = self.routers.get(router_id) else { return false };
        self.range_below((*router, incarnation, partition.0, number)).is_some_and(|(_, last)| number <= last)
    }

    /// Records that were read and are not in the set, since it was full. Of these, `contains` says that they are not there.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Ranges in use.
    #[must_use]
    pub fn ranges(&self) -> usize {
        self.ranges.len()
    }

    /// About what it takes now.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let names: usize = self.routers.keys().map(|name| name.len()).sum();
        let table = self.routers.capacity() * size_of::<(Box<[u8]>, u32)>();
        self.ranges.len() * 2 * size_of::<(Begin, u64)>() + names + table
    }

    /// The range of the same run and partition that begins at `at` or before it.
    fn range_below(&self, at: Begin) -> Option<(Begin, u64)> {
        let (begin, last) = self.ranges.range(..=at).next_back()?;
        ((begin.0, begin.1, begin.2) == (at.0, at.1, at.2)).then_some((*begin, *last))
    }

    fn insert(&mut self, router_id: &[u8], incarnation: u64, partition: PartitionId, number: u64) {
        let known = self.routers.get(router_id).copied();
        let router = match known {
            Some(router) => router,
            None if self.ranges.len() >= self.ranges_max => {
                self.left_out += 1;
                return;
            }
            None => {
                // Each name has a range at least, so there are no more names than ranges.
                let router = self.routers.len() as u32;
                self.routers.insert(router_id.into(), router);
                router
            }
        };
        let at = (router, incarnation, partition.0, number);
        let below = self.range_below(at);
        if below.is_some_and(|(_, last)| number <= last) {
            return;
        }
        // Joins the range that ends just before, or the one that begins just behind, or both.
        let behind = number.checked_add(1).map(|next| (router, incarnation, partition.0, next));
        let last = behind.and_then(|behind| self.ranges.remove(&behind)).unwrap_or(number);
        match below {
            Some((begin, end)) if end + 1 == number => {
                self.ranges.insert(begin, last);
            }
            _ if self.ranges.len() >= self.ranges_max => self.left_out += 1,
            _ => {
                self.ranges.insert(at, last);
            }
        }
    }
}

#[cfg(test)]
mod tests;
