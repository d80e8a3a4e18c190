//! A sink that keeps nothing: for measuring everything in front of Kafka. Every frame is acknowledged when the shard
//! next collects, or `delay` collects later, so that a window of frames is in flight as with a real broker.

use super::{Busy, Outcome, Outgoing, Report, Sink};
use crate::slab::SlotId;

/// Acknowledges everything, in order.
pub struct NullSink {
    /// A ring of slots in flight; its length is a power of two.
    in_flight: Box<[SlotId]>,
    head: usize,
    tail: usize,
    /// How many frames stay in flight while more come in.
    window: usize,
    bytes: u64,
}

impl NullSink {
    /// A sink that holds back the newest `window` frames and takes at most `most` at a time.
    ///
    /// # Panics
    /// If `most` is zero.
    #[must_use]
    pub fn new(window: usize, most: usize) -> NullSink {
        assert!(most > 0, "a sink takes at least one frame");
        NullSink {
            in_flight: vec![SlotId(0); most.next_power_of_two()].into_boxed_slice(),
            head: 0,
            tail: 0,
            window,
            bytes: 0,
        }
    }

    /// Lets everything go that was held back.
    pub fn release(&mut self) {
        self.window = 0;
    }

    /// Bytes of all frames it took.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

// SAFETY: it never reads a frame.
unsafe impl Sink for NullSink {
    fn produce(&mut self, outgoing: Outgoing) -> Result<(), Busy> {
        if self.head - self.tail == self.in_flight.len() {
            return Err(Busy::QueueFull);
        }
        let mask = self.in_flight.len() - 1;
        self.in_flight[self.head & mask] = outgoing.frame.slot();
        self.head += 1;
        self.bytes += outgoing.frame.len() as u64;
        Ok(())
    }

    fn collect(&mut self, most: usize, reports: &mut Vec<Report>) {
        let mask = self.in_flight.len() - 1;
        let ready = (self.head - self.tail).saturating_sub(self.window).min(most);
        reports.extend((self.tail..self.tail + ready).map(|at| {
            let (slot, offset) = (self.in_flight[at & mask], at as i64);
            Report { slot, outcome: Outcome::Acked { offset }, batch: 1, first: true }
        }));
        self.tail += ready;
    }
}
