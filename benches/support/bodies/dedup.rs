//! Asks of a dedup window that is full and in its steady state, some of them repeats.
//!
//! Keys are those of a fleet: ids of 12 and 10 bytes, 4,096 devices in turn, 256 fences, fresh seconds; seed
//! `0x5eed_0fde_d0b5`. Every new key pushes out the oldest, and 512 keys are in flight. Hashes are made outside the
//! measurement, as they are made outside the shard.

use super::{Body, Size};
use fencepost::dedup::{Seen, Window, WindowLimits};
use fencepost::trigger::{Key, State};
use fencepost::units::Nanos;

/// Devices that take turns.
const DEVICES: u64 = 4_096;
/// Keys that may be in flight.
pub const TOKENS: u32 = 1_024;
/// Keys that are.
pub const IN_FLIGHT: u64 = 512;
const SEED: u64 = 0x5eed_0fde_d0b5;

/// Asks of a run.
pub fn operations(size: Size) -> u64 {
    size.pick(1_024, 4_096)
}

/// The ids of a fleet, and the n-th key it sends.
pub struct Fleet {
    devices: Vec<[u8; 12]>,
    fences: Vec<[u8; 10]>,
}

impl Fleet {
    pub fn new() -> Fleet {
        let devices = (0..DEVICES).map(|n| format!("vehicle-{n:04}").into_bytes().try_into().expect("12 bytes"));
        let fences = (0..256).map(|n| format!("fence-{n:04}").into_bytes().try_into().expect("10 bytes"));
        Fleet { devices: devices.collect(), fences: fences.collect() }
    }

    /// The `n`-th key.
    #[inline]
    pub fn key(&self, n: u64) -> Key<'_> {
        Key {
            device_id: &self.devices[(n % DEVICES) as usize],
            fence_id: &self.fences[(n >> 4) as usize & 255],
            state: State::Enter,
            event_second: 1_790_000_000 + (n / DEVICES) as i64,
        }
    }
}

/// SplitMix64 of a number: a stand-in for the seeded hash, as well spread.
pub fn mix(n: u64) -> u64 {
    let mut x = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ SEED;
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A window in its steady state, and how many keys have gone through it.
pub struct Full {
    /// The window.
    pub window: Window,
    /// Keys so far.
    pub sent: u64,
}

impl Full {
    pub fn new(keys: usize, fleet: &Fleet) -> Full {
        let limits = WindowLimits {
            capacity: keys,
            key_bytes: (keys * 64).max(WindowLimits::key_bytes_min(TOKENS)),
            tokens: TOKENS,
            ttl: Nanos::from_millis(10_000),
        };
        let mut full = Full { window: Window::new(limits), sent: 0 };
        for _ in 0..keys + keys / 4 {
            full.miss_commit(fleet, mix(full.sent));
        }
        assert_eq!(full.window.len(), keys, "the window is full");
        full
    }

    /// One new key in, the one that came `IN_FLIGHT` before it settled, the oldest out.
    #[inline]
    pub fn miss_commit(&mut self, fleet: &Fleet, hash: u64) {
        let n = self.sent;
        let token = (n % u64::from(TOKENS)) as u32;
        let seen = self.window.ask(fleet.key(n), hash, Nanos(n), token);
        assert!(seen == Seen::New);
        if n >= IN_FLIGHT {
            self.window.commit(((n - IN_FLIGHT) % u64::from(TOKENS)) as u32);
        }
        self.sent += 1;
    }
}

/// One ask that is to come.
struct Ask {
    n: u64,
    hash: u64,
    is_new: bool,
}

/// Asks of which so many in a hundred repeat a settled key of the newer half of the window.
pub struct Asks {
    full: Full,
    fleet: Fleet,
    hits_of_100: u64,
    count: u64,
    asks: Vec<Ask>,
    asked: u64,
    before: u64,
    new: u64,
    settled: u64,
}

impl Asks {
    pub fn new(keys: usize, hits_of_100: u64, size: Size) -> Asks {
        // As a test, the windows that take long to fill are smaller ones.
        let keys = size.pick(keys.min(8_192), keys);
        let fleet = Fleet::new();
        let full = Full::new(keys, &fleet);
        let (count, before) = (operations(size), full.sent);
        Asks { full, fleet, hits_of_100, count, asks: Vec::new(), asked: 0, before, new: 0, settled: 0 }
    }
}

impl Body for Asks {
    fn prepare(&mut self) {
        self.asks.clear();
        let reach = self.full.window.capacity() as u64 / 2 - IN_FLIGHT;
        let mut next = self.full.sent;
        for _ in 0..self.count {
            let luck = mix(self.asked ^ 1 << 62);
            self.asked += 1;
            let is_new = luck % 100 >= self.hits_of_100;
            let n = if is_new { next } else { next - IN_FLIGHT - 1 - (luck >> 8) % reach };
            next += u64::from(is_new);
            self.asks.push(Ask { n, hash: mix(n), is_new });
        }
        self.new += self.asks.iter().filter(|ask| ask.is_new).count() as u64;
    }

    fn run(&mut self) {
        for ask in &self.asks {
            if ask.is_new {
                self.full.miss_commit(&self.fleet, ask.hash);
            } else {
                let seen = self.full.window.ask(self.fleet.key(ask.n), ask.hash, Nanos(self.full.sent), 0);
                self.settled += u64::from(seen == Seen::Settled);
            }
        }
    }

    fn check(&mut self) {
        assert_eq!(self.full.sent - self.before, self.new, "every new key was new");
        assert_eq!(self.settled, self.asked - self.new, "every repeat was one");
        assert_eq!(
            (self.full.window.len(), self.full.window.pending() as u64),
            (self.full.window.capacity(), IN_FLIGHT)
        );
        self.full.window.assert_consistent();
    }
}
