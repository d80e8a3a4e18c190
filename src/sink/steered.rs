//! The steered sink: a log per partition, and frames that stay in flight until somebody says what becomes of them.
//!
//! It keeps the contract of [`super`]: within a partition frames land in the order they were handed over, each
//! is reported once, and what an abandoned handle held is never reported. Across partitions reports come in the order
//! in which the test gave them. The bytes of each frame are read twice, when it is handed over and when it lands, and
//! must be the same: nobody writes to a lent frame.

use super::{Busy, Condition, Fault, Outcome, Outgoing, Persisted, Report, Sink};
use crate::slab::{Arena, SlotId};
use crate::units::PartitionId;
use std::collections::{HashMap, VecDeque};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};

/// A record as a consumer sees it.
#[derive(Clone, Debug)]
pub struct Record {
    /// Where it is.
    pub partition: u32,
    /// The device's bytes.
    pub key: Box<[u8]>,
    /// The frame.
    pub value: Box<[u8]>,
    /// The timestamp that was asked for.
    pub record_time_ms: Option<i64>,
    /// Whether the router is told that it landed.
    pub is_acked: bool,
}

/// A frame in flight.
struct Held {
    slot: SlotId,
    start: NonNull<u8>,
    record: Record,
}

// SAFETY: the memory that `start` points to is kept by the arena in the same `State`, and may be read by any thread.
unsafe impl Send for Held {}

impl Held {
    /// The frame's bytes as they are now.
    fn bytes(&self) -> &[u8] {
        // SAFETY: the frame is lent, or its handle was abandoned and its block is never used again: either way nobody
        // writes to it, it was this long when it was handed over, and the arena lives as long as the state.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.record.value.len()) }
    }

    fn check(&self) {
        assert_eq!(self.bytes(), &*self.record.value, "{:?} was written to while it was lent", self.slot);
    }
}

/// What the sink and whoever steers it see together.
pub struct State {
    /// Keeps the frames' memory.
    _arena: Arc<Arena>,
    held: HashMap<u32, VecDeque<Held>>,
    /// By batch.
    reports: VecDeque<Vec<Report>>,
    /// Landed, over all partitions, each partition in its order.
    pub log: Vec<Record>,
    offsets: HashMap<u32, i64>,
    /// What old handles may still read.
    abandoned: Vec<Held>,
    /// Values that may be in the log though the router was not told so.
    pub uncertain: Vec<Box<[u8]>>,
    condition: Condition,
    /// How many frames it holds at the most.
    pub queue_max: usize,
    /// Answers `NotReady`.
    pub is_away: bool,
    /// Reports everything as landed as soon as it is asked, but for what is in `stalled`.
    pub acks_by_itself: bool,
    /// Partitions that do not land by themselves.
    pub stalled: Vec<u32>,
    /// Whether landed records are kept.
    pub keeps_log: bool,
    /// Answers the next frames of a partition with a fault.
    pub faults: HashMap<u32, VecDeque<Fault>>,
    /// Batches are reported until there were so many reports, whatever the shard asks for.
    pub report_max: usize,
    /// Panics when it is asked for reports.
    pub panics: bool,
    /// Frames that were taken.
    pub produced: u64,
    /// Records that were appended.
    pub landed: u64,
    /// Values of frames that came back refused.
    pub refused: Vec<Box<[u8]>>,
}

/// The hand on one shard's sink.
#[derive(Clone)]
pub struct Broker(Arc<Mutex<State>>);

/// The shard's side.
pub struct SteeredSink(Broker);

impl Broker {
    /// An empty topic behind a shard whose frames lie in `arena`.
    #[must_use]
    pub fn new(arena: Arc<Arena>) -> Broker {
        Broker(Arc::new(Mutex::new(State {
            _arena: arena,
            held: HashMap::new(),
            reports: VecDeque::new(),
            log: Vec::new(),
            offsets: HashMap::new(),
            abandoned: Vec::new(),
            uncertain: Vec::new(),
            condition: Condition::Ready,
            queue_max: usize::MAX,
            is_away: false,
            acks_by_itself: false,
            stalled: Vec::new(),
            keeps_log: true,
            faults: HashMap::new(),
            report_max: usize::MAX,
            panics: false,
            produced: 0,
            landed: 0,
            refused: Vec::new(),
        })))
    }

    /// The router is gone: of what the handle held, `land(partition, held)` frames of each partition landed, and nobody is
    /// told. The same topic is behind the broker that comes back; its frames lie in another arena.
    pub fn reborn(&self, arena: Arc<Arena>, mut land: impl FnMut(u32, usize) -> usize) -> Broker {
        let mut guard = self.state();
        let state = &mut *guard;
        for partition in state.partitions() {
            let line = state.held.remove(&partition).unwrap_or_default();
            let landed = land(partition, line.len());
            for (index, held) in line.into_iter().enumerate() {
                held.check();
                if index < landed {
                    state.append(held.record);
                }
            }
        }
        state.abandoned.iter().for_each(Held::check);
        let broker = Broker::new(arena);
        let mut next = broker.state();
        next.log = std::mem::take(&mut state.log);
        next.offsets = std::mem::take(&mut state.offsets);
        next.uncertain = std::mem::take(&mut state.uncertain);
        next.refused = std::mem::take(&mut state.refused);
        (next.landed, next.produced) = (state.landed, state.produced);
        drop(next);
        broker
    }

