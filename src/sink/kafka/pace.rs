//! When a partition's next frames are handed to the client, so that its threads sleep while an answer is due.
//!
//! librdkafka 2.12.1 sends the next request of an idempotent partition only while fewer than five of its *messages* are
//! on their way (`rd_kafka_toppar_producer_serve` takes that number for one of requests), so a busy partition has one
//! request at a time. What is in its queue meanwhile for longer than `linger.ms` makes the broker's thread poll without
//! a pause until the answer is there: one core for each broker that takes longer than the linger. Where brokers share
//! the cores that slows their answers, which makes for more of it; docs/numbers.md, "The client's threads".
//!
//! So while a request is on its way a frame is handed over only if its linger will not end before the answer is expected,
//! by how long the last ones took; behind slow ones, once it is there. Until then it waits in its line. Promises: nothing
//! waits for longer than for an answer; with answers faster than the linger nothing waits at all. Costs: a few compares a
//! frame, 48 bytes a partition.

use crate::units::{Nanos, PartitionId};

/// From so many messages on their way the client sends no further request of the partition.
const ON_THEIR_WAY: u32 = 5;
/// Of answers that take longer than so many lingers it is not guessed when the next one comes: a linger more is little to
/// them, and a wrong guess costs a core until they come.
const SLOW: u64 = 4;

/// What the client is thought to do with the frames it was handed.
pub(super) struct Pace {
    linger: Nanos,
    batch_bytes: u64,
    now: Nanos,
    partitions: Vec<Queue>,
}

/// One partition's frames at the client.
#[derive(Clone, Copy, Default)]
struct Queue {
    /// Messages of the request that is on its way.
    sent: u32,
    /// Those that come after it.
    collecting: u32,
    collecting_bytes: u64,
    /// When the request was sent.
    sent_at: Nanos,
    /// When what is being collected will have lingered, or was enough for a batch.
    ready_at: Nanos,
    /// When the last answer came.
    answered_at: Nanos,
    /// How long an answer is expected to take.
    round_trip: Nanos,
}

impl Queue {
    /// What has lingered goes out once hardly anything is on its way.
    fn advance(&mut self, now: Nanos) {
        if self.sent < ON_THEIR_WAY && self.collecting > 0 && now >= self.ready_at {
            self.sent_at = self.ready_at.max(self.answered_at);
            self.sent += std::mem::take(&mut self.collecting);
            self.collecting_bytes = 0;
        }
    }

    fn answered(&mut self, count: u32, now: Nanos) {
        self.advance(now);
        let of_sent = count.min(self.sent);
        self.sent -= of_sent;
        // It sent some of them sooner than was thought.
        self.collecting -= (count - of_sent).min(self.collecting);
        if self.collecting == 0 {
            self.collecting_bytes = 0;
        }
        if of_sent > 0 && self.sent == 0 {
            let took = now.since(self.sent_at);
            // Slower at once, faster by and by.
            self.round_trip = if took > self.round_trip { took } else { Nanos((3 * self.round_trip.0 + took.0) / 4) };
            self.answered_at = now;
        }
    }
}

impl Pace {
    /// For a client with these properties.
    pub fn new(properties: &[(String, String)]) -> Pace {
        let number = |name| {
            let (_, value) = properties.iter().rev().find(|(known, _)| known == name)?;
            value.parse::<f64>().ok()
        };
        // What librdkafka does by itself, where nothing is said.
        let (linger_ms, batch_bytes) =
            (number("linger.ms").unwrap_or(5.0), number("batch.size").unwrap_or(1_000_000.0));
        let linger = Nanos((linger_ms * 1_000_000.0) as u64);
        Pace { linger, batch_bytes: batch_bytes as u64, now: Nanos(0), partitions: Vec::new() }
    }

    /// The time, once a turn.
    pub fn look(&mut self, now: Nanos) {
        self.now = now;
    }

    /// Whether a frame may be handed over now.
    pub fn may_take(&mut self, partition: PartitionId) -> bool {
        let Some(queue) = self.partitions.get_mut(partition.0 as usize) else { return true };
        if self.linger == Nanos(0) {
            // The client sends whatever it has: held back until the answer, that would be a handful of frames a request.
            return true;
        }
        queue.advance(self.now);
        if queue.sent < ON_THEIR_WAY {
            return true;
        }
        let is_slow = queue.round_trip > Nanos(SLOW * self.linger.0);
        let is_due = self.now + self.linger >= queue.sent_at + queue.round_trip;
        !is_slow && is_due && queue.collecting_bytes < self.batch_bytes
    }

    /// A frame was handed over, so many bytes of key and value: what the client holds against `batch.size`. Thought to be more, a
    /// batch that it does not call full would linger while nothing is added to it.
    pub fn took(&mut self, partition: PartitionId, bytes: usize) {
        let index = partition.0 as usize;
        if index >= self.partitions.len() {
            // Once, when the partition is first used.
            self.partitions.resize(index + 1, Queue::default());
        }
        let queue = &mut self.partitions[index];
        if queue.collecting == 0 {
            queue.ready_at = self.now + self.linger;
        }
        queue.collecting += 1;
        queue.collecting_bytes += bytes as u64;
        if queue.collecting_bytes >= self.batch_bytes {
            queue.ready_at = queue.ready_at.min(self.now);
        }
    }

