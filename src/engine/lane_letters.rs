//! What became of the dead letters that one ingress's caller gave: they settle in any order, and the frontier rises in the
//! order of their seqs.

use crate::divert::LetterReport;
use crate::metrics::LetterPage;
use crate::shard::shared::{Failed, FailedReason, Frontier};
use crate::sync::rtrb;
use crate::units::Seq;
use std::collections::VecDeque;
use std::sync::Arc;

/// The letters of one lane that the keeper has taken.
pub(super) struct LaneLetters {
    /// In the order of their seqs: each with whether it is settled.
    pending: VecDeque<(u64, bool)>,
    /// The last seq that was taken.
    last: u64,
    /// Refused, while the queue back to the ingress is full.
    refused: VecDeque<u64>,
    failed: rtrb::Producer<Failed>,
    frontier: Arc<Frontier>,
    page: Arc<LetterPage>,
}

impl LaneLetters {
    pub(super) fn new(failed: rtrb::Producer<Failed>, frontier: Arc<Frontier>, page: Arc<LetterPage>) -> LaneLetters {
        LaneLetters { pending: VecDeque::new(), last: 0, refused: VecDeque::new(), failed, frontier, page }
    }

    fn settle(&mut self, seq: u64) {
        let at = self.pending.binary_search_by_key(&seq, |(seq, _)| *seq);
        let at = at.unwrap_or_else(|_| panic!("letter {seq} settled without having been taken"));
        debug_assert!(!self.pending[at].1, "letter {seq} settled twice");
        self.pending[at].1 = true;
        while self.pending.front().is_some_and(|(_, is_settled)| *is_settled) {
            self.pending.pop_front();
        }
        self.show();
    }

    /// Everything below the first that is not settled.
    fn show(&self) {
        self.frontier.set(self.pending.front().map_or(self.last, |(seq, _)| seq - 1));
    }

    fn hand_back(&mut self) {
        while let Some(&seq) = self.refused.front() {
            // In the queue before the frontier passes it, so that whoever sees the one sees the other.
            if self.failed.push(Failed { seq: Seq(seq), reason: FailedReason::ByCaller }).is_err() {
                return;
            }
            self.refused.pop_front();
            self.page.failed.add(1);
            self.settle(seq);
        }
    }
}

impl LetterReport for LaneLetters {
    fn taken(&mut self, seq: u64) {
        debug_assert!(seq > self.last, "letter {seq} taken after {}", self.last);
        self.last = seq;
        self.pending.push_back((seq, false));
        self.show();
    }

    fn done(&mut self, seq: u64, is_durable: bool) {
        if is_durable {
            self.page.dead_lettered.add(1);
            self.settle(seq);
        } else {
            self.refused.push_back(seq);
            self.hand_back();
        }
    }

    fn tick(&mut self) {
        self.hand_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frontier_waits_for_the_first_and_failed_ones_wait_for_their_queue() {
        let (failed, mut taken_back) = rtrb::RingBuffer::new(1);
        let (frontier, page) = (Arc::new(Frontier::default()), Arc::new(LetterPage::default()));
        let mut lane = LaneLetters::new(failed, Arc::clone(&frontier), Arc::clone(&page));
        for seq in [3, 7, 8, 20] {
            lane.taken(seq);
        }
        assert_eq!(frontier.get(), 2);
        lane.done(8, true);
        lane.done(3, false);
        assert_eq!(frontier.get(), 6);
        lane.done(7, false);
        assert_eq!(frontier.get(), 6, "the queue is full");
        assert_eq!(taken_back.pop().unwrap().seq, Seq(3));
        lane.tick();
        assert_eq!((frontier.get(), taken_back.pop().unwrap().seq), (19, Seq(7)));
        lane.done(20, true);
        assert_eq!((frontier.get(), page.dead_lettered.get(), page.failed.get()), (20, 2, 2));
    }
}
