//! A partition that does not take what comes in: its triggers go to the disk, or to the dead letters, and come back.
//!
//! `Live → Diverting → Draining → Live`. Diverting: what is in flight stays with the sink and gets a shadow on disk; what
//! was never handed over, and what comes in, is spilled behind it. Draining: once the breaker lets something through,
//! records are read back, in order, to the end of the line. Live again: once nothing is on disk only.
//!
//! A trigger on disk is settled: its watermark may pass. It leaves `in_spill` when its fate is known.

use super::diversion::Diversion;
use super::flight::{Copy, Flight, Mode, NO_RING, NONE, Phase};
use super::shared::FailedReason;
use super::{Core, Policy};
use crate::breaker::Permit;
use crate::dedup::Seen;
use crate::divert::{Found, News, Order, Parcel, RefusedWhy, ShardEnd};
use crate::sink::Sink;
use crate::slab::SlotId;
use crate::spill::Kind;
use crate::units::{Nanos, Now, UnixMs};
use crate::wire;

/// Shadows that one partition gets in one turn: bounds what a full window costs a turn.
const SHADOWS_A_TURN: usize = 1_024;
/// Records that one read asks for.
const READ_MOST: u32 = 1_024;
/// News and drained records taken in one turn.
const PARCELS_A_TURN: usize = 4_096;

impl<S: Sink> Core<S> {
    /// What the disk has to say: appends that are durable or refused, and records that come back.
    pub(super) fn hear_disk(&mut self, now: Now) -> usize {
        let Some(mut disk) = self.disk.take() else { return 0 };
        let mut heard = 0;
        while let Some(news) = disk.news() {
            heard += 1;
            match news {
                News::Synced { slot, sequence } => self.synced(SlotId(slot), sequence),
                News::Refused { slot, epoch, why } => self.refused_by_disk(SlotId(slot), epoch, why, now.mono),
                News::Lettered { slot } => self.lettered(SlotId(slot)),
                News::LetterRefused { slot } => self.letter_refused(SlotId(slot), now.mono),
            }
        }
        for _ in 0..PARCELS_A_TURN {
            let (slots, pages) = (self.slab.free_slots(), self.slab.free_pages());
            let is_welcome = |frame_bytes: usize| frame_bytes == 0 || (slots > 0 && pages > 0);
            if disk.drained(is_welcome, |parcel| self.take_parcel(&parcel, now)).is_none() {
                break;
            }
            heard += 1;
        }
        self.disk = Some(disk);
        heard
    }

    /// Once a turn, for each partition that is diverted or has something on disk: orders what is to be written, read and
    /// released, and lets it be live again when its time has come.
    pub(super) fn tend_diversions(&mut self, now: Now) {
        if self.shared.is_spilling_rest() && !self.is_spilling_rest {
            self.spill_rest();
        }
        let Some(mut disk) = self.disk.take() else { return };
        while let Some(&(line, sequence)) = self.marks.front() {
            let partition = self.partition(line);
            if sequence > self.diversions[line as usize].released && !disk.order(&Order::Mark { partition, sequence }) {
                break;
            }
            self.marks.pop_front();
        }
        let mut at = 0;
        while at < self.diverted.len() {
            let index = self.diverted[at];
            if self.write_shadows(index, now.mono, &mut disk) {
                self.write_spilling(index, now.mono, &mut disk);
            }
            self.ask_for_records(index, &mut disk);
            self.go_live_if_ready(index, now);
            self.release_copies(index, &mut disk);
            if self.diversions[index as usize].is_quiet() && !self.lines[index as usize].is_diverted {
                self.diversions[index as usize].listed = false;
                self.diverted.swap_remove(at);
            } else {
                at += 1;
            }
        }
        self.disk = Some(disk);
    }

