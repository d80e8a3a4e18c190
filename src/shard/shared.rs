//! What a shard and the ingresses tell one another while running. Each word has one writer.

use super::{Fences, Warm};
use crate::divert::Level;
use crate::hlc::Hlc;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use crate::sync::thread::{self, Thread};
use crate::trigger::Priority;
use crate::units::{PartitionId, Seq, ShardId};
use crossbeam::utils::CachePadded;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, PoisonError};

/// Why a trigger that nothing durable would take was handed back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FailedReason {
    /// The record is larger than the topic allows.
    #[error("record of {size} bytes, the topic allows {limit} (max.message.bytes): shorten the attributes or raise it")]
    TooLarge {
        /// The record with its overhead, in bytes.
        size: u32,
        /// The topic's limit, in bytes.
        limit: u32,
    },
    /// The broker refused this very record. The number is the client library's error code.
    #[error("the broker refused the record for itself, error code {code}")]
    Refused {
        /// librdkafka's error code; positive ones are the Kafka protocol's.
        code: i32,
    },
    /// Its batch was refused, and a later trigger of the device had been handed over: sending it now would reorder.
    #[error("its batch was refused and a later trigger of its device is already on the way: sending it would reorder")]
    WouldReorder,
    /// Its partition does not take anything, and the policy is `dead-letter`.
    #[error("its partition was away (divert.policy = \"dead-letter\")")]
    Diverted,
    /// Its fence is not in the list of `validate.fences`.
    #[error("its fence is not in the list of known ones (validate.fences)")]
    UnknownFence,
    /// A record on disk that this version cannot read.
    #[error("a record on disk holds no frame of this version")]
    Unreadable,
    /// The caller wanted it there ([`crate::Ingress::dead_letter`]).
    #[error("its caller gave it to the dead letters")]
    ByCaller,
}

impl FailedReason {
    /// As one number, for a flight that is on its way to the dead letters.
    pub(super) fn pack(self) -> u64 {
        let (kind, first, second) = match self {
            FailedReason::TooLarge { size, limit } => (0, size & 0x3fff_ffff, limit & 0x3fff_ffff),
            FailedReason::Refused { code } => (1, 0, code.cast_unsigned()),
            FailedReason::WouldReorder => (2, 0, 0),
            FailedReason::Diverted => (3, 0, 0),
            FailedReason::UnknownFence => (4, 0, 0),
            FailedReason::Unreadable => (5, 0, 0),
            FailedReason::ByCaller => (6, 0, 0),
        };
        // Three bits of kind, 29 of size, 32 of the rest: a record is below 512 MiB.
        kind << 61 | u64::from(first & 0x1fff_ffff) << 32 | u64::from(second)
    }

    /// The reverse of [`FailedReason::pack`].
    pub(super) fn unpack(packed: u64) -> FailedReason {
        let (size, rest) = ((packed >> 32) as u32 & 0x1fff_ffff, packed as u32);
        match packed >> 61 {
            0 => FailedReason::TooLarge { size, limit: rest },
            1 => FailedReason::Refused { code: rest.cast_signed() },
            2 => FailedReason::WouldReorder,
            3 => FailedReason::Diverted,
            4 => FailedReason::UnknownFence,
            5 => FailedReason::Unreadable,
            _ => FailedReason::ByCaller,
        }
    }
}

/// What is shed of one partition's triggers, and why: one byte for `submit` to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shedding(u8);

impl Shedding {
    /// Nothing is shed.
    pub const NOTHING: Shedding = Shedding(0);
    /// Everything is: its window is full or its breaker open.
    pub const ALL: Shedding = Shedding(Level::Nothing as u8);
    const FOR_SPACE: u8 = 0x10;

    /// What the disk has no room for.
    #[must_use]
    pub fn for_space(level: Level) -> Shedding {
        if level == Level::All { Shedding::NOTHING } else { Shedding(level as u8 | Shedding::FOR_SPACE) }
    }

    /// Whether a trigger of this priority is shed.
    #[must_use]
    pub fn sheds(self, priority: Priority) -> bool {
        let level = Level::of(self.0 & !Shedding::FOR_SPACE);
        match priority {
            Priority::Low => level >= Level::NoLow,
            Priority::Normal => level >= Level::OnlyHigh,
            Priority::High => level >= Level::Nothing,
        }
    }

    /// Whether it is for want of space on the disk.
    #[must_use]
    pub fn is_for_space(self) -> bool {
        self.0 & Shedding::FOR_SPACE != 0
    }

    /// Whether anything is shed.
    #[must_use]
    pub fn is_any(self) -> bool {
        self.0 != 0
    }
}

/// A trigger that is given back to the ingress it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Its place in the ingress.
    pub seq: Seq,
    /// Why nothing took it.
    pub reason: FailedReason,
}

