//! Limits: the numbers that the engine is built from, computed once from a checked [`Config`] and then frozen.
//! Whoever holds a [`Limits`] knows that every bound and every rule between the keys holds.

use super::rules::{ring_bytes, ring_triggers};
use super::{AgeLimit, Config, DivertPolicy, Idle, MemorySum, RouteSource};
use crate::spill::{MARKS_A_COMMIT, RECORD_BYTES, SEGMENT_BYTES_MAX, SpillLimits};
use crate::units::Nanos;
use std::ops::Deref;

/// Room for the greatest frame or ring record: two ids of 256 bytes, 1 KiB of attributes, and what goes around them.
pub const FRAME_BYTES_MAX: u64 = 2_048;
/// The fewest triggers a ring may have: below that its ratios mean nothing.
pub const RING_TRIGGERS_MIN: u64 = 64;
/// The smallest ring: the greatest record must leave it below `pause_ratio`.
pub const RING_BYTES_MIN: u64 = 4 * FRAME_BYTES_MAX;
/// The greatest arena or ring of one shard: what is inside is addressed with 32 bits.
pub const ARENA_BYTES_MAX: u64 = u32::MAX as u64;
/// A ring's bytes come in lines of this many.
pub const LINE_BYTES: usize = 64;

/// The most bytes of what goes with a spilled frame on disk.
pub const SPILL_META_BYTES_MAX: usize = 32;
/// The most bytes of the notes that go with a dead letter on disk.
pub const NOTES_BYTES_MAX: usize = 8_192;
/// What a record of the spill takes beside the frame: its header, what goes with the frame, and padding.
const RECORD_OVERHEAD: u64 = 80;
/// What a record takes beyond its bytes in a ring: a frame has fields that a ring's record has not.
const QUEUED_OVERHEAD: u64 = 152;
/// Segments that the dead letters' limit is cut into.
const DEAD_LETTER_SEGMENTS: u64 = 8;

// The rules between the keys multiply within these.
const _: () = assert!(usize::BITS == 64, "sizes are computed in 64 bits");

/// Estimates for [`Limits::memory`], until the parts give their own figures.
const DEDUP_ENTRY_BYTES: u64 = 48;
const SLOT_BYTES: u64 = 64;

/// The frozen numbers. They are read through `Deref` and cannot be changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits(Numbers);

/// What a [`Limits`] holds. Numbers "per shard" are each shard's own.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Numbers {
    /// Threads that own the partitions.
    pub shards: u16,
    /// Partitions that the config pins, if it does.
    pub partitions: Option<u32>,
    /// What a shard does when it has nothing to do.
    pub idle: Idle,
    /// Triggers that a shard takes from one ring in one turn.
    pub turn_batch: usize,

    /// Ingresses of the router; each has one ring a shard. One for a source with one reader.
    pub ingresses: usize,
    /// Triggers of one ring: `queue.capacity` split over the shards, rounded up.
    pub ring_triggers: usize,
    /// Lines of [`LINE_BYTES`] of one ring: the bytes for its triggers, rounded up.
    pub ring_lines: usize,
    /// From this share of a ring on: `SlowDown`.
    pub pause_ratio: f64,
    /// From this share on, low priority is shed.
    pub low_shed_ratio: f64,
    /// From this share on, normal priority is shed.
    pub shed_ratio: f64,
    /// Unsettled seqs of one ingress; a power of two.
    pub settle_window: usize,

    /// How long a key is remembered.
    pub dedup_ttl: Nanos,
    /// Keys remembered per shard: the capacity split over the shards, rounded up.
    pub dedup_capacity_per_shard: usize,
    /// Arena bytes for keys per shard.
    pub dedup_arena_bytes_per_shard: usize,

    /// Frames in flight of one partition.
    pub inflight_partition: usize,
    /// Frames in flight per shard: the total split over the shards, rounded down, so that the sum keeps to it.
    pub inflight_per_shard: usize,
    /// Frames that may wait per shard, rounded down.
    pub waiting_per_shard: usize,
    /// Frames in flight and waiting per shard.
    pub slots_per_shard: usize,
    /// Arena bytes for frames per shard.
    pub frame_arena_bytes_per_shard: usize,

    /// An ack after this is late.
    pub publish_timeout: Nanos,
    /// A partition without progress for this long is stalled.
    pub breaker_grace: Nanos,
    /// Failed outcomes in a row that stop a partition.
    pub breaker_failures: u32,
    /// How long a partition stays stopped before it is probed.
    pub breaker_reset: Nanos,
    /// What happens to a stalled partition's triggers.
    pub divert_policy: DivertPolicy,
    /// Bytes of the spill.
    pub spill_limit_bytes: u64,
    /// Bytes of the spill for one partition.
    pub spill_partition_bytes: u64,
    /// Bytes of a segment of the spill.
    pub spill_segment_bytes: u64,
    /// Bytes of the spill that are kept for everything accepted and unsettled.
    pub spill_reserve_bytes: u64,
    /// How long records of the spill gather before one fsync.
    pub spill_sync: Nanos,
    /// A dead letter that its topic has not taken after this goes to the disk.
    pub dead_letter_grace: Nanos,
    /// Bytes of the dead letters on the disk.
    pub dead_letter_limit_bytes: u64,
    /// Bytes of the longest dead letter's value.
    pub dead_letter_value_bytes: usize,
    /// Whether start reads the topic's newest records into the window.
    pub dedup_warm_start: bool,

    /// How far ahead an event may be, in milliseconds.
    pub future_limit_ms: i64,
    /// How old an event may be, in milliseconds; `None`: any age.
    pub past_limit_ms: Option<i64>,

    /// Whether start waits for the cluster.
    pub start_require_broker: bool,
    /// How long it waits.
    pub start_timeout: Nanos,
    /// How long a stop waits for what is in flight.
    pub shutdown_limit: Nanos,
}

