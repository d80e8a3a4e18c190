//! The rig: an assembly on steered sinks, turned by hand. After each turn it checks conservation, the shards' own sums
//! and that no watermark passes what is unsettled.

use super::clock::SteeredClock;
use super::letters::SteeredLetters;
use super::model::{self, Draft, Model, id_of};
use super::sink::{Broker, SteeredSink};
use fencepost::clock::Clock;
use fencepost::config::{AgeLimit, Config};
use fencepost::divert::{DivertLimits, Keeper, LetterRoom, Room, SpillRoom, ends};
use fencepost::engine::assembly::Common;
use fencepost::engine::warm_start::{AlreadyThere, WarmLimits, WarmStart};
use fencepost::engine::{Assembly, Blueprint, Counts};
use fencepost::ingress::{Accepted, Ingress, Refused};
use fencepost::letter::{Desk, DeskLimits};
use fencepost::metrics::SpillPage;
use fencepost::partition::partition_of;
use fencepost::shard::shared::Failed;
use fencepost::shard::{self, InTopic, Policy, Shard};
use fencepost::spill::faulty::FaultyDisk;
use fencepost::spill::{Budget, Spill, SpillLimits};
use fencepost::state::{OffsetTrail, PartitionOffsets};
use fencepost::trigger::Trigger;
use fencepost::units::{Nanos, PartitionId, ShardId};
use fencepost::verify::frame::Frame;
use fencepost::wire;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

pub struct Rig {
    blueprint: Blueprint,
    limits: Option<SpillLimits>,
    /// What the file of offsets would say.
    trail: OffsetTrail,
    dedup_ttl: Nanos,
    pub deaths: u64,
    pub clock: SteeredClock,
    /// One per shard.
    pub brokers: Vec<Broker>,
    pub shards: Vec<Shard<SteeredSink, SteeredClock>>,
    pub common: Common<SteeredClock>,
    pub callers: Vec<Caller>,
    pub model: Model,
    pub partitions: u32,
    /// The disk thread's half, turned with the shards.
    pub keeper: Option<Keeper<FaultyDisk, SteeredLetters>>,
    pub disk: FaultyDisk,
    /// The topic of dead letters.
    pub letters: SteeredLetters,
    letters_read: usize,
    read: Vec<usize>,
    doubted: Vec<usize>,
    refused: Vec<usize>,
    pub took_failed: Vec<(usize, Failed)>,
}

/// One thread's end, as the test plays it.
pub struct Caller {
    pub ingress: Ingress<SteeredClock>,
    /// By seq − 1: the number in the model.
    pub ids: Vec<u64>,
    /// What was not settled when the router died, and is to be sent again before anything else.
    pub backlog: VecDeque<u64>,
    checked: u64,
}

/// How a router ends without a goodbye.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// It is killed; what it wrote is in the page cache.
    Process,
    /// The machine stops; of what was not synced, luck decides.
    Machine,
}

/// Small limits, events of any age.
pub fn small_config() -> Config {
    let mut config = Config::default();
    config.queue.capacity = 1_024;
    config.queue.ingresses = 4;
    config.settle.window = 4_096;
    config.dedup.capacity = 4_096;
    config.inflight.partition = 256;
    config.inflight.total = 1_024;
    config.inflight.waiting = 1_024;
    config.time.past_limit = Some(AgeLimit::Off);
    config
}

pub fn blueprint(config: &Config, partitions: u32) -> Blueprint {
    Blueprint {
        limits: config.limits().expect("the test's configuration is sound"),
        partitions,
        router_id: "router-t".to_owned(),
        incarnation: 7,
        record_time_is_event: false,
        policy: Policy::Refuse,
        has_disk: false,
        has_letters: false,
    }
}

/// An assembly and the brokers behind it.
pub fn assemble<C: Clock>(config: &Config, partitions: u32, clock: &C) -> (Assembly<SteeredSink, C>, Vec<Broker>) {
    assemble_as(&blueprint(config, partitions), clock)
}