    /// So many frames of a partition were reported, together.
    pub fn reported(&mut self, partition: PartitionId, count: usize) {
        if let Some(queue) = self.partitions.get_mut(partition.0 as usize) {
            queue.answered(count as u32, self.now);
        }
    }

    /// The handle is a new one, and has nothing.
    pub fn forget(&mut self) {
        self.partitions.fill(Queue::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: PartitionId = PartitionId(3);

    fn ms(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    fn pace() -> Pace {
        let property = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        Pace::new(&[property("linger.ms", "5"), property("batch.size", "16384")])
    }

    fn hand_over(pace: &mut Pace, at: Nanos, count: usize) -> usize {
        pace.look(at);
        (0..count).take_while(|_| pace.may_take(P).then(|| pace.took(P, 100)).is_some()).count()
    }

    fn answer(pace: &mut Pace, at: Nanos, count: usize) {
        pace.look(at);
        pace.reported(P, count);
    }

    #[test]
    fn nothing_waits_while_answers_are_faster_than_the_linger() {
        let mut pace = pace();
        for round in 0..20 {
            let begin = ms(100 + 20 * round);
            assert_eq!(hand_over(&mut pace, begin, 10), 10);
            assert_eq!(hand_over(&mut pace, begin + ms(6), 3), 3, "on its way since 1 ms");
            answer(&mut pace, begin + ms(8), 10);
            assert_eq!(hand_over(&mut pace, begin + ms(9), 2), 2);
            answer(&mut pace, begin + ms(15), 5);
        }
    }

    #[test]
    fn behind_a_request_frames_wait_until_their_linger_ends_with_the_answer() {
        let mut pace = pace();
        hand_over(&mut pace, ms(100), 10);
        answer(&mut pace, ms(120), 10);
        // Sent at 205, expected to take the 15 ms that the last one took.
        hand_over(&mut pace, ms(200), 10);
        assert_eq!(hand_over(&mut pace, ms(206), 1), 0);
        assert_eq!(hand_over(&mut pace, ms(214), 1), 0);
        assert_eq!(hand_over(&mut pace, ms(215), 1), 1);
        answer(&mut pace, ms(221), 10);
        assert_eq!(hand_over(&mut pace, ms(221), 5), 5, "nothing is on its way");
    }

    #[test]
    fn behind_a_slow_request_frames_wait_for_the_answer() {
        let mut pace = pace();
        hand_over(&mut pace, ms(100), 10);
        answer(&mut pace, ms(126), 10);
        hand_over(&mut pace, ms(200), 10);
        assert_eq!(hand_over(&mut pace, ms(206), 1), 0);
        assert_eq!(hand_over(&mut pace, ms(60_000), 1), 0);
        answer(&mut pace, ms(60_000), 10);
        assert_eq!(hand_over(&mut pace, ms(60_000), 5), 5);
    }

    #[test]
    fn behind_an_answer_that_does_not_come_there_is_one_batch_and_no_more() {
        let mut pace = pace();
        hand_over(&mut pace, ms(100), 10);
        let taken = hand_over(&mut pace, ms(106), 1_000);
        assert_eq!(taken, 16_384 / 100 + 1);
        assert_eq!(hand_over(&mut pace, ms(60_000), 1), 0);
        answer(&mut pace, ms(60_001), 10);
        // What was collected is on its way now, and an answer is thought to take a minute.
        assert_eq!(hand_over(&mut pace, ms(60_002), 1), 0);
        answer(&mut pace, ms(60_004), taken);
        assert_eq!(hand_over(&mut pace, ms(60_004), 1), 1);
    }

    #[test]
    fn without_a_linger_nothing_waits() {
        let mut pace = Pace::new(&[("linger.ms".to_owned(), "0".to_owned())]);
        for round in 0..20 {
            assert_eq!(hand_over(&mut pace, ms(100 + round), 1_000), 1_000);
        }
    }

    #[test]
    fn a_few_messages_on_their_way_hold_up_nothing() {
        let mut pace = pace();
        hand_over(&mut pace, ms(100), 4);
        answer(&mut pace, ms(200), 4);
        hand_over(&mut pace, ms(300), 4);
        assert_eq!(hand_over(&mut pace, ms(310), 4), 4);
    }

    #[test]
    fn after_answers_have_become_fast_again_nothing_waits() {
        let mut pace = pace();
        hand_over(&mut pace, ms(100), 10);
        answer(&mut pace, ms(505), 10);
        for round in 0..30 {
            hand_over(&mut pace, ms(1_000 + 20 * round), 10);
            answer(&mut pace, ms(1_007 + 20 * round), 10);
        }
        hand_over(&mut pace, ms(2_000), 10);
        assert_eq!(hand_over(&mut pace, ms(2_006), 10), 10);
    }

    #[test]
    fn a_new_handle_begins_without_what_the_old_one_had() {
        let mut pace = pace();
        hand_over(&mut pace, ms(100), 10);
        answer(&mut pace, ms(505), 10);
        hand_over(&mut pace, ms(600), 10);
        assert_eq!(hand_over(&mut pace, ms(610), 1), 0);
        pace.forget();
        assert_eq!(hand_over(&mut pace, ms(611), 1), 1);
    }
}