    /// From now on, what comes in for this partition is diverted, and so is what waits in its line and was never handed
    /// over. What was handed over stays: the sink may have it in the log.
    pub(super) fn divert(&mut self, index: u32) {
        debug_assert!(!self.lines[index as usize].is_diverted);
        self.lines[index as usize].is_diverted = true;
        let diversion = &mut self.diversions[index as usize];
        diversion.to_letters =
            self.limits.policy == Policy::DeadLetter && diversion.parked == 0 && !self.is_spilling_rest;
        let to_letters = diversion.to_letters;
        self.page.diversions.add(1);
        loop {
            let slot = SlotId(self.lines[index as usize].tail);
            if slot.0 == NONE {
                break;
            }
            let flight = &self.flights[slot.0 as usize];
            if flight.phase != Phase::Waiting || flight.attempts > 0 || flight.copy != Copy::No {
                break;
            }
            if to_letters {
                self.take_out(slot);
                self.start_dying(slot, FailedReason::Diverted);
                continue;
            }
            let line = &mut self.lines[index as usize];
            line.unlink(&mut self.flights, slot);
            line.held += 1;
            self.flights[slot.0 as usize].phase = Phase::Spilling;
            self.diversions[index as usize].push_front(&mut self.flights, slot);
        }
        if !to_letters {
            self.diversions[index as usize].shadow_at = self.lines[index as usize].head;
        }
        self.list_diversion(index);
    }

    /// A trigger that has just been admitted to a diverted partition.
    pub(super) fn divert_one(&mut self, index: u32, slot: SlotId) {
        if self.diversions[index as usize].to_letters {
            let line = &mut self.lines[index as usize];
            line.frame_bytes -= self.slab.frame_len(slot) as u64;
            self.start_dying(slot, FailedReason::Diverted);
            return;
        }
        self.flights[slot.0 as usize].phase = Phase::Spilling;
        self.diversions[index as usize].push(&mut self.flights, slot);
        self.lines[index as usize].held += 1;
    }

    fn list_diversion(&mut self, index: u32) {
        let diversion = &mut self.diversions[index as usize];
        if !diversion.listed {
            diversion.listed = true;
            self.diverted.push(index);
        }
    }

    /// Orders the shadows of what is in the line. True: all that are to have one do.
    fn write_shadows(&mut self, index: u32, now: Nanos, disk: &mut ShardEnd) -> bool {
        let partition = self.partition(index);
        let diversion = &mut self.diversions[index as usize];
        if diversion.shadow_at != NONE && now < diversion.retry_at {
            return false;
        }
        for _ in 0..SHADOWS_A_TURN {
            if diversion.shadow_at == NONE {
                return true;
            }
            let slot = SlotId(diversion.shadow_at);
            let flight = &mut self.flights[slot.0 as usize];
            match flight.copy {
                Copy::No if matches!(flight.phase, Phase::Waiting | Phase::Lent) => {
                    let (epoch, frame) = (diversion.epoch, self.slab.frame(slot));
                    let order = Order::Append { slot: slot.0, epoch, partition, kind: Kind::Shadow, frame };
                    if !disk.order(&order) {
                        return false;
                    }
                    flight.copy = Copy::Writing;
                    self.sequences[slot.0 as usize] = epoch.into();
                }
                // The answer to an earlier order is due, and it is a refusal: those behind wait for it.
                Copy::Writing if self.sequences[slot.0 as usize] != u64::from(diversion.epoch) => return false,
                Copy::No | Copy::Writing | Copy::Synced => {}
            }
            diversion.shadow_at = flight.next;
        }
        diversion.shadow_at == NONE
    }

    /// Orders what is spilling to be written, behind the shadows.
    fn write_spilling(&mut self, index: u32, now: Nanos, disk: &mut ShardEnd) {
        let partition = self.partition(index);
        let diversion = &mut self.diversions[index as usize];
        if now < diversion.retry_at {
            return;
        }
        while diversion.unwritten != NONE {
            let slot = SlotId(diversion.unwritten);
            let flight = &mut self.flights[slot.0 as usize];
            if flight.copy != Copy::No {
                // The refusal of an earlier order is still due.
                return;
            }
            let (epoch, frame) = (diversion.epoch, self.slab.frame(slot));
            if !disk.order(&Order::Append { slot: slot.0, epoch, partition, kind: Kind::Spilled, frame }) {
                return;
            }
            flight.copy = Copy::Writing;
            self.sequences[slot.0 as usize] = epoch.into();
            diversion.unwritten = flight.next;
        }
    }

