//! What cannot be delivered: to the dead letters where there are any, else back to its ingress.
//!
//! A dead letter is settled once it is durable, in its topic or on disk. Only what neither takes is handed back as failed;
//! and what is settled already, since its copy is on disk, is offered again instead.

use super::Core;
use super::flight::{Copy, Flight, NONE, Phase};
use super::shared::{Failed, FailedReason};
use crate::divert::{DETAIL_BYTES, LetterOrder, Stage};
use crate::letter::Reason;
use crate::sink::Sink;
use crate::slab::SlotId;
use crate::units::Nanos;
use std::fmt::Write as _;

/// How long a dead letter that nobody takes waits before it is offered again.
const PAUSE: Nanos = Nanos::from_millis(1_000);

impl<S: Sink> Core<S> {
    /// It cannot be delivered. It is in its line.
    pub(super) fn give_up(&mut self, slot: SlotId, reason: FailedReason) {
        let line = self.flights[slot.0 as usize].line;
        self.take_out(slot);
        if self.has_letters() {
            self.start_dying(slot, reason);
        } else {
            self.hand_back(slot, reason);
        }
        self.judge_fill(line);
    }

    pub(super) fn has_letters(&self) -> bool {
        self.limits.has_letters
    }

    /// To the dead letters. It is in no line any more.
    pub(super) fn start_dying(&mut self, slot: SlotId, reason: FailedReason) {
        let flight = &mut self.flights[slot.0 as usize];
        flight.phase = Phase::Dying;
        flight.sent = Nanos(reason.pack());
        if flight.copy == Copy::Synced {
            // Its record stays on disk until the letter is durable.
            self.held_back.push((flight.line, self.sequences[slot.0 as usize]));
        }
        self.dying += 1;
        self.letters.push_back((slot, Nanos(0)));
    }

    /// Writes dead letters, as far as there is room.
    pub(super) fn write_letters(&mut self, now: Nanos) {
        if self.letters.is_empty() {
            return;
        }
        let Some(mut disk) = self.disk.take() else { return };
        while let Some(&(slot, not_before)) = self.letters.front() {
            if now < not_before || !self.write_letter(slot, &mut disk) {
                break;
            }
            self.letters.pop_front();
        }
        self.disk = Some(disk);
    }

    fn write_letter(&mut self, slot: SlotId, disk: &mut crate::divert::ShardEnd) -> bool {
        let Flight { line, sent, attempts, is_settled, .. } = self.flights[slot.0 as usize];
        let reason = FailedReason::unpack(sent.0);
        let (letter_reason, stage) = match reason {
            FailedReason::TooLarge { .. } => (Reason::TooLarge, Stage::Admit),
            FailedReason::Refused { .. } => (Reason::Refused, Stage::Publish),
            FailedReason::WouldReorder => (Reason::WouldReorder, Stage::Publish),
            FailedReason::Diverted => (Reason::Diverted, Stage::Admit),
            FailedReason::UnknownFence => (Reason::UnknownFence, Stage::Admit),
            FailedReason::Unreadable => (Reason::UnknownVersion, Stage::Drain),
            FailedReason::ByCaller => (Reason::Shed, Stage::Submit),
        };
        let stage = if is_settled && attempts == 0 { Stage::Drain } else { stage };
        self.words.clear();
        match reason {
            FailedReason::Refused { code } => self.words.push_str(&self.sink.explain(code)),
            FailedReason::TooLarge { .. } => {
                let written = write!(self.words, "{reason}");
                debug_assert!(written.is_ok(), "a string takes all text");
            }
            _ => {}
        }
        let mut end = self.words.len().min(DETAIL_BYTES);
        while !self.words.is_char_boundary(end) {
            end -= 1;
        }
        disk.letter(&LetterOrder {
            slot: slot.0,
            partition: self.partition(line),
            reason: letter_reason.number(),
            stage,
            attempts,
            failed: self.wall.as_ms(),
            frame: self.slab.frame(slot),
            detail: &self.words[..end],
        })
    }

    /// A dead letter is durable: it is settled, and so are its repeats.
    pub(super) fn lettered(&mut self, slot: SlotId) {
        let Flight { line, copy, repeats, is_bare, .. } = self.flights[slot.0 as usize];
        debug_assert_eq!(self.flights[slot.0 as usize].phase, Phase::Dying);
        if !is_bare {
            self.dedup.commit(slot.0);
        }
        self.dying -= 1;
        self.page.dead_lettered.add(1);
        self.let_go(line, slot, copy);
        self.conclude_with(slot, repeats);
        if self.lines[line as usize].blocked.is_any() {
            self.judge_fill(line);
        }
    }

    /// Its record need not be kept any longer.
    pub(super) fn let_go(&mut self, line: u32, slot: SlotId, copy: Copy) {
        if copy == Copy::Synced {
            let sequence = self.sequences[slot.0 as usize];
            self.held_back.retain(|held| *held != (line, sequence));
        }
    }

    /// Neither the topic of dead letters nor the disk takes it.
    pub(super) fn letter_refused(&mut self, slot: SlotId, now: Nanos) {
        let Flight { sent, is_settled, copy, repeats, .. } = self.flights[slot.0 as usize];
        let mut is_kept = is_settled || copy == Copy::Writing;
        let mut repeat = repeats;
        while repeat != NONE && !is_kept {
            let flight = &self.flights[repeat as usize];
            is_kept = flight.is_settled || flight.copy == Copy::Writing;
            repeat = flight.next;
        }
        if is_kept {
            // Its caller has gone past it: it stays on disk, and is offered again.
            self.letters.push_back((slot, now + PAUSE));
            return;
        }
        self.dying -= 1;
        self.hand_back(slot, FailedReason::unpack(sent.0));
    }

    /// Nothing durable takes it: gives it, and its repeats, back to where they came from. It is in no line any more.
    fn hand_back(&mut self, slot: SlotId, reason: FailedReason) {
        let Flight { line, repeats, is_bare, .. } = self.flights[slot.0 as usize];
        if !is_bare {
            self.dedup.release(slot.0);
        }
        self.start_failing(slot, reason);
        let mut repeat = repeats;
        while repeat != NONE {
            let next = self.flights[repeat as usize].next;
            self.lines[line as usize].held -= 1;
            self.start_failing(SlotId(repeat), reason);
            repeat = next;
        }
    }

    fn start_failing(&mut self, slot: SlotId, reason: FailedReason) {
        let flight = &mut self.flights[slot.0 as usize];
        flight.phase = Phase::Failing;
        self.accounts[flight.ring as usize].failing.push_back((slot, reason));
    }

    /// Hands back what failed, as far as each ingress's queue has room.
    pub(super) fn hand_back_failed(&mut self) {
        for ring in 0..self.accounts.len() {
            while let Some(&(slot, reason)) = self.accounts[ring].failing.front() {
                let seq = self.flights[slot.0 as usize].seq;
                let account = &mut self.accounts[ring];
                if account.failed.push(Failed { seq, reason }).is_err() {
                    break;
                }
                account.failing.pop_front();
                account.outstanding.settle(seq.0);
                self.page.failed.add(1);
                self.release_slot(slot);
            }
        }
    }
}
