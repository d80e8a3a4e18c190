//! What a shard knows of the trigger in a slot, and the lines its partitions keep them in.
//!
//! A [`Line`] is one partition's triggers in submit order: some lent to the sink, then those that wait. It is a doubly
//! linked list through the flights, so that settling one from the middle is four stores. A flight is one cache line.

use super::shared::Shedding;
use crate::breaker::Breaker;
use crate::slab::SlotId;
use crate::units::{Nanos, Seq, UnixMs};

/// "No slot": the end of a list.
pub const NONE: u32 = u32::MAX;

/// Where a trigger is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// The slot is free.
    Free,
    /// In its line, not handed over.
    Waiting,
    /// Handed to the sink.
    Lent,
    /// In the log; delivered once what is before it in its line has been judged.
    Landed,
    /// A repeat, hanging on the slot of its original.
    Repeat,
    /// On its way to the disk, behind its line.
    Spilling,
    /// On its way to the dead letters.
    Dying,
    /// In the log, while the disk still writes its copy.
    Leaving,
    /// Failed; waits for room in the queue of what is handed back.
    Failing,
}

/// Whether a trigger in memory lies on disk as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Copy {
    /// No.
    No,
    /// It is ordered, and the answer is due. The shard's list of sequences holds the order's epoch meanwhile.
    Writing,
    /// Yes, under the sequence in the shard's list.
    Synced,
}

/// "No ingress": a trigger that came from the disk.
pub const NO_RING: u16 = u16::MAX;

/// One trigger on its way: 64 bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Flight {
    /// Its place in its ingress.
    pub seq: Seq,
    /// When `submit` took it.
    pub accepted: Nanos,
    /// When it was handed over last.
    pub sent: Nanos,
    /// The record's timestamp.
    pub record_time: UnixMs,
    /// The partition, as the shard counts them.
    pub line: u32,
    /// The next in the line (or among the repeats of one original).
    pub next: u32,
    /// The one before in the line.
    pub prev: u32,
    /// The first repeat that waits for this one's outcome.
    pub repeats: u32,
    /// Where in the frame the device's bytes start.
    pub key_at: u16,
    /// How many they are.
    pub key_len: u16,
    /// Which ingress it came from.
    pub ring: u16,
    /// Where it is.
    pub phase: Phase,
    /// How often it was handed over, up to 255.
    pub attempts: u8,
    /// Its batch was refused for a record in it, perhaps this one.
    pub is_suspect: bool,
    /// The handle it was at last was lost with it: nobody knows whether it is in the log, but what was behind it there
    /// is only if it is.
    pub went_down: bool,
    /// In this turn it landed, or may have: nobody knows.
    pub is_news: bool,
    /// Whether it lies on disk as well.
    pub copy: Copy,
    /// Its ingress knows it as settled: its copy is durable, or it came from the disk.
    pub is_settled: bool,
    /// The dedup window does not know it under this slot.
    pub is_bare: bool,
}

const _: () = assert!(size_of::<Flight>() == 64, "one flight per cache line");

impl Flight {
    /// An empty slot.
    pub const FREE: Flight = Flight {
        seq: Seq(0),
        accepted: Nanos(0),
        sent: Nanos(0),
        record_time: UnixMs(0),
        line: 0,
        next: NONE,
        prev: NONE,
        repeats: NONE,
        key_at: 0,
        key_len: 0,
        ring: 0,
        phase: Phase::Free,
        attempts: 0,
        is_suspect: false,
        went_down: false,
        is_news: false,
        copy: Copy::No,
        is_settled: false,
        is_bare: false,
    };

    /// Whether nothing hangs on it but its own seq: no copy on disk, no repeat and no suspicion.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.copy == Copy::No && !self.is_settled && !self.is_suspect && self.repeats == NONE
    }
}

/// How a line sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In order, as many as the window allows.
    Flowing,
    /// Something came back: nothing is sent until nothing is lent, then a group from the head on, and so on until no
    /// suspect is left. Sending on would put what came back behind later triggers of its device.
    Careful,
}

/// One partition's triggers, in submit order.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// The oldest.
    pub head: u32,
    /// The newest.
    pub tail: u32,
    /// The oldest that is not lent; `NONE`: all are.
    pub unsent: u32,
    /// How many there are of the partition, in the line or spilling, with the repeats that hang on them or on a dead letter.
    pub held: u32,
    /// How many are in the line itself.
    pub length: u32,
    /// How many are lent.
    pub lent: u32,
    /// How many were in a batch that was refused for a record in it.
    pub suspects: u32,
    /// How many are sent at once while careful. Halved by each refusal, so that one bad record among thousands is found
    /// in a dozen rounds; doubled by each group that went through.
    pub group: u32,
    /// Something of the group at the sink was refused.
    pub is_group_refused: bool,
    /// The partition itself refused: one trigger goes ahead until one is acknowledged.
    pub is_probing: bool,
    /// Bytes of the frames in it.
    pub frame_bytes: u64,
    /// How it sends.
    pub mode: Mode,
    /// Something came back in this turn and has not been looked at.
    pub came_back: bool,
    /// Whether it is on the list of lines that wait to send.
    pub listed: bool,
    /// Whether what comes in goes to the disk, or to the dead letters, instead of this line.
    pub is_diverted: bool,
    /// What the topic holds of it is not known yet: nothing is sent.
    pub is_unread: bool,
    /// What `submit` sheds of what is for this partition.
    pub blocked: Shedding,
    /// Nothing is sent before this instant: the partition refused lately.
    pub not_before: Nanos,
    /// How long to wait after the next refusal.
    pub pause: Nanos,
    /// Whether the partition is trusted with more than a probe.
    pub breaker: Breaker,
    /// The code of the last refusal since an acknowledgement; 0: none.
    pub last_refusal: i32,
    /// The number the next trigger of this partition gets.
    pub next_partition_seq: u64,
    /// The highest acknowledged offset; −1: none.
    pub last_acked: i64,
    /// The one that was shown last.
    pub shown_acked: i64,
}