    /// A trigger is durable on disk.
    fn synced(&mut self, slot: SlotId, sequence: u64) {
        let flight = &mut self.flights[slot.0 as usize];
        debug_assert_eq!(flight.copy, Copy::Writing);
        flight.copy = Copy::Synced;
        self.sequences[slot.0 as usize] = sequence;
        let Flight { line: index, phase, is_bare, .. } = *flight;
        self.diversions[index as usize].synced();
        self.list_diversion(index);
        match phase {
            Phase::Spilling => {
                if is_bare {
                    self.flights[slot.0 as usize].is_bare = false;
                } else {
                    self.dedup.park(slot.0, sequence as u32);
                }
                self.page.spilled.add(1);
                self.settle_early(slot);
                debug_assert_eq!(
                    self.flights[slot.0 as usize].repeats, NONE,
                    "repeats from the disk hang on what has a copy"
                );
                let diversion = &mut self.diversions[index as usize];
                diversion.unlink(&mut self.flights, slot);
                if diversion.parked == 0 {
                    diversion.read_next = diversion.read_next.max(sequence);
                }
                diversion.parked += 1;
                let line = &mut self.lines[index as usize];
                line.held -= 1;
                line.frame_bytes -= self.slab.frame_len(slot) as u64;
                self.release_slot(slot);
                if self.lines[index as usize].blocked.is_any() {
                    self.judge_fill(index);
                }
            }
            // In the log already: only its copy is left.
            Phase::Leaving => {
                self.release_slot(slot);
                self.copy_done(index, sequence);
            }
            Phase::Dying => {
                self.settle_early(slot);
                self.held_back.push((index, sequence));
            }
            Phase::Waiting | Phase::Lent | Phase::Landed | Phase::Repeat => self.settle_early(slot),
            Phase::Free | Phase::Failing => unreachable!("{slot:?} is {phase:?} while it is written"),
        }
    }

    /// Its ingress may count it as settled, and its repeats too.
    fn settle_early(&mut self, slot: SlotId) {
        let Flight { seq, ring, repeats, is_settled, .. } = self.flights[slot.0 as usize];
        debug_assert!(!is_settled);
        self.accounts[ring as usize].outstanding.settle(seq.0);
        self.in_spill += 1;
        self.mark_settled(slot);
        // A repeat that came from the disk keeps its record until its original's fate is known.
        let (mut at, mut kept) = (repeats, NONE);
        while at != NONE {
            let Flight { next, is_settled, .. } = self.flights[at as usize];
            if is_settled || self.flights[at as usize].copy == Copy::Writing {
                self.flights[at as usize].next = kept;
                kept = at;
            } else {
                self.conclude_repeat(SlotId(at));
            }
            at = next;
        }
        self.flights[slot.0 as usize].repeats = kept;
    }

    pub(super) fn mark_settled(&mut self, slot: SlotId) {
        let flight = &mut self.flights[slot.0 as usize];
        if !flight.is_settled {
            flight.is_settled = true;
            self.settled_slots += 1;
        }
    }

    /// The disk did not take a trigger: it is ordered again, in its place, after a pause.
    fn refused_by_disk(&mut self, slot: SlotId, epoch: u32, why: RefusedWhy, now: Nanos) {
        let flight = &mut self.flights[slot.0 as usize];
        if flight.copy != Copy::Writing || self.sequences[slot.0 as usize] != u64::from(epoch) {
            return;
        }
        flight.copy = Copy::No;
        let Flight { line: index, phase, .. } = *flight;
        let head = self.lines[index as usize].head;
        let diversion = &mut self.diversions[index as usize];
        let is_first = epoch == diversion.epoch;
        if is_first {
            // Whatever was ordered behind it is refused as well: all of it is ordered again, from the oldest on.
            self.page.refused_spills.add(1);
            diversion.refused(now);
            diversion.unwritten = diversion.head;
            if self.lines[index as usize].is_diverted && !diversion.to_letters {
                diversion.shadow_at = head;
            }
        }
        if phase == Phase::Leaving {
            self.release_slot(slot);
        }
        if is_first && why != RefusedWhy::Follows {
            self.judge_fill(index);
        }
    }

