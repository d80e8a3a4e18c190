//! A host without threads: the router's own shards, keeper, spill and warm start, on a clock, brokers and a disk that
//! somebody steers. It is turned by hand, it can be killed between any two turns or at any operation of its disk, and it
//! starts again as the router does. The hand-written tests of the engine and the simulator stand on it.

use super::clock::SimClock;
use super::letters::SimLetters;
use crate::clock::Clock;
use crate::divert::{CallerLine, DivertLimits, Keeper, LetterRoom, Room, SpillRoom, ends};
use crate::engine::assembly::Common;
use crate::engine::warm_start::{AlreadyThere, WarmLimits, WarmStart};
use crate::engine::{Assembly, Blueprint, Counts};
use crate::hlc::Hlc;
use crate::letter::{Desk, DeskLimits};
use crate::metrics::SpillPage;
use crate::shard::shared::{Gate, WarmBox};
use crate::shard::{self, InTopic, Policy, Shard};
use crate::sink::steered::{Broker, SteeredSink};
use crate::spill::faulty::FaultyDisk;
use crate::spill::{Budget, OpenError, Spill, SpillLimits};
use crate::state::{Ceiling, OffsetTrail, PartitionOffsets};
use crate::units::{Nanos, PartitionId, ShardId};
use crate::verify::frame::Frame;
use crate::wire;
use std::collections::HashSet;
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

/// Where a host's spill lies on its disk.
pub const SPILL_DIR: &str = "/spill";
/// Where its dead letters do.
pub const LETTER_DIR: &str = "/dead-letters";
/// As `spill.sync` is by default.
const SYNC_INTERVAL: Nanos = Nanos::from_millis(5);
/// How old the file of offsets may be.
const OFFSETS_INTERVAL: Nanos = Nanos::from_millis(1_000);
/// What a stopping host gets for writing what is left to the disk.
const STOP_LIMIT: Nanos = Nanos::from_millis(500);

/// A keeper on a disk that lies.
pub type SimKeeper = Keeper<FaultyDisk, SimLetters>;

/// How a host ends without a goodbye.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// The process is killed; what it wrote is in the page cache.
    Process,
    /// The machine stops; of what was not synced, luck decides.
    Machine,
}

/// One router, turned by hand.
pub struct Host {
    /// What the next start is made from.
    pub blueprint: Blueprint,
    /// The size of its spill; `None`: it has no disk.
    pub spill_limits: Option<SpillLimits>,
    /// Its clocks.
    pub clock: SimClock,
    /// Its disk, which outlives it.
    pub disk: FaultyDisk,
    /// The topic of dead letters, which outlives it too.
    pub letters: SimLetters,
    /// The topic, seen from each shard.
    pub brokers: Vec<Broker>,
    /// Its shards.
    pub shards: Vec<Shard<SteeredSink, SimClock>>,
    /// What its ingresses and readers share.
    pub common: Common<SimClock>,
    /// The disk thread's half, turned with the shards.
    pub keeper: Option<SimKeeper>,
    trail: OffsetTrail,
    /// What the file of offsets says, and since when.
    offsets: (Nanos, Vec<PartitionOffsets>),
    /// What the same file says of the stamps.
    ceiling: Ceiling,
    /// The disk is at work until then.
    keeper_at: Nanos,
    /// Partitions without a leader.
    pub leaderless: Vec<u32>,
    /// Partitions whose records were not read yet, and where for each shard what they hold is put once they are.
    unread: Vec<u32>,
    warm_boxes: Vec<Arc<WarmBox>>,
    /// The dead letters of the ingresses, until the keeper has them.
    caller_lines: Vec<CallerLine>,
    policy: Policy,
}

/// A spill of 16 MB.
#[must_use]
pub fn small_spill(partitions: u32) -> SpillLimits {
    SpillLimits {
        limit_bytes: 16 << 20,
        reserve_bytes: 2 << 20,
        partition_bytes: 8 << 20,
        segment_bytes: 1 << 20,
        batch_bytes: 256 << 10,
        record_bytes: 2_048,
        marks: 4_096,
        ..SpillLimits::new(partitions)
    }
}

