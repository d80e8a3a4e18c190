//! What numbers about the work cost: a histogram record, a streak of equal ones, counters, and a page read.

use super::{Body, Size};
use crate::support::Luck;
use fencepost::metrics::{Histogram, ShardPage, Streak};
use fencepost::units::Nanos;
use std::hint::black_box;

const SEED: u64 = 0x7061_6765;

/// Records of a run.
pub fn operations(size: Size) -> u64 {
    size.pick(256, 4_096)
}

/// Pages of a run.
pub fn pages(size: Size) -> u64 {
    size.pick(2, 16)
}

/// From a microsecond to a tenth of a second, every power of two equally likely.
fn values(count: u64) -> Vec<Nanos> {
    let mut luck = Luck(SEED);
    (0..count).map(|_| Nanos((1_000 << luck.below(17)) + u64::from(luck.below(1_000)))).collect()
}

/// A value into a histogram.
pub struct Records {
    histogram: Histogram,
    values: Vec<Nanos>,
    runs: u64,
}

impl Records {
    pub fn new(size: Size) -> Records {
        Records { histogram: Histogram::default(), values: values(operations(size)), runs: 0 }
    }
}

impl Body for Records {
    fn run(&mut self) {
        for value in &self.values {
            self.histogram.record(black_box(*value));
        }
        self.runs += 1;
    }

    fn check(&mut self) {
        check(&self.histogram, &self.values, self.runs);
    }
}

/// Every value is there, and the median is as exact as is promised.
fn check(histogram: &Histogram, values: &[Nanos], runs: u64) {
    let snapshot = histogram.snapshot();
    assert_eq!(snapshot.count(), runs * values.len() as u64);
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    assert_eq!(snapshot.max(), sorted[sorted.len() - 1]);
    let (exact, got) = (sorted[sorted.len().div_ceil(2) - 1].0, snapshot.quantile(0.5).0);
    assert!((exact..=exact + exact / 32 + 1).contains(&got), "the median is {exact}, the histogram says {got}");
}

/// Values of which 32 in a row are equal, as those of one batch are.
pub struct Streaks {
    histogram: Histogram,
    streak: Streak,
    values: Vec<Nanos>,
    runs: u64,
}

impl Streaks {
    pub fn new(size: Size) -> Streaks {
        let values = values(operations(size) / 32).into_iter().flat_map(|value| [value; 32]).collect();
        Streaks { histogram: Histogram::default(), streak: Streak::default(), values, runs: 0 }
    }
}

impl Body for Streaks {
    fn run(&mut self) {
        for value in &self.values {
            self.streak.record(black_box(*value), &self.histogram);
        }
        self.streak.end(&self.histogram);
        self.runs += 1;
    }

    fn check(&mut self) {
        check(&self.histogram, &self.values, self.runs);
    }
}

/// The four counters that every trigger moves.
pub struct Counters {
    page: ShardPage,
    count: u64,
    runs: u64,
}

impl Counters {
    pub fn new(size: Size) -> Counters {
        Counters { page: ShardPage::default(), count: operations(size), runs: 0 }
    }
}

impl Body for Counters {
    fn run(&mut self) {
        for nth in 0..self.count {
            let page = black_box(&self.page);
            page.taken.add(1);
            page.delivered.add(1);
            page.in_flight.set(nth);
            page.dedup_keys.set(nth);
        }
        self.runs += 1;
    }

    fn check(&mut self) {
        let (count, last) = (self.runs * self.count, self.count - 1);
        let page = &self.page;
        assert_eq!((page.taken.get(), page.delivered.get()), (count, count));
        assert_eq!((page.in_flight.get(), page.dedup_keys.get()), (last, last));
    }
}

/// A page read, as an exporter does: four histograms copied and three quantiles of each.
pub struct Pages {
    page: ShardPage,
    values: Vec<Nanos>,
    count: u64,
    runs: u64,
    read: u64,
}

impl Pages {
    pub fn new(size: Size) -> Pages {
        let (page, values) = (ShardPage::default(), values(4_096));
        for value in &values {
            for histogram in [&page.queue, &page.dedup, &page.publish, &page.settle] {
                histogram.record(*value);
            }
        }
        Pages { page, values, count: pages(size), runs: 0, read: 0 }
    }
}

impl Body for Pages {
    fn run(&mut self) {
        for _ in 0..self.count {
            let page = black_box(&self.page);
            for histogram in [&page.queue, &page.dedup, &page.publish, &page.settle] {
                let snapshot = histogram.snapshot();
                for quantile in [0.5, 0.99, 0.999] {
                    black_box(snapshot.quantile(black_box(quantile)));
                }
                self.read += snapshot.count();
            }
        }
        self.runs += 1;
    }

    fn check(&mut self) {
        assert_eq!(self.read, self.runs * self.count * 4 * self.values.len() as u64);
        check(&self.page.publish, &self.values, 1);
    }
}