    /// Asks for the next records of a partition, as far as its line has room for them.
    fn ask_for_records(&mut self, index: u32, disk: &mut ShardEnd) {
        let (line, diversion) = (&self.lines[index as usize], &self.diversions[index as usize]);
        if diversion.parked == 0 || diversion.is_reading || self.is_cold || self.is_stopping() {
            return;
        }
        let in_line = line.held - diversion.spilling;
        let most = match line.breaker.permit(line.lent) {
            Permit::Hold => 0,
            Permit::Probe => u32::from(in_line == 0),
            Permit::Flow if line.mode == Mode::Careful => 0,
            Permit::Flow => READ_MOST.min((self.limits.inflight_partition / 2).max(1).saturating_sub(in_line)),
        };
        let has_slots = self.slab.free_slots() > self.slab.slots() / 8 + most as usize
            && self.slab.free_pages() > self.slab.pages() / 8;
        if most == 0 || !has_slots {
            return;
        }
        let order = Order::Read { partition: self.partition(index), from: diversion.read_next, most };
        if disk.order(&order) {
            self.diversions[index as usize].is_reading = true;
        }
    }

    fn take_parcel(&mut self, parcel: &Parcel<'_>, now: Now) {
        match *parcel {
            Parcel::Record { partition, sequence, frame } => {
                let index = self.line_of(partition);
                let diversion = &mut self.diversions[index as usize];
                debug_assert!(sequence >= diversion.read_next, "{partition:?}: {sequence} was read before");
                diversion.read_next = sequence + 1;
                diversion.parked -= 1;
                self.take_drained(index, sequence, frame, now);
            }
            Parcel::Done { partition, next, lost } => {
                let index = self.line_of(partition);
                let diversion = &mut self.diversions[index as usize];
                diversion.read_next = diversion.read_next.max(next);
                diversion.is_reading = false;
                diversion.parked -= lost;
                let known = lost.min(diversion.known_lost);
                diversion.known_lost -= known;
                let fresh = lost - known;
                if fresh > 0 {
                    self.in_spill -= fresh;
                    self.page.corrupt.add(fresh);
                    log::error!("partition {partition}: the disk lost {fresh} settled triggers below record {next}");
                }
            }
        }
    }

