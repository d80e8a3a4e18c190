//! The world of a run: a host, its callers, and the weather. A step is drawn from its own number alone, so that a history
//! from which steps are taken out still does what its other steps did.

use super::checks::{self, Check};
use super::clock::SimClock;
use super::host::{Death, Host, id_of, small_spill};
use super::ledger::{Draft, Event, Ledger};
use super::plan::{KINDS, Kind, Plan};
use super::random::Random;
use crate::breaker::Cause;
use crate::clock::Clock;
use crate::engine::Blueprint;
use crate::ingress::{Ingress, Refused};
use crate::shard::{Fences, Policy};
use crate::sink::steered::Broker;
use crate::sink::{Fault, Persisted};
use crate::spill::SpillLimits;
use crate::spill::faulty::{FaultyDisk, Operation};
use crate::trigger::{Priority, State};
use crate::units::{Nanos, PartitionId};
use crate::verify::frame::Frame;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// The longest time in which everything must have settled once all faults are over.
const SETTLE_LIMIT: Nanos = Nanos::from_millis(600_000);
/// Triggers that a caller remembers, to repeat them.
const RECENT: usize = 48;

/// One step of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its number, from which it is drawn.
    pub number: u32,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A caller submits.
    Submit,
    /// Time passes, in this many slices; in each what can land lands, as luck has it, and everything turns.
    Pass {
        /// In all.
        span: Nanos,
        /// How many turns.
        slices: u32,
    },
    /// A caller takes back what failed.
    TakeFailed,
    /// A fault, or what an operator does.
    Do(Kind),
}

/// What does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The check's name; `panic` where the router's own assertions failed, `liveness` where it did not settle.
    pub check: &'static str,
    /// What is wrong.
    pub what: String,
}

/// What a run met, so that nobody takes an idle one for a proof.
#[derive(Clone, Copy, Debug, Default)]
pub struct Met {
    /// Submits that were accepted.
    pub accepted: u64,
    /// Records in the topic.
    pub landed: u64,
    /// Repeats that were collapsed.
    pub collapsed: u64,
    /// Triggers that went over the disk.
    pub spilled: u64,
    /// Dead letters.
    pub dead_letters: u64,
    /// Triggers that were given back.
    pub given_back: u64,
    /// Submits that were shed.
    pub shed: u64,
    /// Deaths and stops.
    pub starts: u64,
    /// Handles that were replaced.
    pub rebuilds: u64,
    /// Breakers that opened.
    pub opened: u64,
    /// Simulated time.
    pub simulated: Nanos,
}

/// One thread that submits.
struct Caller {
    ingress: Ingress<SimClock>,
    /// By seq − 1: the number in the ledger.
    ids: Vec<u64>,
    /// What is to be submitted, in order.
    outbox: VecDeque<u64>,
    /// The watermark as of the last look.
    checked: u64,
    /// What it may repeat.
    recent: Vec<Draft>,
}

/// A run under way.
pub struct World {
    plan: Plan,
    host: Host,
    callers: Vec<Caller>,
    ledger: Ledger,
    checks: Vec<Box<dyn Check>>,
    met: Met,
    /// By partition: its leader is away until then.
    leaders_away: Vec<Nanos>,
    broker_away: Nanos,
    letters_away: Nanos,
    disk_heals: Nanos,
    /// By shard: whether its handle is lost.
    is_lost: Vec<bool>,
    is_cold_next: bool,
    /// A rule is in force that refuses some triggers in the shard.
    has_rule: bool,
    read: Read,
    begun: Nanos,
}

/// How far the logs have been shown to the checks, by shard.
#[derive(Default)]
struct Read {
    log: Vec<usize>,
    doubted: Vec<usize>,
    refused: Vec<usize>,
    letters: usize,
}

/// Every other fence.
struct SomeFences;

impl Fences for SomeFences {
    fn has(&self, fence_id: &[u8]) -> bool {
        fence_id.last().is_none_or(|last| last % 2 == 0)
    }
}

impl Step {
    fn random(self, plan: &Plan) -> Random {
        let mut seeds = Random::new(plan.seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ u64::from(self.number));
        Random::new(seeds.bits())
    }

