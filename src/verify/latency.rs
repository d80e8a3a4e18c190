//! How long deliveries took: counts in buckets that are exact up to 63 µs and at most 1/32 too wide above. 15 KiB.

const SUB_BITS: u32 = 5;
const BUCKETS: usize = 64 + (64 - 6) * (1 << SUB_BITS);

/// A histogram of microseconds.
#[derive(Clone)]
pub(super) struct Latency {
    counts: Box<[u64; BUCKETS]>,
    count: u64,
    max: u64,
}

impl Latency {
    pub(super) fn new() -> Latency {
        Latency { counts: Box::new([0; BUCKETS]), count: 0, max: 0 }
    }

    pub(super) fn record(&mut self, us: u64) {
        self.counts[bucket(us)] += 1;
        self.count += 1;
        self.max = self.max.max(us);
    }

    pub(super) fn max(&self) -> u64 {
        self.max
    }

    /// The value below or at which `percent` of all lie, rounded up to its bucket's end; 0 when there are none.
    pub(super) fn percentile(&self, percent: f64) -> u64 {
        let wanted = ((self.count as f64 * percent / 100.0).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return bucket_end(index).min(self.max);
            }
        }
        0
    }
}

fn bucket(us: u64) -> usize {
    if us < 64 {
        return us as usize;
    }
    let magnitude = us.ilog2();
    let sub = (us >> (magnitude - SUB_BITS)) as usize & ((1 << SUB_BITS) - 1);
    64 + (magnitude as usize - 6) * (1 << SUB_BITS) + sub
}

fn bucket_end(index: usize) -> u64 {
    if index < 64 {
        return index as u64;
    }
    let (above, sub) = ((index - 64) >> SUB_BITS, (index - 64) & ((1 << SUB_BITS) - 1));
    let shift = above as u32 + 6 - SUB_BITS;
    let start = ((1_u64 << SUB_BITS) + sub as u64) << shift;
    start + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_in_a_bucket_that_ends_at_most_a_32nd_above_it() {
        let mut values: Vec<u64> = (0..5_000).collect();
        values.extend((6..64).flat_map(|bits| [1_u64 << bits, (1 << bits) - 1, (1 << bits) + 1]));
        values.push(u64::MAX);
        for value in values {
            let end = bucket_end(bucket(value));
            assert!(end >= value && end - value <= value / 32, "{value} is in a bucket that ends at {end}");
            assert!(end == u64::MAX || bucket(end + 1) == bucket(value) + 1);
        }
    }

    #[test]
    fn percentiles_of_known_values() {
        let mut latency = Latency::new();
        assert_eq!(latency.percentile(99.0), 0);
        for value in 1..=1_000 {
            latency.record(value);
        }
        for (percent, exact) in [(50.0, 500), (95.0, 950), (99.0, 990), (100.0, 1_000)] {
            let got = latency.percentile(percent);
            assert!((exact..=exact + exact / 32).contains(&got), "P{percent} = {got}");
        }
        assert_eq!(latency.max(), 1_000);
    }
}
