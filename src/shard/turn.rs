//! The turn: reports in, what waits out, triggers in and out, news out. It never waits and never stops for one partition.
//!
//! What nearly every trigger goes through is inlined into the turn, and what is rare is kept out of it by hand: left to
//! itself the compiler puts calls into the one and the other's registers into the turn's (`benches/turn.rs`: 14 instructions of 100).

use super::flight::{Flight, Mode, NONE, Phase};
use super::shared::{FailedReason, Shedding};
use super::{Core, Policy, Shard};
use crate::breaker::{Permit, State};
use crate::canary::{Canary, is_planted};
use crate::clock::Clock;
use crate::dedup::Seen;
use crate::prefetch::{prefetch, prefetch_for_write_at};
use crate::ring::{Incoming, Take};
use crate::sink::{Busy, Condition, Fault, Outgoing, Sink};
use crate::slab::SlotId;
use crate::trigger::Key;
use crate::units::{Nanos, Now, UnixMicros, UnixMs};
use crate::wire::{self, Frame};

/// Reports taken from the sink in one turn, and the last batch whole.
pub(super) const REPORTS: usize = 8_192;
/// The records of a batch, unless `batch.num.messages` is set higher; then the first such batch costs an allocation.
pub(super) const BATCH: usize = 10_000;
/// Room for the reports of a turn, in bytes.
pub const REPORTS_BYTES: usize = (REPORTS + BATCH) * size_of::<crate::sink::Report>();
/// With so many in flight, what a report is about has left the caches since.
const FAR_IN_FLIGHT: u32 = 4_096;
/// So far ahead of its report it is asked for.
const REPORTS_AHEAD: usize = 4;
/// How often breakers are looked at; each look walks the lines of the shard.
const BREAKER_TICK: Nanos = Nanos::from_millis(5);
/// One turn in so many reads the clock a second time, to measure the dedup stage.
const SAMPLED_TURNS: u64 = 16;
/// A frame handed over this soon after it was accepted is stamped by the client; saying the time costs a longer call.
const FRESH: Nanos = Nanos::from_millis(100);
/// What Kafka adds to key and value at the most: the header of a batch of one (61 bytes), the record's own lengths.
const RECORD_OVERHEAD: usize = 61 + 32;

/// What a turn did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// When it began.
    pub began: Nanos,
    /// Triggers taken from the rings.
    pub taken: usize,
    /// Reports taken from the sink.
    pub reports: usize,
    /// Frames that are at the sink.
    pub lent: usize,
}

impl<S: Sink, C: Clock> Shard<S, C> {
    /// One turn. Reads the clock once.
    pub fn turn(&mut self) -> Turn {
        let now = self.clock.now();
        self.core.wall = now.wall;
        let reports = self.core.collect(now.mono) + self.core.hear_disk(now);
        self.core.tick_breakers(now.mono);
        // Before the rings: a partition that waits for a place has it before triggers that are only coming in.
        self.core.send_waiting(now.mono);
        let taken = self.take(now);
        self.core.tend_diversions(now);
        self.core.write_letters(now.mono);
        self.core.show();
        if taken + reports > 0 {
            self.core.page.busy_turns.add(1);
        }
        Turn { began: now.mono, taken, reports, lent: self.core.lent as usize }
    }

    /// Takes a batch from each ring, beginning with another one each turn.
    fn take(&mut self, now: Now) -> usize {
        let mut taken = 0;
        self.turns += 1;
        for index in 0..self.rings.len() {
            let ring = (self.first_ring + index) % self.rings.len();
            taken += self.take_from(ring, now);
        }
        self.first_ring = (self.first_ring + 1) % self.rings.len().max(1);
        self.core.page.taken.add(taken as u64);
        if taken > 0 && self.turns.is_multiple_of(SAMPLED_TURNS) {
            self.core.page.dedup.record_many(self.clock.mono().since(now.mono), taken as u64);
        }
        taken
    }

    /// Takes a batch from one ring. While one is admitted, the memory is asked for what the dedup window will need of the one
    /// behind it.
    fn take_from(&mut self, ring: usize, now: Now) -> usize {
        let (reader, core) = (&mut self.rings[ring], &mut self.core);
        reader.take_with_next(core.limits.turn_batch, |incoming, next| {
            if let Some(hash) = next {
                core.dedup.foresee(hash);
            }
            core.admit(ring, &incoming, now)
        })
    }
}

