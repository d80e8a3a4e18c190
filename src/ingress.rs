//! An ingress: one evaluator thread's way in. `submit` answers at once, never waits, takes no lock and allocates nothing.
//!
//! Each ingress has one ring to each shard. A trigger is checked, its partition and key hash are computed here, on the
//! caller's core, and its bytes are copied once, into the ring of the shard that owns its device.

use crate::clock::{Clock, SystemClock};
use crate::divert::{CallerEnd, CallerLetter};
use crate::hlc::Hlc;
use crate::letter::notes::{DETAIL_BYTES, REASON_BYTES, cut};
use crate::metrics::IngressPage;
use crate::partition::{partition_of, shard_of};
use crate::ring::{Incoming, Pressure, RingWriter, Shed};
use crate::shard::shared::{Failed, Frontier, Gate, Shared, Waker};
use crate::sync::rtrb;
use crate::topology::fork;
use crate::trigger::{Reason, Rules, Trigger, rules};
use crate::units::{Nanos, PartitionId, Seq, UnixMs};
use crate::wire::{self, Frame};
use foldhash::fast::FixedState;
use std::sync::{Arc, Mutex, PoisonError};

/// Kafka's own bytes around a record of ours at the most, and the frame's fields that are not the caller's.
const FRAME_OVERHEAD: usize = 61 + 32 + 128;
/// One submit in so many is timed.
const SAMPLED_SUBMITS: u64 = 64;
/// Triggers of a batch between two publications: as many as a word has bits.
const BATCH_STEP: usize = u64::BITS as usize;
/// How old the wall clock may be that event times are checked against.
const WALL_AGE_MAX: Nanos = Nanos::from_millis(20);

/// The trigger is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Its place in this ingress: rises by 1 with each accepted trigger.
    pub seq: Seq,
    /// Whether to pace oneself.
    pub pressure: Pressure,
}

/// The trigger is still the caller's; nothing was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is no room just now. Try again later, or let it go.
    #[error("shed: {0}")]
    Shed(ShedWhy),
    /// It breaks a rule; trying again cannot help.
    #[error("rejected: {0}")]
    Rejected(#[from] Reason),
    /// This ingress takes nothing any more.
    #[error("closed: {0}")]
    Closed(ClosedWhy),
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShedWhy {
    /// The ring is too full for the trigger's priority (`queue.shed_ratio`, `queue.low_shed_ratio`), or full.
    #[error("the queue is too full for this priority; pace the caller, or raise queue.capacity")]
    Queue,
    /// Its partition has a full window (`inflight.partition`) or an open breaker: the broker does not keep up, or is away.
    #[error("its partition is blocked: its window in flight is full or its breaker is open; wait for the broker")]
    PartitionBlocked,
    /// Its partition is diverted, and of the spill only the reserve is left, or the partition has its share.
    #[error(
        "its partition is diverted and the spill has no space for this priority; wait for the broker, or raise spill.limit"
    )]
    SpillNoSpace,
    /// The lane of dead letters is full: they are written as fast as their topic and the disk take them.
    #[error("the lane of dead letters is full; wait for their topic or the disk")]
    LettersFull,
    /// There is nowhere for dead letters.
    #[error("there is nowhere for dead letters: dead_letter.topic is off or missing, and there is no state.dir")]
    NoLetters,
    /// Too many triggers of this ingress are unsettled (`settle.window`).
    #[error("too many triggers of this ingress are unsettled (settle.window); wait until settled() moves")]
    SettleWindow,
}

/// Why an ingress takes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClosedWhy {
    /// `shutdown` was called.
    #[error("the router is stopping")]
    Stopping,
    /// A thread of the router panicked; the log says where.
    #[error("the router failed; see its log")]
    Failed,
    /// The process was forked; the router's threads live in the parent.
    #[error("this process is a forked child; start a router of its own")]
    Forked,
}

