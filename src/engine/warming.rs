//! The warm start: reads the tail of the topic and fills the dedup windows from it, before the first submit is taken; or,
//! where the broker is away at start, before the first trigger is sent.

use super::warm_start::{self, AlreadyThere, WarmLimits, WarmStart};
use crate::config::Limits;
use crate::hlc::Hlc;
use crate::shard::{InTopic, Warm};
use crate::sink::kafka::tail::{TailError, TailPart, TailPlan, read_tail};
use crate::state::{Offsets, PartitionOffsets};
use crate::topology::CpuSet;
use crate::units::{PartitionId, UnixMicros};
use crate::wire::Frame;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Ranges of numbers told apart: about 100 bytes each.
const RANGES: usize = 1 << 20;
/// How often progress is told while the topic is read.
const PROGRESS: Duration = Duration::from_secs(2);

/// What a start has to read, and for whom.
pub(super) struct Warming {
    /// The producer's properties.
    pub(super) properties: Vec<(String, String)>,
    /// The topic.
    pub(super) topic: String,
    /// The pinned partition count.
    pub(super) partitions: u32,
    /// The numbers.
    pub(super) limits: Limits,
    /// What the last run left.
    pub(super) known: Offsets,
    /// The highest stamp on disk.
    pub(super) highest_on_disk: Hlc,
    /// Where the client's threads shall run.
    pub(super) cpus: CpuSet,
}

/// What a warm start did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WarmReport {
    /// Records of the topic that were read.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Keys that the windows know from it.
    pub keys: u64,
    /// How long it took.
    pub took: Duration,
}

/// What was learnt.
pub(super) struct Warmed {
    /// One for each shard.
    pub(super) shards: Vec<Warm>,
    /// What it took.
    pub(super) report: WarmReport,
    /// Where the next start would begin, from what this one read.
    pub(super) offsets: Offsets,
    /// What a person should know.
    pub(super) warnings: Vec<String>,
}

impl Warming {
    /// Reads the tail of these partitions, each of which has a leader.
    pub(super) fn read(&self, partitions: &[u32], deadline: Instant) -> Result<Warmed, TailError> {
        let limits = &self.limits;
        let part = |partition: &u32| {
            let known = self.known.partitions[*partition as usize];
            TailPart { partition: PartitionId(*partition), from: known.from(), acked: known.acked() }
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let plan = TailPlan {
            properties: self.properties.clone(),
            topic: self.topic.clone(),
            partitions: partitions.iter().map(part).collect(),
            ttl: limits.dedup_ttl,
            accepted_of: warm_start::accepted_of,
            now: UnixMicros(since.as_micros() as i64),
            deadline,
            records_max_per_partition: limits.dedup_capacity_per_shard as u64,
            cpus: self.cpus.clone(),
        };
        let mut collected = WarmStart::new(WarmLimits {
            shards: limits.shards,
            partitions: self.partitions,
            keys_per_shard: limits.dedup_capacity_per_shard,
            key_bytes_per_shard: limits.dedup_arena_bytes_per_shard,
            ranges: RANGES,
        });
        let (mut records, mut told) = (0_u64, Instant::now());
        let read = read_tail(&plan, &mut |record| {
            collected.record(record.partition, record.value);
            records += 1;
            if records.is_multiple_of(4_096) && told.elapsed() >= PROGRESS {
                told = Instant::now();
                log::info!("the dedup window is filled from topic {}: {records} records read", self.topic);
            }
            true
        })?;
        let mut warm = collected.finish();
        let mut warnings = read.warnings;
        if warm.already.left_out() > 0 {
            warnings.push(format!(
                "{} records of the topic's tail were not remembered one by one: what of them lies on disk as well may be \
                 published again",
                warm.already.left_out()
            ));
        }
        let mut highest = warm.highest.max(self.highest_on_disk);
        // What a partition holds that could not be read is below the ceiling; what was read is known better than that.
        if read.partitions.len() < self.partitions as usize {
            highest = highest.max(self.known.ceiling);
        }
        let already = Arc::new(warm.already);
        let keys = warm.shards.iter().map(|keys| keys.len() as u64).sum();
        let shards = std::mem::take(&mut warm.shards).into_iter().map(|mut keys| Warm {
            keys: Box::new(move |each| keys.drain(&mut |key, _| each(key))),
            already: Some(Arc::clone(&already) as Arc<dyn InTopic>),
            highest,
            unread: Arc::default(),
        });
        let shards = shards.collect();
        let mut offsets = self.known.clone();
        for part in &read.partitions {
            offsets.partitions[part.partition.0 as usize] =
                PartitionOffsets { acked: part.upto.saturating_sub(1), from: part.from };
        }
        let report = WarmReport { records: read.records, bytes: read.bytes, keys, took: read.took };
        Ok(Warmed { shards, report, offsets, warnings })
    }
}

impl InTopic for AlreadyThere {
    fn holds(&self, partition: PartitionId, frame: &Frame<'_>) -> bool {
        self.contains(frame.router_id, frame.incarnation, partition, frame.partition_seq)
    }
}
