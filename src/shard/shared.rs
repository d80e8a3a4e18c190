//! What a shard and the ingresses tell one another while running. Each word has one writer.

use crate::units::{PartitionId, Seq};
use crossbeam::utils::CachePadded;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::thread::Thread;

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
    blocked: Box<[AtomicBool]>,
    record_bytes_max: AtomicUsize,
}

impl Shared {
    /// Open, nothing blocked.
    #[must_use]
    pub fn new(partitions: u32) -> Shared {
        Shared {
            gate: AtomicU8::new(Gate::Open as u8),
            abort: AtomicBool::new(false),
            blocked: (0..partitions).map(|_| AtomicBool::new(false)).collect(),
            record_bytes_max: AtomicUsize::new(usize::MAX),
        }
    }

    /// Whether submits are answered. `Acquire`, partner: the `Release` in [`Shared::close`].
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

    /// Shards leave at their next turn. `Release`, partner: the `Acquire` in [`Shared::is_aborted`].
    pub fn abort(&self) {
        self.abort.store(true, Ordering::Release);
    }

    /// Whether shards leave with triggers in flight.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        self.abort.load(Ordering::Acquire)
    }

    /// Whether `submit` sheds what is for this partition. `Relaxed`: a submit may see it a moment late, which the slots
    /// in reserve (`inflight.waiting`) absorb; no other memory hangs on it.
    #[must_use]
    pub fn is_blocked(&self, partition: PartitionId) -> bool {
        self.blocked[partition.0 as usize].load(Ordering::Relaxed)
    }

    /// Said by the partition's shard alone. `Relaxed`, see [`Shared::is_blocked`].
    pub fn set_blocked(&self, partition: PartitionId, is_blocked: bool) {
        self.blocked[partition.0 as usize].store(is_blocked, Ordering::Relaxed);
    }

    /// How many partitions are blocked.
    #[must_use]
    pub fn blocked_count(&self) -> usize {
        self.blocked.iter().filter(|blocked| blocked.load(Ordering::Relaxed)).count()
    }

    /// The largest record the topic takes, in bytes. `Relaxed`: one number, checked again by the shard.
    #[must_use]
    pub fn record_bytes_max(&self) -> usize {
        self.record_bytes_max.load(Ordering::Relaxed)
    }

    /// Learnt from the topic. `Relaxed`, see [`Shared::record_bytes_max`].
    pub fn set_record_bytes_max(&self, bytes: usize) {
        self.record_bytes_max.store(bytes, Ordering::Relaxed);
    }
}

/// How far one ring is settled: written by its shard, read by its ingress.
#[derive(Default)]
pub struct Frontier(CachePadded<AtomicU64>);

impl Frontier {
    /// `Release`, partner: the `Acquire` in [`Frontier::get`]. What was pushed to the queue of failed triggers before
    /// is seen by whoever sees this frontier.
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
/// (`idle::PARK_MAX`), never a trigger; a full fence in each submit would cost more than all of its other work.
#[derive(Default)]
pub struct Waker {
    is_parked: CachePadded<AtomicBool>,
    thread: OnceLock<Thread>,
}

impl Waker {
    /// Said by the shard's thread once, before its first turn.
    pub fn bind(&self) {
        // A second shard thread on the same waker would be our mistake; the first one stays bound.
        let bound = self.thread.set(std::thread::current());
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
