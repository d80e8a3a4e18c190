//! The client alone with the very rows that `fencepost route` reads: their frames made beforehand, handed over without a copy
//! in their order, each to its device's partition, as many in flight as the router allows. No parser, no rules, no dedup: repeats
//! are sent too.

use super::Failed;
use fencepost::config::Config;
use fencepost::hlc::Hlc;
use fencepost::partition::partition_of;
use fencepost::sink::kafka::handle::News;
use fencepost::sink::kafka::{self, HandleSettings, KafkaSink};
use fencepost::sink::{Busy, Outcome, Outgoing};
use fencepost::slab::{Slab, SlabLimits, SlotId};
use fencepost::source::ndjson;
use fencepost::topology::affinity;
use fencepost::trigger::Priority;
use fencepost::units::{PartitionId, UnixMicros};
use fencepost::wire::{self, Frame};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Reports taken at once, and records handed over between two takes.
const REPORTS: usize = 8_192;
const POLL_EVERY: usize = 64;
/// Between two looks while nothing more may be in flight.
const REST: Duration = Duration::from_micros(200);
/// How long nothing may be acknowledged.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// More than a frame of two ids and no attributes has.
const FRAME_BYTES: usize = 256;

/// A frame in its slot, and where it goes.
struct Made {
    slot: SlotId,
    partition: PartitionId,
    key: (u16, u16),
}

/// Sends all rows and waits until they are acknowledged; answers how many there were.
///
/// # Errors
/// What the cluster says, or a record that was not acknowledged.
pub fn send(bootstrap: &str, topic: &str, partitions: u32, rows: &[u8]) -> Result<usize, Failed> {
    let mut config = Config::default();
    config.kafka.bootstrap = Some(bootstrap.into());
    config.topic.name = topic.into();
    let limits = config.limits()?;
    let most = limits.inflight_per_shard * usize::from(limits.shards);
    let (mut slab, made) = make(rows, partitions)?;
    let handle = HandleSettings {
        topic: topic.into(),
        properties: kafka::properties(&config.kafka_settings()?, partitions),
        cpus: affinity::allowed()?,
    };
    let mut sink = KafkaSink::new(handle, slab.arena())?;
    let all: Vec<PartitionId> = (0..partitions).map(PartitionId).collect();
    sink.warm_up(&all, Duration::from_secs(30))?;
    let mut handle = sink.into_handle();
    let (mut acked, mut failed, mut news, mut heard) = (0, None, VecDeque::<News>::new(), Instant::now());
    let mut sent = 0;
    while acked < made.len() {
        let before = acked;
        let mut each = |report: fencepost::sink::Report| match report.outcome {
            Outcome::Acked { .. } => acked += 1,
            Outcome::Failed { fault, .. } => failed = Some(fault),
        };
        handle.poll(REPORTS, &mut each, &mut |_, _| {}, &mut news);
        if let Some(fault) = failed {
            return Err(format!("a record failed: {fault:?}").into());
        }
        news.clear();
        if acked > before {
            heard = Instant::now();
        } else if heard.elapsed() > SILENCE_MAX {
            return Err(format!("{acked} of {} records are acknowledged, and no more come", made.len()).into());
        }
        let until = made.len().min(acked + most).min(sent + POLL_EVERY);
        if sent == until {
            std::thread::sleep(REST);
        }
        while sent < until {
            let Made { slot, partition, key } = made[sent];
            match handle.produce(&Outgoing { partition, frame: slab.lend(slot), key, record_time: None }) {
                Ok(()) => sent += 1,
                // Each frame is lent once, so what a full queue did not take would be lent twice.
                Err(Busy::QueueFull) => return Err("the client's queue is smaller than what may be in flight".into()),
                Err(busy) => return Err(format!("a record was refused: {busy:?}").into()),
            }
        }
    }
    Ok(made.len())
}

fn make(rows: &[u8], partitions: u32) -> Result<(Slab, Vec<Made>), Failed> {
    let lines = || rows.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let slots = lines().count();
    let mut slab = Slab::new(SlabLimits { slots, frame_bytes: slots * FRAME_BYTES + SlabLimits::FRAME_BYTES_MIN });
    let mut made = Vec::with_capacity(slots);
    for (nth, line) in lines().enumerate() {
        let mut line = line.to_vec();
        let trigger = ndjson::parse(&mut line)?;
        let frame = Frame {
            device_id: trigger.device_id.as_bytes(),
            fence_id: trigger.fence_id.as_bytes(),
            state: trigger.state,
            event_time_ms: trigger.event_time_ms,
            hlc: Hlc::new(trigger.event_time_ms as u64, nth as u16),
            accepted: UnixMicros(trigger.event_time_ms * 1_000),
            priority: Priority::Normal,
            attributes: b"",
            router_id: b"raw",
            incarnation: 1,
            partition_seq: nth as u64 + 1,
            salt: 0,
        };
        let slot = slab.take(wire::encoded_len(&frame)).ok_or("the slab has room for frames of 256 bytes")?;
        wire::encode(&frame, slab.frame_mut(slot));
        let key = wire::device_id_range(slab.frame(slot));
        let partition = partition_of(trigger.device_id.as_bytes(), partitions);
        made.push(Made { slot, partition, key: (key.start as u16, key.len() as u16) });
    }
    Ok((slab, made))
}