/// The parts, and a broker for each shard.
#[must_use]
pub fn assemble<C: Clock>(blueprint: &Blueprint, clock: &C) -> (Assembly<SteeredSink, C>, Vec<Broker>) {
    let mut brokers = Vec::new();
    let made = Assembly::new::<Infallible>(blueprint, clock.clone(), |_, arena| {
        let broker = Broker::new(arena);
        brokers.push(broker.clone());
        Ok(broker.sink())
    });
    match made {
        Ok(assembly) => (assembly, brokers),
        Err(never) => match never {},
    }
}

/// The number that a frame's attributes begin with.
#[must_use]
pub fn id_of(frame: &[u8]) -> Option<u64> {
    let frame = Frame::read(frame).ok()?;
    Some(u64::from_le_bytes(frame.attributes.get(..8)?.try_into().ok()?))
}

/// Hands over every frame that a spill holds, in order within a partition.
fn each_frame(spill: &mut Spill<FaultyDisk>, partitions: u32, each: &mut dyn FnMut(&[u8])) {
    for partition in (0..partitions).map(PartitionId) {
        let mut from = 1;
        loop {
            let budget = Budget { scanned: u64::MAX, ..Budget::default() };
            let done = spill.read(partition, from, budget, |stored| each(stored.record.frame));
            from = done.next;
            if !done.more {
                break;
            }
        }
    }
}

/// The frames that a start found in the topic.
struct Known(AlreadyThere);

impl InTopic for Known {
    fn holds(&self, partition: PartitionId, frame: &wire::Frame<'_>) -> bool {
        self.0.contains(frame.router_id, frame.incarnation, partition, frame.partition_seq)
    }
}

impl Host {
    /// The first start. With `spill_limits` there is a disk, and a topic of dead letters.
    ///
    /// # Panics
    /// If the disk has faults already: a router does not start on one that it cannot open.
    #[must_use]
    pub fn new(mut blueprint: Blueprint, spill_limits: Option<SpillLimits>, clock: SimClock, disk: FaultyDisk) -> Host {
        let has_disk = spill_limits.is_some();
        (blueprint.has_disk, blueprint.has_letters) = (has_disk, has_disk);
        let (assembly, brokers) = assemble(&blueprint, &clock);
        let mut host = Host {
            trail: OffsetTrail::new(blueprint.partitions, blueprint.limits.dedup_ttl),
            offsets: (Nanos(0), vec![PartitionOffsets { acked: -1, from: -1 }; blueprint.partitions as usize]),
            ceiling: Ceiling::new(Hlc::ZERO),
            letters: SimLetters::default(),
            keeper: None,
            keeper_at: Nanos(0),
            leaderless: Vec::new(),
            unread: Vec::new(),
            warm_boxes: Vec::new(),
            shards: assembly.shards,
            common: assembly.common,
            caller_lines: assembly.callers,
            policy: blueprint.policy,
            blueprint,
            spill_limits,
            clock,
            disk,
            brokers,
        };
        host.attach().expect("a disk without faults opens");
        host
    }

