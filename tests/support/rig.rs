//! The rig: an assembly on steered sinks, turned by hand. After each turn it checks conservation, the shards' own sums
//! and that no watermark passes what is unsettled.

use super::model::{self, Draft, Model, id_of};
use fencepost::clock::Clock;
use fencepost::config::{AgeLimit, Config};
use fencepost::engine::{Assembly, Blueprint};
use fencepost::ingress::{Accepted, Ingress, Refused};
use fencepost::partition::partition_of;
use fencepost::shard::shared::Failed;
use fencepost::shard::{Policy, Shard};
use fencepost::sim::clock::SimClock;
pub use fencepost::sim::host::{Death, SPILL_DIR, small_spill as spill_limits};
use fencepost::sim::host::{Host, assemble as assemble_as};
use fencepost::sink::steered::{Broker, SteeredSink};
use fencepost::spill::faulty::FaultyDisk;
use fencepost::spill::{Spill, SpillLimits};
use fencepost::trigger::Trigger;
use fencepost::units::Nanos;
use fencepost::verify::frame::Frame;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

pub struct Rig {
    /// The router, turned by hand.
    pub host: Host,
    pub deaths: u64,
    pub callers: Vec<Caller>,
    pub model: Model,
    pub partitions: u32,
    letters_read: usize,
    read: Vec<usize>,
    doubted: Vec<usize>,
    refused: Vec<usize>,
    pub took_failed: Vec<(usize, Failed)>,
}

impl Deref for Rig {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

impl DerefMut for Rig {
    fn deref_mut(&mut self) -> &mut Host {
        &mut self.host
    }
}

/// One thread's end, as the test plays it.
pub struct Caller {
    pub ingress: Ingress<SimClock>,
    /// By seq − 1: the number in the model.
    pub ids: Vec<u64>,
    /// What was not settled when the router died, and is to be sent again before anything else.
    pub backlog: VecDeque<u64>,
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
        hash_seed: None,
    }
}

/// An assembly and the brokers behind it.
pub fn assemble<C: Clock>(config: &Config, partitions: u32, clock: &C) -> (Assembly<SteeredSink, C>, Vec<Broker>) {
    assemble_as(&blueprint(config, partitions), clock)
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
        let mut blueprint = blueprint(config, partitions);
        if let Some((policy, ..)) = &disk {
            blueprint.policy = *policy;
        }
        let (limits, disk) = match disk {
            None => (None, FaultyDisk::new(0)),
            Some((_, limits, disk)) => (Some(limits), disk),
        };
        let host = Host::new(blueprint, limits, SimClock::new(), disk);
        let shards = host.brokers.len();
        let mut rig = Rig {
            host,
            deaths: 0,
            letters_read: 0,
            read: vec![0; shards],
            doubted: vec![0; shards],
            refused: vec![0; shards],
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
        self.host.blueprint.policy = policy;
    }

    /// The spill.
    pub fn spill(&mut self) -> &mut Spill<FaultyDisk> {
        let keeper = self.host.keeper.as_mut().expect("there is a disk");
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
            self.host.clock.advance_ms(5);
            self.turn();
        }
    }

    pub fn add_caller(&mut self) -> usize {
        let ingress = self.host.common.ingress().expect("the configuration has room for another ingress");
        self.callers.push(Caller { ingress, ids: Vec::new(), backlog: VecDeque::new(), checked: 0 });
        self.callers.len() - 1
    }

    pub fn broker(&self) -> &Broker {
        &self.host.brokers[0]
    }

    /// A draft of the present second.
    pub fn draft(&self, device: &str, fence: &str) -> Draft {
        Draft::new(device, fence, self.host.clock.wall_ms())
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
    pub fn restart(&mut self, death: Death, away: Nanos, land: impl FnMut(u32, usize) -> usize) {
        self.begin_again(death, away, false, land);
    }

    /// Killed, with nothing landing, and begun again with the broker away: `host.thaw()` brings it back.
    pub fn restart_cold(&mut self, away: Nanos) {
        self.begin_again(Death::Process, away, true, |_, _| 0);
    }

    fn begin_again(&mut self, death: Death, away: Nanos, is_cold: bool, mut land: impl FnMut(u32, usize) -> usize) {
        let mut backlogs = Vec::new();
        for mut caller in self.callers.drain(..) {
            let settled = caller.ingress.settled().0 as usize;
            let unsettled = caller.ids[settled..].iter().copied().filter(|id| self.model.failed(*id).is_none());
            backlogs.push(unsettled.chain(caller.backlog).collect::<VecDeque<u64>>());
        }
        self.host.kill(death, &mut land);
        self.deaths += 1;
        self.read_logs();
        self.model.die();
        self.host.clock.advance(away);
        self.model.now = self.host.clock.mono();
        self.host.disk.heal();
        self.host.begin(is_cold).expect("a sound disk opens");
        self.look_at_disk();
        self.model.check_kept();
        for backlog in backlogs {
            let caller = self.add_caller();
            self.callers[caller].backlog = backlog;
        }
        self.check();
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
        self.host.turn();
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
        self.host.shards.iter().for_each(Shard::check);
        let counts = self.counts();
        assert!(counts.add_up(), "{counts}");
        self.read_logs();
        let Rig { model, callers, .. } = self;
        let passes_unknown = callers.iter_mut().any(|caller| {
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
        self.model.now = self.host.clock.mono();
        for (index, broker) in self.host.brokers.iter().enumerate() {
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
        let letters = self.host.letters.state();
        for (value, _) in &letters.log[self.letters_read..] {
            // A test may have put something on the disk that is no frame.
            if Frame::read(value).is_ok() {
                self.model.bury(id_of(value));
            }
        }
        self.letters_read = letters.log.len();
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
        for broker in &self.host.brokers {
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
                && self.host.brokers.iter().all(|broker| broker.in_flight() + broker.undelivered_reports() == 0)
                && self.host.shards.iter().all(Shard::is_settled)
                && self.counts().in_flight + self.counts().in_spill == 0;
            if is_done {
                self.turn();
                return;
            }
            self.host.brokers.iter().for_each(|broker| {
                broker.ack_all();
            });
            self.host.clock.advance_ms(1);
        }
        let shards: String = self.host.shards.iter().map(Shard::describe).collect();
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
        for broker in &self.host.brokers {
            broker.check_abandoned();
        }
    }

    /// The numbers of the triggers in the log of the one shard, in order, with repeats.
    pub fn log_ids(&self) -> Vec<u64> {
        self.broker().state().log.iter().map(|record| id_of(&record.value)).collect()
    }

    /// The numbers of the triggers in the log of a partition, in order, with repeats.
    pub fn log_ids_of(&self, partition: u32) -> Vec<u64> {
        let broker = &self.host.brokers[partition as usize % self.host.brokers.len()];
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
