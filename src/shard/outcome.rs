//! What a report does to its trigger: settle it, line it up again, or hand it back.
//!
//! The rule of order: a trigger is never sent behind a later one of its device. When a batch is refused as a whole, its
//! triggers are tried again in smaller groups, from the oldest on and only once nothing of the partition is at the sink;
//! no group holds two triggers of a device. By then it is known what became of the later ones: one whose device has a later trigger in the log by now, or perhaps,
//! cannot be sent any more and fails as `WouldReorder`. Where the later ones were refused
//! too (a lost permission, a policy), nothing fails: all go out again, in order.

use super::Core;
use super::drain_room::DrainRoom;
use super::flight::{Copy, Flight, Mode, NO_RING, NONE, Phase};
use super::shared::FailedReason;
use crate::canary::{Canary, is_planted};
use crate::sink::{Fault, Outcome, Persisted, Report, Sink};
use crate::slab::SlotId;
use crate::units::Nanos;
use std::collections::HashSet;

impl<S: Sink> Core<S> {
    /// One report of the sink.
    #[inline]
    pub(super) fn settle_report(&mut self, report: &Report, now: Nanos) {
        let Outcome::Acked { offset } = report.outcome else { return self.settle_failed(report, now) };
        let slot = report.slot;
        // Before anything is counted: a sink that reports a frame twice must not settle another one.
        assert!(self.slab.is_lent(slot), "{slot:?} was reported but is not lent");
        let flight = &mut self.flights[slot.0 as usize];
        debug_assert_eq!(flight.phase, Phase::Lent);
        let (index, took) = (flight.line, now.since(flight.sent));
        let line = &mut self.lines[index as usize];
        line.lent -= 1;
        self.lent -= 1;
        let has_closed = line.acked(offset, self.limits.inflight_partition, now);
        self.streaks.publish.record(took, &self.page.publish);
        if flight.ring != NO_RING {
            self.streaks.settle.record(now.since(flight.accepted), &self.page.settle);
        }
        if took > self.limits.publish_timeout {
            self.page.late.add(1);
        }
        if line.is_at_peace() && flight.is_plain() && !has_closed {
            // Nearly every one: what `deliver` does, without a look at what cannot be.
            debug_assert_eq!(self.diversions[index as usize].shadow_at, NONE);
            self.dedup.commit(slot.0);
            self.page.delivered.add(1);
            self.accounts[flight.ring as usize].outstanding.settle(flight.seq.0);
            flight.phase = Phase::Free;
            line.unlink(&mut self.flights, slot);
            line.frame_bytes -= self.slab.retire(slot) as u64;
            return;
        }
        self.settle_acked(slot, has_closed);
    }

    /// What the report of an acknowledged one does where something hangs on it, or its line is not at peace.
    #[inline(never)]
    fn settle_acked(&mut self, slot: SlotId, has_closed: bool) {
        self.slab.take_back(slot);
        let Flight { line: index, prev, .. } = self.flights[slot.0 as usize];
        if self.lines[index as usize].mode == Mode::Careful && prev != NONE {
            // Landed in front of something that came back: that is judged first, by this one's device.
            self.flights[slot.0 as usize].phase = Phase::Landed;
            self.note_news(slot);
        } else {
            self.deliver(slot);
        }
        if has_closed {
            self.breaker_changed(index, false);
        }
    }

    /// The report of one that is not acknowledged.
    #[cold]
    fn settle_failed(&mut self, report: &Report, now: Nanos) {
        let Outcome::Failed { fault, persisted } = report.outcome else { return };
        self.slab.take_back(report.slot);
        let flight = &mut self.flights[report.slot.0 as usize];
        debug_assert_eq!(flight.phase, Phase::Lent);
        if !is_planted(Canary::PermitNotReturned) {
            self.lines[flight.line as usize].lent -= 1;
            self.lent -= 1;
        }
        if persisted == Persisted::Possibly && is_planted(Canary::DoubtTakenForAck) {
            return self.deliver(report.slot);
        }
        flight.phase = Phase::Waiting;
        flight.went_down = fault == Fault::Purged && persisted == Persisted::Possibly;
        self.come_back(report, fault, persisted, now);
    }

    /// In the log: settles the trigger and its repeats.
    fn deliver(&mut self, slot: SlotId) {
        self.dedup.commit(slot.0);
        self.page.delivered.add(1);
        let Flight { line, repeats, .. } = self.flights[slot.0 as usize];
        self.take_out(slot);
        self.conclude_with(slot, repeats);
        if self.lines[line as usize].blocked.is_any() {
            self.judge_fill(line);
        }
    }