/// The first pause after a partition refused something, doubled up to [`PAUSE_MAX`].
pub const PAUSE_MIN: Nanos = Nanos::from_millis(20);
/// The longest pause between two tries of a partition that refuses.
pub const PAUSE_MAX: Nanos = Nanos::from_millis(1_000);

impl Line {
    /// A line with nothing in it.
    pub const EMPTY: Line = Line {
        head: NONE,
        tail: NONE,
        unsent: NONE,
        held: 0,
        length: 0,
        lent: 0,
        suspects: 0,
        group: 1,
        is_group_refused: false,
        is_probing: false,
        frame_bytes: 0,
        mode: Mode::Flowing,
        came_back: false,
        listed: false,
        is_diverted: false,
        is_unread: false,
        blocked: Shedding::NOTHING,
        not_before: Nanos(0),
        pause: PAUSE_MIN,
        breaker: Breaker::CLOSED,
        last_refusal: 0,
        next_partition_seq: 1,
        last_acked: -1,
        shown_acked: -1,
    };

    /// Whether nothing has happened to it: its breaker is closed, nothing came back, is diverted, or is shed. (It may still
    /// have to wait: for a full window, a pause, or for what the topic holds.)
    #[inline]
    pub(super) fn is_at_peace(&self) -> bool {
        self.mode == Mode::Flowing && self.breaker.is_closed() && !self.is_diverted && !self.blocked.is_any()
    }

    /// Notes an acknowledgement; `most` is the largest group. Returns whether it closed the breaker.
    #[inline]
    pub(super) fn acked(&mut self, offset: i64, most: u32, now: Nanos) -> bool {
        if offset >= 0 {
            // They rise, unless the topic was made anew.
            self.last_acked = offset;
        }
        self.pause = PAUSE_MIN;
        (self.is_probing, self.last_refusal) = (false, 0);
        if self.lent == 0 && !self.is_group_refused {
            self.group = self.group.saturating_mul(2).min(most);
        }
        self.breaker.acked(now)
    }

    /// Puts a slot at the end.
    #[inline]
    pub fn push(&mut self, flights: &mut [Flight], slot: SlotId) {
        append(flights, &mut self.head, &mut self.tail, slot);
        self.held += 1;
        self.length += 1;
    }

    /// Takes a slot out, wherever it is.
    #[inline]
    pub fn unlink(&mut self, flights: &mut [Flight], slot: SlotId) {
        let next = detach(flights, &mut self.head, &mut self.tail, slot);
        if self.unsent == slot.0 {
            self.unsent = next;
        }
        self.held -= 1;
        self.length -= 1;
    }

    /// Notes a refusal: waits before the next try, longer each time.
    pub fn back_off(&mut self, now: Nanos) {
        self.not_before = now + self.pause;
        self.pause = Nanos((self.pause.0 * 2).min(PAUSE_MAX.0));
    }
}

/// Links a slot in at the end of the chain that begins at `head` and ends at `tail`.
#[inline]
pub(super) fn append(flights: &mut [Flight], head: &mut u32, tail: &mut u32, slot: SlotId) {
    let flight = &mut flights[slot.0 as usize];
    (flight.prev, flight.next) = (*tail, NONE);
    if *tail == NONE {
        *head = slot.0;
    } else {
        flights[*tail as usize].next = slot.0;
    }
    *tail = slot.0;
}

/// Takes a slot out of its chain, wherever it is. Returns the one behind it, or [`NONE`].
#[inline]
pub(super) fn detach(flights: &mut [Flight], head: &mut u32, tail: &mut u32, slot: SlotId) -> u32 {
    let Flight { next, prev, .. } = flights[slot.0 as usize];
    if prev == NONE {
        *head = next;
    } else {
        flights[prev as usize].next = next;
    }
    if next == NONE {
        *tail = prev;
    } else {
        flights[next as usize].prev = prev;
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn a_line_is_a_deque(steps in prop::collection::vec((any::<bool>(), 0usize..64), 1..300)) {
            let mut flights = vec![Flight::FREE; 64];
            let mut line = Line::EMPTY;
            let mut free: Vec<u32> = (0..64).collect();
            let mut model: VecDeque<u32> = VecDeque::new();
            for (is_push, pick) in steps {
                if is_push && !free.is_empty() {
                    let slot = free.swap_remove(pick % free.len());
                    line.push(&mut flights, SlotId(slot));
                    model.push_back(slot);
                } else if !model.is_empty() {
                    let slot = model.remove(pick % model.len()).unwrap();
                    line.unlink(&mut flights, SlotId(slot));
                    free.push(slot);
                }
                let mut walked = Vec::new();
                let mut at = line.head;
                while at != NONE {
                    walked.push(at);
                    at = flights[at as usize].next;
                }
                prop_assert_eq!(&walked, &Vec::from(model.clone()));
                prop_assert_eq!((line.held as usize, line.length as usize), (model.len(), model.len()));
                prop_assert_eq!(line.tail, model.back().copied().unwrap_or(NONE));
            }
        }
    }
}
