//! A simulated fleet: devices that travel over a plane of fences and cause natural triggers.
//!
//! The plane is a square of grid cells, each a fence, with circles laid over it. A device travels from cell to cell
//! towards a goal: now and then a far one, drawn by a power law, and between those errands from there and back. So
//! a few areas see most of the traffic. Crossing a border leaves the fences behind it and enters those in front of it,
//! at one moment; a stay of `dwell_ms` causes one dwell per fence.
//!
//! Promises:
//! - The same options give the same stream, on every machine.
//! - Per device and fence: enter, perhaps one dwell (at least `dwell_ms` after the enter), exit, enter … Never an exit
//!   without an enter, never an exit after `dwell_ms` without a dwell.
//! - Two samples that are not repeats never share an idempotency key. What makes it so is one rule: a device comes back
//!   into a fence only in a later second than the one in which it left it.
//! - A repeat is the same trigger again, 1 to [`REPEAT_DISTANCE_MAX`] samples after its original, and at the fleet's
//!   pace within half of `dedup_ttl_ms`.
//! - Event times never fall, and sample n (counted from 0) happens at `start` + n / `rate`, never earlier. It may be
//!   later, by a second or two, when so much is asked of so few devices that all of them wait for the next second.
//!   Someone who takes samples faster than `rate` gets event times that run ahead of the wall clock by as much: start
//!   earlier then.
//!
//! Costs: about 280 bytes a device and 100 a fence, all at construction; a sample allocates nothing and reads no clock.

use super::random::Random;
use crate::trigger::{Priority, State, Trigger};
use crate::units::UnixMs;
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;
use thiserror::Error;

/// How many devices a fleet, before it is split, may have.
pub const DEVICES: RangeInclusive<u32> = 1..=4_000_000;

/// How many fences, cells and circles together, a plane may have.
pub const FENCES: RangeInclusive<u32> = 100..=60_000;

/// How long a stay is before it counts as a dwell, in milliseconds.
pub const DWELL_MS: RangeInclusive<u32> = 1_000..=86_400_000;

/// Which share of the samples may be repeats.
pub const REPEAT_RATIO: RangeInclusive<f64> = 0.0..=0.5;

/// The most samples a second asked of one device, on average. More would make it cross borders faster than the
/// one-second resolution of the idempotency key can tell apart.
pub const RATE_PER_DEVICE_MAX: u32 = 20;

/// A repeat comes at most this many samples after its original.
pub const REPEAT_DISTANCE_MAX: u32 = 200;

/// Circles that may overlap on one cell.
const CIRCLES_PER_CELL: usize = 4;

/// Fences that a device can be in: its cell and the circles over it.
const INSIDE_MAX: usize = 1 + CIRCLES_PER_CELL;

/// How many fences left within one second a device remembers; it waits when it would have to forget one.
const LEFT_MAX: usize = 32;

/// Devices looked at for one that may move; when none may, the fleet's clock goes on to the next second.
const TRIES_MAX: u32 = 64;

/// Places for repeats under way: a power of two above [`REPEAT_DISTANCE_MAX`].
const REPEAT_SLOTS: usize = 256;

const _: () = assert!(REPEAT_SLOTS.is_power_of_two() && REPEAT_SLOTS > REPEAT_DISTANCE_MAX as usize);

/// The popularity of the cell of rank r goes with 1 / r^this.
const POPULARITY_EXPONENT: f64 = 1.1;

/// One of so many journeys is a far one; the others are errands.
const FAR_EVERY: u32 = 16;

/// How far an errand leads from the last far goal, in cells.
const ERRAND_REACH: i32 = 2;

/// What a fleet is made from. Start from `FleetOptions::default()` and change what matters.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetOptions {
    /// Decides everything that luck decides.
    pub seed: u64,
    /// Devices of the whole fleet; see [`DEVICES`].
    pub devices: u32,
    /// Fences of the plane; see [`FENCES`]. About nine of ten are grid cells, the others circles over them.
    pub fences: u32,
    /// Samples a second, repeats included, of the whole fleet: the pace of the event times. At most
    /// [`RATE_PER_DEVICE_MAX`] a device.
    pub rate: u32,
    /// A stay of this long causes a dwell; see [`DWELL_MS`].
    pub dwell_ms: u32,
    /// The share of the samples that are repeats; see [`REPEAT_RATIO`].
    pub repeat_ratio: f64,
    /// The window within which the router collapses repeats; they come within half of it.
    pub dedup_ttl_ms: u32,
    /// The share of the triggers with low priority.
    pub low_ratio: f64,
    /// The share of the triggers with high priority.
    pub high_ratio: f64,
    /// The event time of the first sample.
    pub start: UnixMs,
    /// Which part of the fleet this is: an index below `of`.
    pub index: u32,
    /// In how many parts the fleet is split. Device d belongs to part d % `of`, so each device to exactly one.
    pub of: u32,
}

impl Default for FleetOptions {
    /// 5,000 devices, 4,000 fences, 50,000 samples a second, 5 % repeats, unsplit. `start` is a fixed date in 2023:
    /// set it to "now" before the samples go to a router that checks event times.
    fn default() -> FleetOptions {
        FleetOptions {
            seed: 1,
            devices: 5_000,
            fences: 4_000,
            rate: 50_000,
            dwell_ms: 10_000,
            repeat_ratio: 0.05,
            dedup_ttl_ms: 10_000,
            low_ratio: 0.0,
            high_ratio: 0.0,
            start: UnixMs(1_700_000_000_000),
            index: 0,
            of: 1,
        }
    }
}