    /// Opens the spill and the dead letters, and gives each shard its way to them.
    fn attach(&mut self) -> Result<(), OpenError> {
        let Some(limits) = self.spill_limits.clone() else { return Ok(()) };
        let blueprint = &self.blueprint;
        let (spill, _) = Spill::open(self.disk.clone(), Path::new(SPILL_DIR), limits.clone())?;
        let room = Arc::new(Room::new(blueprint.partitions));
        let pipes = DivertLimits::new(blueprint.limits.slots_per_shard);
        let (mut shard_ends, mut keeper_ends) = (Vec::new(), Vec::new());
        for _ in 0..blueprint.limits.shards {
            let (shard_end, keeper_end) = ends(&pipes);
            shard_ends.push(shard_end);
            keeper_ends.push(keeper_end);
        }
        let page = Arc::new(SpillPage::default());
        let spilling = SpillRoom::new(spill, limits, SYNC_INTERVAL, Arc::clone(&room), page);
        let letter_limits = SpillLimits { reserve_bytes: 0, limit_bytes: 8 << 20, ..small_spill(blueprint.partitions) };
        let (letter_spill, recovery) = Spill::open(self.disk.clone(), Path::new(LETTER_DIR), letter_limits)?;
        let mut desk_limits = DeskLimits::new(blueprint.partitions);
        (desk_limits.memory_bytes, desk_limits.letter_bytes) = (1 << 20, 16 << 10);
        let desk = Desk::new(self.letters.clone(), Some((letter_spill, &recovery)), desk_limits);
        let letter_room = LetterRoom::new(desk, "triggers".to_owned(), blueprint.router_id.clone());
        let mut keeper = Keeper::new(keeper_ends, Some(spilling), Some(letter_room));
        keeper.set_callers(std::mem::take(&mut self.caller_lines));
        for (id, (shard, end)) in self.shards.iter_mut().zip(shard_ends).enumerate() {
            let owned = blueprint.partitions_of(ShardId(id as u16));
            let found = owned.into_iter().map(|partition| keeper.found(partition)).collect();
            shard.set_disk(shard::Disk { end, room: Some(Arc::clone(&room)), found });
        }
        self.keeper = Some(keeper);
        Ok(())
    }

    /// One turn of each shard, then of the disk thread, unless its last one still waits for a slow disk.
    pub fn turn(&mut self) {
        for shard in &mut self.shards {
            shard.turn();
        }
        let now = self.clock.mono();
        if let Some(keeper) = &mut self.keeper
            && now >= self.keeper_at
        {
            keeper.turn(now);
            self.keeper_at = now + self.disk.take_delay();
        }
        for partition in (0..self.blueprint.partitions).map(PartitionId) {
            if let Some(acked) = self.common.shared().acked(partition) {
                self.trail.note(now, partition, acked);
            }
        }
        // A stamp near the ceiling does not wait. Here it is written in the same turn, so what a router risks that dies in
        // the milliseconds before that is not played.
        self.ceiling.see(self.common.shared().highest_stamp());
        if now.since(self.offsets.0) >= OFFSETS_INTERVAL || self.ceiling.is_near() {
            self.save_offsets(now);
        }
    }

    fn save_offsets(&mut self, now: Nanos) {
        let partitions = 0..self.blueprint.partitions;
        self.offsets = (now, partitions.map(|partition| self.trail.offsets(now, PartitionId(partition))).collect());
        self.ceiling.wrote();
    }

    /// It dies. Of what its handles held, `land(partition, held)` frames of each partition landed; of the dead letters
    /// that were posted, as many as `land(0, posted)` says. What was in memory is gone, the disk is as a power cut or the
    /// page cache leaves it, and the parts of the next run are there; [`Host::begin`] starts it.
    pub fn kill(&mut self, death: Death, mut land: impl FnMut(u32, usize) -> usize) {
        self.letters.forget(|posted| land(0, posted));
        self.keeper = None;
        self.warm_boxes.clear();
        self.unread.clear();
        match death {
            Death::Process => self.disk.end_process(),
            Death::Machine => self.disk.crash(),
        }
        // Who would have waited for a slow disk is gone.
        let _ = self.disk.take_delay();
        self.blueprint.incarnation += 1;
        self.policy = self.blueprint.policy;
        let old = std::mem::take(&mut self.brokers);
        let mut old_brokers = old.iter();
        let made = Assembly::new::<Infallible>(&self.blueprint, self.clock.clone(), |_, arena| {
            let broker = old_brokers.next().expect("there are as many shards").reborn(arena, &mut land);
            self.brokers.push(broker.clone());
            Ok(broker.sink())
        });
        let assembly = match made {
            Ok(assembly) => assembly,
            Err(never) => match never {},
        };
        (self.shards, self.common, self.caller_lines) = (assembly.shards, assembly.common, assembly.callers);
    }

