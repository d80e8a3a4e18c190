//! Triggers in memory that lie on disk as well: what the disk says of them, and what it is told when their fate is known.

use super::Core;
use super::flight::{Copy, Flight, NONE, Phase};
use crate::divert::RefusedWhy;
use crate::sink::Sink;
use crate::slab::SlotId;
use crate::units::Nanos;

impl<S: Sink> Core<S> {
    /// A trigger is durable on disk.
    pub(super) fn synced(&mut self, slot: SlotId, sequence: u64) {
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
    pub(super) fn refused_by_disk(&mut self, slot: SlotId, epoch: u32, why: RefusedWhy, now: Nanos) {
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
        self.record_done(index, sequence);
        if sequence > self.diversions[index as usize].released {
            self.marks.push_back((index, sequence));
        }
    }

    /// A record is done with, or lost: releases what there is up to the first that is not.
    pub(super) fn record_done(&mut self, index: u32, sequence: u64) {
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
        self.list_diversion(index);
    }
}
