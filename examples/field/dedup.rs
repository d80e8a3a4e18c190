//! The product's exact window beside its Bloom filter, both full at the same number of keys: bytes a key, the time of an ask
//! that also puts the key in, and how many new triggers each would have dropped as repeats.
//!
//! The window is in its steady state: every new key pushes out the oldest. A Bloom filter cannot forget, so it is
//! timed over the last keys that fill it to its design size, and asked for absent keys at exactly that size; one that goes
//! on taking keys gets worse than that.

use super::input::spread_text;
use fencepost::dedup::{Seen, Window, WindowLimits};
use fencepost::replay::Bloom;
use fencepost::trigger::{KEY_BYTES_MAX, Key, State};
use fencepost::units::Nanos;
use foldhash::fast::RandomState;
use std::fmt::Write;
use std::time::Instant;

const TOKENS: u32 = 1_024;
const DEVICES: u64 = 4_000;

/// What was found at one size.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Memory of all kinds, for each key.
    pub bytes_a_key: f64,
    /// An ask of a new key, with its hash, and with putting it in.
    pub ask_ns: f64,
    /// Absent keys that were asked for.
    pub asked: u64,
    /// Of those, how many were taken for repeats.
    pub dropped: u64,
    /// Keys that are in and were asked for again; and how many of them were not known.
    pub missed: u64,
}

/// The n-th key of a fleet; all differ.
fn with_key<T>(n: u64, ids: &mut [String; 2], body: impl FnOnce(Key<'_>) -> T) -> T {
    let [device, fence] = ids;
    device.clear();
    fence.clear();
    let written =
        write!(device, "vehicle-{:05}", n % DEVICES).and_then(|()| write!(fence, "fence-{:04}", n / 16 % 6_000));
    written.expect("a String takes all");
    let event_second = 1_790_000_000 + (n / DEVICES) as i64;
    body(Key { device_id: device.as_bytes(), fence_id: fence.as_bytes(), state: State::Enter, event_second })
}

/// The exact window with room for `keys`.
///
/// # Panics
/// If the window is not what it promises.
pub fn exact(keys: usize, asks: u64) -> Found {
    let key_bytes = (keys * 64).max(WindowLimits::key_bytes_min(TOKENS));
    let ttl = Nanos::from_millis(600_000);
    let mut window = Window::new(WindowLimits { capacity: keys, key_bytes, tokens: TOKENS, ttl });
    let hasher = RandomState::default();
    let mut ids = [String::new(), String::new()];
    let now = Nanos(1);
    let mut ask = |n: u64, window: &mut Window, commit: bool| {
        with_key(n, &mut ids, |key| {
            let seen = window.ask(key, key.hash_with(&hasher), now, 0);
            if commit && seen == Seen::New {
                window.commit(0);
            }
            seen
        })
    };
    let full = (keys + keys / 4) as u64;
    for n in 0..full {
        assert_eq!(ask(n, &mut window, true), Seen::New, "all keys differ");
    }
    assert_eq!(window.len(), keys, "the window is full");
    let bytes_a_key = window.memory_bytes() as f64 / keys as f64;
    let began = Instant::now();
    let mut dropped = 0;
    for n in full..full + asks {
        dropped += u64::from(ask(n, &mut window, true) != Seen::New);
    }
    let ask_ns = (began.elapsed().as_nanos() as f64 / asks as f64) - making_ns(asks);
    // What went in last is still in, so each of these is a true repeat.
    let again = asks.min(keys as u64 / 2);
    let missed = (full + asks - again..full + asks).filter(|&n| ask(n, &mut window, false) != Seen::Settled).count();
    Found { bytes_a_key, ask_ns, asked: asks, dropped, missed: missed as u64 }
}

/// The Bloom filter made for `keys`.
pub fn bloom(keys: usize, asks: u64) -> Found {
    let mut filter = Bloom::for_keys(keys);
    let mut ids = [String::new(), String::new()];
    let mut place = [0; KEY_BYTES_MAX];
    let mut on = |n: u64, filter: &mut Bloom, put: bool| {
        with_key(n, &mut ids, |key| {
            let len = key.write_to(&mut place);
            let held = filter.may_hold(&place[..len]);
            if put {
                filter.insert(&place[..len]);
            }
            held
        })
    };
    let keys = keys as u64;
    let timed = (keys / 4).min(asks).max(1);
    for n in 0..keys - timed {
        on(n, &mut filter, true);
    }
    let began = Instant::now();
    for n in keys - timed..keys {
        std::hint::black_box(on(n, &mut filter, true));
    }
    let ask_ns = (began.elapsed().as_nanos() as f64 / timed as f64) - making_ns(timed);
    let dropped = (keys..keys + asks).filter(|&n| on(n, &mut filter, false)).count() as u64;
    let missed = (keys - timed..keys).filter(|&n| !on(n, &mut filter, false)).count() as u64;
    Found { bytes_a_key: filter.memory_bytes() as f64 / keys as f64, ask_ns, asked: asks, dropped, missed }
}

/// What it takes to write the ids of a key, which belongs to neither.
fn making_ns(count: u64) -> f64 {
    let mut ids = [String::new(), String::new()];
    let began = Instant::now();
    for n in 0..count {
        with_key(n, &mut ids, |key| std::hint::black_box(key.device_id.len()));
    }
    began.elapsed().as_nanos() as f64 / count as f64
}

/// The table, in Markdown.
///
/// # Panics
/// If the window drops a new key, or either does not know an old one.
pub fn table(sizes: &[usize], rounds: u64) -> String {
    const ASKS: u64 = 1_000_000;
    let mut text = String::from(
        "| keys | who | bytes a key | ns an ask, new key put in | new triggers dropped per million |\n|---|---|---|---|---|\n",
    );
    for &size in sizes {
        let mut both: [Vec<Found>; 2] = [Vec::new(), Vec::new()];
        for round in 0..rounds {
            // A B, B A, A B …
            for turn in 0..2 {
                let who = ((round + turn) % 2) as usize;
                both[who].push(if who == 0 { exact(size, ASKS) } else { bloom(size, ASKS) });
            }
        }
        for (name, found) in ["exact window", "Bloom filter, 9.6 bits, 7 probes"].iter().zip(&both) {
            assert!(found.iter().all(|found| found.missed == 0), "{name} does not know what it was given: {found:?}");
            let per_million = |found: &Found| found.dropped as f64 * 1e6 / found.asked as f64;
            let of = |what: &dyn Fn(&Found) -> f64, digits: usize| {
                spread_text(found.iter().map(what).collect(), |value| format!("{value:.digits$}"))
            };
            writeln!(
                text,
                "| {} | {name} | {} | {} | {} |",
                super::input::grouped(size as f64),
                of(&|found| found.bytes_a_key, 1),
                of(&|found| found.ask_ns, 0),
                of(&per_million, 0)
            )
            .expect("a String takes all");
        }
        assert!(both[0].iter().all(|found| found.dropped == 0), "the exact window drops nothing: {:?}", both[0]);
    }
    text
}
