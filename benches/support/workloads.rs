//! Named workloads with fixed seeds, for every benchmark: the same name is the same triggers, on every machine.
//!
//! Each workload states its dimensions: triggers, devices, fences, repeats and the seed. All are made before the clock starts; the generators are plain and
//! need no feature of the library. Two triggers of a workload that are not repeats never share an idempotency key:
//! each trigger of a device has a second of its own, or (of the hot device) a fence of its own within the second.
//! Event times end at the date given, so that no trigger is of the future.

use super::Luck;
use fencepost::trigger::{State, Trigger};

/// A trigger that owns its ids, and when it is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedTrigger {
    /// Who.
    pub device: String,
    /// Where.
    pub fence: String,
    /// What.
    pub state: State,
    /// When it happened, in Unix milliseconds.
    pub event_time_ms: i64,
    /// When an open-loop driver submits it, in microseconds from the start of the run. Never falls.
    pub due_us: u64,
    /// Whether an earlier one has the same idempotency key.
    pub repeat: bool,
}

impl OwnedTrigger {
    /// As `submit` takes it.
    pub fn as_trigger(&self) -> Trigger<'_> {
        Trigger::new(&self.device, &self.fence, self.state, self.event_time_ms)
    }
}

/// How large a workload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dimensions {
    /// Triggers in all, repeats among them.
    pub triggers: usize,
    /// Devices that may cause one.
    pub devices: usize,
    /// Fences that may be met.
    pub fences: usize,
    /// Triggers whose idempotency key came before.
    pub repeats: usize,
    /// What the luck of it begins with.
    pub seed: u64,
}

/// A list of triggers with a name.
pub struct Workload {
    /// What benchmarks print.
    pub name: &'static str,
    /// How large it is.
    pub dimensions: Dimensions,
    /// How it is spread, over whom and over time.
    pub shape: &'static str,
    /// In order of submission.
    pub triggers: Vec<OwnedTrigger>,
}

/// The pace of all workloads, on average.
pub const RATE: u64 = 50_000;

/// The names, for a benchmark that runs them all.
pub const NAMES: [&str; 5] = ["uniform", "skewed", "hot_key", "repeat_heavy", "bursty"];

impl Workload {
    /// The workload of this name, `count` triggers long, with event times up to `end_ms`.
    ///
    /// # Panics
    /// If no workload has this name.
    pub fn named(name: &str, count: usize, end_ms: i64) -> Workload {
        match name {
            "uniform" => uniform(count, end_ms),
            "skewed" => skewed(count, end_ms),
            "hot_key" => hot_key(count, end_ms),
            "repeat_heavy" => repeat_heavy(count, end_ms),
            "bursty" => bursty(count, end_ms),
            other => panic!("no workload is called {other:?}; there are {NAMES:?}"),
        }
    }

    fn new(
        name: &'static str,
        (devices, fences, seed): (usize, usize, u64),
        shape: &'static str,
        triggers: Vec<OwnedTrigger>,
    ) -> Workload {
        let repeats = triggers.iter().filter(|trigger| trigger.repeat).count();
        let dimensions = Dimensions { triggers: triggers.len(), devices, fences, repeats, seed };
        Workload { name, dimensions, shape, triggers }
    }

    /// Name, dimensions and shape, in a line.
    pub fn about(&self) -> String {
        let Dimensions { triggers, devices, fences, repeats, seed } = self.dimensions;
        format!(
            "{}: {triggers} triggers, {devices} devices, {fences} fences, {repeats} repeats, seed {seed:#x}; {}",
            self.name, self.shape
        )
    }

    /// How many of its triggers are no repeats.
    pub fn distinct(&self) -> usize {
        self.dimensions.triggers - self.dimensions.repeats
    }
}

/// Devices of all workloads; the hot one of `hot_key` comes to these.
const DEVICES: usize = 10_000;
/// Fences of all workloads but `hot_key`.
const FENCES: usize = 4_096;

/// 10,000 devices and 4,096 fences, all equally likely; steady pace.
pub fn uniform(count: usize, end_ms: i64) -> Workload {
    const SEED: u64 = 0x756e_6966;
    let mut luck = Luck(SEED);
    let triggers = visits(count, end_ms, &mut luck, DEVICES, |luck| luck.below(FENCES as u32));
    Workload::new("uniform", (DEVICES, FENCES, SEED), "all equally likely, steady", triggers)
}

