//! The world of a run: a host, its callers, and the weather. It is played step by step, and looked at after each turn.

mod act;
mod lives;

pub use act::refuse;

use super::checks::{self, Check};
use super::clock::SimClock;
use super::host::{Death, Host, id_of, small_spill};
use super::ledger::{Draft, Event, Ledger, Story};
use super::plan::Plan;
use super::random::Random;
use super::step::{Action, Step};
use super::verdict::{Met, Violation};
use crate::clock::Clock;
use crate::engine::Blueprint;
use crate::ingress::{Ingress, Refused};
use crate::sink::steered::Broker;
use crate::spill::SpillLimits;
use crate::spill::faulty::FaultyDisk;
use crate::trigger::{Priority, State};
use crate::units::{Nanos, PartitionId};
use crate::verify::frame::Frame;
use std::collections::VecDeque;

/// The longest time in which everything must have settled once all faults are over.
const SETTLE_LIMIT: Nanos = Nanos::from_millis(600_000);
/// Triggers that a caller remembers, to repeat them.
const RECENT: usize = 48;

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

    /// Tells each step and each event from now on.
    pub fn tell(&mut self, story: Story) {
        self.ledger.story = Some(story);
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
        if self.ledger.story.is_some() {
            self.ledger.tell(self.host.clock.mono(), &format_args!("step {}: {action}", step.number));
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
        let leaders = self.leaders_away.iter().enumerate();
        self.host.leaderless =
            leaders.filter(|(_, away)| now < **away).map(|(partition, _)| partition as u32).collect();
        if now >= self.broker_away && self.host.is_cold() {
            self.host.thaw();
            self.ledger.is_cold = self.host.is_cold();
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
        if host.brokers.iter().all(|broker| !broker.state().has_reports()) {
            ledger.note_told();
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

    /// All faults are over. Everything settles within ten simulated minutes, breakers close, the spill is empty, and all that was
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
    ledger.tell(ledger.now, event);
    for check in checks {
        let name = check.name();
        check.see(ledger, event).map_err(|what| Violation { check: name, what })?;
    }
    ledger.enter(event);
    Ok(())
}
