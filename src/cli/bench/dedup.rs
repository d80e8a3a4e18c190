//! What an ask of the dedup window costs from some keys to many millions, each size beside a bare random read of as much
//! memory as the window's live keys and table take: one read after the other (chained), and overlapping (free). What grows
//! beyond the reads would be the window's own.
//!
//! Each window is full and in its steady state: every new key pushes out the oldest. Keys are those of a fleet, 512 of them
//! in flight. Hashes are made outside the measured time, as they are made outside the shard.

use super::context::{Context, Progress};
use super::load::Load;
use super::machine::available_bytes;
use super::outcome::{Axis, Chart, Outcome, Table, Unit};
use super::{CliError, Seconds};
use crate::cli::table::{bytes, grouped};
use crate::dedup::{Seen, Window, WindowLimits};
use crate::units::Nanos;
use clap::Args;
use std::hint::black_box;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// Keys of a window.
const KEYS: RangeInclusive<usize> = 1_024..=64_000_000;
const TOKENS: u32 = 1_024;
const IN_FLIGHT: u64 = 512;
/// Asks measured together; the median of the batches counts, since one that another process interrupted says nothing.
const BATCH: u64 = 4_096;
const SEED: u64 = 0x5eed_0fde_d0b5;
/// Between two looks at signals and progress while a window is filled.
const FILL_CHUNK: usize = 1 << 16;

#[derive(Args)]
pub(super) struct DedupScale {
    /// How many keys the windows have, one window after the other, with commas between.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "100000,400000,1000000,4000000,16000000")]
    keys: Vec<usize>,
    #[command(flatten)]
    seconds: Seconds,
}

/// A cost of a [`Point`].
type Cost = fn(&Point) -> f64;

/// One size.
struct Point {
    keys: usize,
    footprint: usize,
    miss_commit: f64,
    hit: f64,
    chained: f64,
    free: f64,
    asks: u64,
}

impl DedupScale {
    pub(super) fn run(&self, context: &Context) -> Result<Outcome, CliError> {
        self.check()?;
        let load = Load::new();
        let mut points = Vec::new();
        for &keys in &self.keys {
            let Some(point) = self.measure(keys, &load, context) else { break };
            let [miss, chained] = [point.miss_commit, point.chained].map(|nanos| Unit::Nanos.text(nanos));
            tell!("  {:>11} keys  miss and commit {miss:>8}  chained read {chained:>8}", grouped(keys as u64));
            points.push(point);
            if context.is_stopped() {
                break;
            }
        }
        Ok(self.outcome(&points))
    }

    fn check(&self) -> Result<(), CliError> {
        for &keys in &self.keys {
            if !KEYS.contains(&keys) {
                return Err(CliError::Usage(format!(
                    "--keys {keys}, allowed {}..={}: 100000,1000000,16000000 shows how it grows",
                    KEYS.start(),
                    KEYS.end()
                )));
            }
            let (needed, free) = (limits(keys).memory_bytes() as u64, available_bytes());
            if let Some(free) = free.filter(|free| needed > *free) {
                return Err(CliError::Unavailable(format!(
                    "--keys {keys} takes {}, and {} of memory are free: take fewer",
                    bytes(needed),
                    bytes(free)
                )));
            }
        }
        Ok(())
    }

    /// `None`: somebody asked for the end before the window was full.
    fn measure(&self, keys: usize, load: &Load, context: &Context) -> Option<Point> {
        let each = self.seconds.span() / 4;
        let mut full = Full { window: Window::new(limits(keys)), sent: 0 };
        let mut progress = Progress::new();
        let all = keys + keys / 4;
        while (full.sent as usize) < all {
            let until = all.min(full.sent as usize + FILL_CHUNK) as u64;
            (full.sent..until).for_each(|n| full.miss_commit(load, mix(n)));
            progress
                .tell(|| format!("filling {} of {} keys", grouped(full.sent.min(keys as u64)), grouped(keys as u64)));
            if context.is_stopped() {
                return None;
            }
        }
        assert_eq!(full.window.len(), keys, "the window is full");
        tell!("  measuring {} keys for {} s", grouped(keys as u64), self.seconds.seconds);
        let first = full.sent;
        let miss_commit =
            in_batches(context, each, |n| (first + n, mix(first + n)), |_, hash| full.miss_commit(load, hash));
        let (oldest, settled) = (full.sent - keys as u64, keys as u64 - IN_FLIGHT);
        let pick = |n: u64| {
            let n = oldest + mix(n ^ (1 << 40)) % settled;
            (n, mix(n))
        };
        let now = Nanos(full.sent);
        let hit = in_batches(context, each, pick, |n, hash| {
            let seen = full.window.ask(load.trigger(n).key(), hash, now, 0);
            assert!(seen == Seen::Settled, "a key that was sent is known");
        });
        full.window.assert_consistent();
        let record = WindowLimits::record_bytes(load.trigger(0).key().stored_len());
        let footprint = keys * record + full.window.table_bytes();
        let asks = miss_commit.1 + hit.1;
        drop(full);
        let words: Vec<u64> = (0..(footprint / 8) as u64).map(mix).collect();
        let count = words.len() as u64;
        // The high half of a product: a place below `count` without a division.
        let at = |n: u64| ((u128::from(n) * u128::from(count)) >> 64) as usize;
        let (mut last, mut sum) = (0, 0_u64);
        let chained =
            in_batches(context, each, |n| (n, mix(n ^ (2 << 40))), |_, place| last = words[at(place ^ (last & 1))]);
        let free =
            in_batches(context, each, |n| (n, mix(n ^ (3 << 40))), |_, place| sum = sum.wrapping_add(words[at(place)]));
        black_box((last, sum));
        Some(Point { keys, footprint, miss_commit: miss_commit.0, hit: hit.0, chained: chained.0, free: free.0, asks })
    }