impl Deref for Limits {
    type Target = Numbers;
    fn deref(&self) -> &Numbers {
        &self.0
    }
}

impl Numbers {
    /// Room on disk for everything that can be accepted and unsettled: every frame in flight and waiting, and every
    /// trigger in a ring once it is a frame.
    fn reserve_bytes(&self) -> u64 {
        let shards = u64::from(self.shards);
        let frames = self.frame_arena_bytes_per_shard as u64 + self.slots_per_shard as u64 * RECORD_OVERHEAD;
        let ring = (self.ring_lines * LINE_BYTES) as u64 + self.ring_triggers as u64 * QUEUED_OVERHEAD;
        shards * (frames + self.ingresses as u64 * ring)
    }
}

/// The default of `time.past_limit` for sources that speak of now.
pub const PAST_LIMIT_DEFAULT: std::time::Duration = std::time::Duration::from_secs(7 * 86_400);

fn to_ms(span: std::time::Duration) -> i64 {
    i64::try_from(span.as_millis()).expect("every span of the config is checked to be below ten years")
}

impl Limits {
    /// From a config whose every check has passed.
    pub(super) fn new(config: &Config) -> Limits {
        let shards = usize::from(config.engine.shards);
        let inflight_per_shard = config.inflight.total / shards;
        let waiting_per_shard = config.inflight.waiting / shards;
        let slots_per_shard = inflight_per_shard + waiting_per_shard;
        let dedup_capacity_per_shard = config.dedup.capacity.div_ceil(shards);
        let past_limit = config.time.past_limit.unwrap_or(match config.route.source {
            // What lies in a file may be old by right.
            Some(RouteSource::Stdin | RouteSource::File) => AgeLimit::Off,
            Some(RouteSource::Unix | RouteSource::Tcp) | None => AgeLimit::Span(PAST_LIMIT_DEFAULT),
        });
        let mut numbers = Numbers {
            shards: config.engine.shards,
            partitions: config.topic.partitions,
            idle: config.engine.idle,
            turn_batch: usize::from(config.engine.turn_batch),
            ingresses: match config.route.source {
                // One reader, one ingress: more would be memory that nobody uses.
                Some(RouteSource::Stdin | RouteSource::File) => 1,
                Some(RouteSource::Unix | RouteSource::Tcp) | None => config.queue.ingresses,
            },
            ring_triggers: ring_triggers(config),
            ring_lines: ring_bytes(config).div_ceil(LINE_BYTES),
            pause_ratio: config.queue.pause_ratio,
            low_shed_ratio: config.queue.low_shed_ratio,
            shed_ratio: config.queue.shed_ratio,
            settle_window: config.settle.window,
            dedup_ttl: config.dedup.ttl.into(),
            dedup_capacity_per_shard,
            dedup_arena_bytes_per_shard: dedup_capacity_per_shard * config.dedup.bytes_per_key,
            inflight_partition: config.inflight.partition,
            inflight_per_shard,
            waiting_per_shard,
            slots_per_shard,
            frame_arena_bytes_per_shard: slots_per_shard * config.inflight.bytes_per_frame,
            publish_timeout: config.publish.timeout.into(),
            breaker_grace: config.breaker.grace.into(),
            breaker_failures: config.breaker.failures,
            breaker_reset: config.breaker.reset.into(),
            divert_policy: config.divert_policy(),
            spill_limit_bytes: config.spill.limit,
            spill_partition_bytes: config.spill.partition_limit.unwrap_or(config.spill.limit / 4),
            spill_segment_bytes: config.spill.segment,
            spill_reserve_bytes: 0,
            spill_sync: config.spill.sync.into(),
            dead_letter_grace: config.dead_letter.grace.into(),
            dead_letter_limit_bytes: config.dead_letter.limit,
            // A malformed line of a source may be longer than any frame.
            dead_letter_value_bytes: config.route.line_bytes_max.max(FRAME_BYTES_MAX as usize),
            dedup_warm_start: config.dedup.warm_start,
            future_limit_ms: to_ms(config.time.future_limit),
            past_limit_ms: match past_limit {
                AgeLimit::Off => None,
                AgeLimit::Span(span) => Some(to_ms(span)),
            },
            start_require_broker: config.start.require_broker,
            start_timeout: config.start.timeout.into(),
            shutdown_limit: config.shutdown.limit.into(),
        };
        numbers.spill_reserve_bytes = numbers.reserve_bytes();
        Limits(numbers)
    }