/// Whether submits are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Gate {
    /// Yes.
    Open = 0,
    /// The router is stopping.
    Stopping = 1,
    /// A thread of the router panicked.
    Broken = 2,
}

/// The router's word to its ingresses and shards.
pub struct Shared {
    gate: AtomicU8,
    /// Shards leave once this is set, even with triggers in flight.
    abort: AtomicBool,
    /// Shards write to the disk what is not settled, and leave.
    spill_rest: AtomicBool,
    blocked: Box<[AtomicU8]>,
    /// By partition: the highest acknowledged offset; −1: none.
    acked: Box<[AtomicI64]>,
    /// By shard: the last stamp of its clock; each has a cache line, since each turn writes its own.
    stamps: Box<[CachePadded<AtomicU64>]>,
    record_bytes_max: AtomicUsize,
    /// Rises with each list of fences.
    fences_version: AtomicU64,
    fences: Mutex<Option<Arc<dyn Fences>>>,
}

impl Shared {
    /// Open, nothing blocked.
    #[must_use]
    pub fn new(partitions: u32, shards: u16) -> Shared {
        Shared {
            gate: AtomicU8::new(Gate::Open as u8),
            abort: AtomicBool::new(false),
            spill_rest: AtomicBool::new(false),
            blocked: (0..partitions).map(|_| AtomicU8::new(0)).collect(),
            acked: (0..partitions).map(|_| AtomicI64::new(-1)).collect(),
            stamps: (0..shards).map(|_| CachePadded::default()).collect(),
            record_bytes_max: AtomicUsize::new(usize::MAX),
            fences_version: AtomicU64::new(0),
            fences: Mutex::new(None),
        }
    }

    /// Whether submits are answered. `Acquire`, partner: the `Release` in [`Shared::close`]. No other memory is read on its
    /// word, so `Relaxed` would do as well (tests/loom, stop and shared); where a submit pays for it, the load is the same.
    #[must_use]
    pub fn gate(&self) -> Gate {
        match self.gate.load(Ordering::Acquire) {
            0 => Gate::Open,
            1 => Gate::Stopping,
            _ => Gate::Broken,
        }
    }

    /// Closes the gate; a broken one stays broken.
    pub fn close(&self, gate: Gate) {
        // Release, partner: the Acquire in `gate`.
        self.gate.fetch_max(gate as u8, Ordering::Release);
    }

    /// Shards leave at their next turn. `Release`, partner: the `Acquire` in [`Shared::is_aborted`]. As with the gate,
    /// `Relaxed` would do.
    pub fn abort(&self) {
        self.abort.store(true, Ordering::Release);
    }