    /// Starts after a death: opens the disk, and reads the topic from the offsets on that the last run left, but for
    /// partitions without a leader. `is_cold`: no broker can be reached, so stamps are above the ceiling. What is unread is
    /// read by [`Host::thaw`] later.
    ///
    /// # Errors
    /// What the disk says. The host is to be killed once more, and may begin again.
    pub fn begin(&mut self, is_cold: bool) -> Result<(), OpenError> {
        self.keeper_at = Nanos(0);
        self.attach()?;
        self.clock.advance(self.disk.take_delay());
        self.ceiling = Ceiling::new(self.ceiling.written());
        self.trail = self.begin_trail();
        let (on_disk, ceiling) = (self.highest_on_disk(), self.ceiling.written());
        let partitions = 0..self.blueprint.partitions;
        self.unread = partitions.clone().filter(|partition| is_cold || self.leaderless.contains(partition)).collect();
        self.warm_boxes = self.shards.iter().map(|_| Arc::default()).collect();
        if is_cold {
            for (shard, warm_box) in self.shards.iter_mut().zip(&self.warm_boxes) {
                shard.set_cold(Arc::clone(warm_box), on_disk.max(ceiling));
            }
            return Ok(());
        }
        let read: Vec<u32> = partitions.filter(|partition| !self.unread.contains(partition)).collect();
        let (mut warms, offsets) = self.read_topic(&read);
        offsets.into_iter().for_each(|(partition, offsets)| self.trail.begin(partition, offsets));
        self.save_offsets(self.clock.mono());
        // What a partition holds that could not be read is below the ceiling.
        let least = if self.unread.is_empty() { on_disk } else { on_disk.max(ceiling) };
        for ((shard, warm_box), warm) in self.shards.iter_mut().zip(&self.warm_boxes).zip(warms.drain(..)) {
            shard.warm_up(shard::Warm { highest: least.max(warm.highest), ..warm });
            shard.set_unread(Arc::clone(warm_box), |partition| self.unread.contains(&partition.0));
        }
        Ok(())
    }

    /// As the last run left it.
    fn begin_trail(&self) -> OffsetTrail {
        let mut trail = OffsetTrail::new(self.blueprint.partitions, self.blueprint.limits.dedup_ttl);
        for (partition, known) in self.offsets.1.iter().enumerate() {
            trail.begin(PartitionId(partition as u32), *known);
        }
        trail
    }

    /// The broker can be reached after a cold start, or a leader after a start without it: what has a leader now is read,
    /// and what waits for it may go out.
    pub fn thaw(&mut self) {
        let read: Vec<u32> =
            self.unread.iter().copied().filter(|partition| !self.leaderless.contains(partition)).collect();
        if read.is_empty() {
            return;
        }
        self.unread.retain(|partition| self.leaderless.contains(partition));
        let unread: Arc<[PartitionId]> = self.unread.iter().map(|partition| PartitionId(*partition)).collect();
        let (warms, _) = self.read_topic(&read);
        for (warm_box, warm) in self.warm_boxes.iter().zip(warms) {
            warm_box.put(shard::Warm { unread: Arc::clone(&unread), ..warm });
        }
    }

