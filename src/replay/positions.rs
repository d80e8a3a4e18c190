//! How far a replay has come, for each partition of the dead letters: up to where every letter is done with. A letter that
//! was read and is not done yet holds its partition's position, whatever comes after it.

use std::collections::{BTreeMap, BTreeSet};

/// The positions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Positions {
    next: BTreeMap<u32, i64>,
    open: BTreeMap<u32, BTreeSet<i64>>,
}

impl Positions {
    /// A partition is read from this offset on.
    pub fn begin(&mut self, partition: u32, offset: i64) {
        self.next.insert(partition, offset);
    }

    /// The letter at this offset was read, and those before it. Of no interest to the replay unless it is `open`.
    pub fn read(&mut self, partition: u32, offset: i64, open: bool) {
        let next = self.next.entry(partition).or_insert(offset);
        *next = (*next).max(offset + 1);
        if open {
            self.open.entry(partition).or_default().insert(offset);
        }
    }

    /// It is done with: acknowledged, or found to be in the topic.
    pub fn done(&mut self, partition: u32, offset: i64) {
        if let Some(open) = self.open.get_mut(&partition) {
            open.remove(&offset);
        }
    }

    /// Letters that were read and are not done.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.values().map(BTreeSet::len).sum()
    }

    /// Where each partition would be read from the next time.
    pub fn resume(&self) -> impl Iterator<Item = (u32, i64)> {
        self.next.iter().map(|(partition, next)| {
            let held = self.open.get(partition).and_then(BTreeSet::first);
            (*partition, held.copied().unwrap_or(*next))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_open_letter_holds_its_partition_and_no_other() {
        let mut positions = Positions::default();
        positions.begin(0, 5);
        positions.begin(1, 0);
        assert_eq!(positions.resume().collect::<Vec<_>>(), [(0, 5), (1, 0)]);
        positions.read(0, 5, true);
        positions.read(0, 6, true);
        positions.read(0, 9, false);
        positions.read(1, 0, false);
        assert_eq!(positions.resume().collect::<Vec<_>>(), [(0, 5), (1, 1)]);
        positions.done(0, 6);
        assert_eq!((positions.resume().next(), positions.open()), (Some((0, 5)), 1));
        positions.done(0, 5);
        assert_eq!((positions.resume().next(), positions.open()), (Some((0, 10)), 0));
    }

    proptest! {
        /// Whatever the order of the acks: the position is the first letter that is not done.
        #[test]
        fn nothing_that_is_not_done_is_passed(order in Just((0_i64..50).collect::<Vec<_>>()).prop_shuffle()) {
            let mut positions = Positions::default();
            positions.begin(3, 0);
            (0..50).for_each(|offset| positions.read(3, offset, true));
            let mut left: std::collections::BTreeSet<i64> = (0..50).collect();
            for offset in order {
                positions.done(3, offset);
                left.remove(&offset);
                let want = left.first().copied().unwrap_or(50);
                prop_assert_eq!(positions.resume().collect::<Vec<_>>(), [(3, want)]);
            }
        }
    }
}
