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
use fencepost::engine::{Assembly, Blueprint, Counts};
use fencepost::ingress::{Accepted, Ingress, Refused};
use fencepost::letter::{Desk, DeskLimits};
use fencepost::metrics::SpillPage;
use fencepost::partition::partition_of;
use fencepost::shard::shared::Failed;
use fencepost::shard::{self, Policy, Shard};
use fencepost::spill::faulty::FaultyDisk;
use fencepost::spill::{Budget, Spill, SpillLimits};
use fencepost::trigger::Trigger;
use fencepost::units::{Nanos, PartitionId, ShardId};
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

pub struct Rig {
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
    pub took_failed: Vec<(usize, Failed)>,
}

/// One thread's end, as the test plays it.
pub struct Caller {
    pub ingress: Ingress<SteeredClock>,
    /// By seq − 1: the number in the model.
    pub ids: Vec<u64>,
    checked: u64,
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

/// Hands over the number of every trigger that a spill holds.
pub fn each_on_disk(spill: &mut Spill<FaultyDisk>, partitions: u32, mut each: impl FnMut(u64)) {
    for partition in (0..partitions).map(PartitionId) {
        let mut from = 1;
        loop {
            let budget = Budget { scanned: u64::MAX, ..Budget::default() };
            let done = spill.read(partition, from, budget, |stored| each(id_of(stored.record.frame)));
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
    let keeper = Keeper::new(keeper_ends, Some(spilling), Some(room_of_letters));
    for (id, (shard, end)) in assembly.shards.iter_mut().zip(shard_ends).enumerate() {
        let owned = blueprint.partitions_of(ShardId(id as u16));
        let found = owned.into_iter().map(|partition| keeper.found(partition)).collect();
        shard.set_disk(shard::Disk { end, room: Some(Arc::clone(&room)), found });
    }
    keeper
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
        Rig::with(config, partitions, Some((limits, disk)))
    }

    fn with(config: &Config, partitions: u32, disk: Option<(SpillLimits, FaultyDisk)>) -> Rig {
        let clock = SteeredClock::new();
        let mut blueprint = blueprint(config, partitions);
        if disk.is_some() {
            (blueprint.policy, blueprint.has_disk, blueprint.has_letters) = (Policy::Spill, true, true);
        }
        let (mut assembly, brokers) = assemble_as(&blueprint, &clock);
        let letters = SteeredLetters::default();
        let (keeper, disk) = match disk {
            None => (None, FaultyDisk::new(0)),
            Some((limits, disk)) => {
                (Some(attach(&mut assembly, &blueprint, limits, disk.clone(), letters.clone())), disk)
            }
        };
        let mut rig = Rig {
            clock,
            keeper,
            disk,
            letters,
            letters_read: 0,
            read: vec![0; brokers.len()],
            doubted: vec![0; brokers.len()],
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

    pub fn add_caller(&mut self) -> usize {
        let ingress = self.common.ingress().expect("the configuration has room for another ingress");
        self.callers.push(Caller { ingress, ids: Vec::new(), checked: 0 });
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
        if let Some(keeper) = &mut self.keeper {
            keeper.turn(self.clock.mono());
        }
    }

    /// The keys of what lies on disk are as good as in the log.
    fn look_at_disk(&mut self) {
        let Some(keeper) = &mut self.keeper else { return };
        self.model.forget_disk();
        let spill = keeper.spilling().expect("there is a spill").spill_mut();
        each_on_disk(spill, self.partitions, |id| self.model.see_on_disk(id));
        let letters = keeper.letters().expect("there are dead letters").desk();
        let spill = letters.spill_mut().expect("there is a spill of dead letters");
        each_on_disk(spill, self.partitions, |id| self.model.see_on_disk(id));
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
            }
            caller.checked = settled;
        }
    }

    /// Shows the model what is new in the logs.
    pub fn read_logs(&mut self) {
        for (index, broker) in self.brokers.iter().enumerate() {
            let state = broker.state();
            for value in &state.uncertain[self.doubted[index]..] {
                self.model.doubt(id_of(value));
            }
            self.doubted[index] = state.uncertain.len();
            for record in &state.log[self.read[index]..] {
                assert_eq!(record.partition, partition_of(&record.key, self.partitions).0);
                self.model.land(record);
            }
            self.read[index] = state.log.len();
        }
        let letters = self.letters.state();
        for (value, _) in &letters.log[self.letters_read..] {
            self.model.bury(id_of(value));
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
            let is_done = self.brokers.iter().all(|broker| broker.in_flight() + broker.undelivered_reports() == 0)
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
        self.model.check_fates();
        let counts = self.counts();
        assert_eq!((counts.in_flight, counts.in_rings, counts.in_spill), (0, 0, 0), "{counts}");
        let (accepted, acked, failed) = self.model.sums();
        assert_eq!(counts.accepted, accepted);
        assert_eq!(counts.dead_lettered, self.model.buried(), "{counts}");
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