    /// Whether it began without a broker or some leader, and has not read everything yet.
    #[must_use]
    pub fn is_cold(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Stops as [`crate::Router::shutdown`] does: takes nothing more, turns for `limit` at the most, spills what is left
    /// and makes it durable. `step` is called between two turns; it moves the clock. What is not settled then is lost
    /// with the process: [`Host::kill`] comes next.
    pub fn stop(&mut self, limit: Nanos, mut step: impl FnMut(&mut Host)) {
        self.common.shared().close(Gate::Stopping);
        let until = self.clock.mono() + limit;
        while !self.may_leave(false) && self.clock.mono() < until {
            self.turn();
            step(self);
        }
        if self.keeper.is_none() {
            return;
        }
        self.common.shared().spill_rest();
        // As the disk thread does: dead letters do not wait for their topic any more.
        let now = self.clock.mono();
        if let Some(keeper) = &mut self.keeper {
            keeper.close_letters(now);
        }
        let until = self.clock.mono() + STOP_LIMIT;
        while !self.may_leave(true) && self.clock.mono() < until {
            self.turn();
            step(self);
        }
        let now = self.clock.mono();
        if let Some(keeper) = &mut self.keeper {
            keeper.finish(now);
        }
        // The report is read after the shards have heard of it.
        for shard in &mut self.shards {
            shard.turn();
        }
    }

    fn may_leave(&self, is_spilling_rest: bool) -> bool {
        self.shards.iter().all(|shard| shard.is_settled() && (is_spilling_rest || shard.is_quiet()))
    }

    /// What each shard is to know of some of the topic's partitions, as a start reads them, and the offsets it finds.
    fn read_topic(&mut self, partitions: &[u32]) -> (Vec<shard::Warm>, Vec<(PartitionId, PartitionOffsets)>) {
        let limits = &self.blueprint.limits;
        let mut start = WarmStart::new(WarmLimits {
            shards: limits.shards,
            partitions: self.blueprint.partitions,
            keys_per_shard: limits.dedup_capacity_per_shard,
            key_bytes_per_shard: limits.dedup_arena_bytes_per_shard,
            ranges: 1_024,
        });
        let mut offsets = Vec::new();
        for &partition in partitions {
            let broker = &self.brokers[partition as usize % self.brokers.len()];
            let from = self.offsets.1[partition as usize].from().unwrap_or(0);
            let values = broker.log_from(partition, from as usize);
            values.iter().for_each(|value| start.record(PartitionId(partition), value));
            let acked = from + values.len() as i64 - 1;
            offsets.push((PartitionId(partition), PartitionOffsets { acked, from }));
        }
        let mut warm = start.finish();
        assert_eq!(warm.already.left_out(), 0, "the whole tail fits");
        let highest = warm.highest;
        let already: Arc<dyn InTopic> = Arc::new(Known(warm.already));
        let keys = std::mem::take(&mut warm.shards).into_iter();
        let warms = keys.map(|mut keys| shard::Warm {
            keys: Box::new(move |each| keys.drain(&mut |key, _| each(key))),
            already: Some(Arc::clone(&already)),
            highest,
            unread: Arc::default(),
        });
        (warms.collect(), offsets)
    }

    fn highest_on_disk(&mut self) -> Hlc {
        let mut highest = Hlc::ZERO;
        self.each_frame_on_disk(|frame| {
            if let Ok(decoded) = wire::decode(frame) {
                highest = highest.max(decoded.frame.hlc);
            }
        });
        highest
    }

    /// Hands over every frame on disk, of triggers and of dead letters.
    ///
    /// # Panics
    /// If the keeper has lost one of its two rooms, which it cannot.
    pub fn each_frame_on_disk(&mut self, mut each: impl FnMut(&[u8])) {
        let partitions = self.blueprint.partitions;
        let Some(keeper) = &mut self.keeper else { return };
        each_frame(keeper.spilling().expect("there is a spill").spill_mut(), partitions, &mut each);
        let letters = keeper.letters().expect("there are dead letters").desk();
        each_frame(letters.spill_mut().expect("there is a spill of dead letters"), partitions, &mut each);
    }

    /// The numbers of the triggers on disk, which their attributes begin with.
    #[must_use]
    pub fn ids_on_disk(&mut self) -> HashSet<u64> {
        let mut ids = HashSet::new();
        self.each_frame_on_disk(|frame| ids.extend(id_of(frame)));
        ids
    }

    /// Dead letters that are durable on disk.
    pub fn letters_on_disk(&mut self) -> u64 {
        let letters = self.keeper.as_mut().and_then(|keeper| keeper.letters());
        letters.map_or(0, |letters| letters.desk().counts().on_disk)
    }

    /// The policy of the present run; the blueprint has that of the next one.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// The counters now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.common.counts()
    }
}