    /// What it does in a run of this plan.
    #[must_use]
    pub fn action(self, plan: &Plan) -> Action {
        self.draw(plan).0
    }

    /// What it does, and its further luck.
    fn draw(self, plan: &Plan) -> (Action, Random) {
        let mut random = self.random(plan);
        let mut pick = random.below(10_000);
        for (index, (kind, _, _)) in KINDS.into_iter().enumerate() {
            if pick < plan.rates[index] {
                return (Action::Do(kind), random);
            }
            pick -= plan.rates[index];
        }
        let action = match random.below(100) {
            0..45 => Action::Submit,
            45..97 => {
                let most_ms = [2, 20, 20, 200, 2_000, 30_000][random.below(6) as usize];
                let span = Nanos::from_micros(u64::from(random.below(most_ms * 1_000)));
                Action::Pass { span, slices: 1 + random.below(8) }
            }
            _ => Action::TakeFailed,
        };
        (action, random)
    }
}

impl World {
    /// Everything is sound, and nothing has happened.
    ///
    /// # Panics
    /// If the plan's configuration is not sound, which `Plan::draw` rules out.
    #[must_use]
    pub fn new(plan: &Plan) -> World {
        let blueprint = Blueprint {
            limits: plan.config.limits().expect("a plan is sound"),
            partitions: plan.partitions,
            router_id: "router-s".to_owned(),
            incarnation: 1,
            record_time_is_event: false,
            policy: plan.policy,
            has_disk: plan.has_disk,
            has_letters: plan.has_disk,
            hash_seed: Some(plan.seed),
        };
        let spill = plan.has_disk.then(|| SpillLimits {
            marks: plan.marks,
            limit_bytes: plan.spill_bytes,
            partition_bytes: plan.spill_bytes / 2,
            ..small_spill(plan.partitions)
        });
        let host = Host::new(blueprint, spill, SimClock::new(), FaultyDisk::new(plan.seed));
        let shards = host.shards.len();
        let mut world = World {
            leaders_away: vec![Nanos(0); plan.partitions as usize],
            broker_away: Nanos(0),
            letters_away: Nanos(0),
            disk_heals: Nanos(u64::MAX),
            is_lost: vec![false; shards],
            is_cold_next: false,
            has_rule: false,
            read: Read { log: vec![0; shards], doubted: vec![0; shards], refused: vec![0; shards], letters: 0 },
            begun: host.clock.mono(),
            checks: checks::all(plan),
            met: Met::default(),
            ledger: Ledger::default(),
            callers: Vec::new(),
            plan: plan.clone(),
            host,
        };
        world.ledger.now = world.begun;
        for _ in 0..plan.callers {
            world.add_caller(VecDeque::new(), Vec::new());
        }
        world
    }

    /// Prints each step and each event from now on.
    pub fn tell(&mut self) {
        self.ledger.is_told = true;
    }

    /// What the run has met.
    #[must_use]
    pub fn met(&self) -> Met {
        Met { simulated: self.host.clock.mono().since(self.begun), ..self.met }
    }

    fn add_caller(&mut self, outbox: VecDeque<u64>, recent: Vec<Draft>) {
        let ingress = self.host.common.ingress().expect("there are as many lanes as callers");
        self.callers.push(Caller { ingress, ids: Vec::new(), outbox, checked: 0, recent });
    }

    /// Does a step.
    ///
    /// # Errors
    /// What does not hold after it, or in it.
    pub fn step(&mut self, step: Step) -> Result<(), Violation> {
        let (action, mut random) = step.draw(&self.plan);
        if self.ledger.is_told {
            println!("{:>14.3}  step {}: {action}", self.host.clock.mono().0 as f64 / 1e6, step.number);
        }
        match action {
            Action::Submit => self.submit(&mut random)?,
            Action::Pass { span, slices } => {
                for _ in 0..slices {
                    self.host.clock.advance(Nanos(span.0 / u64::from(slices)));
                    self.weather();
                    self.land(&mut random);
                    self.turn(&mut random)?;
                }
            }
            Action::TakeFailed => self.take_failed()?,
            Action::Do(kind) => self.act(kind, &mut random)?,
        }
        self.look()
    }