    /// The values that a partition's log holds from an offset on.
    pub fn log_from(&self, partition: u32, offset: usize) -> Vec<Box<[u8]>> {
        let state = self.state();
        let of_partition = state.log.iter().filter(|record| record.partition == partition);
        of_partition.skip(offset).map(|record| record.value.clone()).collect()
    }

    /// The shard's side of it.
    #[must_use]
    pub fn sink(&self) -> SteeredSink {
        SteeredSink(self.clone())
    }

    /// To look and to steer.
    pub fn state(&self) -> MutexGuard<'_, State> {
        // A sink that was made to panic leaves a poisoned lock behind.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The oldest `count` frames of a partition land. Returns how many did.
    pub fn ack(&self, partition: u32, count: usize) -> usize {
        self.state().ack(partition, count)
    }

    /// Everything lands.
    pub fn ack_all(&self) -> usize {
        let mut state = self.state();
        state.partitions().into_iter().map(|partition| state.ack(partition, usize::MAX)).sum()
    }

    /// A batch of a partition, `count` frames from the `skip`th on, is refused as a whole. What is behind it stays in
    /// flight. `lands`: it is in the log all the same, which only `Persisted::Possibly` allows.
    pub fn refuse(
        &self,
        partition: u32,
        skip: usize,
        count: usize,
        fault: Fault,
        persisted: Persisted,
        lands: bool,
    ) -> usize {
        assert!(!lands || persisted == Persisted::Possibly, "what surely did not land does not");
        let mut guard = self.state();
        let state = &mut *guard;
        let Some(line) = state.held.get_mut(&partition) else { return 0 };
        let count = count.min(line.len().saturating_sub(skip));
        let batch: Vec<Held> = line.drain(skip.min(line.len())..).collect();
        let mut batch = batch.into_iter();
        let mut reports = Vec::with_capacity(count);
        for (index, held) in batch.by_ref().take(count).enumerate() {
            held.check();
            if persisted == Persisted::Possibly {
                state.uncertain.push(held.record.value.clone());
            }
            reports.push(Report {
                slot: held.slot,
                outcome: Outcome::Failed { fault, persisted },
                batch: count as u32,
                first: index == 0,
            });
            if fault != Fault::Purged {
                state.refused.push(held.record.value.clone());
            }
            if lands {
                // The field next to the line that is being drained.
                *state.offsets.entry(partition).or_insert(0) += 1;
                state.landed += 1;
                state.log.push(held.record);
            }
        }
        line.extend(batch);
        if count > 0 {
            state.reports.push_back(reports);
        }
        count
    }

    /// The oldest `count` frames are refused as a batch by a broker that names the bad one among them.
    pub fn refuse_named(&self, partition: u32, count: usize, bad: usize, code: i32) -> usize {
        let mut guard = self.state();
        let state = &mut *guard;
        let Some(line) = state.held.get_mut(&partition) else { return 0 };
        let count = count.min(line.len());
        let reports: Vec<Report> = line
            .drain(..count)
            .enumerate()
            .map(|(index, held)| {
                held.check();
                state.refused.push(held.record.value.clone());
                let is_bad = index == bad;
                let fault = if is_bad { Fault::Frame(code) } else { Fault::Neighbour };
                let outcome = Outcome::Failed { fault, persisted: Persisted::No };
                Report { slot: held.slot, outcome, batch: 1, first: index == 0 }
            })
            .collect();
        if count > 0 {
            state.reports.push_back(reports);
        }
        count
    }

    /// The handle is lost: nothing is taken until [`Broker::replace_handle`].
    pub fn lose_handle(&self) {
        self.state().condition = Condition::Replacing;
    }

    /// Everything in flight comes back from the queue of the lost handle. Of each partition, the first
    /// `on_the_wire(partition, held)` frames may have landed, and the first half of those did; of the rest it is sure
    /// that they did not.
    pub fn purge(&self, mut on_the_wire: impl FnMut(u32, usize) -> usize) -> usize {
        let mut count = 0;
        for partition in self.partitions() {
            let wire = on_the_wire(partition, self.in_flight_of(partition));
            count += self.refuse(partition, 0, wire / 2, Fault::Purged, Persisted::Possibly, true);
            count += self.refuse(partition, 0, wire - wire / 2, Fault::Purged, Persisted::Possibly, false);
            count += self.refuse(partition, 0, usize::MAX, Fault::Purged, Persisted::No, false);
        }
        count
    }