    fn outcome(&self, points: &[Point]) -> Outcome {
        let title = "What an ask of the dedup window costs by its keys, beside a bare random read of as much memory.";
        let mut outcome = Outcome::new("dedup-scale", title.into());
        outcome.set("seconds", "each size", self.seconds.seconds, Unit::Seconds);
        let columns = [
            ("keys", Unit::Count),
            ("footprint", Unit::Bytes),
            ("miss and commit", Unit::Nanos),
            ("hit", Unit::Nanos),
            ("chained read", Unit::Nanos),
            ("free read", Unit::Nanos),
            ("miss, in chained reads", Unit::Ratio),
        ];
        let mut table = Table::new("By number of keys", &columns);
        let mut chart = Chart::new(
            "Cost by number of keys",
            Axis::log("keys in the window", Unit::Count),
            Axis::linear("each, median of the batches", Unit::Nanos),
        );
        for point in points {
            table.row([
                (point.keys as u64).into(),
                (point.footprint as u64).into(),
                point.miss_commit.into(),
                point.hit.into(),
                point.chained.into(),
                point.free.into(),
                (point.miss_commit / point.chained).into(),
            ]);
        }
        let lines: [(&str, Cost); 4] = [
            ("miss and commit", |point| point.miss_commit),
            ("hit", |point| point.hit),
            ("chained read", |point| point.chained),
            ("free read", |point| point.free),
        ];
        for (name, of) in lines {
            chart.curve(name, points.iter().map(|point| (point.keys as f64, of(point))));
        }
        if let (Some(least), Some(most)) = (points.first(), points.last()) {
            outcome.figure("grew", "miss and commit, last ÷ first", most.miss_commit / least.miss_commit, Unit::Ratio);
            outcome.figure("read_grew", "chained read, last ÷ first", most.chained / least.chained, Unit::Ratio);
        }
        let asks: u64 = points.iter().map(|point| point.asks).sum();
        outcome.figure("asks", "asks measured", asks, Unit::Count);
        // A wrong answer ends the measurement where it is given.
        outcome.check("answers", true, format!("each of {} answers was right", grouped(asks)));
        outcome.tables.push(table);
        outcome.charts.push(chart);
        outcome
    }
}

fn limits(keys: usize) -> WindowLimits {
    WindowLimits {
        capacity: keys,
        key_bytes: (keys * 64).max(WindowLimits::key_bytes_min(TOKENS)),
        tokens: TOKENS,
        ttl: Nanos::from_millis(10_000),
    }
}

/// SplitMix64: a stand-in for the seeded hash, as well spread.
fn mix(n: u64) -> u64 {
    let mut x = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ SEED;
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A window in its steady state, and how many keys have gone through it.
struct Full {
    window: Window,
    sent: u64,
}

impl Full {
    /// One new key in, the one that came `IN_FLIGHT` before it settled, the oldest out.
    #[inline]
    fn miss_commit(&mut self, load: &Load, hash: u64) {
        let n = self.sent;
        let token = (n % u64::from(TOKENS)) as u32;
        let seen = self.window.ask(load.trigger(n).key(), hash, Nanos(n), token);
        assert!(seen == Seen::New, "a new key is new");
        if n >= IN_FLIGHT {
            self.window.commit(((n - IN_FLIGHT) % u64::from(TOKENS)) as u32);
        }
        self.sent += 1;
    }
}

/// Measures `work` for `span` over numbers that `pick` chooses outside the measured time. Answers the nanoseconds of one
/// in the median batch, and how many there were.
fn in_batches(
    context: &Context,
    span: Duration,
    mut pick: impl FnMut(u64) -> (u64, u64),
    mut work: impl FnMut(u64, u64),
) -> (f64, u64) {
    let (mut spent, mut chosen, mut done) = (Vec::new(), Vec::with_capacity(BATCH as usize), 0);
    let began = Instant::now();
    while spent.is_empty() || began.elapsed() < span && !context.is_stopped() {
        chosen.clear();
        chosen.extend((done..done + BATCH).map(&mut pick));
        let start = Instant::now();
        for &(n, hash) in &chosen {
            work(n, hash);
        }
        spent.push(start.elapsed().as_nanos() as f64 / BATCH as f64);
        done += BATCH;
    }
    spent.sort_by(f64::total_cmp);
    (spent[spent.len() / 2], done)
}
