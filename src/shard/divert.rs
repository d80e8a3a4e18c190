//! A partition that does not take what comes in: its triggers go to the disk, or to the dead letters, and come back.
//!
//! `Live → Diverting → Draining → Live`. Diverting: what is in flight stays with the sink and gets a shadow on disk; what
//! was never handed over, and what comes in, is spilled behind it. Draining: once the breaker lets something through,
//! records are read back, in order, to the end of the line. Live again: once nothing is on disk only.
//!
//! A trigger on disk is settled: its watermark may pass. It leaves `in_spill` when its fate is known.

use super::drain_room::DrainRoom;
use super::flight::{Copy, Mode, NONE, Phase};
use super::shared::FailedReason;
use super::{Core, Policy};
use crate::breaker::Permit;
use crate::divert::{News, Order, ShardEnd};
use crate::sink::Sink;
use crate::slab::{Kept, SlotId};
use crate::spill::Kind;
use crate::units::{Nanos, Now};

/// Shadows that one partition gets in one turn: bounds what a full window costs a turn.
const SHADOWS_A_TURN: usize = 1_024;
/// Records that one read asks for.
const READ_MOST: u32 = 1_024;
/// News and drained records taken in one turn: the longest that live traffic waits for a drain. With 4,096 one turn in a
/// hundred beside a drain took 3.9 ms, with as many as this 1.1 (`examples/full_window.rs`).
const PARCELS_A_TURN: usize = 1_024;

impl<S: Sink> Core<S> {
    /// What the disk has to say: appends that are durable or refused, and records that come back.
    pub(super) fn hear_disk(&mut self, now: Now) -> usize {
        let Some(mut disk) = self.disk.take() else { return 0 };
        let mut heard = self.hear_news(&mut disk, now);
        for _ in 0..PARCELS_A_TURN {
            // The disk thread may commit a record and read it back while this loop runs: what it said before it wrote the
            // parcel comes first.
            if !disk.has_drained() {
                break;
            }
            heard += self.hear_news(&mut disk, now);
            let taken = disk.drained(|parcel| self.take_parcel(&parcel, now));
            heard += usize::from(taken.is_some());
        }
        self.disk = Some(disk);
        heard
    }

    fn hear_news(&mut self, disk: &mut ShardEnd, now: Now) -> usize {
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

    pub(super) fn list_diversion(&mut self, index: u32) {
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

    /// Asks for the next records of a partition, as far as its line and the shard have room for them.
    fn ask_for_records(&mut self, index: u32, disk: &mut ShardEnd) {
        let (line, diversion) = (&self.lines[index as usize], &self.diversions[index as usize]);
        if diversion.parked == 0 || diversion.is_reading || line.is_unread || self.is_stopping() {
            return;
        }
        // What hangs as a repeat on something that is in no line, a dead letter or what waits for the disk, is not counted:
        // it may have to wait for this very read.
        let most = match line.breaker.permit(line.lent) {
            Permit::Hold => 0,
            Permit::Probe => u32::from(line.length == 0),
            // With nothing to be careful with, one goes ahead.
            Permit::Flow if line.mode == Mode::Careful => u32::from(line.length == 0),
            Permit::Flow => READ_MOST.min((self.limits.inflight_partition / 2).max(1).saturating_sub(line.length)),
        };
        let most = self.drain_room.as_ref().map_or(0, |room| room.most(&self.slab, most, line.length == 0));
        if most == 0 {
            return;
        }
        let order = Order::Read { partition: self.partition(index), from: diversion.read_next, most };
        if disk.order(&order) {
            let diversion = &mut self.diversions[index as usize];
            (diversion.is_reading, diversion.promised) = (true, most);
            self.change_drain_room(|room| room.promise(most));
        }
    }

    pub(super) fn change_drain_room(&mut self, change: impl FnOnce(&mut DrainRoom)) {
        change(self.drain_room.as_mut().expect("what comes from the disk has its room"));
        self.keep_drain_room();
    }

    pub(super) fn keep_drain_room(&mut self) {
        self.slab.keep(self.drain_room.map_or(Kept::default(), |room| room.kept()));
    }

    fn release_copies(&mut self, index: u32, disk: &mut ShardEnd) {
        let partition = self.partition(index);
        let diversion = &mut self.diversions[index as usize];
        if diversion.wants_release && disk.order(&Order::Release { partition, upto: diversion.released }) {
            diversion.wants_release = false;
        }
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
