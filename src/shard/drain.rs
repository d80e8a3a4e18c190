//! What comes back from the disk, and how a partition is live again.

use super::Core;
use super::drain_room::DrainRoom;
use super::flight::{Copy, Flight, Mode, NO_RING, NONE, Phase};
use super::shared::FailedReason;
use crate::breaker::Permit;
use crate::canary::{Canary, is_planted};
use crate::dedup::Seen;
use crate::divert::Parcel;
use crate::sink::Sink;
use crate::slab::SlotId;
use crate::units::{Now, UnixMs};
use crate::wire;

impl<S: Sink> Core<S> {
    pub(super) fn take_parcel(&mut self, parcel: &Parcel<'_>, now: Now) {
        match *parcel {
            Parcel::Record { partition, sequence, frame } => {
                let index = self.line_of(partition);
                let diversion = &mut self.diversions[index as usize];
                debug_assert!(sequence >= diversion.read_next, "{partition:?}: {sequence} was read before");
                diversion.read_next = sequence + 1;
                diversion.parked -= 1;
                diversion.promised -= 1;
                self.take_drained(index, sequence, frame, now);
            }
            Parcel::Done { partition, next, lost } => {
                let index = self.line_of(partition);
                let diversion = &mut self.diversions[index as usize];
                diversion.read_next = diversion.read_next.max(next);
                diversion.is_reading = false;
                let broken_off = std::mem::take(&mut diversion.promised);
                diversion.parked -= lost;
                let known = lost.min(diversion.known_lost);
                diversion.known_lost -= known;
                let fresh = lost - known;
                if fresh > 0 {
                    self.in_spill -= fresh;
                    self.page.corrupt.add(fresh);
                    log::error!("partition {partition}: the disk lost {fresh} settled triggers below record {next}");
                }
                self.change_drain_room(|room| room.break_off(broken_off));
                if lost > 0 {
                    // Nothing else will say of them that they are done with, if they are the last.
                    self.record_done(index, next - 1);
                }
            }
        }
    }

    /// A record that comes back: through the window once more, and to the end of its line.
    fn take_drained(&mut self, index: u32, sequence: u64, frame: &[u8], now: Now) {
        let slot = self.slab.take_kept(frame.len()).expect("a record was asked for only when there was room");
        self.change_drain_room(DrainRoom::came);
        self.slab.frame_mut(slot).copy_from_slice(frame);
        self.page.drained.add(1);
        self.flights[slot.0 as usize] = Flight {
            accepted: now.mono,
            line: index,
            ring: NO_RING,
            phase: Phase::Waiting,
            copy: Copy::Synced,
            is_bare: true,
            ..Flight::FREE
        };
        self.sequences[slot.0 as usize] = sequence;
        self.mark_settled(slot);
        let Ok(decoded) = wire::decode(frame) else {
            self.page.unreadable.add(1);
            self.start_dying(slot, FailedReason::Unreadable);
            return;
        };
        let trigger = &decoded.frame;
        let device = wire::device_id_range(frame);
        let flight = &mut self.flights[slot.0 as usize];
        (flight.key_at, flight.key_len) = (device.start as u16, device.len() as u16);
        flight.record_time = match self.limits.record_time_is_event {
            true => UnixMs(trigger.event_time_ms),
            false => trigger.accepted.as_ms(),
        };
        let is_recovered = sequence <= self.diversions[index as usize].recovered_upto;
        if is_recovered && self.is_in_topic(index, trigger) {
            self.page.found_in_topic.add(1);
            self.conclude_repeat_of_disk(slot);
            return;
        }
        let key = trigger.key();
        let hash = key.hash_with(&self.limits.hasher);
        match self.dedup.ask_drained(key, hash, now.mono, slot.0) {
            Seen::New => self.line_up_drained(index, slot),
            Seen::Settled => self.conclude_repeat_of_disk(slot),
            Seen::Pending(other)
                if self.flights[other as usize].phase == Phase::Spilling
                    || (self.flights[other as usize].phase == Phase::Dying
                        && !self.flights[other as usize].is_settled) =>
            {
                // A later repeat holds the key: this one is the original, and that one will meet it again, or is a dead
                // letter that nobody has taken yet, for which no record on disk is let go.
                self.dedup.pass_on(other, slot.0);
                self.flights[other as usize].is_bare = true;
                self.line_up_drained(index, slot);
            }
            // Its own record is durable: whatever becomes of it, the repeat has nothing to add.
            Seen::Pending(original) if self.flights[original as usize].is_settled => self.conclude_repeat_of_disk(slot),
            Seen::Pending(original) => {
                let repeats = std::mem::replace(&mut self.flights[original as usize].repeats, slot.0);
                let flight = &mut self.flights[slot.0 as usize];
                (flight.phase, flight.next) = (Phase::Repeat, repeats);
                self.lines[index as usize].held += 1;
                // It is in no line, and what is behind it may be done with before it is.
                self.held_back.push((index, sequence));
            }
        }
    }

    fn line_up_drained(&mut self, index: u32, slot: SlotId) {
        self.flights[slot.0 as usize].is_bare = false;
        let line = &mut self.lines[index as usize];
        line.push(&mut self.flights, slot);
        line.frame_bytes += self.slab.frame_len(slot) as u64;
        if line.unsent == NONE && line.mode == Mode::Flowing {
            line.unsent = slot.0;
        }
        self.keep_sending(index);
    }

    /// A drained record whose like is in the log, or on its way: its copy is done with.
    fn conclude_repeat_of_disk(&mut self, slot: SlotId) {
        self.page.deduplicated.add(1);
        self.conclude(slot);
    }

