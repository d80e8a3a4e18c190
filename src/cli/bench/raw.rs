//! The client library alone: frames made once beforehand, handed over without a copy with their partition, reports taken as
//! events, all by one thread. No engine, no dedup, no ring, and nothing that holds a frame back: the floor that the router
//! is held against. Which partition comes next is the load's choice while it has a frame that is not at the client, and
//! any other's otherwise, as long as there is room for one more in all.

use super::driver::Driver;
use super::load::{DEVICES, Load};
use super::{CliError, Ground};
use crate::shard::settled::Outstanding;
use crate::sink::kafka::{self, HandleSettings, KafkaSink, handle::Handle, handle::News};
use crate::sink::{Busy, Outcome, Outgoing, Report};
use crate::slab::{Slab, SlabLimits, SlotId};
use crate::topology::affinity;
use crate::units::PartitionId;
use crate::wire;
use std::collections::VecDeque;
use std::time::Duration;

/// Reports taken at once.
const REPORTS: usize = 8_192;
/// Between two takes of reports, in records.
const POLL_EVERY: u64 = 64;
const WARM_UP_LIMIT: Duration = Duration::from_secs(30);

/// librdkafka behind its handle.
pub(super) struct Raw {
    handle: Handle,
    /// What it says besides reports.
    news: VecDeque<News>,
    slab: Slab,
    /// The frames of each partition that are not at the client. The one that came back last goes out next: it is still in
    /// the caches.
    idle: Vec<Vec<SlotId>>,
    /// Where each device of the load goes, so that no hash is computed while the clock runs.
    partitions: Vec<PartitionId>,
    /// By slot: the frame's key and, while it is at the client, the number of its record.
    frames: Vec<Prepared>,
    taken: u64,
    in_flight: usize,
    in_flight_max: usize,
    outstanding: Outstanding,
}

/// A frame, and the record that it is just now.
#[derive(Clone, Copy)]
struct Prepared {
    partition: PartitionId,
    key: (u16, u16),
    number: u64,
}

impl Raw {
    /// Makes the frames and warms the handle as the router does. As many may be in flight as the router would allow, in
    /// all and for each partition.
    pub(super) fn start(ground: &Ground, load: &Load) -> Result<Raw, CliError> {
        let limits = ground.config.limits()?;
        let in_flight_max = limits.inflight_per_shard * usize::from(limits.shards);
        let each = limits.inflight_partition.min(in_flight_max);
        let count = each * ground.partitions as usize;
        let mut slab = Slab::new(SlabLimits { slots: count, frame_bytes: count * 256 });
        let cpus =
            affinity::allowed().map_err(|error| CliError::Unavailable(format!("asking for the CPUs: {error}")))?;
        let handle = HandleSettings {
            topic: ground.config.topic.name.clone(),
            properties: kafka::properties(&ground.settings, ground.partitions),
            cpus,
        };
        let unavailable = |error: String| CliError::Unavailable(error);
        let mut sink = KafkaSink::new(handle, slab.arena()).map_err(|error| unavailable(error.to_string()))?;
        let all: Vec<PartitionId> = (0..ground.partitions).map(PartitionId).collect();
        sink.warm_up(&all, WARM_UP_LIMIT).map_err(|error| unavailable(error.to_string()))?;
        let mut idle: Vec<Vec<SlotId>> = all.iter().map(|_| Vec::with_capacity(each)).collect();
        let mut frames = vec![Prepared { partition: PartitionId(0), key: (0, 0), number: 0 }; count];
        // Devices are spread over the partitions by luck: some fill theirs before others.
        let (mut n, mut made) = (0, 0);
        while made < count {
            let partition = load.partition(n, ground.partitions);
            let place = &mut idle[partition.0 as usize];
            if place.len() < each {
                let slot = load.encode(n, &mut slab).expect("the slab has a slot and room for each frame");
                let key = wire::device_id_range(slab.frame(slot));
                let key = (key.start as u16, key.len() as u16);
                frames[slot.0 as usize] = Prepared { partition, key, number: 0 };
                place.push(slot);
                made += 1;
            }
            n += 1;
        }
        let partitions = (0..DEVICES).map(|n| load.partition(n, ground.partitions)).collect();
        let outstanding = Outstanding::new((4 * count).next_power_of_two());
        let (handle, news) = (sink.into_handle(), VecDeque::new());
        Ok(Raw { handle, news, slab, idle, partitions, frames, taken: 0, in_flight: 0, in_flight_max, outstanding })
    }

    fn poll(&mut self) -> Result<(), CliError> {
        let Raw { handle, news, slab, idle, frames, outstanding, in_flight, .. } = self;
        let mut failed = None;
        let mut each = |report: Report| {
            let prepared = &frames[report.slot.0 as usize];
            slab.take_back(report.slot);
            idle[prepared.partition.0 as usize].push(report.slot);
            outstanding.settle(prepared.number);
            *in_flight -= 1;
            if let Outcome::Failed { fault, .. } = report.outcome {
                failed = Some(fault);
            }
        };
        handle.poll(REPORTS, &mut each, &mut |_, _| {}, news);
        for said in news.drain(..) {
            if let News::Error { text, .. } = said {
                tell!("  raw: the client says: {text}");
            }
        }
        match failed {
            Some(fault) => Err(CliError::Unavailable(format!("a record failed: {fault:?}"))),
            None => Ok(()),
        }
    }
}

impl Driver for Raw {
    fn name(&self) -> &'static str {
        "raw"
    }

    fn offer(&mut self) -> Result<bool, CliError> {
        if self.taken.is_multiple_of(POLL_EVERY) {
            self.poll()?;
        }
        let wanted = self.partitions[(self.taken % DEVICES) as usize].0 as usize;
        let has_room = self.in_flight < self.in_flight_max;
        let others = (0..self.idle.len()).filter(|partition| *partition != wanted);
        let place = std::iter::once(wanted).chain(others).find(|partition| !self.idle[*partition].is_empty());
        let Some(place) = place.filter(|_| has_room) else {
            self.poll()?;
            return Ok(false);
        };
        let idle = &mut self.idle[place];
        let (partition, slot) = (PartitionId(place as u32), *idle.last().expect("it was just looked at"));
        let prepared = &mut self.frames[slot.0 as usize];
        let frame = self.slab.lend(slot);
        let outgoing = Outgoing { partition, frame, key: prepared.key, record_time: None };
        match self.handle.produce(&outgoing) {
            Ok(()) => {
                idle.pop();
                self.taken += 1;
                self.in_flight += 1;
                prepared.number = self.taken;
                self.outstanding.open(self.taken);
                Ok(true)
            }
            Err(busy) => {
                self.slab.take_back(slot);
                match busy {
                    Busy::QueueFull | Busy::NotReady => Ok(false),
                    Busy::Fault(fault) => Err(CliError::Unavailable(format!("the client refused a record: {fault:?}"))),
                }
            }
        }
    }

    fn acknowledged(&mut self) -> Result<u64, CliError> {
        self.poll()?;
        Ok(self.outstanding.frontier())
    }

    fn taken(&self) -> u64 {
        self.taken
    }
}