impl<S: Sink> Core<S> {
    /// One trigger from its ring to its line, or to where its original waits, or to its end.
    #[inline]
    fn admit(&mut self, ring: usize, incoming: &Incoming<'_>, now: Now) -> Take {
        let index = self.line_of(incoming.partition);
        let waited = now.mono.since(incoming.accepted);
        let accepted_unix = UnixMicros(now.wall.0 - (waited.0 / 1_000) as i64);
        let mut frame = Frame {
            device_id: incoming.device_id,
            fence_id: incoming.fence_id,
            state: incoming.state,
            event_time_ms: incoming.event_time_ms,
            hlc: self.hlc.tick(now.wall.as_ms()),
            accepted: accepted_unix,
            priority: incoming.priority,
            attributes: incoming.attributes,
            router_id: self.limits.router_id.as_bytes(),
            incarnation: self.limits.incarnation,
            partition_seq: self.lines[index as usize].next_partition_seq,
            salt: 0,
        };
        let is_unknown = self.fences.as_ref().is_some_and(|fences| !fences.has(incoming.fence_id));
        let mut frame_len = wire::encoded_len(&frame);
        let size = frame_len + incoming.device_id.len() + RECORD_OVERHEAD;
        let limit = self.shared.record_bytes_max();
        if is_unknown || size > limit {
            // It has no turn in its partition, so it has no number there: a start takes a record on disk for one that is
            // in the topic by its number, and this one's letter may be published one day.
            frame.partition_seq = 0;
            frame_len = wire::encoded_len(&frame);
        }
        let Some(slot) = self.slab.take(frame_len) else {
            self.page.stalled_turns.add(1);
            return Take::Leave;
        };
        if let Some(next) = self.slab.next_slot() {
            prefetch_for_write_at((&raw const self.flights[next.0 as usize]).cast());
        }
        let key = Key {
            device_id: incoming.device_id,
            fence_id: incoming.fence_id,
            state: incoming.state,
            event_second: incoming.event_time_ms.div_euclid(1_000),
        };
        self.streaks.queue.record(waited, &self.page.queue);
        match self.dedup.ask(key, incoming.hash, now.mono, slot.0) {
            Seen::New => {}
            Seen::Settled => {
                self.slab.free(slot);
                self.page.deduplicated.add(1);
                self.accounts[ring].outstanding.pass(incoming.seq.0);
                return Take::Taken;
            }
            Seen::Pending(original) => {
                self.slab.free(slot);
                return self.hang_on(ring, incoming, SlotId(original));
            }
        }
        wire::encode(&frame, self.slab.frame_mut(slot));
        let key_at = wire::device_id_start(incoming.device_id.len());
        debug_assert_eq!(key_at, wire::device_id_range(self.slab.frame(slot)).start);
        let record_time =
            if self.limits.record_time_is_event { UnixMs(incoming.event_time_ms) } else { accepted_unix.as_ms() };
        self.flights[slot.0 as usize] = Flight {
            seq: incoming.seq,
            accepted: incoming.accepted,
            record_time,
            line: index,
            key_at: key_at as u16,
            key_len: incoming.device_id.len() as u16,
            ring: ring as u16,
            phase: Phase::Waiting,
            ..Flight::FREE
        };
        self.accounts[ring].outstanding.open(incoming.seq.0);
        self.lines[index as usize].frame_bytes += frame_len as u64;
        if is_unknown || size > limit {
            let too_large = FailedReason::TooLarge { size: size as u32, limit: limit as u32 };
            self.turn_away(index, slot, if size > limit { too_large } else { FailedReason::UnknownFence });
        } else {
            self.line_up(index, slot, now.mono);
        }
        Take::Taken
    }

    /// It may not go to the topic.
    #[cold]
    fn turn_away(&mut self, index: u32, slot: SlotId, reason: FailedReason) {
        self.lines[index as usize].push(&mut self.flights, slot);
        self.give_up(slot, reason);
    }

