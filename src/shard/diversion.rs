//! What a shard knows of one partition's diversion: the triggers on their way to the disk, and how much of what lies there
//! is not back yet.
//!
//! The order of a partition's triggers, from the oldest on: the line (in flight, or waiting to be sent; what of it has a
//! copy on disk comes first), then what is **parked** on disk, then what is **spilling**. A drained record leaves the
//! parked ones for the end of the line. Once nothing is parked, what is still spilling follows on the line without a
//! gap: then the partition is live again.

use super::flight::{Flight, NONE, append, detach};
use crate::divert::Found;
use crate::slab::SlotId;
use crate::units::Nanos;

/// The first pause after a disk refused something, doubled up to [`PAUSE_MAX`].
const PAUSE_MIN: Nanos = Nanos::from_millis(50);
const PAUSE_MAX: Nanos = Nanos::from_millis(1_000);

/// One partition's diversion.
#[derive(Clone, Copy, Debug)]
pub struct Diversion {
    /// The oldest trigger that is spilling.
    pub head: u32,
    /// The newest.
    pub tail: u32,
    /// The oldest that is not ordered to be written; `NONE`: all are.
    pub unwritten: u32,
    /// How many are spilling.
    pub spilling: u32,
    /// The next of the line to be looked at for its shadow; `NONE`: all that are to have one do.
    pub shadow_at: u32,
    /// Records on disk only.
    pub parked: u64,
    /// Of those: known to be lost since the start.
    pub known_lost: u64,
    /// The sequence from which on the next read goes.
    pub read_next: u64,
    /// What is drained up to here was found at start.
    pub recovered_upto: u64,
    /// A read is under way.
    pub is_reading: bool,
    /// How many records of it are still to come, at most.
    pub promised: u32,
    /// What is diverted goes to the dead letters, not to the disk.
    pub to_letters: bool,
    /// Whether the shard looks at it in each turn.
    pub listed: bool,
    /// Rises with each refusal: what was ordered before is refused, what is ordered after is tried.
    pub epoch: u32,
    /// Nothing is ordered before this instant: the disk refused lately.
    pub retry_at: Nanos,
    /// How long it waits after the next refusal.
    pub pause: Nanos,
    /// Every record up to here is done with.
    pub released: u64,
    /// The disk was not told yet.
    pub wants_release: bool,
    /// The highest sequence that is done with.
    pub high: u64,
}

impl Diversion {
    /// Nothing diverted, nothing on disk.
    pub const NONE: Diversion = Diversion {
        head: NONE,
        tail: NONE,
        unwritten: NONE,
        spilling: 0,
        shadow_at: NONE,
        parked: 0,
        known_lost: 0,
        read_next: 1,
        recovered_upto: 0,
        is_reading: false,
        promised: 0,
        to_letters: false,
        listed: false,
        epoch: 1,
        retry_at: Nanos(0),
        pause: PAUSE_MIN,
        released: 0,
        wants_release: false,
        high: 0,
    };

    /// Puts a slot behind all that are spilling.
    pub fn push(&mut self, flights: &mut [Flight], slot: SlotId) {
        append(flights, &mut self.head, &mut self.tail, slot);
        self.spilling += 1;
        if self.unwritten == NONE {
            self.unwritten = slot.0;
        }
    }

    /// Puts a slot in front of all that are spilling; none of them is written yet.
    pub fn push_front(&mut self, flights: &mut [Flight], slot: SlotId) {
        let flight = &mut flights[slot.0 as usize];
        (flight.prev, flight.next) = (NONE, self.head);
        if self.head == NONE {
            self.tail = slot.0;
        } else {
            flights[self.head as usize].prev = slot.0;
        }
        self.head = slot.0;
        self.unwritten = slot.0;
        self.spilling += 1;
    }

    /// Takes a slot out.
    pub fn unlink(&mut self, flights: &mut [Flight], slot: SlotId) {
        let next = detach(flights, &mut self.head, &mut self.tail, slot);
        if self.unwritten == slot.0 {
            self.unwritten = next;
        }
        self.spilling -= 1;
    }

    /// Notes a refusal of the present epoch: what is ordered from now on is of the next one.
    pub fn refused(&mut self, now: Nanos) {
        self.epoch += 1;
        self.retry_at = now + self.pause;
        self.pause = Nanos((self.pause.0 * 2).min(PAUSE_MAX.0));
    }

    /// The disk took something.
    pub fn synced(&mut self) {
        self.pause = PAUSE_MIN;
    }

    /// Whether everything that was found on disk at start has come back.
    pub fn is_past_recovered(&self) -> bool {
        self.read_next > self.recovered_upto
    }

    /// Whether there is nothing left to do for it in a turn.
    pub fn is_quiet(&self) -> bool {
        self.spilling == 0 && self.parked == 0 && !self.is_reading && !self.wants_release && self.shadow_at == NONE
    }

    /// With what lies on disk already.
    pub fn with(found: Found) -> Diversion {
        let parked = found.committed - found.released - found.marked;
        Diversion {
            parked,
            known_lost: found.lost,
            read_next: if parked == 0 { found.committed + 1 } else { found.released + 1 },
            recovered_upto: found.committed,
            released: found.released,
            high: found.released,
            ..Diversion::NONE
        }
    }
}