    fn may_be_live(&self, index: u32) -> bool {
        let line = &self.lines[index as usize];
        self.may_be_fed(index)
            && line.breaker.is_closed()
            && line.held <= self.limits.inflight_partition / 8 * 5
            && line.length <= self.limits.inflight_partition / 2
            && line.frame_bytes <= self.limits.line_bytes() / 8 * 5
    }

    /// Whether what is diverted could be sent, if it were its turn and the breaker let it.
    fn may_be_fed(&self, index: u32) -> bool {
        self.lines[index as usize].is_diverted && !self.lines[index as usize].is_unread && !self.is_spilling_rest
    }

    /// Live again: nothing is on disk only, so what is still spilling follows on the line.
    pub(super) fn go_live_if_ready(&mut self, index: u32, now: Now) {
        let diversion = &self.diversions[index as usize];
        if diversion.parked > 0 || diversion.is_reading {
            return;
        }
        // A disk that refuses may do so for good: nothing waits for it that the broker would take.
        let is_refusing = now.mono < diversion.retry_at;
        let lacks_shadows = diversion.shadow_at != NONE && !is_refusing;
        if lacks_shadows || !self.may_be_live(index) || (self.is_stopping() && diversion.spilling > 0) {
            if is_refusing && self.may_be_fed(index) {
                self.feed(index, now);
            }
            return;
        }
        self.lines[index as usize].is_diverted = false;
        while self.diversions[index as usize].head != NONE {
            self.follow_on(index, now);
        }
        let diversion = &mut self.diversions[index as usize];
        (diversion.unwritten, diversion.shadow_at) = (NONE, NONE);
        self.keep_sending(index);
        self.say_live(index);
    }

    /// The disk refuses, nothing of the partition lies there, and more than a window waits for it: the oldest go to the end
    /// of the line as it empties. They get their shadows before anything behind them is written.
    fn feed(&mut self, index: u32, now: Now) {
        let line = &self.lines[index as usize];
        let most = match (line.breaker.permit(line.lent), line.mode) {
            (Permit::Hold, _) => 0,
            (Permit::Probe, _) | (Permit::Flow, Mode::Careful) => u32::from(line.length == 0),
            (Permit::Flow, Mode::Flowing) => (self.limits.inflight_partition / 2).max(1).saturating_sub(line.length),
        };
        for _ in 0..most {
            let slot = self.diversions[index as usize].head;
            if slot == NONE {
                break;
            }
            self.follow_on(index, now);
            let Flight { phase, copy, .. } = self.flights[slot as usize];
            let diversion = &mut self.diversions[index as usize];
            if phase == Phase::Waiting && copy == Copy::No && diversion.shadow_at == NONE {
                diversion.shadow_at = slot;
            }
        }
        self.keep_sending(index);
    }

    /// The oldest that is spilling goes to the end of the line.
    fn follow_on(&mut self, index: u32, now: Now) {
        let slot = SlotId(self.diversions[index as usize].head);
        self.diversions[index as usize].unlink(&mut self.flights, slot);
        self.lines[index as usize].held -= 1;
        self.flights[slot.0 as usize].phase = Phase::Waiting;
        if self.flights[slot.0 as usize].is_bare && !self.ask_again(slot, now) {
            return;
        }
        let line = &mut self.lines[index as usize];
        line.push(&mut self.flights, slot);
        if line.unsent == NONE && line.mode == Mode::Flowing {
            line.unsent = slot.0;
        }
    }

    fn say_live(&mut self, index: u32) {
        log::info!("partition {}: live again", self.partition(index));
        self.judge_fill(index);
    }

    /// A trigger whose key was passed on to an earlier one asks the window again. False: it is a repeat, and has gone.
    fn ask_again(&mut self, slot: SlotId, now: Now) -> bool {
        let frame = self.slab.frame(slot);
        let decoded = wire::decode(frame).expect("a frame of our own can be read");
        let key = decoded.frame.key();
        let hash = key.hash_with(&self.limits.hasher);
        let (index, length) = (self.flights[slot.0 as usize].line, frame.len() as u64);
        match self.dedup.ask(key, hash, now.mono, slot.0) {
            Seen::New => {
                self.flights[slot.0 as usize].is_bare = false;
                return true;
            }
            Seen::Settled => {
                let repeats = std::mem::replace(&mut self.flights[slot.0 as usize].repeats, NONE);
                self.page.deduplicated.add(1);
                self.conclude_with(slot, repeats);
            }
            Seen::Pending(original) => {
                // Its own repeats, and it itself, are repeats of that one.
                let mut last = slot.0;
                let own = std::mem::replace(&mut self.flights[slot.0 as usize].repeats, NONE);
                self.flights[slot.0 as usize].next = own;
                while self.flights[last as usize].next != NONE {
                    last = self.flights[last as usize].next;
                }
                let flight = &mut self.flights[slot.0 as usize];
                flight.phase = Phase::Repeat;
                self.lines[index as usize].held += 1;
                let others = std::mem::replace(&mut self.flights[original as usize].repeats, slot.0);
                self.flights[last as usize].next = others;
            }
        }
        self.lines[index as usize].frame_bytes -= length;
        false
    }

    /// Whether this very record was read from the topic at start.
    fn is_in_topic(&self, index: u32, trigger: &wire::Frame<'_>) -> bool {
        if is_planted(Canary::ShadowNotSkipped) {
            return false;
        }
        self.already.iter().any(|already| already.holds(self.partition(index), trigger))
    }
}