    /// To the end of its line, and to the sink if it may go at once, as nearly every one may.
    #[inline]
    fn line_up(&mut self, index: u32, slot: SlotId, now: Nanos) {
        let line = &mut self.lines[index as usize];
        line.next_partition_seq += 1;
        let is_next = line.unsent == NONE && line.is_at_peace() && !line.is_unread && now >= line.not_before;
        let most = self.limits.inflight_partition;
        if !is_next || line.lent >= most || self.lent >= self.limits.inflight_total {
            return self.line_up_behind(index, slot, now);
        }
        line.push(&mut self.flights, slot);
        let is_full = line.held >= most || line.frame_bytes >= self.limits.line_bytes();
        if let Err(busy) = self.produce(index, slot, now) {
            self.lines[index as usize].unsent = slot.0;
            if !self.refused_at_once(index, slot, busy, now) {
                self.keep_sending(index);
            }
        }
        if is_full {
            self.judge_fill(index);
        }
    }

    /// To the end of its line, which waits for something; or where its line is diverted to.
    #[inline(never)]
    fn line_up_behind(&mut self, index: u32, slot: SlotId, now: Nanos) {
        let line = &mut self.lines[index as usize];
        let overtakes = is_planted(Canary::DrainOvertaken) && line.breaker.is_closed();
        if line.is_diverted && !overtakes {
            self.divert_one(index, slot);
            self.judge_fill(index);
            return;
        }
        line.push(&mut self.flights, slot);
        let is_next = line.unsent == NONE && line.mode == Mode::Flowing;
        if is_next {
            line.unsent = slot.0;
        }
        let is_full = line.held >= self.limits.inflight_partition || line.frame_bytes >= self.limits.line_bytes();
        let is_probe = line.held == 1 && !line.breaker.is_closed();
        // Where something waits already, the line is on the list of those that send at the end of the turn.
        let is_sent = is_next && self.may_send(index, now) && self.hand_over(index, now);
        if !is_sent {
            self.keep_sending(index);
        }
        if is_full || is_probe {
            self.judge_fill(index);
        }
    }

    /// A repeat of a trigger that is not settled yet settles when, and as, that one does.
    #[inline(never)]
    fn hang_on(&mut self, ring: usize, incoming: &Incoming<'_>, original: SlotId) -> Take {
        if self.flights[original.0 as usize].is_settled {
            self.page.deduplicated.add(1);
            self.accounts[ring].outstanding.pass(incoming.seq.0);
            return Take::Taken;
        }
        let Some(slot) = self.slab.take(0) else {
            self.page.stalled_turns.add(1);
            return Take::Leave;
        };
        let Flight { line, repeats, .. } = self.flights[original.0 as usize];
        self.flights[slot.0 as usize] = Flight {
            seq: incoming.seq,
            accepted: incoming.accepted,
            line,
            next: repeats,
            ring: ring as u16,
            phase: Phase::Repeat,
            ..Flight::FREE
        };
        self.flights[original.0 as usize].repeats = slot.0;
        self.accounts[ring].outstanding.open(incoming.seq.0);
        self.lines[line as usize].held += 1;
        self.judge_fill(line);
        Take::Taken
    }

    /// Hands over what the line's window allows, in order.
    fn send(&mut self, index: u32, now: Nanos) {
        while self.may_send(index, now) {
            if self.lines[index as usize].mode == Mode::Careful && !self.joins_group(index) {
                self.lines[index as usize].unsent = NONE;
                break;
            }
            if !self.hand_over(index, now) {
                break;
            }
        }
        self.keep_sending(index);
    }

    /// Hands over the first of the line that is not lent. False: it was not taken, and the line has to wait.
    #[inline(never)]
    fn hand_over(&mut self, index: u32, now: Nanos) -> bool {
        let slot = SlotId(self.lines[index as usize].unsent);
        // What waited for long has left the caches: the one behind it is on its way there meanwhile.
        let next = self.flights[slot.0 as usize].next;
        if next != NONE {
            prefetch(&self.flights[next as usize]);
            self.slab.foresee(SlotId(next));
        }
        match self.produce(index, slot, now) {
            Ok(()) => {
                self.lines[index as usize].unsent = self.flights[slot.0 as usize].next;
                true
            }
            Err(busy) => self.refused_at_once(index, slot, busy, now),
        }
    }