/// What an ingress needs, made at start. Returned when the ingress is dropped, for the next one.
pub(crate) struct Lane {
    pub(crate) writers: Vec<RingWriter>,
    pub(crate) frontiers: Vec<Arc<Frontier>>,
    pub(crate) failed: Vec<rtrb::Consumer<Failed>>,
    pub(crate) wakers: Vec<Arc<Waker>>,
    /// The last seq pushed to each ring.
    pub(crate) last_pushed: Vec<u64>,
    /// The way to the dead letters, whose frontier is the last of all; `None`: there are none.
    pub(crate) letters: Option<CallerEnd>,
    /// The last seq of the lane, over all ingresses that used it.
    pub(crate) seq: u64,
    pub(crate) page: Arc<IngressPage>,
}

/// Where lanes wait for an ingress.
pub(crate) type Lanes = Arc<Mutex<Vec<Lane>>>;

/// What all ingresses of a router know.
#[derive(Clone)]
pub(crate) struct IngressPlan {
    pub(crate) partitions: u32,
    pub(crate) shards: u16,
    pub(crate) rules: Rules,
    pub(crate) settle_window: u64,
    pub(crate) hasher: FixedState,
    pub(crate) router_id: Arc<str>,
    pub(crate) incarnation: u64,
    /// The process the router's threads live in.
    pub(crate) generation: u32,
}

/// One thread's way in. `Send`, not `Clone`: two threads take two.
pub struct Ingress<C: Clock = SystemClock> {
    /// There until drop.
    lane: Option<Lane>,
    lanes: Lanes,
    plan: IngressPlan,
    shared: Arc<Shared>,
    clock: C,
    /// Seqs of the lane before this ingress.
    base: u64,
    /// A lower bound of the watermark, in the lane's seqs.
    watermark: u64,
    wall: UnixMs,
    wall_read: Nanos,
    submits: u64,
}

impl<C: Clock> Ingress<C> {
    pub(crate) fn new(lane: Lane, lanes: Lanes, plan: IngressPlan, shared: Arc<Shared>, clock: C) -> Ingress<C> {
        let now = clock.now();
        Ingress {
            base: lane.seq,
            lane: Some(lane),
            lanes,
            plan,
            shared,
            clock,
            watermark: 0,
            wall: now.wall.as_ms(),
            wall_read: now.mono,
            submits: 0,
        }
    }

    /// Offers a trigger. About 100 ns, whatever the state of Kafka.
    ///
    /// # Errors
    /// [`Refused`]: the trigger is still the caller's and nothing was recorded.
    pub fn submit(&mut self, trigger: &Trigger<'_>) -> Result<Accepted, Refused> {
        let began = self.clock.mono();
        let answer = self.look_around(began).and_then(|()| self.stage(trigger, began)).map(|(accepted, shard)| {
            let lane = self.lane_mut();
            lane.writers[shard].publish();
            lane.wakers[shard].wake();
            accepted
        });
        self.submits += 1;
        if self.submits.is_multiple_of(SAMPLED_SUBMITS) {
            let took = self.clock.mono().since(began);
            self.lane_mut().page.emit.record(took);
        }
        answer
    }

