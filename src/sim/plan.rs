//! What a run is made of: sizes and faults, drawn from its seed. Each kind of fault is on or off by the toss of a coin, so
//! that many runs meet few kinds at once and none hides another (Groce et al., "Swarm testing", 2012).

use super::random::Random;
use crate::config::{AgeLimit, Config};
use crate::shard::Policy;
use std::fmt;
use std::time::Duration;

/// A kind of fault, or of something that a caller or an operator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The leader of one partition is away: nothing of it lands.
    LeaderAway,
    /// No broker can be reached.
    BrokerAway,
    /// The client's queue is small.
    QueueFull,
    /// A batch is refused: for a record, for the partition, surely or perhaps.
    Refusal,
    /// The client refuses a frame at once.
    RefusalAtOnce,
    /// A producer handle fails for good and is replaced.
    HandleLost,
    /// Reports come a few at a time.
    ReportsSlow,
    /// The topic of dead letters is away, or refuses.
    LettersAway,
    /// Operations of the disk fail.
    DiskFails,
    /// The disk is full.
    DiskFull,
    /// The disk is slow.
    DiskSlow,
    /// Somebody sets the wall clock.
    ClockSet,
    /// The process is killed.
    ProcessKilled,
    /// The machine stops.
    MachineStops,
    /// The process or the machine dies inside an operation of the disk, also while it starts.
    DiesAtDisk,
    /// The router is stopped in good order.
    Stopped,
    /// The next start finds no broker.
    ColdStart,
    /// The next start has another policy.
    PolicyChanged,
    /// Lag or latency opens a breaker.
    Tripped,
    /// A list of known fences comes or goes.
    FencesChanged,
    /// The topic takes only small records.
    TooLarge,
    /// Callers give what was shed to the dead letters.
    GivenToLetters,
    /// A caller leaves its ingress and takes another.
    CallerMoves,
}

/// Each kind: its name, and how many of 10,000 steps do it where it is on.
pub const KINDS: [(Kind, &str, u32); 23] = [
    (Kind::LeaderAway, "leader away", 150),
    (Kind::BrokerAway, "broker away", 60),
    (Kind::QueueFull, "queue full", 100),
    (Kind::Refusal, "refusals", 300),
    (Kind::RefusalAtOnce, "refusals at once", 100),
    (Kind::HandleLost, "handles lost", 100),
    (Kind::ReportsSlow, "slow reports", 100),
    (Kind::LettersAway, "dead letters away", 100),
    (Kind::DiskFails, "disk fails", 150),
    (Kind::DiskFull, "disk full", 60),
    (Kind::DiskSlow, "disk slow", 60),
    (Kind::ClockSet, "clock set", 60),
    (Kind::ProcessKilled, "process killed", 25),
    (Kind::MachineStops, "machine stops", 25),
    (Kind::DiesAtDisk, "dies at its disk", 40),
    (Kind::Stopped, "stopped", 25),
    (Kind::ColdStart, "cold starts", 100),
    (Kind::PolicyChanged, "policy changed", 50),
    (Kind::Tripped, "breakers tripped", 60),
    (Kind::FencesChanged, "fences changed", 60),
    (Kind::TooLarge, "small records only", 40),
    (Kind::GivenToLetters, "given to the dead letters", 100),
    (Kind::CallerMoves, "callers move", 60),
];

/// One run, before it runs.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What it was drawn from.
    pub seed: u64,
    /// Steps of the phase with faults.
    pub steps: u32,
    /// The router's configuration.
    pub config: Config,
    /// Partitions of the topic.
    pub partitions: u32,
    /// Devices that move.
    pub devices: u32,
    /// Fences that there are.
    pub fences: u32,
    /// Threads that submit.
    pub callers: usize,
    /// What happens to the triggers of a partition that does not take them.
    pub policy: Policy,
    /// How long the longest of its pauses are, in milliseconds.
    pub pauses_ms: [u32; 6],
    /// Whether there is a state directory.
    pub has_disk: bool,
    /// Marks that the spill keeps.
    pub marks: usize,
    /// How large the spill may become.
    pub spill_bytes: u64,
    /// As [`KINDS`]: of 10,000 steps.
    pub rates: [u32; KINDS.len()],
}

