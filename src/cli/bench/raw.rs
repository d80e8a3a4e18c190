//! The client library alone, at its best: frames made once beforehand, handed over without a copy with their partition,
//! reports taken as events, all by one thread. No engine, no dedup, no ring: the floor that the router is held against.

use super::driver::Driver;
use super::load::Load;
use super::{CliError, Ground};
use crate::shard::settled::Outstanding;
use crate::sink::kafka::{self, HandleSettings, KafkaSink};
use crate::sink::{Busy, Outcome, Outgoing, Report, Sink};
use crate::slab::{Slab, SlabLimits, SlotId};
use crate::topology::affinity;
use crate::units::PartitionId;
use crate::wire;
use std::time::Duration;

/// Reports taken at once.
const REPORTS: usize = 8_192;
/// Between two takes of reports, in records.
const POLL_EVERY: u64 = 64;
const WARM_UP_LIMIT: Duration = Duration::from_secs(30);

/// librdkafka behind its handle.
pub(super) struct Raw {
    sink: KafkaSink,
    slab: Slab,
    /// One for each record that may be in flight; the n-th record is the frame n modulo their number.
    frames: Vec<Prepared>,
    /// By slot: the number of the record that is at the client.
    numbers: Vec<u64>,
    taken: u64,
    outstanding: Outstanding,
}

/// A frame and where it goes.
#[derive(Clone, Copy)]
struct Prepared {
    slot: SlotId,
    partition: PartitionId,
    key: (u16, u16),
}

impl Raw {
    /// Makes the frames and warms the handle as the router does.
    pub(super) fn start(ground: &Ground, load: &Load) -> Result<Raw, CliError> {
        let limits = ground.config.limits()?;
        let count = limits.inflight_per_shard * usize::from(limits.shards);
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
        let mut frames = Vec::with_capacity(count);
        for n in 0..count as u64 {
            let slot = load.encode(n, &mut slab).expect("the slab has a slot and room for each frame");
            let key = wire::device_id_range(slab.frame(slot));
            let partition = load.partition(n, ground.partitions);
            frames.push(Prepared { slot, partition, key: (key.start as u16, key.len() as u16) });
        }
        let window = (2 * count).next_power_of_two();
        Ok(Raw { sink, slab, frames, numbers: vec![0; count], taken: 0, outstanding: Outstanding::new(window) })
    }

    fn poll(&mut self) -> Result<(), CliError> {
        let Raw { sink, slab, numbers, outstanding, .. } = self;
        let mut failed = None;
        sink.collect(REPORTS, &mut |report: Report| {
            slab.take_back(report.slot);
            outstanding.settle(numbers[report.slot.0 as usize]);
            if let Outcome::Failed { fault, .. } = report.outcome {
                failed = Some(fault);
            }
        });
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
        let prepared = self.frames[(self.taken % self.frames.len() as u64) as usize];
        if self.slab.is_lent(prepared.slot) {
            self.poll()?;
            return Ok(false);
        }
        let frame = self.slab.lend(prepared.slot);
        let outgoing = Outgoing { partition: prepared.partition, frame, key: prepared.key, record_time: None };
        match self.sink.produce(outgoing) {
            Ok(()) => {
                self.taken += 1;
                self.numbers[prepared.slot.0 as usize] = self.taken;
                self.outstanding.open(self.taken);
                Ok(true)
            }
            Err(busy) => {
                self.slab.take_back(prepared.slot);
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