    /// Hands a frame to the sink.
    #[inline(always)]
    fn produce(&mut self, index: u32, slot: SlotId, now: Nanos) -> Result<(), Busy> {
        let partition = self.partition(index);
        let (flight, line) = (&mut self.flights[slot.0 as usize], &mut self.lines[index as usize]);
        let frame = self.slab.lend(slot);
        // Kafka stamps a record with the time it is handed over; one that waited says when it was accepted.
        let is_fresh = flight.attempts == 0 && now.since(flight.accepted) < FRESH;
        let record_time = if is_fresh && !self.limits.record_time_is_event { None } else { Some(flight.record_time) };
        let outgoing = Outgoing { partition, frame, key: (flight.key_at, flight.key_len), record_time };
        if let Err(busy) = self.sink.produce(outgoing) {
            self.slab.take_back(slot);
            return Err(busy);
        }
        flight.phase = Phase::Lent;
        flight.sent = now;
        flight.attempts = flight.attempts.saturating_add(1);
        // What is sent again after a refusal is no new beginning: the grace counts from the last acknowledgement.
        if line.lent == 0 && line.mode == Mode::Flowing {
            line.breaker.first_sent(now);
        }
        line.lent += 1;
        self.lent += 1;
        Ok(())
    }

    /// The sink did not take a frame. True: the frame has failed, and the next one may go.
    #[cold]
    fn refused_at_once(&mut self, index: u32, slot: SlotId, busy: Busy, now: Nanos) -> bool {
        match busy {
            Busy::QueueFull | Busy::NotReady | Busy::Fault(Fault::Neighbour | Fault::Purged) => false,
            Busy::Fault(Fault::Frame(code)) => {
                self.give_up(slot, FailedReason::Refused { code });
                true
            }
            Busy::Fault(Fault::Partition(code)) => {
                self.lines[index as usize].back_off(now);
                self.count_refusal(index, code, now);
                false
            }
        }
    }

    /// Whether a careful line may send its next one beside what it sent just now: a group holds a device once, so that a refusal
    /// of some of it cannot turn two of its triggers around.
    fn joins_group(&mut self, index: u32) -> bool {
        let device_tag = self.device_tag(SlotId(self.lines[index as usize].unsent));
        let line = &mut self.lines[index as usize];
        if line.lent == 0 {
            self.group_devices.clear();
            line.is_group_refused = false;
        }
        self.group_devices.insert(device_tag)
    }

    /// Puts a line with something to send on the list of those that wait for their chance.
    pub(super) fn keep_sending(&mut self, index: u32) {
        let line = &mut self.lines[index as usize];
        let wants = line.unsent != NONE || line.mode == Mode::Careful;
        if wants && line.head != NONE && !line.listed {
            line.listed = true;
            self.to_send.push_back(index);
        }
    }

    #[inline]
    fn may_send(&self, index: u32, now: Nanos) -> bool {
        let line = &self.lines[index as usize];
        let window = match (line.mode, line.breaker.permit(line.lent)) {
            (_, Permit::Hold) => 0,
            (_, Permit::Probe) => 1,
            (Mode::Careful, Permit::Flow) => line.group,
            (Mode::Flowing, Permit::Flow) => self.limits.inflight_partition,
        };
        let has_window = line.lent < window && self.lent < self.limits.inflight_total;
        line.unsent != NONE && has_window && now >= line.not_before && !line.is_unread
    }

    /// Gives each line that waits its chance, once.
    fn send_waiting(&mut self, now: Nanos) {
        for _ in 0..self.to_send.len() {
            let Some(index) = self.to_send.pop_front() else { break };
            let line = &mut self.lines[index as usize];
            line.listed = false;
            if line.mode == Mode::Careful {
                // Once everything that was lent has come back, what is left goes out from the oldest on.
                line.unsent = if line.lent == 0 { line.head } else { NONE };
                if line.lent == 0 && !line.is_probing && line.suspects == 0 {
                    line.mode = Mode::Flowing;
                }
            }
            self.send(index, now);
        }
    }

