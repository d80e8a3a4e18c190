//! What is settled of one ring, seen from its shard: which popped seqs are outstanding, and the frontier below which
//! none is. One bit a seq over the settle window; setting, clearing and the walk of the frontier are a few instructions
//! a trigger, and no locked one: each ring has one shard, and the ingress takes the lowest frontier of its rings.

use crate::canary::{Canary, is_planted};

/// The outstanding seqs of one ring.
pub struct Outstanding {
    /// A set bit: popped and not settled. Index: seq modulo the window.
    bits: Box<[u64]>,
    /// No seq below is outstanding.
    low: u64,
    /// The last seq popped.
    last: u64,
    count: u64,
}

impl Outstanding {
    /// For at most `window` seqs between the oldest outstanding one and the newest.
    ///
    /// # Panics
    /// If the window is not a power of two of at least 64.
    #[must_use]
    pub fn new(window: usize) -> Outstanding {
        assert!(window.is_power_of_two() && window >= 64, "a settle window is a power of two from 64 on, not {window}");
        Outstanding { bits: vec![0; window / 64].into_boxed_slice(), low: 1, last: 0, count: 0 }
    }

    /// A seq was popped; each is higher than the one before.
    #[inline]
    pub fn open(&mut self, seq: u64) {
        debug_assert!(seq > self.last, "seq {seq} popped after {}", self.last);
        if self.count == 0 {
            self.low = seq;
        } else if seq - self.low >= self.window() {
            self.walk();
            assert!(seq - self.low < self.window(), "submit let more than a settle window be unsettled");
        }
        self.last = seq;
        self.count += 1;
        let (word, bit) = self.place(seq);
        debug_assert_eq!(self.bits[word] & bit, 0);
        self.bits[word] |= bit;
    }

    /// A seq that is open is settled.
    pub fn settle(&mut self, seq: u64) {
        let (word, bit) = self.place(seq);
        debug_assert_ne!(self.bits[word] & bit, 0, "seq {seq} settled twice");
        self.bits[word] &= !bit;
        self.count -= 1;
    }

    /// A seq that was popped and is settled at once.
    pub fn pass(&mut self, seq: u64) {
        debug_assert!(seq > self.last, "seq {seq} popped after {}", self.last);
        self.last = seq;
    }

    /// All popped seqs up to this one are settled.
    pub fn frontier(&mut self) -> u64 {
        if self.count == 0 {
            return self.last;
        }
        self.walk();
        if is_planted(Canary::WatermarkTooFar) { self.low } else { self.low - 1 }
    }

    /// Bytes one of these takes.
    #[must_use]
    pub const fn memory_bytes(window: usize) -> usize {
        window / 8
    }

    fn window(&self) -> u64 {
        self.bits.len() as u64 * 64
    }

    fn place(&self, seq: u64) -> (usize, u64) {
        ((seq / 64) as usize & (self.bits.len() - 1), 1 << (seq % 64))
    }

    /// Moves `low` up to the first outstanding seq. There is one.
    #[inline(never)]
    fn walk(&mut self) {
        loop {
            let (word, _) = self.place(self.low);
            let rest = self.bits[word] >> (self.low % 64);
            if rest != 0 {
                self.low += u64::from(rest.trailing_zeros());
                return;
            }
            self.low = (self.low / 64 + 1) * 64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn o6_the_frontier_waits_for_the_first() {
        let mut ring = Outstanding::new(64);
        (1..=4).for_each(|seq| ring.open(seq));
        (2..=4).for_each(|seq| ring.settle(seq));
        assert_eq!(ring.frontier(), 0);
        ring.settle(1);
        assert_eq!(ring.frontier(), 4);
    }

    proptest! {
        #[test]
        fn the_frontier_is_below_the_lowest_outstanding(
            steps in prop::collection::vec((0u8..4, 1u64..5, any::<prop::sample::Index>()), 1..500)
        ) {
            let mut ring = Outstanding::new(128);
            let mut model = BTreeSet::new();
            let mut last = 0;
            for (kind, gap, pick) in steps {
                let first = model.first().copied().unwrap_or(last + gap);
                if kind < 2 && last + gap - first < 128 {
                    last += gap;
                    ring.open(last);
                    model.insert(last);
                } else if kind == 2 && last + gap - first < 128 {
                    last += gap;
                    ring.pass(last);
                } else if !model.is_empty() {
                    let seq = *model.iter().nth(pick.index(model.len())).unwrap();
                    ring.settle(seq);
                    model.remove(&seq);
                }
                prop_assert_eq!(ring.frontier(), model.first().map_or(last, |seq| seq - 1));
            }
        }
    }
}