    /// Offers many triggers, with one publication to each shard for each 64 of them, or up to one that is refused. `each`
    /// gets the index of a trigger and its answer; by then what was accepted is with its shard. The order is kept, and a
    /// refusal of one says nothing of the next. If `each` panics, up to 63 triggers behind the one it was told of are
    /// accepted as well.
    pub fn submit_batch(&mut self, triggers: &[Trigger<'_>], mut each: impl FnMut(usize, Result<Accepted, Refused>)) {
        let mut at = 0;
        while at < triggers.len() {
            let step = self.take_step(&triggers[at..]);
            for index in 0..step.taken {
                each(at + index, Ok(step.accepted(index)));
            }
            at += step.taken;
            if let Some(refused) = step.refused {
                each(at, Err(refused));
                at += 1;
            }
        }
    }

    /// Offers triggers in order and stops at the first that is refused, so that nothing overtakes it: the caller decides
    /// what becomes of it, and offers the rest again, from there. `each` gets the index of each trigger before it, and the
    /// answer, as in [`Ingress::submit_batch`].
    ///
    /// # Errors
    /// The index of the trigger that was not taken, and why: it and all behind it are still the caller's.
    pub fn submit_until_refused(
        &mut self,
        triggers: &[Trigger<'_>],
        mut each: impl FnMut(usize, Accepted),
    ) -> Result<(), (usize, Refused)> {
        let mut at = 0;
        while at < triggers.len() {
            let step = self.take_step(&triggers[at..]);
            for index in 0..step.taken {
                each(at + index, step.accepted(index));
            }
            at += step.taken;
            if let Some(refused) = step.refused {
                return Err((at, refused));
            }
        }
        Ok(())
    }

    /// Stages triggers up to the first that is refused, at most [`BATCH_STEP`], and publishes them. No code of the caller's
    /// runs in between: a router that stops waits for a step in which the gate was open, not for what a caller does with the
    /// answers.
    fn take_step(&mut self, triggers: &[Trigger<'_>]) -> Step {
        let began = self.clock.mono();
        let refused = self.look_around(began).err();
        let mut step = Step { first: self.accepted() + 1, taken: 0, slow: 0, refused };
        if refused.is_some() {
            return step;
        }
        let batch = Publish(self);
        for trigger in triggers.iter().take(BATCH_STEP) {
            match batch.0.stage(trigger, began) {
                Ok((accepted, _)) => {
                    step.slow |= u64::from(accepted.pressure == Pressure::SlowDown) << step.taken;
                    step.taken += 1;
                }
                Err(refused) => {
                    step.refused = Some(refused);
                    break;
                }
            }
        }
        step
    }

    /// Up to which seq everything is settled: acknowledged by the broker, handed back by [`Ingress::take_failed`], or a
    /// repeat of such a one. Never passes an unsettled seq. A source commits its own position up to here.
    pub fn settled(&mut self) -> Seq {
        self.refresh_watermark();
        Seq(self.watermark.saturating_sub(self.base))
    }

    /// The next trigger that nothing durable would take. The watermark passes it only after this call.
    pub fn take_failed(&mut self) -> Option<Failed> {
        let base = self.base;
        for queue in &mut self.lane_mut().failed {
            while let Ok(failed) = queue.pop() {
                if failed.seq.0 > base {
                    return Some(Failed { seq: Seq(failed.seq.0 - base), ..failed });
                }
            }
        }
        None
    }

    /// Gives a trigger that was shed, or that its caller cannot keep, to the dead letters. It takes the next seq and
    /// settles like any other: once it is durable in their topic or on disk, or handed back by
    /// [`Ingress::take_failed`]. It gives up its place among its device's triggers. `reason`: one of the names in
    /// `docs/dead-letters.md`, or a word of the caller's, at most 64 bytes of which are kept.
    ///
    /// # Errors
    /// [`Refused`]: a rule is broken, there is no room, or there are no dead letters; nothing was recorded.
    pub fn dead_letter(&mut self, trigger: &Trigger<'_>, reason: &str) -> Result<Accepted, Refused> {
        self.check_gate()?;
        let now = self.clock.now();
        (self.wall, self.wall_read) = (now.wall.as_ms(), now.mono);
        if let Err(reason) = self.check_rules(trigger) {
            self.lane_mut().page.rejected.add(1);
            return Err(Refused::Rejected(reason));
        }
        let frame = Frame {
            device_id: trigger.device_id.as_bytes(),
            fence_id: trigger.fence_id.as_bytes(),
            state: trigger.state,
            event_time_ms: trigger.event_time_ms,
            hlc: Hlc::new(now.wall.as_ms().0.max(1) as u64, 0),
            accepted: now.wall,
            priority: trigger.priority,
            attributes: trigger.attributes,
            router_id: self.plan.router_id.as_bytes(),
            incarnation: self.plan.incarnation,
            // It is in no partition's count.
            partition_seq: 0,
            salt: 0,
        };
        let mut place = [0; wire::FRAME_BYTES_MAX];
        let length = wire::encoded_len(&frame);
        wire::encode(&frame, &mut place[..length]);
        let partition = partition_of(trigger.device_id.as_bytes(), self.plan.partitions);
        self.give_letter(partition, &place[..length], false, reason, "", now.wall.as_ms())
    }

    /// Gives bytes that are no trigger to the dead letters, as they are: a source's malformed line. As
    /// [`Ingress::dead_letter`] otherwise.
    ///
    /// # Errors
    /// [`Refused`]; [`Refused::Rejected`] where the bytes are more than a dead letter may have (`route.line_bytes_max`).
    pub fn dead_letter_raw(&mut self, bytes: &[u8], reason: &str, detail: &str) -> Result<Accepted, Refused> {
        self.check_gate()?;
        let now = self.clock.now();
        self.give_letter(PartitionId(0), bytes, true, reason, detail, now.wall.as_ms())
    }

    /// Whether there is somewhere for dead letters.
    #[must_use]
    pub fn has_dead_letters(&self) -> bool {
        self.lane().letters.is_some()
    }

    fn give_letter(
        &mut self,
        partition: PartitionId,
        body: &[u8],
        is_raw: bool,
        reason: &str,
        detail: &str,
        given: UnixMs,
    ) -> Result<Accepted, Refused> {
        let seq = self.next_seq()?;
        let base = self.base;
        let lane = self.lane_mut();
        let Some(letters) = &mut lane.letters else { return Err(Refused::Shed(ShedWhy::NoLetters)) };
        let (size, limit) = (body.len(), letters.body_max());
        if size > limit {
            // No time makes room for it.
            lane.page.rejected.add(1);
            return Err(Refused::Rejected(Reason::FrameTooLarge { size, limit }));
        }
        let (reason, detail) = (cut(reason, REASON_BYTES), cut(detail, DETAIL_BYTES));
        if !letters.give(&CallerLetter { seq, partition, given, is_raw, body, reason, detail }) {
            lane.page.shed_letters.add(1);
            return Err(Refused::Shed(ShedWhy::LettersFull));
        }
        lane.seq = seq;
        if let Some(last) = lane.last_pushed.last_mut() {
            *last = seq;
        }
        lane.page.accepted.add(1);
        lane.page.lettered.add(1);
        Ok(Accepted { seq: Seq(seq - base), pressure: Pressure::Clear })
    }

    /// The next seq, if the settle window has room for it.
    fn next_seq(&mut self) -> Result<u64, Refused> {
        let seq = self.lane().seq + 1;
        if seq - self.watermark > self.plan.settle_window {
            self.refresh_watermark();
            if seq - self.watermark > self.plan.settle_window {
                self.lane_mut().page.shed_window.add(1);
                return Err(Refused::Shed(ShedWhy::SettleWindow));
            }
        }
        Ok(seq)
    }

    /// Counts a trigger as rejected that broke a rule before it could be offered: its source's bytes are no text, or its
    /// state has no name.
    pub fn note_rejected(&mut self) {
        self.lane_mut().page.rejected.add(1);
    }

    /// How many triggers of this ingress were accepted.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.lane().seq - self.base
    }

    /// Whether the router takes anything, and what time it is by the clock on the wall: once for all triggers of a step.
    fn look_around(&mut self, now: Nanos) -> Result<(), Refused> {
        self.check_gate()?;
        if now.since(self.wall_read) > WALL_AGE_MAX {
            let both = self.clock.now();
            (self.wall, self.wall_read) = (both.wall.as_ms(), both.mono);
        }
        Ok(())
    }

    /// Checks a trigger and puts its record into the ring's stage. Returns the shard whose writer is to publish.
    fn stage(&mut self, trigger: &Trigger<'_>, now: Nanos) -> Result<(Accepted, usize), Refused> {
        if let Err(reason) = self.check_rules(trigger) {
            self.lane_mut().page.rejected.add(1);
            return Err(Refused::Rejected(reason));
        }
        let partition = partition_of(trigger.device_id.as_bytes(), self.plan.partitions);
        let shedding = self.shared.shedding(partition);
        if shedding.is_any() && shedding.sheds(trigger.priority) {
            self.lane_mut().page.shed_partition.add(1);
            let for_space = shedding.is_for_space();
            return Err(Refused::Shed(if for_space { ShedWhy::SpillNoSpace } else { ShedWhy::PartitionBlocked }));
        }
        let seq = self.next_seq()?;
        let shard = shard_of(partition, self.plan.shards).0 as usize;
        let incoming = Incoming {
            seq: Seq(seq),
            accepted: now,
            hash: trigger.key().hash_with(&self.plan.hasher),
            partition,
            event_time_ms: trigger.event_time_ms,
            state: trigger.state,
            priority: trigger.priority,
            device_id: trigger.device_id.as_bytes(),
            fence_id: trigger.fence_id.as_bytes(),
            attributes: trigger.attributes,
        };
        let base = self.base;
        let lane = self.lane_mut();
        match lane.writers[shard].stage(&incoming) {
            Ok(pressure) => {
                lane.seq = seq;
                lane.last_pushed[shard] = seq;
                lane.page.accepted.add(1);
                if pressure == Pressure::SlowDown {
                    lane.page.slowed.add(1);
                }
                Ok((Accepted { seq: Seq(seq - base), pressure }, shard))
            }
            Err(Shed::Priority | Shed::Full) => {
                lane.page.shed_ring.add(1);
                Err(Refused::Shed(ShedWhy::Queue))
            }
        }
    }

    fn check_gate(&self) -> Result<(), Refused> {
        if self.plan.generation != fork::generation() {
            return Err(Refused::Closed(ClosedWhy::Forked));
        }
        match self.shared.gate() {
            Gate::Open => Ok(()),
            Gate::Stopping => Err(Refused::Closed(ClosedWhy::Stopping)),
            Gate::Broken => Err(Refused::Closed(ClosedWhy::Failed)),
        }
    }

    fn check_rules(&self, trigger: &Trigger<'_>) -> Result<(), Reason> {
        rules::check(trigger, self.wall, &self.plan.rules)?;
        let ids = trigger.device_id.len() * 2 + trigger.fence_id.len();
        let size = ids + trigger.attributes.len() + self.plan.router_id.len() + FRAME_OVERHEAD;
        let limit = self.shared.record_bytes_max();
        if size > limit {
            return Err(Reason::FrameTooLarge { size, limit });
        }
        Ok(())
    }

    /// The lowest frontier of the rings that have something unsettled, and below what failed and was not taken.
    fn refresh_watermark(&mut self) {
        let base = self.base;
        let lane = self.lane_mut();
        let mut low = lane.seq;
        // The frontiers first: whoever sees one also sees what was pushed to the queue of failed triggers before it.
        for (frontier, last_pushed) in lane.frontiers.iter().zip(&lane.last_pushed) {
            let frontier = frontier.get();
            if frontier < *last_pushed {
                low = low.min(frontier);
            }
        }
        for queue in &mut lane.failed {
            if let Ok(untaken) = queue.read_chunk(queue.slots()) {
                let (first, second) = untaken.as_slices();
                for failed in first.iter().chain(second).filter(|failed| failed.seq.0 > base) {
                    low = low.min(failed.seq.0 - 1);
                }
            }
        }
        // A frontier may be read a moment before another; the watermark itself never goes back.
        self.watermark = self.watermark.max(low);
    }

    fn lane(&self) -> &Lane {
        self.lane.as_ref().expect("an ingress has its lane until it is dropped")
    }

    fn lane_mut(&mut self) -> &mut Lane {
        self.lane.as_mut().expect("an ingress has its lane until it is dropped")
    }
}

/// What became of the first triggers of a batch: the answers of those that were taken, whose seqs follow on one another.
struct Step {
    /// The seq of the first.
    first: u64,
    taken: usize,
    /// A bit for each: whether to pace oneself.
    slow: u64,
    /// Why the one behind them was not taken, if one was not.
    refused: Option<Refused>,
}

impl Step {
    fn accepted(&self, index: usize) -> Accepted {
        let pressure = if self.slow >> index & 1 == 1 { Pressure::SlowDown } else { Pressure::Clear };
        Accepted { seq: Seq(self.first + index as u64), pressure }
    }
}

/// Publishes what was staged, also when a check panics: what has its seq must arrive.
struct Publish<'a, C: Clock>(&'a mut Ingress<C>);

impl<C: Clock> Drop for Publish<'_, C> {
    fn drop(&mut self) {
        let lane = self.0.lane_mut();
        for (writer, waker) in lane.writers.iter_mut().zip(&lane.wakers) {
            writer.publish();
            waker.wake();
        }
    }
}

