//! The trail: up to which line of a source everything is settled.
//!
//! An ingress numbers what it accepts; a source numbers its lines, of which some are blank, and where there are no dead
//! letters, malformed or rejected: with them, such a line has a seq as a trigger has. The trail keeps where the two
//! numberings step apart, which is seldom, and now and then at which byte a line ended. Both lists have their memory from
//! the start: the first is bounded by the settle window, the second by [`Trail::MARKS`].

use super::Position;
use crate::units::Seq;
use std::collections::VecDeque;

/// From this seq on, a line's number is the seq's plus a constant.
#[derive(Clone, Copy, Debug)]
struct Run {
    seq: u64,
    line: u64,
}

/// See the module.
pub struct Trail {
    runs: VecDeque<Run>,
    marks: VecDeque<Position>,
    /// The last accepted, and its line.
    accepted: Seq,
    accepted_line: u64,
    /// Everything up to here was looked at.
    seen: Position,
}

impl Trail {
    /// Places remembered at the most. Where more lie between, the older ones stand: a reader then goes over a few lines
    /// again, whose numbers tell that they are settled.
    pub const MARKS: usize = 4_096;

    /// For a source that starts at `start`, and an ingress with at most `settle_window` unsettled triggers.
    #[must_use]
    pub fn new(start: Position, settle_window: usize) -> Trail {
        let mut marks = VecDeque::with_capacity(Trail::MARKS);
        marks.push_back(start);
        Trail {
            runs: VecDeque::with_capacity(settle_window + 1),
            marks,
            accepted: Seq(0),
            accepted_line: 0,
            seen: start,
        }
    }

    /// The ingress accepted the trigger of a line. Seqs come in order, one by one.
    #[inline]
    pub fn accepted(&mut self, seq: Seq, line: u64) {
        debug_assert!(seq.0 == self.accepted.0 + 1, "seq {} after {}", seq.0, self.accepted.0);
        (self.accepted, self.accepted_line) = (seq, line);
        match self.runs.back() {
            Some(last) if last.line + (seq.0 - last.seq) == line => {}
            _ => self.runs.push_back(Run { seq: seq.0, line }),
        }
    }

    /// Every line up to `position` was accepted or passed over.
    pub fn seen(&mut self, position: Position) {
        self.seen = position;
    }

    /// Like [`Trail::seen`], and worth starting from after a restart.
    pub fn mark(&mut self, position: Position) {
        self.seen = position;
        if self.marks.len() < Trail::MARKS && self.marks.back().is_none_or(|last| last.offset < position.offset) {
            self.marks.push_back(position);
        }
    }

    /// The line that a seq stands for; `None` for one that was settled and forgotten.
    #[must_use]
    pub fn line_of(&self, seq: Seq) -> Option<u64> {
        let behind = self.runs.partition_point(|run| run.seq <= seq.0);
        let run = self.runs.get(behind.checked_sub(1)?)?;
        Some(run.line + (seq.0 - run.seq))
    }

    /// How many lines from the first are settled, given the watermark of the ingress; a line that was passed over counts.
    /// Forgets what lies before.
    pub fn settled(&mut self, watermark: Seq) -> u64 {
        while self.runs.get(1).is_some_and(|next| next.seq <= watermark.0 + 1) {
            self.runs.pop_front();
        }
        let lines = if watermark >= self.accepted {
            // Of a batch that is not taken to its end, only the last accepted line is known.
            self.seen.lines.max(self.accepted_line)
        } else {
            // The line in front of the first that is not settled.
            self.line_of(Seq(watermark.0 + 1)).map_or(0, |line| line - 1)
        };
        while self.marks.get(1).is_some_and(|next| next.lines <= lines) {
            self.marks.pop_front();
        }
        lines
    }

    /// The last mark at or before what [`Trail::settled`] last said.
    #[must_use]
    pub fn restart(&self) -> Position {
        *self.marks.front().expect("a mark goes only when the next one takes its place")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(lines: u64, offset: u64) -> Position {
        Position { lines, offset }
    }

    #[test]
    fn skipped_lines_settle_with_what_stands_before_them() {
        let mut trail = Trail::new(at(0, 0), 1_024);
        assert_eq!(trail.settled(Seq(0)), 0);
        // Lines 1, 2, 5 and 6 are triggers; 3, 4 and 7 are not.
        for (seq, line) in [(1, 1), (2, 2), (3, 5), (4, 6)] {
            trail.accepted(Seq(seq), line);
        }
        trail.mark(at(7, 70));
        assert_eq!([1, 2, 3, 4, 5].map(|seq| trail.line_of(Seq(seq))), [Some(1), Some(2), Some(5), Some(6), Some(7)]);
        assert_eq!(trail.settled(Seq(0)), 0);
        assert_eq!(trail.settled(Seq(1)), 1);
        assert_eq!(trail.settled(Seq(2)), 4);
        assert_eq!(trail.settled(Seq(3)), 5);
        assert_eq!(trail.restart(), at(0, 0));
        assert_eq!(trail.settled(Seq(4)), 7);
        assert_eq!(trail.restart(), at(7, 70));
        // Only skipped lines since.
        trail.seen(at(9, 90));
        assert_eq!(trail.settled(Seq(4)), 9);
        assert_eq!(trail.restart(), at(7, 70));
    }

    #[test]
    fn what_is_settled_never_falls() {
        let mut trail = Trail::new(at(0, 0), 1_024);
        for seq in 1..=3 {
            trail.accepted(Seq(seq), seq);
        }
        assert_eq!(trail.settled(Seq(2)), 2);
        // The batch was not taken to its end, so nobody said up to where it was seen.
        assert_eq!(trail.settled(Seq(3)), 3);
    }

    #[test]
    fn memory_stays_what_it_was() {
        let mut trail = Trail::new(at(0, 0), 1_024);
        let (runs, marks) = (trail.runs.capacity(), trail.marks.capacity());
        for seq in 1..=100_000u64 {
            // Each trigger behind a line that is none: the worst there is.
            trail.accepted(Seq(seq), 2 * seq);
            trail.mark(at(2 * seq, 10 * seq));
            if seq > 1_024 {
                assert_eq!(trail.settled(Seq(seq - 1_024)), 2 * (seq - 1_024) + 1);
                assert!(trail.restart().lines <= 2 * (seq - 1_024) + 1);
            }
        }
        assert_eq!((trail.runs.capacity(), trail.marks.capacity()), (runs, marks));
        for seq in 100_001..=200_000u64 {
            trail.mark(at(2 * seq, 10 * seq));
        }
        assert_eq!(trail.marks.capacity(), marks);
        assert_eq!(trail.settled(Seq(100_000)), 400_000);
    }
}