/// Why no fleet can be made of some options.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum FleetError {
    /// Too few or too many devices.
    #[error("devices = {got}, allowed {}..={}", DEVICES.start(), DEVICES.end())]
    Devices {
        /// What came.
        got: u32,
    },
    /// Too few or too many fences.
    #[error("fences = {got}, allowed {}..={}", FENCES.start(), FENCES.end())]
    Fences {
        /// What came.
        got: u32,
    },
    /// The rate is zero, or more than the devices can move.
    #[error(
        "rate = {got}, allowed 1..={max} for {devices} devices; {RATE_PER_DEVICE_MAX} a second and device is the most \
         that stays distinct by key: take more devices"
    )]
    Rate {
        /// What came.
        got: u32,
        /// The most for this number of devices.
        max: u32,
        /// The devices.
        devices: u32,
    },
    /// Too short or too long a dwell.
    #[error("dwell_ms = {got}, allowed {}..={}", DWELL_MS.start(), DWELL_MS.end())]
    Dwell {
        /// What came.
        got: u32,
    },
    /// Not a share, or so many repeats that few are left to be repeated.
    #[error("repeat_ratio = {got}, allowed {}..={}", REPEAT_RATIO.start(), REPEAT_RATIO.end())]
    RepeatRatio {
        /// What came.
        got: f64,
    },
    /// Not shares, or more than everything together.
    #[error("low_ratio = {low} and high_ratio = {high}, allowed 0..=1 each and in their sum")]
    PriorityRatio {
        /// What came for low.
        low: f64,
        /// What came for high.
        high: f64,
    },
    /// So short a window that a repeat cannot come within it at this pace.
    #[error("dedup_ttl_ms = {got}: no repeat can come within half of it at {rate} samples a second; at least {min}")]
    DedupTtl {
        /// What came.
        got: u32,
        /// The pace of this part of the fleet.
        rate: u32,
        /// The least that works.
        min: u32,
    },
    /// A part that does not exist or would be empty.
    #[error(
        "part {index} of {of}: the index must be below the number of parts, and each part needs a device ({devices} devices)"
    )]
    Part {
        /// Which part.
        index: u32,
        /// Of how many.
        of: u32,
        /// The devices to split.
        devices: u32,
    },
    /// Event times before 1970, or so late that they cannot be counted on from.
    #[error("start = {got} ms, allowed 1..={max}")]
    Start {
        /// What came.
        got: i64,
        /// The latest.
        max: i64,
    },
}

/// The latest `start`: the year 9999.
const START_MS_MAX: i64 = 253_402_300_799_999;

impl FleetOptions {
    /// Whether a fleet can be made of these options.
    ///
    /// # Errors
    /// The first option that is out of its bounds, with the bounds.
    pub fn check(&self) -> Result<(), FleetError> {
        if !DEVICES.contains(&self.devices) {
            return Err(FleetError::Devices { got: self.devices });
        }
        if !FENCES.contains(&self.fences) {
            return Err(FleetError::Fences { got: self.fences });
        }
        let rate_max = self.devices * RATE_PER_DEVICE_MAX;
        if !(1..=rate_max).contains(&self.rate) {
            return Err(FleetError::Rate { got: self.rate, max: rate_max, devices: self.devices });
        }
        if !DWELL_MS.contains(&self.dwell_ms) {
            return Err(FleetError::Dwell { got: self.dwell_ms });
        }
        if !REPEAT_RATIO.contains(&self.repeat_ratio) {
            return Err(FleetError::RepeatRatio { got: self.repeat_ratio });
        }
        let share = 0.0..=1.0;
        let (low, high) = (self.low_ratio, self.high_ratio);
        if !(share.contains(&low) && share.contains(&high) && share.contains(&(low + high))) {
            return Err(FleetError::PriorityRatio { low, high });
        }
        if self.index >= self.of || self.of > self.devices {
            return Err(FleetError::Part { index: self.index, of: self.of, devices: self.devices });
        }
        if self.repeat_ratio > 0.0 && self.repeat_distance_max() == 0 {
            let min = (2_000 * u64::from(self.of)).div_ceil(u64::from(self.rate));
            return Err(FleetError::DedupTtl {
                got: self.dedup_ttl_ms,
                rate: self.rate / self.of,
                min: u32::try_from(min).unwrap_or(u32::MAX),
            });
        }
        if !(1..=START_MS_MAX).contains(&self.start.0) {
            return Err(FleetError::Start { got: self.start.0, max: START_MS_MAX });
        }
        Ok(())
    }

    /// The furthest a repeat may come after its original so that half the window is not over. 0: none can.
    fn repeat_distance_max(&self) -> u32 {
        let within = u64::from(self.rate) * u64::from(self.dedup_ttl_ms) / (2_000 * u64::from(self.of));
        u32::try_from(within).unwrap_or(u32::MAX).min(REPEAT_DISTANCE_MAX)
    }
}

/// What [`Fleet::next`] hands out.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// The trigger, borrowed from the fleet.
    pub trigger: Trigger<'a>,
    /// Whether it is the same trigger again, as a device sends it that missed the answer.
    pub repeat: bool,
    /// The device's number in the whole fleet.
    pub device: u32,
}

/// A fleet, or one part of one. See the module for what it promises.
pub struct Fleet {
    options: FleetOptions,
    plane: Arc<Plane>,
    device_ids: Vec<Box<str>>,
    devices: Vec<Device>,
    /// Devices (by local index) that may take a turn, in no order.
    movers: Vec<u32>,
    /// Devices that stand at their goal until they dwell: (due, in ms since the start; local index), by due.
    parked: VecDeque<(u64, u32)>,
    parked_max: usize,
    random: Random,
    samples: u64,
    /// The pace: one sample's share of a second.
    nanos_per_sample: u64,
    paced_nanos: u64,
    /// Raised when all devices had to wait for the next second.
    floor_nanos: u64,
    /// What the last turn caused and is not handed out yet.
    turn: Turn,
    repeats: [Mark; REPEAT_SLOTS],
    repeat_distance_max: u32,
    /// Of 2^32 distinct triggers, how many are repeated.
    repeat_share: u64,
    /// Of 2^16 distinct triggers, how many are low, and how many are low or high.
    low_share: u32,
    low_or_high_share: u32,
}