    /// A caller makes some triggers, repeats among them, and offers what it has.
    fn submit(&mut self, random: &mut Random) -> Result<(), Violation> {
        for _ in 0..=random.below(12) {
            let device = random.below(self.plan.devices);
            let index = device as usize % self.callers.len();
            let recent = &mut self.callers[index].recent;
            let draft = if random.below(4) == 0 && !recent.is_empty() {
                recent[random.below(recent.len() as u32) as usize].clone()
            } else {
                let draft = Draft {
                    device: format!("device-{device}"),
                    fence: format!("fence-{}", random.below(self.plan.fences)),
                    state: [State::Enter, State::Exit, State::Dwell][random.below(3) as usize],
                    event_time_ms: self.host.clock.wall_ms() - i64::from(random.below(4_000_000)) * 1_000,
                    priority: [Priority::Low, Priority::Normal, Priority::High][random.below(3) as usize],
                    padding: if random.below(8) == 0 { random.below(900) as usize } else { 0 },
                };
                if recent.len() >= RECENT {
                    recent.swap_remove(random.below(RECENT as u32) as usize);
                }
                recent.push(draft.clone());
                draft
            };
            let id = self.ledger.draft(draft);
            self.callers[index].outbox.push_back(id);
            self.offer(index)?;
        }
        Ok(())
    }

    /// A caller offers what it has, in order, until something is refused.
    fn offer(&mut self, index: usize) -> Result<(), Violation> {
        while let Some(&id) = self.callers[index].outbox.front() {
            let entry = self.ledger.entry(id);
            let attributes = entry.attributes(id);
            let answer = self.callers[index].ingress.submit(&entry.trigger(&attributes));
            match answer {
                Ok(accepted) => self.accepted(index, id, accepted.seq.0)?,
                Err(Refused::Shed(_)) => {
                    self.met.shed += 1;
                    return Ok(());
                }
                // A rule: what is too large now, or of a time that the clock has not reached any more.
                Err(Refused::Rejected(_)) => self.ledger.drop_one(id),
                Err(Refused::Closed(_)) => return Ok(()),
            }
            self.callers[index].outbox.pop_front();
        }
        Ok(())
    }

    fn accepted(&mut self, index: usize, id: u64, seq: u64) -> Result<(), Violation> {
        let caller = &mut self.callers[index];
        caller.ids.push(id);
        if seq != caller.ids.len() as u64 {
            let what = format!("caller {index} was given seq {seq} for its trigger {}", caller.ids.len());
            return Err(Violation { check: "watermark", what });
        }
        self.met.accepted += 1;
        if self.has_rule {
            self.ledger.note_refusable(id);
        }
        self.see(&Event::Accepted { id })
    }

