//! Checks a topic record by record, without knowing what was accepted: repeats, clock stamps, the routers' own numbers,
//! keys and partitions. Loss shows as a hole in a router's numbers.
//!
//! Memory is bounded by the options: about 40 bytes for each key remembered, 150 and its id for each device, 60 for each hole.
//! What no longer fits is counted in the verdict, not passed over.

use super::frame::Frame;
use super::identity::{ByFingerprint, fingerprint};
use super::latency::Latency;
use super::murmur2;
use super::verdict::{Examples, Fault, Verdict};
use crate::units::UnixMicros;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// How to check a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// The topic's partitions, as the router has them pinned.
    pub partitions: u32,
    /// Whether reading begins where the routers began: their numbers then start at 1. Otherwise the first number of
    /// each counts as good.
    pub from_start: bool,
    /// How many of the latest keys are remembered, to know a repeat.
    pub keys_max: usize,
    /// How many devices (and salts), and how many chains of router, incarnation and partition, are followed.
    pub devices_max: usize,
    /// How many examples of each fault the verdict shows.
    pub examples_max: usize,
}

impl StreamOptions {
    /// For a topic of so many partitions: from anywhere, 2 million keys, 1 million devices, 5 examples of each fault.
    #[must_use]
    pub const fn new(partitions: u32) -> StreamOptions {
        StreamOptions { partitions, from_start: false, keys_max: 2_000_000, devices_max: 1_000_000, examples_max: 5 }
    }
}

/// A record of the topic, as a consumer got it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The partition it was read from.
    pub partition: u32,
    /// Its offset there. Offsets of a partition must come in order; one that comes again is passed over.
    pub offset: i64,
    /// The Kafka key; empty for none.
    pub key: &'a [u8],
    /// The Kafka value; empty for none.
    pub value: &'a [u8],
    /// When it arrived, if that is to be measured.
    pub received: Option<UnixMicros>,
    /// The number in its header `fencepost.replays`, 0 without one. From 1 on it came back from the dead letters and is
    /// outside the order.
    pub replays: u32,
}

impl<'a> Record<'a> {
    /// A record that was never replayed and whose arrival is not measured.
    #[must_use]
    pub const fn new(partition: u32, offset: i64, key: &'a [u8], value: &'a [u8]) -> Record<'a> {
        Record { partition, offset, key, value, received: None, replays: 0 }
    }
}

/// What a readable record is, for who wants to know more than the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether no record remembered has its idempotency key.
    pub first: bool,
    /// The number of its device (and salt), counted from 0 as they appear; `None` when there were too many.
    pub device: Option<u32>,
    pub(super) fingerprint: u64,
}

/// Where a record stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    pub(super) partition: u32,
    pub(super) offset: i64,
}

/// The latest of a device, from one router.
struct Latest {
    router: u32,
    hlc: u64,
    event_time_ms: i64,
    spot: Spot,
}

/// A router's numbers in one partition since one of its starts: (router, incarnation, partition).
type Chain = (u32, u64, u32);

struct Hole {
    chain: Chain,
    first: u64,
    last: u64,
    offset: i64,
}

/// Holes remembered one by one, so that they can be filled by what was set aside. Further ones are only counted.
const HOLES_MAX: usize = 65_536;

/// Checks records as they come. See the module.
pub struct Stream {
    options: StreamOptions,
    counts: Verdict,
    examples: Examples,
    latency: Latency,
    offsets: HashMap<u32, i64>,
    keys: ByFingerprint<Spot>,
    keys_by_age: VecDeque<u64>,
    /// Device id and salt (4 bytes) to number, and back.
    devices: HashMap<Arc<[u8]>, u32>,
    names: Vec<Arc<[u8]>>,
    latest: Vec<Vec<Latest>>,
    name: Vec<u8>,
    routers: HashMap<String, u32>,
    router_names: Vec<String>,
    chains: HashMap<Chain, u64>,
    holes: Vec<Hole>,
    /// Numbers that are known to be elsewhere.
    aside: BTreeSet<(Chain, u64)>,
    pub(super) aside_keys: ByFingerprint<()>,
}

impl Stream {
    /// A checker that has seen nothing.
    ///
    /// # Panics
    /// If the topic has no partitions.
    #[must_use]
    pub fn new(options: StreamOptions) -> Stream {
        assert!(options.partitions > 0, "a topic has at least one partition");
        Stream {
            examples: Examples::new(options.examples_max),
            options,
            counts: Verdict::default(),
            latency: Latency::new(),
            offsets: HashMap::new(),
            keys: ByFingerprint::default(),
            keys_by_age: VecDeque::new(),
            devices: HashMap::new(),
            names: Vec::new(),
            latest: Vec::new(),
            name: Vec::new(),
            routers: HashMap::new(),
            router_names: Vec::new(),
            chains: HashMap::new(),
            holes: Vec::new(),
            aside: BTreeSet::new(),
            aside_keys: ByFingerprint::default(),
        }
    }