// Each part is driven by a thread of its own.
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Fleet>();
};

/// A trigger in 24 bytes.
#[derive(Clone, Copy)]
struct Mark {
    event_time_ms: i64,
    device: u32,
    fence: u16,
    /// `None`: an empty place.
    state: Option<State>,
    priority: Priority,
}

const NO_MARK: Mark = Mark { event_time_ms: 0, device: 0, fence: 0, state: None, priority: Priority::Normal };

/// What one turn of a device causes, all at one moment.
struct Turn {
    device: u32,
    event_time_ms: i64,
    events: [(u16, State); 2 * INSIDE_MAX],
    len: usize,
    given: usize,
}

impl Turn {
    fn begin(&mut self, device: u32, event_time_ms: i64) {
        self.device = device;
        self.event_time_ms = event_time_ms;
        self.len = 0;
        self.given = 0;
    }

    fn push(&mut self, fence: u16, state: State) {
        self.events[self.len] = (fence, state);
        self.len += 1;
    }
}

/// A device on the plane.
#[derive(Clone)]
struct Device {
    cell: u16,
    goal: u16,
    /// The last far goal: the middle of its errands.
    area: u16,
    inside_len: u8,
    /// Where in `left` the next fence goes: over the oldest.
    left_next: u8,
    inside: [Stay; INSIDE_MAX],
    /// Fences it left lately, each as fence << 16 | low bits of the second. In a circle, oldest first from `left_next`.
    left: [u32; LEFT_MAX],
}

/// A device inside a fence.
#[derive(Clone, Copy)]
struct Stay {
    since_ms: u64,
    fence: u16,
    dwelled: bool,
}

/// A place of `left` that holds no fence: no fence has this number.
const NEVER_LEFT: u32 = u32::MAX;

impl Device {
    fn new(cell: u16) -> Device {
        Device {
            cell,
            goal: cell,
            area: cell,
            inside_len: 0,
            left_next: 0,
            inside: [Stay { since_ms: 0, fence: 0, dwelled: false }; INSIDE_MAX],
            left: [NEVER_LEFT; LEFT_MAX],
        }
    }

    /// Whether it left `fence` in this very second. `second` counts modulo 2^16: once in 18 hours a device may wait a
    /// second for nothing, and never the other way round.
    fn left_in(&self, fence: u16, second: u16) -> bool {
        // The newest are in front of `left_next`; what an earlier second left ends the search.
        for back in 1..=LEFT_MAX {
            let entry = self.left[(usize::from(self.left_next) + LEFT_MAX - back) % LEFT_MAX];
            if entry as u16 != second || entry == NEVER_LEFT {
                return false;
            }
            if (entry >> 16) as u16 == fence {
                return true;
            }
        }
        false
    }

    /// Whether it can leave all the fences it may be in without forgetting one that it left in this second.
    fn has_room(&self, second: u16) -> bool {
        (0..INSIDE_MAX).all(|ahead| {
            let entry = self.left[(usize::from(self.left_next) + ahead) % LEFT_MAX];
            entry == NEVER_LEFT || entry as u16 != second
        })
    }

    fn leave(&mut self, fence: u16, second: u16) {
        self.left[usize::from(self.left_next)] = u32::from(fence) << 16 | u32::from(second);
        self.left_next = ((usize::from(self.left_next) + 1) % LEFT_MAX) as u8;
    }

    fn choose_goal(&mut self, plane: &Plane, random: &mut Random) {
        if random.below(FAR_EVERY) == 0 {
            self.area = plane.goals.draw(random);
            self.goal = self.area;
        } else if self.cell != self.area {
            self.goal = self.area;
        } else {
            self.goal = plane.near(self.area, random);
        }
    }

    fn stays(&self) -> &[Stay] {
        &self.inside[..usize::from(self.inside_len)]
    }
}

/// Cells, circles and how popular they are. One is shared by all parts of a fleet.
struct Plane {
    width: u16,
    fence_ids: Vec<Box<str>>,
    /// Per cell the circles that cover its centre.
    circles: Vec<Circles>,
    goals: Alias,
}

#[derive(Clone, Copy, Default)]
struct Circles {
    len: u8,
    fences: [u16; CIRCLES_PER_CELL],
}

impl Circles {
    fn all(&self) -> &[u16] {
        &self.fences[..usize::from(self.len)]
    }
}

/// Draws from a fixed distribution with one number: the alias method (Walker 1977, built as Vose showed in 1991).
struct Alias {
    /// Per outcome: up to which 32-bit fraction it stands for itself, and for which other one above that.
    columns: Vec<(u32, u16)>,
}

impl Alias {
    fn new(weights: &[f64]) -> Alias {
        let count = weights.len();
        let mean = weights.iter().sum::<f64>() / count as f64;
        let mut rest: Vec<f64> = weights.iter().map(|weight| weight / mean).collect();
        let mut columns: Vec<(u32, u16)> = (0..count).map(|own| (u32::MAX, own as u16)).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..count).partition(|&own| rest[own] < 1.0);
        while let (Some(&short), Some(&long)) = (small.last(), large.last()) {
            small.pop();
            columns[short] = ((rest[short] * f64::from(u32::MAX)) as u32, long as u16);
            rest[long] -= 1.0 - rest[short];
            if rest[long] < 1.0 {
                large.pop();
                small.push(long);
            }
        }
        Alias { columns }
    }

    fn draw(&self, random: &mut Random) -> u16 {
        let bits = random.bits();
        let own = (((bits >> 32) * self.columns.len() as u64) >> 32) as usize;
        let (own_up_to, other) = self.columns[own];
        if bits as u32 <= own_up_to { own as u16 } else { other }
    }
}