    /// Whether shards leave with triggers in flight.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        self.abort.load(Ordering::Acquire)
    }

    /// The time to deliver is over: shards spill what is left. `Release`, partner: the `Acquire` in
    /// [`Shared::is_spilling_rest`].
    pub fn spill_rest(&self) {
        self.spill_rest.store(true, Ordering::Release);
    }

    /// Whether shards spill what is left.
    #[must_use]
    pub fn is_spilling_rest(&self) -> bool {
        self.spill_rest.load(Ordering::Acquire)
    }

    /// What `submit` sheds of what is for this partition. `Relaxed`: a submit may see it a moment late, which the slots
    /// in reserve (`inflight.waiting`) absorb; no other memory hangs on it.
    #[must_use]
    pub fn shedding(&self, partition: PartitionId) -> Shedding {
        Shedding(self.blocked[partition.0 as usize].load(Ordering::Relaxed))
    }

    /// Said by the partition's shard alone. `Relaxed`, see [`Shared::shedding`].
    pub fn set_shedding(&self, partition: PartitionId, shedding: Shedding) {
        self.blocked[partition.0 as usize].store(shedding.0, Ordering::Relaxed);
    }

    /// For how many partitions something is shed.
    #[must_use]
    pub fn blocked_count(&self) -> usize {
        self.blocked.iter().filter(|blocked| blocked.load(Ordering::Relaxed) != 0).count()
    }

    /// The highest acknowledged offset of a partition. `Relaxed`: it is kept for a later start, which begins to read a
    /// dedup ttl before it.
    #[must_use]
    pub fn acked(&self, partition: PartitionId) -> Option<i64> {
        Some(self.acked[partition.0 as usize].load(Ordering::Relaxed)).filter(|offset| *offset >= 0)
    }

    /// Said by the partition's shard alone. `Relaxed`, see [`Shared::acked`].
    pub fn set_acked(&self, partition: PartitionId, offset: i64) {
        self.acked[partition.0 as usize].store(offset, Ordering::Relaxed);
    }

    /// The highest stamp that a shard's clock gave out, or was set above at the start; [`Hlc::ZERO`]: there is none yet.
    /// `Relaxed`: it is read for the stamp ceiling, whose margin is made for its being late; no other memory hangs on it.
    #[must_use]
    pub fn highest_stamp(&self) -> Hlc {
        Hlc(self.stamps.iter().map(|stamp| stamp.load(Ordering::Relaxed)).max().unwrap_or(0))
    }

    /// Said by that shard alone, each turn. `Relaxed`, see [`Shared::highest_stamp`].
    pub fn set_stamp(&self, shard: ShardId, stamp: Hlc) {
        self.stamps[usize::from(shard.0)].store(stamp.0, Ordering::Relaxed);
    }

    /// The largest record the topic takes, in bytes. `Relaxed`: one number, checked again by the shard.
    #[must_use]
    pub fn record_bytes_max(&self) -> usize {
        self.record_bytes_max.load(Ordering::Relaxed)
    }

    /// Replaces the list of known fences; the shards take it over within 5 ms. `None`: every fence is known.
    pub fn set_fences(&self, fences: Option<Arc<dyn Fences>>) {
        let mut place = self.fences.lock().unwrap_or_else(PoisonError::into_inner);
        *place = fences;
        // Release, partner: the Acquire in `fences_since`; the list itself is behind the lock. It is raised, and read again,
        // inside it: after it, a shard could keep the old list under the new version (tests/loom, shared). So it is the
        // lock that orders, and Relaxed would do.
        self.fences_version.fetch_add(1, Ordering::Release);
    }

    /// The list, if it is another one than that of `version`, and its own version. Costs one load if it is not.
    pub fn fences_since(&self, version: u64) -> Option<(Option<Arc<dyn Fences>>, u64)> {
        if self.fences_version.load(Ordering::Acquire) == version {
            return None;
        }
        let place = self.fences.lock().unwrap_or_else(PoisonError::into_inner);
        Some((place.clone(), self.fences_version.load(Ordering::Acquire)))
    }

    /// Learnt from the topic. `Relaxed`, see [`Shared::record_bytes_max`].
    pub fn set_record_bytes_max(&self, bytes: usize) {
        self.record_bytes_max.store(bytes, Ordering::Relaxed);
    }
}

/// Where a shard that started cold, or without some partition's leader, finds what was learnt of the topic since.
#[derive(Default)]
pub struct WarmBox {
    /// How much is there.
    count: AtomicUsize,
    content: Mutex<VecDeque<Warm>>,
}

impl WarmBox {
    /// Said by whoever reads the topic, each time it has read some of it.
    pub fn put(&self, warm: Warm) {
        let mut content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        content.push_back(warm);
        // Release, partner: the Acquire in `take`. Who reads it goes through the lock, which is enough (tests/loom, shared).
        self.count.store(content.len(), Ordering::Release);
    }

    /// The oldest of what is there. Costs one load while there is nothing.
    pub fn take(&self) -> Option<Warm> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        let warm = content.pop_front();
        self.count.store(content.len(), Ordering::Release);
        warm
    }
}

/// How far one ring is settled: written by its shard, read by its ingress.
#[derive(Default)]
pub struct Frontier(CachePadded<AtomicU64>);

impl Frontier {
    /// `Release`, partner: the `Acquire` in [`Frontier::get`]. What was pushed to the queue of failed triggers before
    /// is seen by whoever sees this frontier. Weaker, and the watermark passes what nobody took (tests/loom, settle).
    pub fn set(&self, seq: u64) {
        self.0.store(seq, Ordering::Release);
    }

    /// `Acquire`, partner: the `Release` in [`Frontier::set`].
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// Wakes a shard that is parked.
///
/// Orderings: `Relaxed` throughout. A submit that does not see the flag in time costs one bounded sleep
/// (`idle::PARK_MAX`), never a trigger (tests/loom, wake: without that limit it would be lost); a full fence in each submit would cost more than all of its other work.
#[derive(Default)]
pub struct Waker {
    is_parked: CachePadded<AtomicBool>,
    thread: OnceLock<Thread>,
}

impl Waker {
    /// Said by the shard's thread once, before its first turn.
    pub fn bind(&self) {
        // A second shard thread on the same waker would be our mistake; the first one stays bound.
        let bound = self.thread.set(thread::current());
        assert!(bound.is_ok(), "a shard runs on one thread");
    }

    /// Said by the shard around its sleep.
    pub fn set_parked(&self, is_parked: bool) {
        self.is_parked.store(is_parked, Ordering::Relaxed);
    }

    /// Wakes the shard if it sleeps.
    pub fn wake(&self) {
        if self.is_parked.load(Ordering::Relaxed) {
            self.is_parked.store(false, Ordering::Relaxed);
            if let Some(thread) = self.thread.get() {
                thread.unpark();
            }
        }
    }
}