    /// What the spill may take, of the disk and of memory, for a topic of so many partitions.
    #[must_use]
    pub fn spill(&self, partitions: u32) -> SpillLimits {
        SpillLimits {
            limit_bytes: self.spill_limit_bytes,
            reserve_bytes: self.spill_reserve_bytes,
            partition_bytes: self.spill_partition_bytes,
            segment_bytes: self.spill_segment_bytes,
            // With room beside the frame for notes as long as a dead letter's; the reserve counts on less.
            record_bytes: FRAME_BYTES_MAX as usize + NOTES_BYTES_MAX,
            ..SpillLimits::new(partitions)
        }
    }

    /// What the dead letters on the disk may take. They have no reserve: what does not fit is handed back as failed.
    #[must_use]
    pub fn dead_letters(&self, partitions: u32) -> SpillLimits {
        let record_bytes = (self.dead_letter_value_bytes + NOTES_BYTES_MAX).min(*RECORD_BYTES.end());
        SpillLimits {
            limit_bytes: self.dead_letter_limit_bytes,
            reserve_bytes: 0,
            partition_bytes: self.dead_letter_limit_bytes,
            segment_bytes: (self.dead_letter_limit_bytes / DEAD_LETTER_SEGMENTS).min(SEGMENT_BYTES_MAX),
            // A few of the longest at once, and many of the usual.
            batch_bytes: (4 * record_bytes).max(1 << 20),
            record_bytes,
            // They go back to their topic in order.
            marks: MARKS_A_COMMIT,
            ..SpillLimits::new(partitions)
        }
    }

    /// What will be allocated at start, estimated from the numbers alone, so that it can be said before there are
    /// parts. The engine's own sum has the parts' figures.
    #[must_use]
    pub fn memory(&self) -> MemorySum {
        let shards = u64::from(self.shards);
        let mut sum = MemorySum::new();
        let rings = self.ingresses as u64 * shards;
        sum.set("ingress rings", "ring", rings * (self.ring_lines * LINE_BYTES) as u64);
        // One bit a seq.
        sum.set("settle windows", "shard", rings * (self.settle_window as u64).div_ceil(8));
        sum.set("dedup table", "dedup", shards * self.dedup_capacity_per_shard as u64 * DEDUP_ENTRY_BYTES);
        sum.set("dedup keys", "dedup", shards * self.dedup_arena_bytes_per_shard as u64);
        sum.set("frame slots", "slab", shards * self.slots_per_shard as u64 * SLOT_BYTES);
        sum.set("frame bytes", "slab", shards * self.frame_arena_bytes_per_shard as u64);
        sum
    }
}