    /// Takes the next record of a partition; partitions may come in any mixture. `None`: it is unreadable, or was read
    /// before.
    pub fn record(&mut self, record: &Record<'_>) -> Option<Finding> {
        let Record { partition, offset, key, value, .. } = *record;
        let latest_offset = self.offsets.entry(partition).or_insert(-1);
        if offset <= *latest_offset {
            self.counts.rereads += 1;
            return None;
        }
        *latest_offset = offset;
        self.counts.records += 1;
        let replayed = record.replays > 0;
        self.counts.replayed += u64::from(replayed);

        let home = murmur2::partition_of(key, self.options.partitions);
        if partition != home {
            self.counts.wrong_partition += 1;
            self.examples.add(Fault::WrongPartition, || {
                let key = String::from_utf8_lossy(key);
                format!("partition {partition} offset {offset}: the record of {key:?} belongs to partition {home}")
            });
        }
        let frame = match Frame::read(value) {
            Ok(frame) => frame,
            Err(error) => {
                self.counts.unreadable += 1;
                self.examples.add(Fault::Unreadable, || {
                    let key = String::from_utf8_lossy(key);
                    format!("partition {partition} offset {offset}: the value of {key:?} is no frame: {error}")
                });
                return None;
            }
        };
        if !is_key_of(key, &frame) {
            self.counts.key_mismatch += 1;
            self.examples.add(Fault::KeyMismatch, || {
                let (key, device, salt) = (String::from_utf8_lossy(key), frame.device_id, frame.salt);
                format!("partition {partition} offset {offset}: the key is {key:?}, the device {device:?}, salt {salt}")
            });
        }
        self.time(record, &frame);

        let spot = Spot { partition, offset };
        let fingerprint = fingerprint(frame.device_id, frame.fence_id, frame.state, frame.event_time_ms);
        let first = self.remember(fingerprint, spot, &frame);
        let router = self.router(frame.router_id);
        if replayed {
            self.aside.insert(((router, frame.incarnation, partition), frame.partition_seq));
        } else {
            self.follow_chain((router, frame.incarnation, partition), &frame, offset, first);
        }
        let device = self.device(&frame);
        if device.is_none() {
            self.counts.unchecked += 1;
        }
        if let Some(device) = device.filter(|_| first && !replayed) {
            self.follow_device(device, router, &frame, spot);
        }
        Some(Finding { first, device, fingerprint })
    }

    /// Says that this frame is in the dead letters or in the spill, so that neither its key nor its number is missing
    /// from `partition`. False: it is no frame, and nothing was noted.
    pub fn set_aside(&mut self, partition: u32, value: &[u8]) -> bool {
        let Ok(frame) = Frame::read(value) else { return false };
        let router = self.router(frame.router_id);
        self.aside.insert(((router, frame.incarnation, partition), frame.partition_seq));
        let fingerprint = fingerprint(frame.device_id, frame.fence_id, frame.state, frame.event_time_ms);
        self.aside_keys.insert(fingerprint, ());
        true
    }