    /// A new handle is in place. Of what the old one held in each partition, `land(partition, held)` frames landed
    /// before it went; nobody is told. Returns how many frames were abandoned.
    pub fn replace_handle(&self, mut land: impl FnMut(u32, usize) -> usize) -> usize {
        let mut guard = self.state();
        let state = &mut *guard;
        // What was decided and not collected is lost with the handle, as its queue of reports is.
        assert!(state.reports.is_empty(), "the shard collects what is there before the handle is replaced");
        let mut count = 0;
        for partition in state.partitions() {
            let line = state.held.remove(&partition).unwrap_or_default();
            let landed = land(partition, line.len());
            for (index, held) in line.into_iter().enumerate() {
                held.check();
                count += 1;
                state.uncertain.push(held.record.value.clone());
                if index < landed {
                    state.append(held.record.clone());
                }
                state.abandoned.push(held);
            }
        }
        state.condition = Condition::Replaced;
        count
    }

    /// Frames that were taken and not decided.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.state().in_flight()
    }

    /// Those of one partition.
    #[must_use]
    pub fn in_flight_of(&self, partition: u32) -> usize {
        self.state().held.get(&partition).map_or(0, VecDeque::len)
    }

    /// Partitions with something in flight, in order.
    pub fn partitions(&self) -> Vec<u32> {
        self.state().partitions()
    }

    /// Frames that were decided, while the shard has not asked yet.
    #[must_use]
    pub fn undelivered_reports(&self) -> usize {
        self.state().reports.iter().map(Vec::len).sum()
    }

    /// What an old handle may still read was not written to.
    pub fn check_abandoned(&self) {
        self.state().abandoned.iter().for_each(Held::check);
    }
}

impl State {
    /// Whether the shard is still to be told of something.
    #[must_use]
    pub fn has_reports(&self) -> bool {
        !self.reports.is_empty()
    }

    fn in_flight(&self) -> usize {
        self.held.values().map(VecDeque::len).sum()
    }

    fn partitions(&self) -> Vec<u32> {
        let mut partitions: Vec<u32> =
            self.held.iter().filter(|(_, line)| !line.is_empty()).map(|(partition, _)| *partition).collect();
        partitions.sort_unstable();
        partitions
    }

    /// One more record at the end of its partition. Returns its offset.
    fn append(&mut self, record: Record) -> i64 {
        let next = self.offsets.entry(record.partition).or_insert(0);
        let offset = *next;
        *next += 1;
        self.landed += 1;
        if self.keeps_log {
            self.log.push(record);
        }
        offset
    }

    fn ack(&mut self, partition: u32, count: usize) -> usize {
        let Some(line) = self.held.get_mut(&partition) else { return 0 };
        let count = count.min(line.len());
        let landed: Vec<Held> = line.drain(..count).collect();
        let mut reports = Vec::with_capacity(count);
        for (index, held) in landed.into_iter().enumerate() {
            held.check();
            let offset = self.append(Record { is_acked: true, ..held.record });
            let outcome = Outcome::Acked { offset };
            reports.push(Report { slot: held.slot, outcome, batch: count as u32, first: index == 0 });
        }
        if count > 0 {
            self.reports.push_back(reports);
        }
        count
    }
}

// SAFETY: frames are read before they are reported, and copied out then.
unsafe impl Sink for SteeredSink {
    fn produce(&mut self, outgoing: Outgoing) -> Result<(), Busy> {
        let mut guard = self.0.state();
        let state = &mut *guard;
        if state.is_away || state.condition == Condition::Replacing {
            return Err(Busy::NotReady);
        }
        let PartitionId(partition) = outgoing.partition;
        let fault = state.faults.get_mut(&partition).and_then(VecDeque::pop_front);
        if fault.is_none() && state.queue_max != usize::MAX && state.in_flight() >= state.queue_max {
            return Err(Busy::QueueFull);
        }
        let (start, len) = (outgoing.frame.start(), outgoing.frame.len());
        // SAFETY: the frame is lent to this sink: its bytes are valid and unchanged until it is reported.
        let value: Box<[u8]> = unsafe { std::slice::from_raw_parts(start.as_ptr(), len) }.into();
        let (at, key_len) = (usize::from(outgoing.key.0), usize::from(outgoing.key.1));
        if let Some(fault) = fault {
            state.refused.push(value);
            return Err(Busy::Fault(fault));
        }
        let key = value[at..at + key_len].into();
        let record =
            Record { partition, key, value, record_time_ms: outgoing.record_time.map(|time| time.0), is_acked: false };
        state.produced += 1;
        state.held.entry(partition).or_default().push_back(Held { slot: outgoing.frame.slot(), start, record });
        Ok(())
    }

    fn collect(&mut self, most: usize, reports: &mut Vec<Report>) {
        let mut state = self.0.state();
        assert!(!state.panics, "the test asked for a panic");
        if state.acks_by_itself {
            for partition in state.partitions() {
                if !state.stalled.contains(&partition) {
                    state.ack(partition, usize::MAX);
                }
            }
        }
        // Whole batches, until there were enough.
        let (most, mut count) = (most.min(state.report_max), 0);
        while count < most
            && let Some(batch) = state.reports.pop_front()
        {
            count += batch.len();
            reports.extend(batch);
        }
    }

    fn condition(&mut self) -> Condition {
        let mut state = self.0.state();
        let condition = state.condition;
        if condition == Condition::Replaced {
            state.condition = Condition::Ready;
        }
        condition
    }
}