impl Plane {
    fn new(seed: u64, fences: u32) -> Plane {
        let mut random = Random::new(seed ^ 0x0070_6c61_6e65);
        let width = (f64::from(fences) * 0.9).sqrt() as u16;
        let cells = width * width;
        let mut fence_ids: Vec<Box<str>> = Vec::with_capacity(fences as usize);
        for cell in 0..cells {
            let (south, east) = (29_500 + u32::from(cell / width) * 20, 32_000 + u32::from(cell % width) * 20);
            fence_ids.push(
                format!("cell:{}.{:03}:{}.{:03}", south / 1_000, south % 1_000, east / 1_000, east % 1_000).into(),
            );
        }

        // Rank 1, the most popular, falls on a cell by luck, as do all others.
        let mut ranked: Vec<u16> = (0..cells).collect();
        for place in (1..ranked.len()).rev() {
            ranked.swap(place, random.below(place as u32 + 1) as usize);
        }
        let mut weights = vec![0.0; usize::from(cells)];
        for (rank, &cell) in ranked.iter().enumerate() {
            weights[usize::from(cell)] = (rank as f64 + 1.0).powf(-POPULARITY_EXPONENT);
        }
        let goals = Alias::new(&weights);

        let mut circles = vec![Circles::default(); usize::from(cells)];
        for number in 0..fences - u32::from(cells) {
            let fence = fence_ids.len() as u16;
            let covered = Plane::place_circle(&mut random, &goals, &circles, width);
            for cell in covered {
                let over = &mut circles[usize::from(cell)];
                over.fences[usize::from(over.len)] = fence;
                over.len += 1;
            }
            const KINDS: [&str; 8] = ["depot", "port", "школа", "車站", "zone#low", "aéroport", "مدرسة", "toll:in"];
            fence_ids.push(format!("circle:{}:{number}", KINDS[number as usize % KINDS.len()]).into());
        }
        Plane { width, fence_ids, circles, goals }
    }

    /// Finds cells for one more circle: around a popular cell, of 1 to 3 cells' radius, smaller where it is crowded.
    fn place_circle(random: &mut Random, goals: &Alias, circles: &[Circles], width: u16) -> Vec<u16> {
        let has_room = |cell: u16| usize::from(circles[usize::from(cell)].len) < CIRCLES_PER_CELL;
        for tries in 0..64_u32 {
            let centre = if tries < 8 { goals.draw(random) } else { random.below(circles.len() as u32) as u16 };
            let radius = if tries < 32 { 1.0 + 2.0 * random.unit() } else { 0.5 };
            let reach = radius as i32;
            let mut covered = Vec::new();
            for down in -reach..=reach {
                for right in -reach..=reach {
                    let row = i32::from(centre / width) + down;
                    let column = i32::from(centre % width) + right;
                    let on_plane = (0..i32::from(width)).contains(&row) && (0..i32::from(width)).contains(&column);
                    if on_plane && f64::from(down * down + right * right) <= radius * radius {
                        covered.push((row * i32::from(width) + column) as u16);
                    }
                }
            }
            if covered.iter().all(|&cell| has_room(cell)) {
                return covered;
            }
        }
        let free = (0..circles.len() as u16).find(|&cell| has_room(cell));
        vec![free.expect("the fences that are circles are fewer than the places over all cells")]
    }

    /// A cell within the reach of an errand.
    fn near(&self, area: u16, random: &mut Random) -> u16 {
        let mut shift = |from: u16| {
            let to = i32::from(from) + random.below(2 * ERRAND_REACH as u32 + 1) as i32 - ERRAND_REACH;
            to.clamp(0, i32::from(self.width) - 1) as u16
        };
        let (row, column) = (shift(area / self.width), shift(area % self.width));
        row * self.width + column
    }

    /// One cell nearer to `goal`, along the straight line on average.
    fn step(&self, from: u16, goal: u16, random: &mut Random) -> u16 {
        let down = i32::from(goal / self.width) - i32::from(from / self.width);
        let right = i32::from(goal % self.width) - i32::from(from % self.width);
        let goes_right = (random.below(down.unsigned_abs() + right.unsigned_abs())) < right.unsigned_abs();
        let to = i32::from(from) + if goes_right { right.signum() } else { down.signum() * i32::from(self.width) };
        to as u16
    }

    fn memory_bytes(&self) -> usize {
        self.fence_ids.iter().map(|id| id.len() + size_of::<Box<str>>()).sum::<usize>()
            + self.circles.len() * size_of::<Circles>()
            + self.goals.columns.len() * size_of::<(u32, u16)>()
    }
}

/// An id as fleets really have them: mostly one maker's pattern, one in sixteen from somewhere else.
fn device_id(number: u32) -> Box<str> {
    // Spread, so that each part of a split fleet and each partition gets some.
    let luck = Random::new(u64::from(number)).bits();
    let id = if !luck.is_multiple_of(16) {
        format!("veh-{number:05}")
    } else {
        match (luck >> 8) % 10 {
            0 => format!("автобус-{number:05}"),
            1 => format!("車両-{number:05}"),
            2 => format!("سيارة-{number:05}"),
            3 => format!("veh:{number:05}:b"),
            4 => format!("veh-{number:05}#1"),
            5 => format!("tram/{number:05}/%2F"),
            6 => format!("🚌 {number:05}"),
            7 => format!("veh-{number:05}\0"),
            8 => format!("véh-{number:05}"),
            _ => format!("{number:05}:{}", "trailer-of-a-very-long-name:".repeat(8)),
        }
    };
    id.into()
}

impl Fleet {
    /// A fleet, or the part of one that `options.index` and `options.of` name.
    ///
    /// # Errors
    /// An option out of its bounds.
    pub fn new(options: FleetOptions) -> Result<Fleet, FleetError> {
        options.check()?;
        let plane = Arc::new(Plane::new(options.seed, options.fences));
        Ok(Fleet::on(plane, options))
    }

