//! What submit does to each trigger on its own: the rules, the partition, the key's hash. And the stamp, which the shard gives.

use super::{Body, Size};
use crate::support::ids::{COUNT, Item, NOW, items};
use fencepost::hlc::{Hlc, HlcClock};
use fencepost::partition::{murmur2, partition_of, self_test};
use fencepost::trigger::{Rules, rules};
use foldhash::fast::FixedState;
use std::collections::HashSet;
use std::hint::black_box;

const PARTITIONS: u32 = 24;

/// Triggers of a run.
pub fn operations(size: Size) -> u64 {
    size.pick(256, COUNT as u64)
}

/// The partition of a device: murmur2 and one division.
pub struct Partitions {
    items: Vec<Item>,
    runs: u64,
    sum: u64,
}

impl Partitions {
    pub fn new(ids: &str, size: Size) -> Partitions {
        Partitions { items: items(ids, operations(size) as usize), runs: 0, sum: 0 }
    }
}

impl Body for Partitions {
    fn run(&mut self) {
        for item in &self.items {
            self.sum += u64::from(partition_of(black_box(item.device.as_bytes()), black_box(PARTITIONS)).0);
        }
        self.runs += 1;
    }

    fn check(&mut self) {
        self_test().expect("the hash is the Java client's");
        assert_eq!(murmur2(b"kafka"), -798_503_068);
        // The way Kafka's own client says it.
        let of = |item: &Item| (murmur2(item.device.as_bytes()) & 0x7fff_ffff) as u64 % u64::from(PARTITIONS);
        assert_eq!(self.sum, self.runs * self.items.iter().map(of).sum::<u64>());
        assert_eq!(self.items.iter().map(of).collect::<HashSet<u64>>().len(), PARTITIONS as usize, "each has devices");
    }
}

/// Every rule, on triggers that keep them.
pub struct Checks {
    items: Vec<Item>,
    runs: usize,
    kept: usize,
}

impl Checks {
    pub fn new(ids: &str, size: Size) -> Checks {
        Checks { items: items(ids, operations(size) as usize), runs: 0, kept: 0 }
    }
}

impl Body for Checks {
    fn run(&mut self) {
        let limits = Rules::default();
        for item in &self.items {
            let trigger = item.trigger();
            self.kept += usize::from(rules::check(black_box(&trigger), black_box(NOW), &limits).is_ok());
        }
        self.runs += 1;
    }

    fn check(&mut self) {
        assert_eq!(self.kept, self.runs * self.items.len());
        let mut broken = self.items[0].trigger();
        broken.device_id = "";
        assert!(rules::check(&broken, NOW, &Rules::default()).is_err(), "the rules do refuse");
    }
}

/// The hash of the idempotency key, with a fixed seed.
pub struct Hashes {
    items: Vec<Item>,
    hasher: FixedState,
    runs: u64,
    sum: u64,
}

impl Hashes {
    pub fn new(ids: &str, size: Size) -> Hashes {
        let items = items(ids, operations(size) as usize);
        Hashes { items, hasher: FixedState::with_seed(7), runs: 0, sum: 0 }
    }
}

impl Body for Hashes {
    fn run(&mut self) {
        for item in &self.items {
            let trigger = item.trigger();
            self.sum = self.sum.wrapping_add(black_box(&trigger).key().hash_with(&self.hasher));
        }
        self.runs += 1;
    }

    fn check(&mut self) {
        let hashes: HashSet<u64> = self.items.iter().map(|item| item.trigger().key().hash_with(&self.hasher)).collect();
        assert_eq!(hashes.len(), self.items.len(), "no two keys of them share a hash");
        let once = hashes.iter().fold(0_u64, |sum, hash| sum.wrapping_add(*hash));
        assert_eq!(self.sum, once.wrapping_mul(self.runs), "the same keys, the same hashes");
    }
}

/// The stamp of a trigger, many within one millisecond.
pub struct Ticks {
    clock: HlcClock,
    now: fencepost::units::UnixMs,
    count: u64,
    runs: u64,
}

impl Ticks {
    pub fn new(size: Size) -> Ticks {
        Ticks { clock: HlcClock::new(), now: NOW, count: operations(size), runs: 0 }
    }
}

impl Body for Ticks {
    fn prepare(&mut self) {
        self.now = fencepost::units::UnixMs(NOW.0 + self.runs as i64);
    }

    fn run(&mut self) {
        for _ in 0..self.count {
            black_box(self.clock.tick(black_box(self.now)));
        }
        self.runs += 1;
    }

    fn check(&mut self) {
        assert_eq!(self.clock.last(), Hlc::new(self.now.0 as u64, (self.count - 1) as u16), "one higher each time");
    }
}