    /// Its like is in the log, as the start of a router without its broker learnt later; it was not sent.
    pub(super) fn conclude_repeat_of_topic(&mut self, slot: SlotId) {
        self.page.deduplicated.add(1);
        let Flight { line, repeats, .. } = self.flights[slot.0 as usize];
        self.take_out(slot);
        self.conclude_with(slot, repeats);
        self.judge_fill(line);
    }

    /// Concludes a trigger and the chain of its repeats.
    pub(super) fn conclude_with(&mut self, slot: SlotId, mut repeats: u32) {
        self.conclude(slot);
        while repeats != NONE {
            let next = self.flights[repeats as usize].next;
            self.conclude_repeat(SlotId(repeats));
            repeats = next;
        }
    }

    /// Not in the log, and the sink will not try again.
    fn come_back(&mut self, report: &Report, fault: Fault, persisted: Persisted, now: Nanos) {
        let slot = report.slot;
        let index = self.flights[slot.0 as usize].line;
        if persisted == Persisted::Possibly {
            self.page.uncertain.add(1);
            self.note_news(slot);
        }
        match fault {
            // Alone in its batch and refused for itself, or named by the broker: poison. That says nothing of the
            // partition.
            Fault::Frame(code) if report.batch == 1 && persisted == Persisted::No => {
                self.give_up(slot, FailedReason::Refused { code });
                self.keep_sending(index);
                return;
            }
            Fault::Frame(code) => {
                // A group that is refused on the search for the bad record is the same failure still.
                let is_known = self.flights[slot.0 as usize].is_suspect;
                self.suspect(slot, report.batch);
                if report.first && !is_known {
                    self.count_refusal(index, code, now);
                }
            }
            Fault::Partition(code) => {
                let line = &mut self.lines[index as usize];
                (line.is_probing, line.group) = (true, 1);
                if report.first {
                    line.back_off(now);
                    self.count_refusal(index, code, now);
                }
            }
            // Nothing is wrong with it: it goes out again in its place.
            Fault::Neighbour | Fault::Purged => {}
        }
        let line = &mut self.lines[index as usize];
        line.mode = Mode::Careful;
        line.unsent = NONE;
        self.note_came_back(index);
    }

    /// One of its batch of `batch` frames was refused for itself, and nobody says which.
    fn suspect(&mut self, slot: SlotId, batch: u32) {
        let flight = &mut self.flights[slot.0 as usize];
        let line = &mut self.lines[flight.line as usize];
        let most = if line.mode == Mode::Careful { line.group } else { u32::MAX };
        line.group = most.min(batch / 2).max(1);
        line.is_group_refused = true;
        if !flight.is_suspect {
            flight.is_suspect = true;
            line.suspects += 1;
        }
    }

    /// A batch, or the partition as such, was refused: one failure, however many frames it held.
    pub(super) fn count_refusal(&mut self, index: u32, code: i32, now: Nanos) {
        self.page.refused_batches.add(1);
        let partition = self.partition(index);
        let last = std::mem::replace(&mut self.lines[index as usize].last_refusal, code);
        if last != code {
            // Once in a row: a partition that is refused for an hour is one line, and a second one when it opens.
            log::warn!("partition {partition}: refused with {}; it is tried again", self.sink.explain(code));
        }
        let breaker = &mut self.lines[index as usize].breaker;
        let was_closed = breaker.is_closed();
        if breaker.failed(now, &self.limits.breaker) {
            self.breaker_changed(index, was_closed);
        }
    }

    /// The line is to be looked at after the reports of this turn.
    fn note_came_back(&mut self, index: u32) {
        let line = &mut self.lines[index as usize];
        if !line.came_back {
            line.came_back = true;
            self.came_back.push(index);
        }
    }

    /// It is in the log, or perhaps: what is before it in its line is judged by that after the reports of this turn.
    fn note_news(&mut self, slot: SlotId) {
        let flight = &mut self.flights[slot.0 as usize];
        flight.is_news = true;
        let index = flight.line;
        self.news.push(slot);
        self.note_came_back(index);
    }

