//! A histogram of nanoseconds with a fixed layout: exact below 32 ns, then 32 buckets to each power of two, up to
//! about 68 s; longer values land in the last bucket and are still counted.

use crate::units::Nanos;
use std::sync::atomic::{AtomicU64, Ordering};

const SUB_BITS: u32 = 5;
const SUB_BUCKETS: usize = 1 << SUB_BITS;
/// 2^36 ns, about 68 s, is the first value that no longer has a bucket of its own.
const VALUE_BITS: u32 = 36;
const BUCKETS: usize = (VALUE_BITS - SUB_BITS + 1) as usize * SUB_BUCKETS;

/// Written by one thread, readable by any; see [`super::Counter`] for the orderings.
pub struct Histogram {
    buckets: Box<[AtomicU64]>,
    max: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(), max: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Bytes a histogram takes.
    pub const BYTES: usize = BUCKETS * size_of::<AtomicU64>();

    /// Counts one value.
    pub fn record(&self, value: Nanos) {
        self.record_many(value, 1);
    }

    /// Counts the same value `count` times.
    pub fn record_many(&self, value: Nanos, count: u64) {
        let bucket = &self.buckets[bucket_of(value.0)];
        bucket.store(bucket.load(Ordering::Relaxed) + count, Ordering::Relaxed);
        if value.0 > self.max.load(Ordering::Relaxed) {
            self.max.store(value.0, Ordering::Relaxed);
        }
    }

    /// A copy to ask questions of.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            counts: self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect(),
            max: Nanos(self.max.load(Ordering::Relaxed)),
        }
    }
}

/// Counts equal values that come in a row, to record them at once: triggers of one batch were accepted together and those
/// of one turn are handed over together, so most of them waited equally long.
#[derive(Debug, Default)]
pub struct Streak {
    value: Nanos,
    count: u64,
}

impl Streak {
    /// Counts one value, which `histogram` shows when another value comes or at the next [`Streak::end`].
    #[inline]
    pub fn record(&mut self, value: Nanos, histogram: &Histogram) {
        if value != self.value {
            self.end(histogram);
            self.value = value;
        }
        self.count += 1;
    }

    /// Records what was counted.
    #[inline]
    pub fn end(&mut self, histogram: &Histogram) {
        if self.count > 0 {
            histogram.record_many(self.value, self.count);
            self.count = 0;
        }
    }
}

/// What a histogram held at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    counts: Vec<u64>,
    max: Nanos,
}

impl Snapshot {
    /// How many values were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The longest value, exact.
    #[must_use]
    pub fn max(&self) -> Nanos {
        self.max
    }

    /// The value that `quantile` (0.0 to 1.0) of all values do not exceed, at most 1/32 too high; zero if empty.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Nanos {
        let total = self.count();
        if total == 0 {
            return Nanos(0);
        }
        let rank = ((total as f64 * quantile).ceil() as u64).clamp(1, total);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Nanos(highest_of(bucket).min(self.max.0));
            }
        }
        self.max
    }

    /// Adds what another histogram of the same stage held.
    pub fn merge(&mut self, other: &Snapshot) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.max = self.max.max(other.max);
    }

    /// What came since `earlier`, an older snapshot of the same histogram. The longest value is then a bucket's bound.
    #[must_use]
    pub fn since(&self, earlier: &Snapshot) -> Snapshot {
        let counts: Vec<u64> = self
            .counts
            .iter()
            .enumerate()
            .map(|(bucket, count)| count - earlier.counts.get(bucket).copied().unwrap_or(0))
            .collect();
        let max = counts.iter().rposition(|count| *count > 0).map_or(0, highest_of);
        Snapshot { counts, max: Nanos(max).min(self.max) }
    }
}

fn bucket_of(value: u64) -> usize {
    if value < SUB_BUCKETS as u64 {
        return value as usize;
    }
    let exponent = 63 - value.leading_zeros();
    if exponent >= VALUE_BITS {
        return BUCKETS - 1;
    }
    let sub = (value >> (exponent - SUB_BITS)) as usize & (SUB_BUCKETS - 1);
    (exponent - SUB_BITS + 1) as usize * SUB_BUCKETS + sub
}

fn highest_of(bucket: usize) -> u64 {
    let (group, sub) = (bucket / SUB_BUCKETS, (bucket % SUB_BUCKETS) as u64);
    if group == 0 {
        return sub;
    }
    let shift = group as u32 - 1;
    ((SUB_BUCKETS as u64 + sub + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_never_reported_lower_and_at_most_a_32nd_higher() {
        let mut value = 1u64;
        while value < 1 << VALUE_BITS {
            for value in [value - 1, value, value + value / 3] {
                let highest = highest_of(bucket_of(value));
                assert!(highest >= value && highest - value <= value / 32 + 1, "{value} reported as {highest}");
            }
            value *= 2;
        }
    }

    #[test]
    fn values_beyond_the_range_are_counted_and_their_maximum_is_exact() {
        let histogram = Histogram::default();
        histogram.record(Nanos(u64::MAX));
        let snapshot = histogram.snapshot();
        assert_eq!((snapshot.count(), snapshot.max()), (1, Nanos(u64::MAX)));
    }

    #[test]
    fn a_streak_records_what_single_values_would() {
        let (single, streaked, mut streak) = (Histogram::default(), Histogram::default(), Streak::default());
        for value in [0, 0, 7, 7, 7, 90_000, 7, 0, 0] {
            single.record(Nanos(value));
            streak.record(Nanos(value), &streaked);
        }
        streak.end(&streaked);
        streak.end(&streaked);
        let (single, streaked) = (single.snapshot(), streaked.snapshot());
        assert_eq!((single.counts, single.max), (streaked.counts, streaked.max));
    }

    #[test]
    fn quantiles_of_one_to_a_thousand() {
        let histogram = Histogram::default();
        (1..=1_000).for_each(|value| histogram.record(Nanos(value * 1_000)));
        let snapshot = histogram.snapshot();
        for (quantile, want) in [(0.5, 500_000), (0.95, 950_000), (0.99, 990_000), (1.0, 1_000_000)] {
            let got = snapshot.quantile(quantile).0;
            assert!(got >= want && got <= want + want / 32 + 1, "P{quantile}: {got}, want {want}");
        }
        assert_eq!(snapshot.since(&snapshot).count(), 0);
    }
}