impl<C: Clock> Drop for Ingress<C> {
    /// What was accepted stays accepted; the lane waits for the next ingress, which continues its seqs.
    fn drop(&mut self) {
        let mut untaken = 0;
        while self.take_failed().is_some() {
            untaken += 1;
        }
        if untaken > 0 {
            log::error!("an ingress was dropped with {untaken} failed triggers that nobody took (take_failed)");
        }
        if let Some(lane) = self.lane.take() {
            self.lanes.lock().unwrap_or_else(PoisonError::into_inner).push(lane);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::engine::{Assembly, Blueprint};
    use crate::sink::null::NullSink;
    use crate::trigger::State;

    /// One shard on a sink that takes everything, with one ring of so many triggers.
    fn assembly(capacity: usize) -> Assembly<NullSink, SystemClock> {
        let mut config = Config::default();
        (config.queue.capacity, config.queue.ingresses) = (capacity, 1);
        let blueprint = Blueprint {
            limits: config.limits().unwrap(),
            partitions: 4,
            router_id: "r".into(),
            incarnation: 1,
            record_time_is_event: false,
            policy: crate::shard::Policy::Refuse,
            has_disk: false,
            has_letters: false,
            hash_seed: None,
        };
        let sink = |_, _| Ok::<_, std::convert::Infallible>(NullSink::new(0, 1_024));
        let Ok(assembly) = Assembly::new(&blueprint, SystemClock::new(), sink);
        assembly
    }

    /// A caller may do with an answer what it likes, and take as long: what it is told of is on its way, so a router that
    /// stops meanwhile delivers it and reports it.
    #[test]
    fn what_a_batch_tells_of_is_with_its_shard_already() {
        let mut assembly = assembly(1_024);
        let mut ingress = assembly.common.ingress().unwrap();
        let now = SystemClock::new().now().wall.as_ms().0;
        let triggers: Vec<_> = (0..200).map(|at| Trigger::new("d", "f", State::Enter, now - at * 1_000)).collect();
        let shard = &mut assembly.shards[0];
        let mut taken = 0;
        ingress.submit_batch(&triggers[..100], |index, answer| {
            assert!(answer.is_ok());
            taken += shard.turn().taken;
            assert!(taken > index, "trigger {index}, and the shard has {taken}");
        });
        let all = ingress.submit_until_refused(&triggers[100..], |index, _| {
            taken += shard.turn().taken;
            assert!(taken > 100 + index, "trigger {index}, and the shard has {taken}");
        });
        assert_eq!((all, taken), (Ok(()), 200));
    }

    /// Nothing behind a refused trigger is taken, so that nothing overtakes it.
    #[test]
    fn a_batch_stops_where_it_is_refused_and_goes_on_from_there() {
        let mut assembly = assembly(64);
        let mut ingress = assembly.common.ingress().unwrap();
        let now = SystemClock::new().now().wall.as_ms().0;
        let mut triggers: Vec<_> = (0..100).map(|at| Trigger::new("d", "f", State::Enter, now - at * 1_000)).collect();
        triggers[3].fence_id = "";
        let (mut from, mut seqs, mut stops, mut rejected) = (0, Vec::new(), 0, Vec::new());
        while let Err((taken, refused)) =
            ingress.submit_until_refused(&triggers[from..], |_, accepted| seqs.push(accepted.seq.0))
        {
            from += taken;
            assert_eq!(seqs.len(), from - rejected.len());
            if let Refused::Rejected(reason) = refused {
                rejected.push((from, reason));
                from += 1;
                continue;
            }
            assert_eq!(refused, Refused::Shed(ShedWhy::Queue));
            stops += 1;
            // The shard makes room.
            assembly.shards[0].turn();
        }
        assert_eq!(rejected, [(3, Reason::EmptyFenceId)]);
        assert!(stops > 0, "100 do not fit a ring of 64");
        assert_eq!(seqs, (1..=99).collect::<Vec<_>>());
    }
}