    /// What was found so far.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let mut verdict = self.counts.clone();
        let mut examples = self.examples.clone();
        for hole in &self.holes {
            let (router, incarnation, partition) = hole.chain;
            let found = self.aside.range((hole.chain, hole.first)..=(hole.chain, hole.last)).count() as u64;
            // In a hole of 2^64 numbers the count of numbers is one too many to hold.
            let missing = (hole.last - hole.first).saturating_add(1) - found;
            if missing > 0 {
                verdict.seq_gaps += 1;
                verdict.seq_missing = verdict.seq_missing.saturating_add(missing);
                examples.add(Fault::SeqGap, || {
                    let Hole { first, last, offset, .. } = hole;
                    let router = &self.router_names[router as usize];
                    format!(
                        "partition {partition} offset {offset}: {missing} of the numbers {first} to {last} of router \
                         {router:?}, incarnation {incarnation}, are missing before it"
                    )
                });
            }
        }
        verdict.reordered = verdict.hlc_regressions;
        verdict.set_aside = self.aside_keys.keys().filter(|key| !self.keys.contains_key(key)).count() as u64;
        verdict.deliver_us_p50 = self.latency.percentile(50.0);
        verdict.deliver_us_p95 = self.latency.percentile(95.0);
        verdict.deliver_us_p99 = self.latency.percentile(99.0);
        verdict.deliver_us_max = self.latency.max();
        verdict.first_examples = examples.sentences();
        verdict
    }

    /// The counts as they stand, for a display that is drawn often: without the holes, quantiles and examples.
    #[must_use]
    pub const fn counts(&self) -> &Verdict {
        &self.counts
    }

    pub(super) const fn examples_mut(&mut self) -> &mut Examples {
        &mut self.examples
    }

    pub(super) fn holds(&self, fingerprint: u64) -> bool {
        self.keys.contains_key(&fingerprint)
    }

    pub(super) fn device_name(&self, number: u32) -> String {
        let name = &self.names[number as usize];
        String::from_utf8_lossy(&name[..name.len() - 4]).into_owned()
    }

    fn time(&mut self, record: &Record<'_>, frame: &Frame<'_>) {
        let Some(UnixMicros(received)) = record.received else { return };
        self.counts.timed += 1;
        if received < frame.accepted_unix_us {
            self.counts.arrived_before_accepted += 1;
        }
        let took = received.saturating_sub(frame.accepted_unix_us).max(0);
        self.latency.record(took.unsigned_abs());
    }

    /// Whether the key is new; remembers it.
    fn remember(&mut self, fingerprint: u64, spot: Spot, frame: &Frame<'_>) -> bool {
        if let Some(first) = self.keys.get(&fingerprint) {
            self.counts.repeated += 1;
            self.examples.add(Fault::Repeated, || {
                let Spot { partition, offset } = spot;
                let Frame { device_id, fence_id, state, event_time_ms, .. } = frame;
                format!(
                    "partition {partition} offset {offset}: device {device_id:?}, {} of {fence_id:?} in second {}, \
                     repeats partition {} offset {}",
                    state.name(),
                    event_time_ms.div_euclid(1_000),
                    first.partition,
                    first.offset
                )
            });
            return false;
        }
        self.counts.distinct += 1;
        if self.keys_by_age.len() >= self.options.keys_max {
            self.counts.keys_forgotten += 1;
            match self.keys_by_age.pop_front() {
                Some(oldest) => self.keys.remove(&oldest),
                None => return true,
            };
        }
        self.keys.insert(fingerprint, spot);
        self.keys_by_age.push_back(fingerprint);
        true
    }

    fn router(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.routers.get(name) {
            return number;
        }
        let number = self.router_names.len() as u32;
        self.router_names.push(name.to_owned());
        self.routers.insert(name.to_owned(), number);
        number
    }

    fn device(&mut self, frame: &Frame<'_>) -> Option<u32> {
        // Device and salt, not the Kafka key: a device may really be called `a#1`, and its records are not those of
        // device `a` with salt 1.
        self.name.clear();
        self.name.extend_from_slice(frame.device_id.as_bytes());
        self.name.extend_from_slice(&frame.salt.to_le_bytes());
        if let Some(&number) = self.devices.get(self.name.as_slice()) {
            return Some(number);
        }
        if self.names.len() >= self.options.devices_max {
            return None;
        }
        let number = u32::try_from(self.names.len()).ok()?;
        let name: Arc<[u8]> = self.name.as_slice().into();
        self.names.push(Arc::clone(&name));
        self.latest.push(Vec::new());
        self.devices.insert(name, number);
        Some(number)
    }

    fn follow_chain(&mut self, chain: Chain, frame: &Frame<'_>, offset: i64, first: bool) {
        let seq = frame.partition_seq;
        let full = self.chains.len() >= self.options.devices_max;
        let highest = match self.chains.get_mut(&chain) {
            Some(highest) => highest,
            None if full => {
                self.counts.unchecked += 1;
                return;
            }
            None => {
                let before = if self.options.from_start { 0 } else { seq.saturating_sub(1) };
                self.chains.entry(chain).or_insert(before)
            }
        };
        if seq > *highest {
            let hole = Hole { chain, first: *highest + 1, last: seq - 1, offset };
            *highest = seq;
            if hole.first <= hole.last {
                if self.holes.len() < HOLES_MAX {
                    self.holes.push(hole);
                } else {
                    self.counts.seq_gaps += 1;
                    self.counts.seq_missing = self.counts.seq_missing.saturating_add(hole.last - hole.first + 1);
                }
            }
        } else if first {
            // The same frame once more is a repeat and counted there; another frame must have another, higher number.
            let highest = *highest;
            self.counts.seq_gaps += 1;
            self.examples.add(Fault::SeqGap, || {
                let (partition, device) = (chain.2, frame.device_id);
                format!(
                    "partition {partition} offset {offset}: device {device:?} has number {seq} of router {:?}, \
                     incarnation {}, behind number {highest}",
                    frame.router_id, frame.incarnation
                )
            });
        }
    }

    fn follow_device(&mut self, device: u32, router: u32, frame: &Frame<'_>, spot: Spot) {
        let Frame { hlc, event_time_ms, .. } = *frame;
        let of_routers = &mut self.latest[device as usize];
        let Some(latest) = of_routers.iter_mut().find(|latest| latest.router == router) else {
            of_routers.push(Latest { router, hlc, event_time_ms, spot });
            return;
        };
        if hlc <= latest.hlc {
            self.counts.hlc_regressions += 1;
            let (before, earlier) = (latest.hlc, latest.spot);
            self.examples.add(Fault::HlcRegression, || {
                format!(
                    "partition {} offset {}: device {:?} has clock stamp {hlc:#x}, not above {before:#x} of partition \
                     {} offset {}",
                    spot.partition, spot.offset, frame.device_id, earlier.partition, earlier.offset
                )
            });
        } else {
            latest.hlc = hlc;
            latest.spot = spot;
        }
        if event_time_ms < latest.event_time_ms {
            self.counts.event_time_falls += 1;
        } else {
            latest.event_time_ms = event_time_ms;
        }
    }
}

fn is_key_of(key: &[u8], frame: &Frame<'_>) -> bool {
    if frame.salt == 0 {
        return key == frame.device_id.as_bytes();
    }
    key == format!("{}#{}", frame.device_id, frame.salt).as_bytes()
}