    /// Breakers that open for want of progress, and those whose time to probe has come.
    fn tick_breakers(&mut self, now: Nanos) {
        if now.since(self.ticked) < BREAKER_TICK {
            return;
        }
        self.ticked = now;
        if let Some((fences, version)) = self.shared.fences_since(self.fences_version) {
            (self.fences, self.fences_version) = (fences, version);
        }
        if !self.already.is_empty() && self.diversions.iter().all(|diversion| diversion.is_past_recovered()) {
            // What was found at start has met it.
            self.already.clear();
        }
        if let Some(warm) = self.warm_box.as_ref().and_then(|warm| warm.take()) {
            self.warm_up(warm, now);
        }
        for index in 0..self.lines.len() as u32 {
            let line = &mut self.lines[index as usize];
            if line.last_acked != line.shown_acked {
                line.shown_acked = line.last_acked;
                let acked = line.last_acked;
                self.shared.set_acked(self.partition(index), acked);
            }
            let line = &mut self.lines[index as usize];
            let was_closed = line.breaker.is_closed();
            let waits_for_broker = line.lent > 0 || line.mode == Mode::Careful;
            if line.breaker.tick(now, waits_for_broker.into(), &self.limits.breaker) {
                self.breaker_changed(index, was_closed);
            } else if self.lines[index as usize].is_diverted {
                // The room on the disk may have changed.
                self.judge_fill(index);
            }
        }
        // How full the fullest window is, for a source that goes by it.
        let held = self.lines.iter().map(|line| if line.is_diverted { 0 } else { line.held });
        self.page.fullest_window.set(held.max().unwrap_or(0).into());
    }

    /// Says what a breaker's new state means for submits, and gives its line a chance to send.
    pub(super) fn breaker_changed(&mut self, index: u32, was_closed: bool) {
        if was_closed {
            self.page.breakers_opened.add(1);
        }
        let (partition, state) = (self.partition(index), self.lines[index as usize].breaker.state());
        match state {
            State::Open(cause) if was_closed => {
                let refusal = match self.lines[index as usize].last_refusal {
                    0 => String::new(),
                    code => format!(" (refused last with {})", self.sink.explain(code)),
                };
                let meaning = match (self.limits.policy, self.can_divert()) {
                    (Policy::Spill, true) => "its triggers are spilled",
                    (Policy::DeadLetter, true) => "its triggers go to the dead letters",
                    _ => "submits for it are shed",
                };
                log::warn!("partition {partition}: breaker open, cause {cause:?}{refusal}; {meaning}");
            }
            State::Open(_) | State::HalfOpen(_) => log::debug!("partition {partition}: breaker {state:?}"),
            State::Closed => log::warn!("partition {partition}: breaker closed"),
        }
        self.judge_fill(index);
        self.keep_sending(index);
    }

    /// Says what is to become of what comes in for the partition: into its line, diverted, or shed.
    pub(super) fn judge_fill(&mut self, index: u32) {
        let window = self.limits.inflight_partition;
        let (line, bytes) = (&self.lines[index as usize], self.limits.line_bytes());
        let (held, frame_bytes) = (line.held, line.frame_bytes);
        // What was full stays so until an eighth is free.
        let is_full = match line.blocked.is_any() {
            true => held > window / 8 * 7 || frame_bytes > bytes / 8 * 7,
            false => held >= window || frame_bytes >= bytes,
        };
        // Where nothing is left to probe with, and nothing goes anywhere else, the next trigger is let in to be the probe.
        let wants_probe = matches!(line.breaker.state(), State::HalfOpen(_)) && held == 0 && !self.can_divert();
        let wants_probe = wants_probe && !is_planted(Canary::ProbeNotLetIn);
        let is_away = is_full || !(line.breaker.is_closed() || wants_probe);
        if is_away && !line.is_diverted && self.can_divert() {
            self.divert(index);
        }
        let partition = self.partition(index);
        let (line, diversion) = (&mut self.lines[index as usize], &self.diversions[index as usize]);
        let shedding = match (line.is_diverted, &self.room) {
            (false, _) if is_away => Shedding::ALL,
            (false, _) => Shedding::NOTHING,
            // The disk does not keep up: what waits for it may take a part of the shard's slots and no more.
            (true, _) if (u64::from(diversion.spilling).max(self.dying)) as usize > self.limits.slab.slots / 4 => {
                Shedding::ALL
            }
            (true, Some(room)) if !diversion.to_letters => Shedding::for_space(room.level(partition.0)),
            (true, _) => Shedding::NOTHING,
        };
        if shedding != line.blocked && !(is_planted(Canary::SheddingSticks) && line.blocked == Shedding::ALL) {
            line.blocked = shedding;
            if !self.is_full {
                self.shared.set_shedding(partition, shedding);
            }
        }
    }