    /// A record that comes back: through the window once more, and to the end of its line.
    fn take_drained(&mut self, index: u32, sequence: u64, frame: &[u8], now: Now) {
        let slot = self.slab.take(frame.len()).expect("a record is taken only when there is room");
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
            Seen::Pending(other) if self.flights[other as usize].phase == Phase::Spilling => {
                // A later repeat holds the key: this one is the original, and that one will meet it again.
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

    /// A repeat's original is settled: so is the repeat.
    pub(super) fn conclude_repeat(&mut self, slot: SlotId) {
        let line = self.flights[slot.0 as usize].line;
        self.page.deduplicated.add(1);
        self.lines[line as usize].held -= 1;
        self.conclude(slot);
    }

    /// A trigger's fate is known and counted: its seq is settled, its copy on disk done with, its slot free.
    pub(super) fn conclude(&mut self, slot: SlotId) {
        let Flight { seq, ring, line, copy, is_settled, .. } = self.flights[slot.0 as usize];
        if is_settled {
            self.in_spill -= 1;
        } else {
            self.accounts[ring as usize].outstanding.settle(seq.0);
        }
        match copy {
            Copy::No => self.release_slot(slot),
            Copy::Writing => {
                self.mark_settled(slot);
                self.flights[slot.0 as usize].phase = Phase::Leaving;
                self.leaving += 1;
            }
            Copy::Synced => {
                let sequence = self.sequences[slot.0 as usize];
                self.release_slot(slot);
                self.copy_done(line, sequence);
            }
        }
    }

    /// A record is done with. In its turn it is released with all before it, otherwise it is marked.
    fn copy_done(&mut self, index: u32, sequence: u64) {
        let head = self.lines[index as usize].head;
        let diversion = &mut self.diversions[index as usize];
        diversion.high = diversion.high.max(sequence);
        // What has a copy comes first in the line, and everything parked is behind it.
        let mut upto = match head {
            NONE => diversion.high,
            head if self.flights[head as usize].copy == Copy::Synced => self.sequences[head as usize] - 1,
            _ => diversion.high,
        };
        for &(line, held) in &self.held_back {
            if line == index {
                upto = upto.min(held - 1);
            }
        }
        if upto > diversion.released {
            diversion.released = upto;
            diversion.wants_release = true;
        }
        if sequence > diversion.released {
            self.marks.push_back((index, sequence));
        }
        self.list_diversion(index);
    }

    fn release_copies(&mut self, index: u32, disk: &mut ShardEnd) {
        let partition = self.partition(index);
        let diversion = &mut self.diversions[index as usize];
        if diversion.wants_release && disk.order(&Order::Release { partition, upto: diversion.released }) {
            diversion.wants_release = false;
        }
    }

    fn may_be_live(&self, index: u32) -> bool {
        let (line, diversion) = (&self.lines[index as usize], &self.diversions[index as usize]);
        let in_line = line.held - diversion.spilling;
        line.is_diverted
            && !self.is_cold
            && !self.is_spilling_rest
            && line.breaker.is_closed()
            && line.held <= self.limits.inflight_partition / 8 * 5
            && in_line <= self.limits.inflight_partition / 2
            && line.frame_bytes <= self.limits.line_bytes() / 8 * 5
    }

    /// Live again: nothing is on disk only, so what is still spilling follows on the line.
    fn go_live_if_ready(&mut self, index: u32, now: Now) {
        let diversion = &self.diversions[index as usize];
        if diversion.parked > 0
            || diversion.is_reading
            || diversion.shadow_at != NONE
            || !self.may_be_live(index)
            || (self.is_stopping() && diversion.spilling > 0)
        {
            return;
        }
        self.lines[index as usize].is_diverted = false;
        while self.diversions[index as usize].head != NONE {
            let slot = SlotId(self.diversions[index as usize].head);
            self.diversions[index as usize].unlink(&mut self.flights, slot);
            self.lines[index as usize].held -= 1;
            self.flights[slot.0 as usize].phase = Phase::Waiting;
            if self.flights[slot.0 as usize].is_bare && !self.ask_again(slot, now) {
                continue;
            }
            let line = &mut self.lines[index as usize];
            line.push(&mut self.flights, slot);
            if line.unsent == NONE && line.mode == Mode::Flowing {
                line.unsent = slot.0;
            }
        }
        self.diversions[index as usize].unwritten = NONE;
        self.keep_sending(index);
        self.say_live(index);
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
                let mut repeat = std::mem::replace(&mut self.flights[slot.0 as usize].repeats, NONE);
                self.page.deduplicated.add(1);
                self.conclude(slot);
                while repeat != NONE {
                    let next = self.flights[repeat as usize].next;
                    self.conclude_repeat(SlotId(repeat));
                    repeat = next;
                }
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
        let Some(already) = &self.already else { return false };
        already.holds(self.partition(index), trigger)
    }

    /// The time to deliver is over: everything that is not settled goes to the disk.
    fn spill_rest(&mut self) {
        self.is_spilling_rest = true;
        if self.room.is_none() {
            return;
        }
        for index in 0..self.lines.len() as u32 {
            let line = &self.lines[index as usize];
            if line.is_diverted {
                self.diversions[index as usize].to_letters = false;
                self.diversions[index as usize].shadow_at = self.lines[index as usize].head;
                self.list_diversion(index);
            } else {
                self.divert(index);
            }
        }
    }
}

impl Diversion {
    /// With what lies on disk already.
    pub(super) fn with(found: Found) -> Diversion {
        Diversion {
            parked: found.committed - found.released - found.marked,
            known_lost: found.lost,
            read_next: found.released + 1,
            recovered_upto: found.committed,
            released: found.released,
            high: found.released,
            ..Diversion::NONE
        }
    }
}