impl Plan {
    /// Draws it.
    #[must_use]
    pub fn draw(seed: u64, steps: u32) -> Plan {
        let mut random = Random::new(seed ^ 0x51ed_270b_7a3d_9f01);
        let mut config = Config::default();
        let shards = 1 + random.below(3) as u16;
        let each = usize::from(shards);
        config.engine.shards = shards;
        config.engine.turn_batch = 1 + random.below(64) as u16;
        let callers = 1 + random.below(3) as usize;
        config.queue.ingresses = callers;
        config.queue.capacity = (64 << random.below(3)) * each;
        config.settle.window = 1_024 << random.below(2);
        config.inflight.partition = 1 + random.below(40) as usize;
        config.inflight.total = (config.inflight.partition + random.below(60) as usize) * each;
        config.inflight.waiting = (16 + random.below(120) as usize) * each;
        let slots = config.inflight.total + config.inflight.waiting;
        config.dedup.capacity = match random.below(3) {
            0 => (slots + each * random.below(200) as usize).max(1_024),
            _ => 8_192 * each,
        };
        config.dedup.ttl = Duration::from_secs([2, 10, 60][random.below(3) as usize]);
        config.breaker.grace = Duration::from_millis(u64::from(30 + random.below(1_000)));
        config.breaker.failures = 1 + random.below(20);
        config.breaker.reset = Duration::from_millis(u64::from(100 + random.below(5_000)));
        config.time.past_limit = Some(AgeLimit::Off);
        let has_disk = random.below(5) > 0;
        let policy = match (has_disk, random.below(6)) {
            (false, _) | (true, 0) => Policy::Refuse,
            (true, 1) => Policy::DeadLetter,
            (true, _) => Policy::Spill,
        };
        let mut rates = [0; KINDS.len()];
        let is_calm = random.below(10) == 0;
        for (rate, (_, _, usual)) in rates.iter_mut().zip(KINDS) {
            let (is_on, factor) = (random.below(2) == 0 && !is_calm, [1, 2, 4, 8][random.below(4) as usize]);
            *rate = if is_on { (usual * factor / 4).max(1) } else { 0 };
        }
        let pauses_ms = match random.below(3) {
            // Many triggers within a time to live: the window reaches its capacity.
            0 => [1, 2, 2, 5, 20, 100],
            _ => [2, 20, 20, 200, 2_000, 30_000],
        };
        Plan {
            seed,
            steps,
            pauses_ms,
            partitions: u32::from(shards) + random.below(6),
            devices: 1 + random.below(24),
            fences: 1 + random.below(5),
            callers,
            policy,
            has_disk,
            marks: [0, 8, 4_096, 4_096][random.below(4) as usize],
            spill_bytes: [8 << 20, 16 << 20][random.below(2) as usize],
            rates,
            config,
        }
    }

    /// How many of 10,000 steps are of this kind.
    #[must_use]
    pub fn rate(&self, kind: Kind) -> u32 {
        self.rates[kind as usize]
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { config, .. } = self;
        writeln!(
            out,
            "{} steps; {} shards, {} partitions, {} devices, {} fences, {} callers; policy {:?}, {}",
            self.steps,
            config.engine.shards,
            self.partitions,
            self.devices,
            self.fences,
            self.callers,
            self.policy,
            if self.has_disk { "a disk" } else { "no disk" }
        )?;
        writeln!(
            out,
            "rings {}, turn batch {}, in flight {} / {} + {} waiting, settle window {}; dedup {} keys, {:?}; breaker {} \
             failures, {:?} grace, {:?} reset; spill {} MB, {} marks",
            config.queue.capacity,
            config.engine.turn_batch,
            config.inflight.partition,
            config.inflight.total,
            config.inflight.waiting,
            config.settle.window,
            config.dedup.capacity,
            config.dedup.ttl,
            config.breaker.failures,
            config.breaker.grace,
            config.breaker.reset,
            self.spill_bytes >> 20,
            self.marks
        )?;
        let on = KINDS.iter().zip(self.rates).filter(|(_, rate)| *rate > 0);
        let on: Vec<String> = on.map(|((_, name, _), rate)| format!("{name} {rate}")).collect();
        write!(out, "of 10,000 steps: {}", if on.is_empty() { "no faults".to_owned() } else { on.join(", ") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_stand_in_the_order_of_their_numbers() {
        for (index, (kind, _, _)) in KINDS.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
        }
    }

    #[test]
    fn every_plan_is_a_sound_configuration() {
        for seed in 0..2_000 {
            let plan = Plan::draw(seed, 100);
            assert!(plan.config.limits().is_ok(), "seed {seed}: {:?}\n{plan}", plan.config.limits().err());
        }
    }
}