fn assemble_as<C: Clock>(blueprint: &Blueprint, clock: &C) -> (Assembly<SteeredSink, C>, Vec<Broker>) {
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

/// Hands over every frame that a spill holds.
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

/// Opens the spill and gives each shard its way to it.
fn attach<C: Clock>(
    assembly: &mut Assembly<SteeredSink, C>,
    blueprint: &Blueprint,
    limits: SpillLimits,
    disk: FaultyDisk,
    letters: SteeredLetters,
) -> Keeper<FaultyDisk, SteeredLetters> {
    let (spill, _) = Spill::open(disk.clone(), Path::new(SPILL_DIR), limits.clone()).expect("the spill opens");
    let room = Arc::new(Room::new(blueprint.partitions));
    let pipes = DivertLimits::new(blueprint.limits.slots_per_shard);
    let (mut shard_ends, mut keeper_ends) = (Vec::new(), Vec::new());
    for _ in 0..blueprint.limits.shards {
        let (shard_end, keeper_end) = ends(&pipes);
        shard_ends.push(shard_end);
        keeper_ends.push(keeper_end);
    }
    let page = Arc::new(SpillPage::default());
    let interval = Nanos::from_millis(5);
    let spilling = SpillRoom::new(spill, limits, interval, Arc::clone(&room), page);
    let letter_limits = SpillLimits { reserve_bytes: 0, limit_bytes: 8 << 20, ..spill_limits(blueprint.partitions) };
    let (letter_spill, recovery) = Spill::open(disk, Path::new(LETTER_DIR), letter_limits).expect("the letters open");
    let mut desk_limits = DeskLimits::new(blueprint.partitions);
    (desk_limits.memory_bytes, desk_limits.letter_bytes) = (1 << 20, 16 << 10);
    let desk = Desk::new(letters, Some((letter_spill, &recovery)), desk_limits);
    let room_of_letters = LetterRoom::new(desk, "triggers".to_owned(), blueprint.router_id.clone());
    let mut keeper = Keeper::new(keeper_ends, Some(spilling), Some(room_of_letters));
    keeper.set_callers(std::mem::take(&mut assembly.callers));
    for (id, (shard, end)) in assembly.shards.iter_mut().zip(shard_ends).enumerate() {
        let owned = blueprint.partitions_of(ShardId(id as u16));
        let found = owned.into_iter().map(|partition| keeper.found(partition)).collect();
        shard.set_disk(shard::Disk { end, room: Some(Arc::clone(&room)), found });
    }
    keeper
}

/// The frames that a start found in the topic.
struct Known(AlreadyThere);

impl InTopic for Known {
    fn holds(&self, partition: PartitionId, frame: &wire::Frame<'_>) -> bool {
        self.0.contains(frame.router_id, frame.incarnation, partition, frame.partition_seq)
    }
}

/// Where the rig's spill lies on its disk.
pub const SPILL_DIR: &str = "/spill";
/// Where its dead letters do.
pub const LETTER_DIR: &str = "/dead-letters";

/// A small spill.
pub fn spill_limits(partitions: u32) -> SpillLimits {
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

impl Rig {
    /// One caller; more by [`Rig::add_caller`].
    pub fn new(config: &Config, partitions: u32) -> Rig {
        Rig::with(config, partitions, None)
    }

    /// With a disk to spill to.
    pub fn with_disk(config: &Config, partitions: u32, limits: SpillLimits, disk: FaultyDisk) -> Rig {
        Rig::with(config, partitions, Some((Policy::Spill, limits, disk)))
    }

    /// With a disk, and another policy than to spill.
    pub fn with_policy(config: &Config, partitions: u32, policy: Policy, disk: FaultyDisk) -> Rig {
        Rig::with(config, partitions, Some((policy, spill_limits(partitions), disk)))
    }

    fn with(config: &Config, partitions: u32, disk: Option<(Policy, SpillLimits, FaultyDisk)>) -> Rig {
        let clock = SteeredClock::new();
        let mut blueprint = blueprint(config, partitions);
        if let Some((policy, ..)) = &disk {
            (blueprint.policy, blueprint.has_disk, blueprint.has_letters) = (*policy, true, true);
        }
        let limits = disk.as_ref().map(|(_, limits, _)| limits.clone());
        let (mut assembly, brokers) = assemble_as(&blueprint, &clock);
        let letters = SteeredLetters::default();
        let (keeper, disk) = match disk {
            None => (None, FaultyDisk::new(0)),
            Some((_, limits, disk)) => {
                (Some(attach(&mut assembly, &blueprint, limits, disk.clone(), letters.clone())), disk)
            }
        };
        let dedup_ttl = blueprint.limits.dedup_ttl;
        let mut rig = Rig {
            trail: OffsetTrail::new(partitions, dedup_ttl),
            dedup_ttl,
            deaths: 0,
            blueprint,
            limits,
            clock,
            keeper,
            disk,
            letters,
            letters_read: 0,
            read: vec![0; brokers.len()],
            doubted: vec![0; brokers.len()],
            refused: vec![0; brokers.len()],
            brokers,
            shards: assembly.shards,
            common: assembly.common,
            callers: Vec::new(),
            model: Model::default(),
            partitions,
            took_failed: Vec::new(),
        };
        rig.model.ttl_ms = Some(config.dedup.ttl.as_millis() as u64);
        rig.add_caller();
        rig
    }

    /// With a disk that is sound, a small spill, and the policy to use it.
    pub fn spilling(config: &Config, partitions: u32) -> Rig {
        Rig::with_disk(config, partitions, spill_limits(partitions), FaultyDisk::new(1))
    }

    /// The policy from the next start on.
    pub fn set_policy(&mut self, policy: Policy) {
        self.blueprint.policy = policy;
    }

    /// The spill.
    pub fn spill(&mut self) -> &mut Spill<FaultyDisk> {
        let keeper = self.keeper.as_mut().expect("there is a disk");
        keeper.spilling().expect("there is a spill").spill_mut()
    }

    /// A draft that was never there before.
    pub fn fresh(&self, device: &str) -> Draft {
        self.draft(device, &format!("fence-{}", self.model.next_id()))
    }

    /// Submits `count` fresh ones of a device, all of which are taken, and turns.
    pub fn submit_fresh(&mut self, device: &str, count: usize) {
        for _ in 0..count {
            let draft = self.fresh(device);
            self.accept(0, &draft);
        }
        self.turn();
    }

    /// Time passes, in turns 5 ms apart.
    pub fn pass_ms(&mut self, ms: u64) {
        for _ in 0..ms / 5 {
            self.clock.advance_ms(5);
            self.turn();
        }
    }

    pub fn add_caller(&mut self) -> usize {
        let ingress = self.common.ingress().expect("the configuration has room for another ingress");
        self.callers.push(Caller { ingress, ids: Vec::new(), backlog: VecDeque::new(), checked: 0 });
        self.callers.len() - 1
    }

    pub fn broker(&self) -> &Broker {
        &self.brokers[0]
    }

    /// A draft of the present second.
    pub fn draft(&self, device: &str, fence: &str) -> Draft {
        Draft::new(device, fence, self.clock.wall_ms())
    }

    pub fn submit(&mut self, caller: usize, draft: &Draft) -> Result<Accepted, Refused> {
        let id = self.model.next_id();
        let accepted = self.callers[caller].ingress.submit(&model::trigger(draft, &id.to_le_bytes()))?;
        self.callers[caller].ids.push(id);
        assert_eq!(accepted.seq.0, self.callers[caller].ids.len() as u64, "seqs rise by 1");
        assert_eq!(self.model.accept(draft), id);
        Ok(accepted)
    }

    /// What was not settled when the router died is sent again, as far as it is taken. True: all of it was.
    pub fn send_again(&mut self, caller: usize) -> bool {
        let Caller { ingress, ids, backlog, .. } = &mut self.callers[caller];
        while let Some(&id) = backlog.front() {
            let draft = self.model.draft(id).clone();
            match ingress.submit(&model::trigger(&draft, &id.to_le_bytes())) {
                Ok(_) => {}
                Err(Refused::Shed(_)) => return false,
                Err(other) => panic!("{other}"),
            }
            ids.push(id);
            backlog.pop_front();
            self.model.accept_again(id);
        }
        true
    }

    /// The router dies and begins again after `away`. Of what its handles held, `land(partition, held)` frames of each
    /// partition landed; of the dead letters that were posted, as many as `land(0, posted)` says. It reads of the topic
    /// what its file of offsets says, and each caller has its unsettled triggers to be sent again.
    pub fn restart(&mut self, death: Death, away: Nanos, mut land: impl FnMut(u32, usize) -> usize) {
        let mut backlogs = Vec::new();
        for mut caller in self.callers.drain(..) {
            let settled = caller.ingress.settled().0 as usize;
            let unsettled = caller.ids[settled..].iter().copied().filter(|id| self.model.failed(*id).is_none());
            backlogs.push(unsettled.chain(caller.backlog).collect::<VecDeque<u64>>());
        }
        self.letters.forget(|posted| land(0, posted));
        self.keeper = None;
        match death {
            Death::Process => self.disk.end_process(),
            Death::Machine => self.disk.crash(),
        }
        self.deaths += 1;
        self.blueprint.incarnation += 1;
        let old = std::mem::take(&mut self.brokers);
        let mut old_brokers = old.iter();
        let made = Assembly::new::<Infallible>(&self.blueprint, self.clock.clone(), |_, arena| {
            let broker = old_brokers.next().expect("there are as many shards").reborn(arena, &mut land);
            self.brokers.push(broker.clone());
            Ok(broker.sink())
        });
        let mut assembly = match made {
            Ok(assembly) => assembly,
            Err(never) => match never {},
        };
        self.read_logs();
        self.model.die();
        self.clock.advance(away);
        self.model.now = self.clock.mono();
        if let Some(limits) = self.limits.clone() {
            self.disk.heal();
            let letters = self.letters.clone();
            self.keeper = Some(attach(&mut assembly, &self.blueprint, limits, self.disk.clone(), letters));
        }
        (self.shards, self.common) = (assembly.shards, assembly.common);
        self.look_at_disk();
        self.model.check_kept();
        self.warm_up();
        for backlog in backlogs {
            let caller = self.add_caller();
            self.callers[caller].backlog = backlog;
        }
        self.check();
    }

    /// As a start does it: the topic from the offsets on that the last run left, and the highest stamp on disk.
    fn warm_up(&mut self) {
        let limits = &self.blueprint.limits;
        let mut start = WarmStart::new(WarmLimits {
            shards: limits.shards,
            partitions: self.partitions,
            keys_per_shard: limits.dedup_capacity_per_shard,
            key_bytes_per_shard: limits.dedup_arena_bytes_per_shard,
            ranges: 1_024,
        });
        let now = self.clock.mono();
        let mut trail = OffsetTrail::new(self.partitions, self.dedup_ttl);
        for partition in (0..self.partitions).map(PartitionId) {
            let broker = &self.brokers[partition.0 as usize % self.brokers.len()];
            let from = self.trail.offsets(now, partition).from().unwrap_or(0);
            let values = broker.log_from(partition.0, from as usize);
            values.iter().for_each(|value| start.record(partition, value));
            let acked = from + values.len() as i64 - 1;
            trail.begin(partition, PartitionOffsets { acked, from });
        }
        self.trail = trail;
        let mut warm = start.finish();
        assert_eq!((warm.already.left_out(), warm.keys_dropped), (0, 0), "the whole tail fits");
        let mut highest = warm.highest;
        self.each_frame_on_disk(|frame| {
            if let Ok(decoded) = wire::decode(frame) {
                highest = highest.max(decoded.frame.hlc);
            }
        });
        let already: Arc<dyn InTopic> = Arc::new(Known(warm.already));
        for (shard, mut keys) in self.shards.iter_mut().zip(std::mem::take(&mut warm.shards)) {
            shard.warm_up(shard::Warm {
                keys: Box::new(move |each| keys.drain(&mut |key, _| each(key))),
                already: Some(Arc::clone(&already)),
                highest,
            });
        }
    }

    /// Dead letters that are durable on disk.
    pub fn letters_on_disk(&mut self) -> u64 {
        let letters = self.keeper.as_mut().and_then(|keeper| keeper.letters());
        letters.map_or(0, |letters| letters.desk().counts().on_disk)
    }

    /// Hands over every frame on disk, of triggers and of dead letters.
    pub fn each_frame_on_disk(&mut self, mut each: impl FnMut(&[u8])) {
        let Some(keeper) = &mut self.keeper else { return };
        each_frame(keeper.spilling().expect("there is a spill").spill_mut(), self.partitions, &mut each);
        let letters = keeper.letters().expect("there are dead letters").desk();
        each_frame(letters.spill_mut().expect("there is a spill of dead letters"), self.partitions, &mut each);
    }

    /// A submit that must be taken. Returns its number in the model.
    pub fn accept(&mut self, caller: usize, draft: &Draft) -> u64 {
        match self.submit(caller, draft) {
            Ok(_) => self.model.next_id() - 1,
            Err(refused) => panic!("{draft:?} was refused: {refused}"),
        }
    }

    /// One turn of each shard, and the checks.
    pub fn turn(&mut self) {
        self.turn_unchecked();
        self.check();
    }

    pub fn turn_unchecked(&mut self) {
        for shard in &mut self.shards {
            shard.turn();
        }
        let now = self.clock.mono();
        if let Some(keeper) = &mut self.keeper {
            keeper.turn(now);
        }
        for partition in (0..self.partitions).map(PartitionId) {
            if let Some(acked) = self.common.shared().acked(partition) {
                self.trail.note(now, partition, acked);
            }
        }
    }

    /// The keys of what lies on disk are as good as in the log.
    fn look_at_disk(&mut self) {
        let mut ids = Vec::new();
        self.each_frame_on_disk(|frame| {
            // A test may have put something else there.
            if Frame::read(frame).is_ok() {
                ids.push(id_of(frame));
            }
        });
        self.model.forget_disk();
        ids.into_iter().for_each(|id| self.model.see_on_disk(id));
    }

    /// What must hold between two turns.
    pub fn check(&mut self) {
        self.shards.iter().for_each(Shard::check);
        let counts = self.counts();
        assert!(counts.add_up(), "{counts}");
        self.read_logs();
        let model = &self.model;
        let passes_unknown = self.callers.iter_mut().any(|caller| {
            let settled = caller.ingress.settled().0;
            (caller.checked + 1..=settled).any(|seq| !model.is_settled(caller.ids[seq as usize - 1]))
        });
        if passes_unknown {
            self.look_at_disk();
        }
        for (index, caller) in self.callers.iter_mut().enumerate() {
            let settled = caller.ingress.settled().0;
            assert!(settled >= caller.checked, "the watermark of caller {index} went back");
            for seq in caller.checked + 1..=settled {
                let id = caller.ids[seq as usize - 1];
                assert!(
                    self.model.is_settled(id),
                    "the watermark of caller {index} passed seq {seq}, unsettled: {:?}",
                    self.model.draft(id)
                );
                self.model.pass(id);
            }
            caller.checked = settled;
        }
    }

    /// Shows the model what is new in the logs.
    pub fn read_logs(&mut self) {
        self.model.now = self.clock.mono();
        for (index, broker) in self.brokers.iter().enumerate() {
            let state = broker.state();
            for value in &state.uncertain[self.doubted[index]..] {
                self.model.doubt(id_of(value));
            }
            self.doubted[index] = state.uncertain.len();
            for value in &state.refused[self.refused[index]..] {
                self.model.note_refused(id_of(value));
            }
            self.refused[index] = state.refused.len();
            for record in &state.log[self.read[index]..] {
                assert_eq!(record.partition, partition_of(&record.key, self.partitions).0);
                self.model.land(record);
            }
            self.read[index] = state.log.len();
        }
        let letters = self.letters.state();
        for (value, _) in &letters.log[self.letters_read..] {
            // A test may have put something on the disk that is no frame.
            if Frame::read(value).is_ok() {
                self.model.bury(id_of(value));
            }
        }
        self.letters_read = letters.log.len();
    }

    pub fn counts(&self) -> Counts {
        self.common.counts()
    }

    pub fn settled(&mut self, caller: usize) -> u64 {
        self.callers[caller].ingress.settled().0
    }

    /// Takes everything that failed back from an ingress.
    pub fn take_failed(&mut self, caller: usize) -> Vec<Failed> {
        let mut taken = Vec::new();
        while let Some(failed) = self.callers[caller].ingress.take_failed() {
            let id = self.callers[caller].ids[failed.seq.0 as usize - 1];
            self.model.fail(id, failed.reason);
            self.took_failed.push((caller, failed));
            taken.push(failed);
        }
        taken
    }

    pub fn take_all_failed(&mut self) -> usize {
        (0..self.callers.len()).map(|caller| self.take_failed(caller).len()).sum()
    }

    /// Lets everything land, in steps of a millisecond, until nothing is left. Panics if that does not come about.
    pub fn settle(&mut self) {
        for broker in &self.brokers {
            let mut state = broker.state();
            (state.is_away, state.queue_max, state.report_max) = (false, usize::MAX, usize::MAX);
            state.stalled.clear();
            state.faults.clear();
        }
        for _ in 0..1_000_000 {
            self.turn();
            self.take_all_failed();
            let mut is_sent = true;
            for caller in 0..self.callers.len() {
                is_sent &= self.send_again(caller);
            }
            let is_done = is_sent
                && self.brokers.iter().all(|broker| broker.in_flight() + broker.undelivered_reports() == 0)
                && self.shards.iter().all(Shard::is_settled)
                && self.counts().in_flight + self.counts().in_spill == 0;
            if is_done {
                self.turn();
                return;
            }
            self.brokers.iter().for_each(|broker| {
                broker.ack_all();
            });
            self.clock.advance_ms(1);
        }
        let shards: String = self.shards.iter().map(Shard::describe).collect();
        panic!("stuck: {}\n{shards}", self.counts());
    }

    /// [`Rig::settle`], and then everything must be where it belongs.
    pub fn finish(&mut self) {
        self.settle();
        self.look_at_disk();
        self.model.check_fates();
        let counts = self.counts();
        assert_eq!((counts.in_flight, counts.in_rings, counts.in_spill), (0, 0, 0), "{counts}");
        let (accepted, acked, failed) = self.model.sums();
        assert_eq!(counts.accepted, accepted);
        if self.deaths == 0 {
            // What the topic of dead letters refused stays on the disk.
            let (buried, on_disk) = (self.model.buried(), self.letters_on_disk());
            assert!((buried..=buried + on_disk).contains(&counts.dead_lettered), "{buried} + {on_disk}: {counts}");
        }
        assert_eq!(counts.failed, failed, "each failed one is given back once");
        assert_eq!(counts.delivered, acked, "{counts}");
        for (index, caller) in self.callers.iter_mut().enumerate() {
            assert_eq!(caller.ingress.settled().0, caller.ids.len() as u64, "watermark of caller {index}");
            assert_eq!(caller.ingress.accepted(), caller.ids.len() as u64);
            assert!(caller.ingress.take_failed().is_none());
        }
        for broker in &self.brokers {
            broker.check_abandoned();
        }
    }

    /// The numbers of the triggers in the log of the one shard, in order, with repeats.
    pub fn log_ids(&self) -> Vec<u64> {
        self.broker().state().log.iter().map(|record| id_of(&record.value)).collect()
    }

    /// The numbers of the triggers in the log of a partition, in order, with repeats.
    pub fn log_ids_of(&self, partition: u32) -> Vec<u64> {
        let broker = &self.brokers[partition as usize % self.brokers.len()];
        broker.log_from(partition, 0).iter().map(|value| id_of(value)).collect()
    }

    pub fn partition_of(&self, device: &str) -> u32 {
        partition_of(device.as_bytes(), self.partitions).0
    }

    /// The first `count` devices `name-N` of a partition.
    pub fn devices_of(&self, partition: u32, name: &str, count: usize) -> Vec<String> {
        (0..)
            .map(|number| format!("{name}-{number}"))
            .filter(|device| self.partition_of(device) == partition)
            .take(count)
            .collect()
    }
}

/// The present trigger of a raw kind, for tests that need no model.
pub fn bare<'a>(device: &'a str, fence: &'a str, event_time_ms: i64) -> Trigger<'a> {
    Trigger::new(device, fence, fencepost::trigger::State::Enter, event_time_ms)
}