    /// Whether what a partition does not take has somewhere else to go.
    fn can_divert(&self) -> bool {
        match self.limits.policy {
            Policy::Spill => self.room.is_some(),
            Policy::DeadLetter => self.has_letters(),
            Policy::Refuse => false,
        }
    }

    /// When slots or frame bytes run out for all partitions together, what waits is diverted, and then submits are shed
    /// for all of them.
    fn judge_room(&mut self) {
        let (slots, pages) = (self.slab.slots(), self.slab.pages());
        let (free_slots, free_pages) = (self.slab.free_slots(), self.slab.free_pages());
        if self.limits.policy == Policy::Spill
            && self.can_divert()
            && (free_slots < slots / 4 || free_pages < pages / 4)
        {
            for index in 0..self.lines.len() as u32 {
                let line = &self.lines[index as usize];
                if !line.is_diverted && line.unsent != NONE {
                    self.divert(index);
                    self.judge_fill(index);
                }
            }
        }
        let share = if self.is_full { 8 } else { 16 };
        // Of what the rings may have.
        let kept = self.slab.kept();
        let is_full = free_slots < kept.slots + slots / share || free_pages < kept.pages + (pages / share).max(1);
        if is_full != self.is_full {
            self.is_full = is_full;
            for index in 0..self.lines.len() as u32 {
                let shedding = if is_full { Shedding::ALL } else { self.lines[index as usize].blocked };
                self.shared.set_shedding(self.partition(index), shedding);
            }
        }
    }

    /// Takes the sink's reports, then looks at what came back.
    fn collect(&mut self, now: Nanos) -> usize {
        match self.sink.condition() {
            Condition::Ready | Condition::Replacing => {}
            Condition::Replaced => self.take_over_from_old_handle(),
        }
        // The sink is a field of the core, and each report changes the rest of it: it is moved out for the call.
        let mut reports = std::mem::take(&mut self.reports);
        self.sink.collect(REPORTS, &mut reports);
        let count = reports.len();
        let is_far = self.lent >= FAR_IN_FLIGHT;
        for (at, report) in reports.iter().enumerate() {
            if is_far && let Some(ahead) = reports.get(at + REPORTS_AHEAD) {
                prefetch(&self.flights[ahead.slot.0 as usize]);
                self.dedup.foresee_commit(ahead.slot.0);
                if let Some(farther) = reports.get(at + 2 * REPORTS_AHEAD) {
                    self.dedup.foresee_token(farther.slot.0);
                    self.slab.foresee_slot(farther.slot);
                }
            }
            self.settle_report(report, now);
        }
        reports.clear();
        self.reports = reports;
        self.look_at_what_came_back();
        self.hand_back_failed();
        count
    }

    /// News for the ingresses and for whoever reads the page.
    fn show(&mut self) {
        self.judge_room();
        for account in &mut self.accounts {
            let frontier = account.outstanding.frontier();
            if frontier != account.shown {
                account.shown = frontier;
                account.frontier.set(frontier);
            }
        }
        self.shared.set_stamp(self.limits.id, self.hlc.last());
        let page = &self.page;
        self.streaks.queue.end(&page.queue);
        self.streaks.publish.end(&page.publish);
        self.streaks.settle.end(&page.settle);
        let in_use = (self.slab.slots() - self.slab.free_slots()) as u64;
        page.in_flight.set(in_use - self.settled_slots);
        page.waiting.set(in_use - u64::from(self.lent));
        page.in_spill.set(self.in_spill);
        page.diverted.set(self.diverted.len() as u64);
        page.dedup_keys.set(self.dedup.len() as u64);
        page.dedup_evicted_early.set(self.dedup.evicted_early());
        page.client_errors.set(self.sink.errors());
        page.leaked_bytes.set(self.slab.leaked_bytes() as u64);
    }
}
