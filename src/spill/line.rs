//! One partition's line: which of its records are alive, and where they lie.
//!
//! A line is a list of **runs** in the order of sequences: records that follow one another without a gap and lie in one
//! segment at rising offsets, between records of others. Normally there is one run for each segment the partition wrote
//! to; copying a run forward gives one run again. So the memory follows the segments, not the records.

use std::collections::VecDeque;

/// Records `first..=last` of a partition in one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first sequence.
    pub first: u64,
    /// The last sequence.
    pub last: u64,
    /// In which segment.
    pub slot: u32,
    /// Where to begin looking: at the first record, or, when some were released since, before it.
    pub start: u64,
    /// Where the last record begins.
    pub end: u64,
    /// Their bytes on disk. When part of a run goes, its share by number goes with it.
    pub bytes: u64,
}

/// What left a line: so many records and bytes of this segment are dead now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freed {
    /// In which segment.
    pub slot: u32,
    /// How many records.
    pub records: u64,
    /// How many bytes.
    pub bytes: u64,
}

/// The runs of a partition, and their sums.
#[derive(Clone, Debug, Default)]
pub struct Line {
    runs: VecDeque<Run>,
    records: u64,
    bytes: u64,
}

impl Line {
    /// Makes room for so many runs.
    pub fn reserve(&mut self, runs: usize) {
        self.runs.reserve(runs.saturating_sub(self.runs.len()));
    }

    /// The runs, in order.
    pub fn runs(&self) -> &VecDeque<Run> {
        &self.runs
    }

    /// Live records.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Live bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The highest live sequence; 0 if there is none.
    pub fn last(&self) -> u64 {
        self.runs.back().map_or(0, |run| run.last)
    }

    /// The run that holds `sequence`, or else the first one behind it.
    pub fn run_at_or_after(&self, sequence: u64) -> Option<&Run> {
        self.runs.get(self.index_at_or_after(sequence))
    }

    /// In which segment the live copy of a record lies.
    pub fn slot_of(&self, sequence: u64) -> Option<u32> {
        self.run_at_or_after(sequence).filter(|run| run.first <= sequence).map(|run| run.slot)
    }

    fn index_at_or_after(&self, sequence: u64) -> usize {
        match self.runs.front() {
            // The two ends are where nearly all questions go.
            Some(front) if front.last >= sequence => 0,
            Some(_) if self.last() < sequence => self.runs.len(),
            _ => self.runs.partition_point(|run| run.last < sequence),
        }
    }

    /// Says where the live copy of a record lies. A copy known before is dead then, and handed to `freed`.
    pub fn place(&mut self, sequence: u64, slot: u32, at: u64, bytes: u64, freed: impl FnMut(Freed)) {
        if sequence <= self.last() {
            self.cut(sequence, sequence, freed);
        }
        self.records += 1;
        self.bytes += bytes;
        let index = self.index_at_or_after(sequence);
        if let Some(run) = index.checked_sub(1).and_then(|before| self.runs.get_mut(before))
            && run.last + 1 == sequence
            && run.slot == slot
            && run.end < at
        {
            run.last = sequence;
            run.end = at;
            run.bytes += bytes;
            return;
        }
        self.runs.insert(index, Run { first: sequence, last: sequence, slot, start: at, end: at, bytes });
    }

    /// Takes `first..=last` out, whatever of it is there.
    pub fn cut(&mut self, first: u64, last: u64, mut freed: impl FnMut(Freed)) {
        let mut index = self.index_at_or_after(first);
        while let Some(run) = self.runs.get_mut(index).filter(|run| run.first <= last) {
            let whole = *run;
            let (from, to) = (first.max(whole.first), last.min(whole.last));
            let (count, gone) = (whole.last - whole.first + 1, to - from + 1);
            let bytes = if gone == count {
                whole.bytes
            } else {
                (u128::from(whole.bytes) * u128::from(gone) / u128::from(count)) as u64
            };
            self.records -= gone;
            self.bytes -= bytes;
            freed(Freed { slot: whole.slot, records: gone, bytes });
            if gone == count {
                self.runs.remove(index);
            } else if from == whole.first {
                (run.first, run.bytes) = (to + 1, whole.bytes - bytes);
                index += 1;
            } else if to == whole.last {
                (run.last, run.bytes) = (from - 1, whole.bytes - bytes);
                index += 1;
            } else {
                let rest = whole.bytes - bytes;
                let (left, right) = (from - whole.first, whole.last - to);
                let front = (u128::from(rest) * u128::from(left) / u128::from(left + right)) as u64;
                (run.last, run.bytes) = (from - 1, front);
                self.runs.insert(index + 1, Run { first: to + 1, bytes: rest - front, ..whole });
                return;
            }
        }
    }