    /// Shows an event to the checks, and enters it.
    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        see(&mut self.checks, &mut self.ledger, event)
    }

    /// What is over by now.
    fn weather(&mut self) {
        let now = self.host.clock.mono();
        self.ledger.now = now;
        let is_away = now < self.broker_away;
        for broker in &self.host.brokers {
            broker.state().is_away = is_away && self.host.is_cold();
        }
        if now >= self.broker_away && self.host.is_cold() {
            self.host.thaw();
            self.ledger.is_cold = false;
        }
        if now >= self.letters_away {
            let mut letters = self.host.letters.state();
            (letters.is_away, letters.refuses) = (false, false);
        }
        if now >= self.disk_heals {
            self.heal_disk();
        }
    }

    fn heal_disk(&mut self) {
        self.host.disk.heal();
        self.host.disk.set_capacity(u64::MAX / 2);
        self.host.disk.set_delay(Nanos(0));
        self.disk_heals = Nanos(u64::MAX);
    }

    /// Of what is at the brokers some lands, as luck and leaders have it.
    fn land(&mut self, random: &mut Random) {
        let now = self.host.clock.mono();
        if now < self.broker_away {
            return;
        }
        for broker in &self.host.brokers {
            for partition in broker.partitions() {
                let count = match random.below(4) {
                    0 => 0,
                    1 => random.below(12) as usize,
                    _ => usize::MAX,
                };
                if now >= self.leaders_away[partition as usize] {
                    broker.ack(partition, count);
                }
            }
        }
    }

    /// Everything turns. If the host dies in it, at its disk, it is begun again.
    fn turn(&mut self, random: &mut Random) -> Result<(), Violation> {
        self.host.turn();
        if self.host.disk.is_dead() {
            return self.die(if random.below(2) == 0 { Death::Process } else { Death::Machine }, random);
        }
        self.look()
    }

    fn take_failed(&mut self) -> Result<(), Violation> {
        for index in 0..self.callers.len() {
            while let Some(failed) = self.callers[index].ingress.take_failed() {
                let id = self.callers[index].ids[failed.seq.0 as usize - 1];
                self.met.given_back += 1;
                self.see(&Event::GivenBack { id, reason: failed.reason })?;
            }
        }
        Ok(())
    }

    fn some_broker(&self, random: &mut Random) -> (usize, Broker) {
        let index = random.below(self.host.brokers.len() as u32) as usize;
        (index, self.host.brokers[index].clone())
    }

    fn act(&mut self, kind: Kind, random: &mut Random) -> Result<(), Violation> {
        let now = self.host.clock.mono();
        let soon = |random: &mut Random, most_ms: u32| now + Nanos::from_millis(u64::from(random.below(most_ms)));
        match kind {
            Kind::LeaderAway => {
                let partition = random.below(self.plan.partitions) as usize;
                self.leaders_away[partition] = soon(random, 20_000);
            }
            Kind::BrokerAway => self.broker_away = soon(random, 60_000),
            Kind::QueueFull => {
                let (_, broker) = self.some_broker(random);
                broker.state().queue_max = if random.below(2) == 0 { random.below(20) as usize } else { usize::MAX };
            }
            Kind::Refusal => refuse(&self.some_broker(random).1, random),
            Kind::RefusalAtOnce => {
                let (_, broker) = self.some_broker(random);
                let partition = random.below(self.plan.partitions);
                let fault = if random.below(4) == 0 { Fault::Frame(10) } else { Fault::Partition(29) };
                broker.state().faults.entry(partition).or_default().push_back(fault);
            }
            Kind::HandleLost => self.turn_a_handle(random),
            Kind::ReportsSlow => {
                let (_, broker) = self.some_broker(random);
                broker.state().report_max =
                    if random.below(2) == 0 { 1 + random.below(8) as usize } else { usize::MAX };
            }
            Kind::LettersAway => {
                self.letters_away = soon(random, 30_000);
                let mut letters = self.host.letters.state();
                *(if random.below(2) == 0 { &mut letters.is_away } else { &mut letters.refuses }) = true;
            }
            Kind::DiskFails => {
                const OPERATIONS: [Operation; 7] = [
                    Operation::Sync,
                    Operation::Write,
                    Operation::Create,
                    Operation::Rename,
                    Operation::Remove,
                    Operation::SyncDir,
                    Operation::Truncate,
                ];
                let operation = OPERATIONS[random.below(7).min(random.below(7)) as usize];
                match random.below(3) {
                    0 => self.host.disk.set_likelihood(operation, random.below(65_536)),
                    _ => self.host.disk.fail_next(operation, 1 + random.below(4)),
                }
                self.disk_heals = soon(random, 20_000);
            }
            Kind::DiskFull => {
                self.host.disk.set_capacity(self.host.disk.used() + u64::from(random.below(1 << 20)));
                self.disk_heals = soon(random, 20_000);
            }
            Kind::DiskSlow => {
                self.host.disk.set_delay(Nanos::from_micros(u64::from(random.below(200_000))));
                self.disk_heals = soon(random, 20_000);
            }
            Kind::ClockSet => {
                let most_ms = [10, 2_000, 3_600_000, 90_000_000][random.below(4) as usize];
                let by_us = i64::from(random.below(most_ms)) * 1_000;
                self.host.clock.step_wall(if random.below(2) == 0 { by_us } else { -by_us });
            }
            Kind::ProcessKilled => self.die(Death::Process, random)?,
            Kind::MachineStops => self.die(Death::Machine, random)?,
            Kind::DiesAtDisk => self.host.disk.die_after(u64::from(random.below(40))),
            Kind::Stopped => self.stop(random)?,
            Kind::ColdStart => self.is_cold_next = true,
            Kind::PolicyChanged => {
                let policies = [Policy::Spill, Policy::DeadLetter, Policy::Refuse];
                if self.plan.has_disk {
                    self.host.blueprint.policy = policies[random.below(3) as usize];
                }
            }
            Kind::Tripped => {
                let partition = PartitionId(random.below(self.plan.partitions));
                let shard = partition.0 as usize % self.host.shards.len();
                match random.below(3) {
                    0 => self.host.shards[shard].trip(partition, Cause::Lag),
                    1 => self.host.shards[shard].trip(partition, Cause::Sla),
                    _ => (0..3).for_each(|_| self.host.shards[shard].good_read(partition)),
                }
            }
            Kind::FencesChanged => {
                self.ledger.note_all_refusable();
                self.has_rule = true;
                let some = (random.below(2) == 0).then(|| Arc::new(SomeFences) as Arc<dyn Fences>);
                self.host.common.shared().set_fences(some);
            }
            Kind::TooLarge => {
                self.ledger.note_all_refusable();
                self.has_rule = true;
                let bytes = if random.below(3) == 0 { 300 + random.below(600) as usize } else { usize::MAX };
                self.host.common.set_record_bytes_max(bytes);
            }
            Kind::GivenToLetters => self.give_to_letters(random)?,
            Kind::CallerMoves => self.move_caller(random),
        }
        Ok(())
    }

    /// A broker's handle is lost, or replaced when it was lost and has told of everything.
    fn turn_a_handle(&mut self, random: &mut Random) {
        let (index, broker) = self.some_broker(random);
        if !self.is_lost[index] {
            broker.lose_handle();
            if random.below(2) == 0 {
                broker.purge(|_, held| random.below(held as u32 + 1) as usize);
            }
            self.is_lost[index] = true;
        } else if broker.undelivered_reports() == 0 {
            broker.replace_handle(|_, held| random.below(held as u32 + 1) as usize);
            self.is_lost[index] = false;
        }
    }

    /// What a caller would submit next goes to the dead letters instead.
    fn give_to_letters(&mut self, random: &mut Random) -> Result<(), Violation> {
        let index = random.below(self.callers.len() as u32) as usize;
        let Some(&id) = self.callers[index].outbox.front() else { return Ok(()) };
        let entry = self.ledger.entry(id);
        let attributes = entry.attributes(id);
        match self.callers[index].ingress.dead_letter(&entry.trigger(&attributes), "shed") {
            Ok(accepted) => {
                self.callers[index].outbox.pop_front();
                self.ledger.note_refusable(id);
                self.accepted(index, id, accepted.seq.0)
            }
            Err(Refused::Rejected(_)) => {
                self.callers[index].outbox.pop_front();
                self.ledger.drop_one(id);
                Ok(())
            }
            Err(_) => Ok(()),
        }
    }

    /// A caller for whom everything has settled leaves its ingress and takes another.
    fn move_caller(&mut self, random: &mut Random) {
        let index = random.below(self.callers.len() as u32) as usize;
        let caller = &mut self.callers[index];
        if caller.checked < caller.ids.len() as u64 {
            return;
        }
        let Caller { ingress, outbox, recent, .. } = self.callers.remove(index);
        drop(ingress);
        self.add_caller(outbox, recent);
        let moved = self.callers.pop().expect("it was just added");
        self.callers.insert(index, moved);
    }

    /// The host dies and begins again.
    fn die(&mut self, death: Death, random: &mut Random) -> Result<(), Violation> {
        let backlogs = self.leave();
        self.kill(death, random)?;
        self.host.clock.advance(Nanos::from_millis([1, 1_000, 90_000][random.below(3) as usize]));
        self.begin(backlogs, random)
    }

    /// The host is stopped in good order, and begins again.
    fn stop(&mut self, random: &mut Random) -> Result<(), Violation> {
        let limit = Nanos::from_millis(u64::from(random.below(3_000)));
        let (brokers_answer, leaders) = (self.host.clock.mono() >= self.broker_away, self.leaders_away.clone());
        let mut luck = Random::new(random.bits());
        self.host.stop(limit, |host| {
            host.clock.advance_ms(1 + u64::from(luck.below(5)));
            let now = host.clock.mono();
            for broker in host.brokers.iter().filter(|_| brokers_answer) {
                for partition in broker.partitions() {
                    if now >= leaders[partition as usize] && luck.below(3) > 0 {
                        broker.ack(partition, luck.below(40) as usize);
                    }
                }
            }
        });
        if self.host.disk.is_dead() {
            return self.die(Death::Process, random);
        }
        self.ledger.now = self.host.clock.mono();
        self.take_failed()?;
        self.look()?;
        let counts = self.host.counts();
        let is_sound = self.disk_heals == Nanos(u64::MAX) && self.plan.has_disk && !self.host.disk.dies();
        if is_sound && counts.unsettled() > 0 && self.host.blueprint.policy == Policy::Spill {
            let shards: String = self.host.shards.iter().map(crate::shard::Shard::describe).collect();
            let what = format!("stopped with a sound disk, and something is not settled: {counts}\n{shards}");
            return Err(Violation { check: "stop", what });
        }
        self.die(Death::Process, random)
    }

    /// What each caller has to send again, in order: what is not settled, then what it had not submitted.
    fn leave(&mut self) -> Vec<(VecDeque<u64>, Vec<Draft>)> {
        let ledger = &self.ledger;
        let callers = self.callers.drain(..);
        callers
            .map(|caller| {
                let unsettled = caller.ids[caller.checked as usize..].iter().copied();
                let again = unsettled.filter(|id| ledger.entry(*id).failed.is_none());
                (again.chain(caller.outbox).collect(), caller.recent)
            })
            .collect()
    }

    fn kill(&mut self, death: Death, random: &mut Random) -> Result<(), Violation> {
        if self.host.policy() == Policy::DeadLetter {
            // It gives up the order of what is diverted, and what was on its way to the dead letters is sent again.
            self.ledger.note_all_refusable();
        }
        // Half of the time nothing lands on the way out: then only what is durable counts.
        let lands = random.below(2) == 0;
        self.host.kill(death, |_, held| if lands { random.below(held as u32 + 1) as usize } else { 0 });
        self.read_logs()?;
        self.see(&Event::Died)
    }

    fn begin(&mut self, backlogs: Vec<(VecDeque<u64>, Vec<Draft>)>, random: &mut Random) -> Result<(), Violation> {
        self.heal_disk();
        if self.plan.rate(Kind::DiesAtDisk) > 0 && random.below(4) == 0 {
            self.host.disk.die_after(u64::from(random.below(12)));
        }
        let mut tries = 0;
        loop {
            self.met.starts += 1;
            let is_cold = std::mem::take(&mut self.is_cold_next) && self.plan.has_disk;
            let answer = self.host.begin(is_cold);
            if !self.host.disk.is_dead() {
                if let Err(error) = answer {
                    return Err(Violation { check: "start", what: format!("a sound disk is refused: {error}") });
                }
                self.ledger.is_cold = is_cold;
                if is_cold {
                    let now = self.host.clock.mono();
                    self.broker_away = now + Nanos::from_millis(u64::from(random.below(30_000)));
                }
                break;
            }
            tries += 1;
            assert!(tries < 100, "a disk dies once");
            let death = if random.below(2) == 0 { Death::Process } else { Death::Machine };
            self.kill(death, random)?;
            self.heal_disk();
        }
        self.ledger.began_at = self.host.clock.mono();
        self.ledger.now = self.ledger.began_at;
        self.is_lost.fill(false);
        self.has_rule = false;
        for (outbox, recent) in backlogs {
            self.add_caller(outbox, recent);
        }
        self.look_at_disk();
        let unknown = self.ledger.accepted().find(|(id, entry)| entry.is_settled && !self.ledger.is_kept(*id));
        if let Some((id, entry)) = unknown {
            let what = format!("submit {id} was settled and is lost: {:?}", entry.draft);
            return Err(Violation { check: "kept", what });
        }
        Ok(())
    }

    fn look_at_disk(&mut self) {
        let ids = self.host.ids_on_disk();
        self.ledger.look_at_disk(ids.into_iter());
    }

    /// Shows what is new in the logs.
    fn read_logs(&mut self) -> Result<(), Violation> {
        let World { host, ledger, checks, read, met, .. } = self;
        ledger.now = host.clock.mono();
        for (index, broker) in host.brokers.iter().enumerate() {
            let state = broker.state();
            let number = |value: &[u8]| id_of(value).expect("the sink is lent frames");
            for value in &state.uncertain[read.doubted[index]..] {
                see(checks, ledger, &Event::Doubted { id: number(value) })?;
            }
            read.doubted[index] = state.uncertain.len();
            for value in &state.refused[read.refused[index]..] {
                see(checks, ledger, &Event::Refused { id: number(value) })?;
            }
            read.refused[index] = state.refused.len();
            for record in &state.log[read.log[index]..] {
                let frame = Frame::read(&record.value).expect("the sink is lent frames");
                let (id, partition, is_acked) = (number(&record.value), record.partition, record.is_acked);
                met.landed += 1;
                see(checks, ledger, &Event::Landed { id, partition, key: &record.key, frame: &frame, is_acked })?;
            }
            read.log[index] = state.log.len();
        }
        let letters = host.letters.state();
        for (value, _) in &letters.log[read.letters..] {
            let Some(id) = id_of(value) else {
                return Err(Violation { check: "kept", what: "a dead letter is no frame of a trigger".to_owned() });
            };
            met.dead_letters += 1;
            see(checks, ledger, &Event::Buried { id })?;
        }
        read.letters = letters.log.len();
        Ok(())
    }

    /// Looks at everything that can be seen from outside.
    fn look(&mut self) -> Result<(), Violation> {
        self.read_logs()?;
        for check in &mut self.checks {
            let name = check.name();
            check.between_turns(&self.ledger, &self.host).map_err(|what| Violation { check: name, what })?;
        }
        let mut has_looked = false;
        for index in 0..self.callers.len() {
            let caller = &mut self.callers[index];
            let (settled, checked) = (caller.ingress.settled().0, caller.checked);
            if settled < checked || settled > caller.ids.len() as u64 {
                let what = format!("the watermark of caller {index} went from {checked} to {settled}");
                return Err(Violation { check: "watermark", what });
            }
            caller.checked = settled;
            for seq in checked + 1..=settled {
                let id = self.callers[index].ids[seq as usize - 1];
                if !self.ledger.is_kept(id) && !has_looked {
                    self.look_at_disk();
                    has_looked = true;
                }
                self.see(&Event::Passed { id })?;
            }
        }
        Ok(())
    }

    /// All faults are over. Everything settles within [`SETTLE_LIMIT`], breakers close, the spill is empty, and all that was
    /// accepted is where it belongs.
    ///
    /// # Errors
    /// What does not hold.
    pub fn finish(&mut self) -> Result<(), Violation> {
        let mut random = Random::new(self.plan.seed ^ 0xf1_11_15);
        self.heal_disk();
        self.host.disk.die_after(u64::MAX);
        (self.broker_away, self.letters_away) = (Nanos(0), Nanos(0));
        self.leaders_away.fill(Nanos(0));
        self.host.common.shared().set_fences(None);
        self.host.common.set_record_bytes_max(usize::MAX);
        for index in 0..self.host.brokers.len() {
            let broker = self.host.brokers[index].clone();
            {
                let mut state = broker.state();
                (state.is_away, state.queue_max, state.report_max) = (false, usize::MAX, usize::MAX);
                state.faults.clear();
            }
            if std::mem::take(&mut self.is_lost[index]) {
                self.turn(&mut random)?;
                self.host.brokers[index].replace_handle(|_, held| held / 2);
            }
        }
        let until = self.host.clock.mono() + SETTLE_LIMIT;
        let mut pause_ms = 1;
        while self.host.clock.mono() < until {
            self.host.clock.advance_ms(pause_ms);
            pause_ms = (pause_ms + 1).min(50);
            self.weather();
            for partition in (0..self.plan.partitions).map(PartitionId) {
                let shard = partition.0 as usize % self.host.shards.len();
                self.host.shards[shard].good_read(partition);
            }
            self.turn(&mut random)?;
            self.take_failed()?;
            for index in 0..self.callers.len() {
                self.offer(index)?;
            }
            if self.is_settled() {
                self.turn(&mut random)?;
                return self.check_end();
            }
            for broker in &self.host.brokers {
                broker.ack_all();
            }
        }
        let shards: String = self.host.shards.iter().map(crate::shard::Shard::describe).collect();
        let what = format!("nothing is wrong any more, and after {SETTLE_LIMIT:?}: {}\n{shards}", self.host.counts());
        Err(Violation { check: "liveness", what })
    }

    fn is_settled(&self) -> bool {
        let counts = self.host.counts();
        self.callers.iter().all(|caller| caller.outbox.is_empty() && caller.checked == caller.ids.len() as u64)
            && self.host.brokers.iter().all(|broker| broker.in_flight() + broker.undelivered_reports() == 0)
            && counts.unsettled() + counts.in_spill == 0
            && self.host.common.shared().blocked_count() == 0
    }

    fn check_end(&mut self) -> Result<(), Violation> {
        self.look()?;
        self.count_life();
        for check in &mut self.checks {
            let name = check.name();
            check.at_end(&self.ledger, &mut self.host).map_err(|what| Violation { check: name, what })?;
        }
        self.host.brokers.iter().for_each(Broker::check_abandoned);
        Ok(())
    }

    /// Adds what a life counted.
    fn count_life(&mut self) {
        let counts = self.host.counts();
        self.met.collapsed += counts.deduplicated;
        self.met.spilled += counts.spilled;
        self.met.rebuilds += counts.producer_rebuilds;
        self.met.opened += self.host.common.shard_pages.iter().map(|page| page.breakers_opened.get()).sum::<u64>();
    }
}