/// 10,000 devices, equally likely; of 4,096 fences the one of rank r with a likelihood of 1/r: the first tenth gets
/// three quarters of the traffic. Steady pace.
pub fn skewed(count: usize, end_ms: i64) -> Workload {
    const SEED: u64 = 0x736b_6577;
    let mut luck = Luck(SEED);
    let mut up_to = Vec::with_capacity(4_096);
    let mut sum = 0.0;
    for rank in 1..=4_096 {
        sum += 1.0 / f64::from(rank);
        up_to.push(sum);
    }
    let draw = |luck: &mut Luck| {
        let point = luck.unit() * sum;
        up_to.partition_point(|&end| end <= point).min(4_095) as u32
    };
    let triggers = visits(count, end_ms, &mut luck, DEVICES, draw);
    Workload::new("skewed", (DEVICES, FENCES, SEED), "fences of likelihood 1/rank, steady", triggers)
}

/// One device causes half of all triggers, by visits to 16,384 fences in a circle; 10,000 others share the rest. Steady
/// pace.
pub fn hot_key(count: usize, end_ms: i64) -> Workload {
    const HOT_FENCES: usize = 16_384;
    const SEED: u64 = 0x0068_6f74;
    let mut luck = Luck(SEED);
    let mut triggers = visits(count, end_ms, &mut luck, DEVICES, |luck| luck.below(FENCES as u32));
    let hot: Vec<usize> = (0..count).filter(|_| luck.below(2) == 0).collect();
    // An enter and an exit of each fence, then the same in the next second: a fence is used once a second.
    let seconds = (hot.len() / (2 * HOT_FENCES)) as i64;
    for (nth, &place) in hot.iter().enumerate() {
        let trigger = &mut triggers[place];
        trigger.device = "veh-hot".into();
        trigger.fence = fence_id((nth / 2 % HOT_FENCES) as u32);
        trigger.state = if nth.is_multiple_of(2) { State::Enter } else { State::Exit };
        trigger.event_time_ms = end_ms + ((nth / (2 * HOT_FENCES)) as i64 - seconds) * 1_000;
    }
    Workload::new("hot_key", (DEVICES + 1, HOT_FENCES, SEED), "one device causes half of all, steady", triggers)
}

/// As `uniform`, but 30 % are exact repeats of one of the 200 triggers before.
pub fn repeat_heavy(count: usize, end_ms: i64) -> Workload {
    const SEED: u64 = 0x7265_7065;
    let mut luck = Luck(SEED);
    let mut triggers = visits(count, end_ms, &mut luck, DEVICES, |luck| luck.below(FENCES as u32));
    for place in 1..count {
        if luck.below(10) < 3 {
            let back = 1 + luck.below(place.min(200) as u32) as usize;
            let due_us = triggers[place].due_us;
            triggers[place] = OwnedTrigger { due_us, repeat: true, ..triggers[place - back].clone() };
        }
    }
    Workload::new("repeat_heavy", (DEVICES, FENCES, SEED), "30 % repeat one of the 200 before, steady", triggers)
}

/// As `uniform`, but all triggers of 100 ms come at once: 5,000 at a time.
pub fn bursty(count: usize, end_ms: i64) -> Workload {
    const SEED: u64 = 0x6275_7273;
    let mut luck = Luck(SEED);
    let mut triggers = visits(count, end_ms, &mut luck, DEVICES, |luck| luck.below(FENCES as u32));
    for trigger in &mut triggers {
        trigger.due_us -= trigger.due_us % 100_000;
    }
    Workload::new("bursty", (DEVICES, FENCES, SEED), "5,000 at once each 100 ms", triggers)
}

/// Devices by luck, each entering a fence that `draw` gives and leaving it with its next trigger. The n-th trigger of a
/// device happens a second after the one before.
fn visits(
    count: usize,
    end_ms: i64,
    luck: &mut Luck,
    devices: usize,
    draw: impl Fn(&mut Luck) -> u32,
) -> Vec<OwnedTrigger> {
    let mut inside: Vec<Option<u32>> = vec![None; devices];
    let mut made = vec![0_i64; devices];
    let mut triggers: Vec<OwnedTrigger> = (0..count as u64)
        .map(|nth| {
            let device = luck.below(devices as u32);
            let (fence, state) = match inside[device as usize].take() {
                Some(fence) => (fence, State::Exit),
                None => {
                    let fence = draw(luck);
                    inside[device as usize] = Some(fence);
                    (fence, State::Enter)
                }
            };
            made[device as usize] += 1;
            OwnedTrigger {
                device: format!("veh-{device:05}"),
                fence: fence_id(fence),
                state,
                event_time_ms: made[device as usize] * 1_000,
                due_us: nth * 1_000_000 / RATE,
                repeat: false,
            }
        })
        .collect();
    // The latest of all ends at `end_ms`.
    let latest_ms = made.iter().max().map_or(0, |most| most * 1_000);
    for trigger in &mut triggers {
        trigger.event_time_ms += end_ms - latest_ms;
    }
    triggers
}

fn fence_id(number: u32) -> String {
    format!("cell:{}:{}", number / 64, number % 64)
}