    /// The `count` neighbouring runs with the fewest bytes: first and last sequence. `None` if there are not as many.
    pub fn lightest(&self, count: usize) -> Option<(u64, u64)> {
        let windows = self.runs.len().checked_sub(count)? + 1;
        let sum = |from: usize| self.runs.range(from..from + count).map(|run| run.bytes).sum::<u64>();
        let best = (0..windows).min_by_key(|&from| sum(from))?;
        Some((self.runs[best].first, self.runs[best + count - 1].last))
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.runs.capacity() * size_of::<Run>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn records_in_a_row_are_one_run_until_the_segment_changes() {
        let mut line = Line::default();
        for sequence in 1..=10 {
            line.place(sequence, u32::from(sequence > 6), sequence * 100, 50, |_| panic!("nothing dies"));
        }
        assert_eq!(line.runs().len(), 2);
        assert_eq!((line.records(), line.bytes(), line.last()), (10, 500, 10));
        assert_eq!((line.slot_of(6), line.slot_of(7), line.slot_of(11)), (Some(0), Some(1), None));
    }

    #[test]
    fn a_run_that_is_copied_forward_is_one_run_again() {
        let mut line = Line::default();
        for sequence in 1..=10 {
            line.place(sequence, 0, sequence * 100, 50, |_| ());
        }
        let mut freed = 0;
        for sequence in 1..=10 {
            line.place(sequence, 1, sequence * 60, 50, |gone| freed += gone.records * u64::from(gone.slot == 0));
        }
        assert_eq!(freed, 10);
        assert_eq!(
            line.runs().iter().copied().collect::<Vec<_>>(),
            [Run { first: 1, last: 10, slot: 1, start: 60, end: 600, bytes: 500 }]
        );
    }

    #[derive(Clone, Debug)]
    enum Step {
        Append(u64),
        Move(u64, u64),
        Cut(u64, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (1..9_u64).prop_map(Step::Append),
            2 => (0..60_u64, 0..12_u64).prop_map(|(from, count)| Step::Move(from, count)),
            2 => (0..60_u64, 0..20_u64).prop_map(|(from, count)| Step::Cut(from, count)),
        ]
    }

    proptest! {
        #[test]
        fn a_line_says_what_a_plain_map_says(steps in proptest::collection::vec(step(), 1..60)) {
            let (mut line, mut model) = (Line::default(), BTreeMap::new());
            let (mut live, mut next, mut slot, mut at) = (BTreeMap::<u32, (u64, u64)>::new(), 1, 0, 0);
            let mut put = |line: &mut Line, model: &mut BTreeMap<u64, u32>, sequence, slot, live: &mut BTreeMap<u32, (u64, u64)>| {
                at += 10;
                line.place(sequence, slot, at, 7, |gone| {
                    let sums = live.get_mut(&gone.slot).unwrap();
                    *sums = (sums.0 - gone.records, sums.1 - gone.bytes);
                });
                model.insert(sequence, slot);
                let sums = live.entry(slot).or_default();
                *sums = (sums.0 + 1, sums.1 + 7);
            };
            for step in steps {
                match step {
                    Step::Append(count) => for _ in 0..count {
                        put(&mut line, &mut model, next, slot, &mut live);
                        next += 1;
                    },
                    Step::Move(from, count) => {
                        slot += 1;
                        let moved: Vec<u64> = model.range(from..from + count).map(|(&s, _)| s).collect();
                        for sequence in moved {
                            put(&mut line, &mut model, sequence, slot, &mut live);
                        }
                    }
                    Step::Cut(from, count) => {
                        line.cut(from, from + count, |gone| {
                            let sums = live.get_mut(&gone.slot).unwrap();
                            *sums = (sums.0 - gone.records, sums.1 - gone.bytes);
                        });
                        model.retain(|&s, _| !(from..=from + count).contains(&s));
                    }
                }
                prop_assert_eq!(line.records(), model.len() as u64);
                for sequence in 0..next + 2 {
                    prop_assert_eq!(line.slot_of(sequence), model.get(&sequence).copied());
                }
                for pair in line.runs().iter().zip(line.runs().iter().skip(1)) {
                    prop_assert!(pair.0.last < pair.1.first);
                }
                prop_assert_eq!(line.records(), live.values().map(|sums| sums.0).sum::<u64>());
                prop_assert_eq!(line.bytes(), live.values().map(|sums| sums.1).sum::<u64>());
            }
        }
    }
}