/// Shows an event to all checks, and enters it.
fn see(checks: &mut [Box<dyn Check>], ledger: &mut Ledger, event: &Event<'_>) -> Result<(), Violation> {
    if ledger.is_told {
        println!("{:>14.3}  {event}", ledger.now.0 as f64 / 1e6);
    }
    for check in checks {
        let name = check.name();
        check.see(ledger, event).map_err(|what| Violation { check: name, what })?;
    }
    ledger.enter(event);
    Ok(())
}

/// What is in flight of one partition is refused: for itself or for the partition, surely or perhaps.
fn refuse(broker: &Broker, random: &mut Random) {
    let partitions = broker.partitions();
    if partitions.is_empty() {
        return;
    }
    let partition = partitions[random.below(partitions.len() as u32) as usize];
    let count = 1 + random.below(12) as usize;
    let skip = if random.below(4) == 0 { random.below(4) as usize } else { 0 };
    let (fault, persisted) = match random.below(9) {
        0..3 => (Fault::Frame(10), Persisted::No),
        3..6 => (Fault::Partition(44), Persisted::No),
        // Refused on a later try, when the first one had timed out.
        6 => (Fault::Frame(10), Persisted::Possibly),
        _ => (Fault::Partition(20), Persisted::Possibly),
    };
    let lands = persisted == Persisted::Possibly && skip == 0 && random.below(2) == 0;
    if skip == 0 && random.below(4) == 0 {
        broker.refuse_named(partition, count, random.below(count as u32) as usize, 10);
    } else {
        broker.refuse(partition, skip, count, fault, persisted, lands);
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.check, self.what)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Submit => write!(out, "a caller submits"),
            Action::Pass { span, slices } => write!(out, "{:.3} ms pass in {slices} turns", span.0 as f64 / 1e6),
            Action::TakeFailed => write!(out, "callers take back what failed"),
            Action::Do(kind) => write!(out, "{}", KINDS[*kind as usize].1),
        }
    }
}