    /// All `parts` parts of a fleet, one for each thread that drives an ingress. They share the plane; each device
    /// belongs to exactly one, and each part has its share of the rate.
    ///
    /// # Errors
    /// An option out of its bounds, or more parts than devices.
    pub fn split(options: &FleetOptions, parts: u32) -> Result<Vec<Fleet>, FleetError> {
        let part = |index| FleetOptions { index, of: parts, ..options.clone() };
        part(0).check()?;
        let plane = Arc::new(Plane::new(options.seed, options.fences));
        Ok((0..parts).map(|index| Fleet::on(Arc::clone(&plane), part(index))).collect())
    }

    fn on(plane: Arc<Plane>, options: FleetOptions) -> Fleet {
        let mut random = Random::new(options.seed ^ (u64::from(options.index) << 32 | u64::from(options.of)));
        let count = (options.devices - options.index).div_ceil(options.of);
        let device_ids = (0..count).map(|local| device_id(local * options.of + options.index)).collect();
        let devices = (0..count).map(|_| Device::new(plane.goals.draw(&mut random))).collect();
        let parked_max = count as usize / 2;
        let ratio = options.repeat_ratio;
        Fleet {
            plane,
            device_ids,
            devices,
            movers: (0..count).collect(),
            parked: VecDeque::with_capacity(parked_max),
            parked_max,
            random,
            samples: 0,
            nanos_per_sample: 1_000_000_000 * u64::from(options.of) / u64::from(options.rate),
            paced_nanos: 0,
            floor_nanos: 0,
            turn: Turn { device: 0, event_time_ms: 0, events: [(0, State::Enter); 2 * INSIDE_MAX], len: 0, given: 0 },
            repeats: [NO_MARK; REPEAT_SLOTS],
            repeat_distance_max: options.repeat_distance_max(),
            // A share r of all samples is a share r / (1 - r) of the distinct ones.
            repeat_share: (ratio / (1.0 - ratio) * (1_u64 << 32) as f64).round() as u64,
            low_share: (options.low_ratio * 65_536.0).round() as u32,
            low_or_high_share: ((options.low_ratio + options.high_ratio) * 65_536.0).round() as u32,
            options,
        }
    }