    /// After all reports of a turn: what came back and would be sent behind a later trigger of its device, fails; what
    /// landed behind it is delivered.
    pub(super) fn look_at_what_came_back(&mut self) {
        while let Some(index) = self.came_back.pop() {
            self.lines[index as usize].came_back = false;
            // Devices of what landed behind the place at hand, and of what may have.
            let (mut landed, mut perhaps): (HashSet<u32>, HashSet<u32>) = Default::default();
            let mut at = if self.news.is_empty() { NONE } else { self.lines[index as usize].tail };
            while at != NONE {
                let flight = self.flights[at as usize];
                let tag = &self.device_tag(SlotId(at));
                let may_be_behind = flight.phase == Phase::Waiting
                    && (landed.contains(tag) || (!flight.went_down && perhaps.contains(tag)));
                match (flight.is_news, flight.phase) {
                    (true, Phase::Landed) => drop(landed.insert(*tag)),
                    (true, _) => drop(perhaps.insert(*tag)),
                    (false, _) => {}
                }
                if may_be_behind && self.is_behind(SlotId(at)) {
                    self.page.would_reorder.add(1);
                    self.give_up(SlotId(at), FailedReason::WouldReorder);
                }
                at = flight.prev;
            }
            self.keep_sending(index);
        }
        for index in 0..self.news.len() {
            let slot = self.news[index];
            self.flights[slot.0 as usize].is_news = false;
            if self.flights[slot.0 as usize].phase == Phase::Landed {
                self.deliver(slot);
            }
        }
        self.news.clear();
    }

    /// Whether a later trigger of the device landed in this turn, or may have. (If both went down with their handle, the
    /// later one landed only if this one did before it.)
    fn is_behind(&self, slot: SlotId) -> bool {
        let flight = self.flights[slot.0 as usize];
        let mut at = flight.next;
        while at != NONE {
            let later = self.flights[at as usize];
            let precedes = later.is_news && (later.phase == Phase::Landed || !flight.went_down);
            if precedes && self.device(SlotId(at)) == self.device(slot) {
                return true;
            }
            at = later.next;
        }
        false
    }

    fn device(&self, slot: SlotId) -> &[u8] {
        let flight = &self.flights[slot.0 as usize];
        &self.slab.frame(slot)[flight.key_at as usize..][..flight.key_len as usize]
    }

    /// Tells devices apart well enough to look for one. Made when something came back, not for every trigger.
    pub(super) fn device_tag(&self, slot: SlotId) -> u32 {
        device_tag(self.device(slot))
    }

    /// The sink gave up its handle: what the old one still holds will not be reported. Everything goes out again, in
    /// order, under the same keys; the old handle may still read those frames, so their blocks are not used again.
    pub(super) fn take_over_from_old_handle(&mut self) {
        self.page.producer_rebuilds.add(1);
        for index in 0..self.lines.len() as u32 {
            let mut at = self.lines[index as usize].head;
            while at != NONE {
                let flight = &mut self.flights[at as usize];
                let next = flight.next;
                if flight.phase == Phase::Lent {
                    flight.phase = Phase::Waiting;
                    flight.went_down = true;
                    self.note_news(SlotId(at));
                    self.slab.strand(SlotId(at));
                    self.lines[index as usize].lent -= 1;
                    self.lent -= 1;
                    self.page.uncertain.add(1);
                }
                at = next;
            }
            let line = &mut self.lines[index as usize];
            line.unsent = line.head;
            if line.suspects == 0 && !line.is_probing {
                line.mode = Mode::Flowing;
            }
            self.keep_sending(index);
        }
    }

    /// Out of its line, of the line's sums, and of the way of what gets shadows next.
    pub(super) fn take_out(&mut self, slot: SlotId) {
        let Flight { line, is_suspect, next, .. } = self.flights[slot.0 as usize];
        let diversion = &mut self.diversions[line as usize];
        if diversion.shadow_at == slot.0 {
            diversion.shadow_at = next;
        }
        let line = &mut self.lines[line as usize];
        line.unlink(&mut self.flights, slot);
        line.frame_bytes -= self.slab.frame_len(slot) as u64;
        if is_suspect {
            line.suspects -= 1;
        }
    }

    pub(super) fn release_slot(&mut self, slot: SlotId) {
        let flight = &mut self.flights[slot.0 as usize];
        self.settled_slots -= u64::from(flight.is_settled);
        self.leaving -= u64::from(flight.phase == Phase::Leaving);
        (flight.phase, flight.copy, flight.is_settled) = (Phase::Free, Copy::No, false);
        let is_drained = flight.ring == NO_RING;
        self.slab.free(slot);
        if is_drained {
            self.change_drain_room(DrainRoom::left);
        }
    }
}

/// Tells devices apart well enough to look for one; equal tags are compared byte for byte.
fn device_tag(device: &[u8]) -> u32 {
    let mut tag = 0x811c_9dc5_u32 ^ device.len() as u32;
    let mut words = device.chunks_exact(4);
    for word in &mut words {
        tag =
            (tag ^ u32::from_le_bytes([word[0], word[1], word[2], word[3]])).wrapping_mul(0x9e37_79b1).rotate_left(13);
    }
    for &byte in words.remainder() {
        tag = (tag ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    tag
}