    /// The next sample. There is always one.
    #[expect(clippy::should_implement_trait, reason = "an Iterator cannot lend what it hands out")]
    pub fn next(&mut self) -> Sample<'_> {
        let here = (self.samples % REPEAT_SLOTS as u64) as usize;
        let due = std::mem::replace(&mut self.repeats[here], NO_MARK);
        let (mark, state, repeat) = match due.state {
            Some(state) => (due, state, true),
            None => {
                let (mark, state) = self.distinct();
                (mark, state, false)
            }
        };
        self.samples += 1;
        self.paced_nanos += self.nanos_per_sample;
        let trigger = Trigger {
            device_id: &self.device_ids[mark.device as usize],
            fence_id: &self.plane.fence_ids[usize::from(mark.fence)],
            state,
            event_time_ms: mark.event_time_ms,
            priority: mark.priority,
            attributes: &[],
        };
        Sample { trigger, repeat, device: mark.device * self.options.of + self.options.index }
    }

    /// How many samples were handed out.
    #[must_use]
    pub const fn samples(&self) -> u64 {
        self.samples
    }

    /// What it was made from.
    #[must_use]
    pub const fn options(&self) -> &FleetOptions {
        &self.options
    }

    /// How many devices this part has.
    #[must_use]
    pub fn devices(&self) -> u32 {
        self.devices.len() as u32
    }

    /// All memory it holds, in bytes, the shared plane included.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Fleet>()
            + self.plane.memory_bytes()
            + self.device_ids.iter().map(|id| id.len() + size_of::<Box<str>>()).sum::<usize>()
            + self.devices.capacity() * size_of::<Device>()
            + self.movers.capacity() * size_of::<u32>()
            + self.parked.capacity() * size_of::<(u64, u32)>()
    }

    /// The next trigger that is no repeat; plans its repeat, if it will have one.
    fn distinct(&mut self) -> (Mark, State) {
        if self.turn.given == self.turn.len {
            self.take_turn();
        }
        let (fence, state) = self.turn.events[self.turn.given];
        self.turn.given += 1;
        let bits = self.random.bits();
        let lot = (bits >> 48) as u32;
        let priority = if lot < self.low_share {
            Priority::Low
        } else if lot < self.low_or_high_share {
            Priority::High
        } else {
            Priority::Normal
        };
        let mark = Mark {
            event_time_ms: self.turn.event_time_ms,
            device: self.turn.device,
            fence,
            state: Some(state),
            priority,
        };
        if u64::from(bits as u32) < self.repeat_share {
            self.plan_repeat(mark);
        }
        (mark, state)
    }

    /// Puts the repeat at a free place 1 to `repeat_distance_max` samples ahead, if there is one.
    fn plan_repeat(&mut self, mark: Mark) {
        let first = self.random.below(self.repeat_distance_max);
        for further in 0..self.repeat_distance_max {
            let distance = 1 + (first + further) % self.repeat_distance_max;
            let place = ((self.samples + u64::from(distance)) % REPEAT_SLOTS as u64) as usize;
            if self.repeats[place].state.is_none() {
                self.repeats[place] = mark;
                return;
            }
        }
    }

    /// Lets one device do something. At least one event comes of it.
    fn take_turn(&mut self) {
        loop {
            let nanos = self.paced_nanos.max(self.floor_nanos);
            let now_ms = nanos / 1_000_000;
            if let Some(&(due_ms, device)) = self.parked.front()
                && due_ms <= now_ms
            {
                self.parked.pop_front();
                self.movers.push(device);
                if self.dwell(device, now_ms) {
                    return;
                }
            }
            for _ in 0..TRIES_MAX {
                let place = self.random.below(self.movers.len() as u32) as usize;
                let device = self.movers[place];
                if self.dwell(device, now_ms) {
                    return;
                }
                if self.travel(device, now_ms) {
                    let arrived = &self.devices[device as usize];
                    if arrived.cell == arrived.goal && self.parked.len() < self.parked_max {
                        self.movers.swap_remove(place);
                        self.parked.push_back((now_ms + u64::from(self.options.dwell_ms), device));
                    }
                    return;
                }
            }
            // Whoever was asked has been everywhere around in this second. In the next one all of them may move.
            let start_ms = self.options.start.0;
            let next_second_ms = (self.event_time_ms(now_ms).div_euclid(1_000) + 1) * 1_000;
            self.floor_nanos = (next_second_ms - start_ms) as u64 * 1_000_000;
        }
    }

    const fn event_time_ms(&self, now_ms: u64) -> i64 {
        self.options.start.0 + now_ms as i64
    }

    /// A dwell for each fence in which the device is for long enough. False: there is none.
    fn dwell(&mut self, number: u32, now_ms: u64) -> bool {
        let event_time_ms = self.event_time_ms(now_ms);
        let device = &mut self.devices[number as usize];
        let inside_len = usize::from(device.inside_len);
        self.turn.begin(number, event_time_ms);
        for stay in &mut device.inside[..inside_len] {
            if !stay.dwelled && now_ms - stay.since_ms >= u64::from(self.options.dwell_ms) {
                stay.dwelled = true;
                self.turn.push(stay.fence, State::Dwell);
            }
        }
        self.turn.len > 0
    }

    /// Moves the device by one cell, or puts it on the plane. False: it must wait for the next second.
    fn travel(&mut self, number: u32, now_ms: u64) -> bool {
        let event_time_ms = self.event_time_ms(now_ms);
        let second = event_time_ms.div_euclid(1_000) as u16;
        let Fleet { plane, devices, random, turn, .. } = self;
        let device = &mut devices[number as usize];
        let appears = device.inside_len == 0;
        let to = if appears {
            device.cell
        } else {
            while device.goal == device.cell {
                device.choose_goal(plane, random);
            }
            plane.step(device.cell, device.goal, random)
        };
        let circles = plane.circles[usize::from(to)];
        let is_inside_after = |fence: u16| fence == to || circles.all().contains(&fence);
        let is_inside_before = |device: &Device, fence: u16| device.stays().iter().any(|stay| stay.fence == fence);
        let entered = |device: &Device, fence: u16| !is_inside_before(device, fence);

        let returns = |fence: u16| entered(device, fence) && device.left_in(fence, second);
        if !device.has_room(second) || returns(to) || circles.all().iter().any(|&circle| returns(circle)) {
            // It looks for something to do elsewhere rather than stand at this border.
            device.choose_goal(plane, random);
            return false;
        }
        turn.begin(number, event_time_ms);
        let mut kept = 0;
        for index in 0..usize::from(device.inside_len) {
            let stay = device.inside[index];
            if is_inside_after(stay.fence) {
                device.inside[kept] = stay;
                kept += 1;
            } else {
                device.leave(stay.fence, second);
                turn.push(stay.fence, State::Exit);
            }
        }
        device.inside_len = kept as u8;
        for fence in circles.all().iter().copied().chain([to]) {
            if entered(device, fence) {
                device.inside[usize::from(device.inside_len)] = Stay { since_ms: now_ms, fence, dwelled: false };
                device.inside_len += 1;
                turn.push(fence, State::Enter);
            }
        }
        device.cell = to;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    type Owned = (String, String, State, i64, Priority, bool);

    fn owned(sample: Sample<'_>) -> Owned {
        let trigger = sample.trigger;
        assert!(trigger.attributes.is_empty());
        (
            trigger.device_id.to_owned(),
            trigger.fence_id.to_owned(),
            trigger.state,
            trigger.event_time_ms,
            trigger.priority,
            sample.repeat,
        )
    }

    fn take(options: FleetOptions, count: usize) -> Vec<Owned> {
        let mut fleet = Fleet::new(options).expect("options are in bounds");
        (0..count).map(|_| owned(fleet.next())).collect()
    }

    fn second(time_ms: i64) -> i64 {
        time_ms.div_euclid(1_000)
    }

    /// What a run must be, whatever its options.
    fn assert_natural(options: &FleetOptions, samples: &[Owned]) {
        let mut keys = HashMap::new();
        let mut inside: HashMap<(&str, &str), (i64, bool)> = HashMap::new();
        let mut last_ms = i64::MIN;
        for (place, (device, fence, state, time_ms, priority, repeat)) in samples.iter().enumerate() {
            let key = (device, fence, *state, second(*time_ms));
            if *repeat {
                let &(original, original_ms, original_priority) = keys.get(&key).expect("an original comes first");
                assert_eq!((original_ms, original_priority), (*time_ms, *priority), "a repeat is the same again");
                assert!(place - original <= REPEAT_DISTANCE_MAX as usize, "{original} repeated at {place}");
                let per_second = f64::from(options.rate) / f64::from(options.of);
                assert!((place - original) as f64 / per_second * 2_000.0 <= f64::from(options.dedup_ttl_ms) + 0.001);
                continue;
            }
            let before = keys.insert(key, (place, *time_ms, *priority));
            assert_eq!(before, None, "sample {place} has the key of an earlier one: {key:?}");
            assert!(*time_ms >= last_ms, "event times never fall");
            last_ms = *time_ms;
            match state {
                State::Enter => {
                    let before = inside.insert((device, fence), (*time_ms, false));
                    assert_eq!(before, None, "{device} enters {fence} twice");
                }
                State::Dwell => {
                    let (since_ms, dwelled) = inside.get_mut(&(&**device, &**fence)).expect("dwells inside only");
                    assert!(!*dwelled, "{device} dwells twice in {fence}");
                    assert!(*time_ms - *since_ms >= i64::from(options.dwell_ms));
                    *dwelled = true;
                }
                State::Exit => {
                    let (since_ms, dwelled) = inside.remove(&(&**device, &**fence)).expect("leaves what it entered");
                    let long = *time_ms - since_ms >= i64::from(options.dwell_ms);
                    assert_eq!(dwelled, long, "{device} left {fence} after {} ms", *time_ms - since_ms);
                }
            }
        }
    }

    #[test]
    fn the_same_options_give_the_same_stream_and_another_seed_another() {
        let options = FleetOptions::default();
        let first = take(options.clone(), 50_000);
        assert_eq!(first, take(options.clone(), 50_000));
        assert_ne!(first, take(FleetOptions { seed: 2, ..options }, 50_000));
    }

    #[test]
    fn a_default_run_is_natural_and_distinct_by_key() {
        let options = FleetOptions::default();
        let samples = take(options.clone(), 600_000);
        assert_natural(&options, &samples);
        let count = |state| samples.iter().filter(|sample| sample.2 == state).count();
        assert!(count(State::Enter) > 100_000 && count(State::Exit) > 100_000);
        assert!(count(State::Dwell) > 1_000, "{} dwells", count(State::Dwell));
        let devices: HashSet<_> = samples.iter().map(|sample| &sample.0).collect();
        assert_eq!(devices.len(), 5_000, "each device moves");
    }

    #[test]
    fn small_slow_fast_and_split_fleets_are_natural_too() {
        let base = FleetOptions { dwell_ms: 1_000, ..FleetOptions::default() };
        let runs = [
            FleetOptions { devices: 1, rate: 20, fences: 100, ..base.clone() },
            FleetOptions { devices: 1, rate: 1, fences: 100, ..base.clone() },
            FleetOptions { devices: 2, rate: 40, fences: 60_000, ..base.clone() },
            FleetOptions { devices: 100, rate: 2_000, fences: 100, start: UnixMs(999), ..base.clone() },
            FleetOptions { devices: 300, rate: 3, fences: 1_000, dwell_ms: 30_000, ..base.clone() },
            FleetOptions { repeat_ratio: 0.5, low_ratio: 0.5, high_ratio: 0.25, ..base.clone() },
            FleetOptions { repeat_ratio: 0.0, ..base.clone() },
            FleetOptions { index: 6, of: 7, ..base.clone() },
            FleetOptions { devices: 7, rate: 100, index: 6, of: 7, ..base },
        ];
        for (seed, run) in runs.into_iter().enumerate() {
            let run = FleetOptions { seed: seed as u64 * 77, ..run };
            assert_natural(&run, &take(run.clone(), 60_000));
        }
    }

    #[test]
    fn event_times_keep_the_pace() {
        for (devices, of, slack_ms) in [(5_000, 1, 0), (5_000, 4, 0), (2_500, 1, 2_000), (1, 1, 2_000)] {
            let rate = 50_000.min(devices * RATE_PER_DEVICE_MAX);
            let options = FleetOptions { devices, of, rate, repeat_ratio: 0.0, ..FleetOptions::default() };
            let mut fleet = Fleet::new(options.clone()).expect("options are in bounds");
            for sample in 0..200_000_i64 {
                let paced_ms = options.start.0 + sample * 1_000 * i64::from(of) / i64::from(options.rate);
                let time_ms = fleet.next().trigger.event_time_ms;
                // The events of one turn share the moment of the first.
                let turn_ms = 2 * INSIDE_MAX as i64 * 1_000 * i64::from(of) / i64::from(options.rate) + 1;
                let allowed = paced_ms - turn_ms..=paced_ms + slack_ms;
                assert!(allowed.contains(&time_ms), "sample {sample}: {time_ms} ms, expected {allowed:?}");
            }
        }
    }

    #[test]
    fn repeats_and_priorities_have_their_shares() {
        for ratio in [0.0, 0.05, 0.3, 0.5] {
            let options =
                FleetOptions { repeat_ratio: ratio, low_ratio: 0.2, high_ratio: 0.1, ..FleetOptions::default() };
            let samples = take(options, 200_000);
            let share = |count: usize| count as f64 / 200_000.0;
            let repeats = share(samples.iter().filter(|sample| sample.5).count());
            assert!((repeats - ratio).abs() < 0.01, "{repeats} repeats for {ratio}");
            let low = share(samples.iter().filter(|sample| sample.4 == Priority::Low).count());
            let high = share(samples.iter().filter(|sample| sample.4 == Priority::High).count());
            assert!((low - 0.2).abs() < 0.01 && (high - 0.1).abs() < 0.01, "{low} low, {high} high");
        }
    }

    #[test]
    fn a_few_fences_see_most_of_the_traffic() {
        let mut visits: HashMap<String, u32> = HashMap::new();
        for sample in take(FleetOptions::default(), 1_000_000) {
            *visits.entry(sample.1).or_default() += 1;
        }
        let mut visits: Vec<u32> = visits.into_values().collect();
        visits.sort_unstable_by(|a, b| b.cmp(a));
        let share = |fences: usize| f64::from(visits[..fences].iter().sum::<u32>()) / 1_000_000.0;
        assert!(share(400) > 0.4, "the busiest tenth of the fences has {:.3} of the traffic", share(400));
        assert!(share(40) > 0.08, "the busiest hundredth has {:.3}", share(40));
    }

    #[test]
    fn a_split_gives_each_device_to_one_part_and_the_same_part_again() {
        let options = FleetOptions { devices: 1_003, rate: 10_000, ..FleetOptions::default() };
        let mut owner: HashMap<String, u32> = HashMap::new();
        let parts = Fleet::split(&options, 4).expect("options are in bounds");
        assert_eq!(parts.iter().map(Fleet::devices).sum::<u32>(), 1_003);
        for (index, mut part) in (0..).zip(parts) {
            let mut alone = Fleet::new(FleetOptions { index, of: 4, ..options.clone() }).expect("in bounds");
            for _ in 0..20_000 {
                let sample = part.next();
                assert_eq!(sample.device % 4, index);
                let device = sample.trigger.device_id.to_owned();
                assert_eq!(owned(sample), owned(alone.next()), "a part made alone is the same part");
                assert_eq!(*owner.entry(device).or_insert(index), index);
            }
        }
        assert_eq!(owner.len(), 1_003);
    }

    #[test]
    fn ids_are_distinct_legal_and_as_nasty_as_real_ones() {
        let ids: HashSet<_> = (0..100_000).map(device_id).collect();
        assert_eq!(ids.len(), 100_000);
        assert!(ids.iter().all(|id| (1..=256).contains(&id.len())));
        let holding = |part: &str| ids.iter().filter(|id| id.contains(part)).count();
        for part in [":", "#", "\0", "%", "/", " ", "車", "б"] {
            assert!(holding(part) > 100, "{part:?} is in {} ids", holding(part));
        }
        let plane = Plane::new(1, 60_000);
        assert_eq!(plane.fence_ids.len(), 60_000);
        assert_eq!(plane.fence_ids.iter().collect::<HashSet<_>>().len(), 60_000);
        assert!(plane.fence_ids.iter().all(|id| id.contains(':') && id.len() <= 256));
    }

    #[test]
    fn each_option_is_refused_just_outside_its_bounds() {
        let good = FleetOptions::default();
        let verdict = |change: &dyn Fn(&mut FleetOptions)| {
            let mut options = good.clone();
            change(&mut options);
            options.check()
        };
        assert_eq!(verdict(&|o| o.devices = 0), Err(FleetError::Devices { got: 0 }));
        assert_eq!(verdict(&|o| (o.devices, o.rate) = (1, 20)), Ok(()));
        assert_eq!(verdict(&|o| o.devices = 4_000_000), Ok(()));
        assert_eq!(verdict(&|o| o.devices = 4_000_001), Err(FleetError::Devices { got: 4_000_001 }));
        assert_eq!(verdict(&|o| o.fences = 99), Err(FleetError::Fences { got: 99 }));
        assert_eq!(verdict(&|o| o.fences = 100), Ok(()));
        assert_eq!(verdict(&|o| o.fences = 60_000), Ok(()));
        assert_eq!(verdict(&|o| o.fences = 60_001), Err(FleetError::Fences { got: 60_001 }));
        assert_eq!(verdict(&|o| o.rate = 100_000), Ok(()));
        let too_fast = FleetError::Rate { got: 100_001, max: 100_000, devices: 5_000 };
        assert_eq!(verdict(&|o| o.rate = 100_001), Err(too_fast));
        assert!(verdict(&|o| o.rate = 0).is_err());
        assert!(verdict(&|o| o.dwell_ms = 999).is_err());
        assert_eq!(verdict(&|o| o.dwell_ms = 1_000), Ok(()));
        assert!(verdict(&|o| o.dwell_ms = 86_400_001).is_err());
        assert_eq!(verdict(&|o| o.repeat_ratio = 0.5), Ok(()));
        for wrong in [-0.01, 0.51, f64::NAN] {
            assert!(verdict(&|o| o.repeat_ratio = wrong).is_err());
        }
        assert_eq!(verdict(&|o| (o.low_ratio, o.high_ratio) = (0.5, 0.5)), Ok(()));
        assert!(verdict(&|o| (o.low_ratio, o.high_ratio) = (0.5, 0.6)).is_err());
        assert!(verdict(&|o| (o.index, o.of) = (4, 4)).is_err());
        assert_eq!(verdict(&|o| (o.index, o.of) = (3, 4)), Ok(()));
        assert!(verdict(&|o| (o.index, o.of) = (0, 5_001)).is_err());
        assert!(verdict(&|o| (o.index, o.of) = (0, 0)).is_err());
        assert!(verdict(&|o| o.start = UnixMs(0)).is_err());
        assert_eq!(verdict(&|o| o.start = UnixMs(1)), Ok(()));
        let short = verdict(&|o| (o.rate, o.dedup_ttl_ms) = (1, 1_999));
        assert_eq!(short, Err(FleetError::DedupTtl { got: 1_999, rate: 1, min: 2_000 }));
        assert_eq!(verdict(&|o| (o.rate, o.dedup_ttl_ms) = (1, 2_000)), Ok(()));
        let message = verdict(&|o| o.rate = 100_001).expect_err("too fast").to_string();
        assert!(message.contains("100001") && message.contains("1..=100000"), "{message}");
    }

    #[test]
    fn a_draw_follows_its_weights() {
        let alias = Alias::new(&[6.0, 3.0, 0.0, 1.0]);
        let mut random = Random::new(3);
        let mut seen = [0_u32; 4];
        for _ in 0..100_000 {
            seen[usize::from(alias.draw(&mut random))] += 1;
        }
        for (got, expected) in seen.into_iter().zip([60_000, 30_000, 0, 10_000]) {
            assert!(got.abs_diff(expected) < 1_000, "{seen:?}");
        }
        let mut random = Random::new(3);
        assert!((0..1_000).all(|_| Alias::new(&[1.0]).draw(&mut random) == 0));
    }

    #[test]
    fn the_memory_is_as_said() {
        let fleet = Fleet::new(FleetOptions::default()).expect("options are in bounds");
        let bytes = fleet.memory_bytes();
        assert!((500_000..2_500_000).contains(&bytes), "{bytes} bytes for 5,000 devices and 4,000 fences");
    }
}
