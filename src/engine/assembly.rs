//! Assembly: rings, slabs, windows and shards put together, before any thread runs. The router starts threads on what
//! comes out; a test or a simulator turns the shards by hand.

use super::lane_letters::LaneLetters;
use super::report::Counts;
use crate::breaker::BreakerLimits;
use crate::clock::Clock;
use crate::config::{Limits, MemorySum};
use crate::dedup::WindowLimits;
use crate::divert::{CallerLine, DivertLimits, caller_ends, caller_pipe_bytes};
use crate::ingress::{Ingress, IngressPlan, Lane, Lanes};
use crate::metrics::{IngressPage, LetterPage, ShardPage, SpillPage};
use crate::ring::{RingGauge, RingLimits, ring};
use crate::shard::diversion::Diversion;
use crate::shard::flight::{Flight, Line};
use crate::shard::settled::Outstanding;
use crate::shard::shared::{Failed, FailedReason, Frontier, Shared, Waker};
use crate::shard::{FAILING, Policy, REPORTS_BYTES, Shard, ShardLimits, Source};
use crate::sink::Sink;
use crate::slab::{Arena, Slab, SlabLimits, SlotId};
use crate::sync::rtrb;
use crate::topology::fork;
use crate::trigger::Rules;
use crate::units::{PartitionId, ShardId};
use foldhash::fast::FixedState;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

/// Failed triggers that wait to be taken, per ring; more of them wait in their slots.
const FAILED_QUEUE: usize = 1_024;

/// Everything that is known before the first part is made.
#[derive(Clone, Debug)]
pub struct Blueprint {
    /// The numbers of the configuration.
    pub limits: Limits,
    /// The pinned partition count.
    pub partitions: u32,
    /// Who this router is.
    pub router_id: String,
    /// Which run of it.
    pub incarnation: u64,
    /// Whether a record carries the event's time.
    pub record_time_is_event: bool,
    /// What happens to the triggers of a partition that does not take them.
    pub policy: Policy,
    /// Whether there is a disk to spill to.
    pub has_disk: bool,
    /// Whether there is somewhere for dead letters.
    pub has_letters: bool,
    /// What the hash of keys is seeded with. `None`: by luck, so that nobody outside can choose ids whose hashes collide.
    pub hash_seed: Option<u64>,
}

/// The parts, made and connected.
pub struct Assembly<S: Sink, C: Clock> {
    /// One per shard, in order.
    pub shards: Vec<Shard<S, C>>,
    /// What outlives the shards.
    pub common: Common<C>,
    /// The dead letters of the ingresses, for the keeper: one line for each lane, if there are dead letters.
    pub callers: Vec<CallerLine>,
}

/// What the router, its ingresses and its readers share.
pub struct Common<C: Clock> {
    pub(crate) shared: Arc<Shared>,
    pub(crate) lanes: Lanes,
    pub(crate) plan: IngressPlan,
    pub(crate) clock: C,
    /// One per shard.
    pub shard_pages: Vec<Arc<ShardPage>>,
    /// One per ingress there may be.
    pub ingress_pages: Vec<Arc<IngressPage>>,
    /// One per ingress there may be, if there are dead letters.
    pub letter_pages: Vec<Arc<LetterPage>>,
    /// One per ring.
    pub gauges: Vec<RingGauge>,
    pub(crate) wakers: Vec<Arc<Waker>>,
    /// What the disk thread counts; `None`: there is no spill.
    pub spill_page: Option<Arc<SpillPage>>,
    /// What was allocated, line by line.
    pub memory: MemorySum,
}

impl Blueprint {
    /// The partitions a shard owns.
    #[must_use]
    pub fn partitions_of(&self, shard: ShardId) -> Vec<PartitionId> {
        (u32::from(shard.0)..self.partitions).step_by(self.limits.shards.into()).map(PartitionId).collect()
    }

    fn ring_limits(&self) -> RingLimits {
        RingLimits {
            triggers: self.limits.ring_triggers,
            lines: self.limits.ring_lines,
            pause_ratio: self.limits.pause_ratio,
            shed_low_ratio: self.limits.low_shed_ratio,
            shed_normal_ratio: self.limits.shed_ratio,
        }
    }

    fn shard_limits(&self, id: u16, hasher: FixedState) -> ShardLimits {
        let limits = &self.limits;
        ShardLimits {
            id: ShardId(id),
            shards: limits.shards,
            partitions: self.partitions,
            turn_batch: limits.turn_batch,
            inflight_partition: limits.inflight_partition as u32,
            inflight_total: limits.inflight_per_shard as u32,
            frame_bytes_each: limits.frame_arena_bytes_per_shard / limits.slots_per_shard,
            slab: SlabLimits {
                slots: limits.slots_per_shard,
                frame_bytes: limits.frame_arena_bytes_per_shard.max(SlabLimits::FRAME_BYTES_MIN),
            },
            dedup: WindowLimits {
                capacity: limits.dedup_capacity_per_shard,
                key_bytes: limits
                    .dedup_arena_bytes_per_shard
                    .max(WindowLimits::key_bytes_min(limits.slots_per_shard as u32)),
                tokens: limits.slots_per_shard as u32,
                ttl: limits.dedup_ttl,
            },
            settle_window: limits.settle_window,
            breaker: BreakerLimits {
                failures: limits.breaker_failures,
                grace: limits.breaker_grace,
                reset: limits.breaker_reset,
            },
            policy: self.policy,
            has_letters: self.has_letters,
            hasher,
            publish_timeout: limits.publish_timeout,
            record_time_is_event: self.record_time_is_event,
            router_id: self.router_id.clone().into_boxed_str(),
            incarnation: self.incarnation,
        }
    }

    /// What will be allocated, from the parts' own figures.
    #[must_use]
    pub fn memory(&self) -> MemorySum {
        let (limits, shard) = (&self.limits, self.shard_limits(0, FixedState::default()));
        let (shards, rings) = (u64::from(limits.shards), (limits.ingresses * usize::from(limits.shards)) as u64);
        let lines = self.partitions as usize * (size_of::<Line>() + size_of::<Diversion>());
        let mut sum = MemorySum::new();
        sum.set("ingress rings", "ring", rings * self.ring_limits().memory_bytes() as u64);
        sum.set("settle windows", "shard", rings * Outstanding::memory_bytes(limits.settle_window) as u64);
        sum.set("dedup window", "dedup", shards * shard.dedup.memory_bytes() as u64);
        sum.set("frames and slots", "slab", shards * Slab::memory_bytes(shard.slab) as u64);
        sum.set("flights", "shard", shards * (shard.slab.slots * (size_of::<Flight>() + size_of::<u64>())) as u64);
        sum.set("partition lines", "shard", lines as u64);
        let failed = FAILED_QUEUE * size_of::<Failed>() + FAILING * size_of::<(SlotId, FailedReason)>();
        sum.set("failed triggers, to be taken", "shard", rings * failed as u64);
        sum.set("reports of a turn", "shard", shards * REPORTS_BYTES as u64);
        let pages = shards * ShardPage::BYTES as u64 + limits.ingresses as u64 * IngressPage::BYTES as u64;
        sum.set("counters and histograms", "metrics", pages);
        if self.has_disk || self.has_letters {
            let pipes = DivertLimits::new(shard.slab.slots).memory_bytes();
            sum.set("pipes to the disk thread and back", "divert", shards * pipes as u64);
        }
        sum
    }
}

impl<S: Sink, C: Clock> Assembly<S, C> {
    /// Makes every part. `make_sink` gets a shard and the memory its frames will lie in.
    ///
    /// # Errors
    /// What `make_sink` says.
    ///
    /// # Panics
    /// If the blueprint contradicts itself, which `Config::limits` rules out.
    pub fn new<E>(
        blueprint: &Blueprint,
        clock: C,
        mut make_sink: impl FnMut(ShardId, Arc<Arena>) -> Result<S, E>,
    ) -> Result<Assembly<S, C>, E> {
        let limits = &blueprint.limits;
        let shared = Arc::new(Shared::new(blueprint.partitions, limits.shards));
        let luck = || RandomState::new().hash_one("fencepost");
        let hasher = FixedState::with_seed(blueprint.hash_seed.unwrap_or_else(luck));
        let wakers: Vec<Arc<Waker>> = (0..limits.shards).map(|_| Arc::new(Waker::default())).collect();
        let mut lanes: Vec<Lane> = (0..limits.ingresses).map(|_| Lane::empty(&wakers)).collect();
        let (mut shards, mut shard_pages, mut gauges) = (Vec::new(), Vec::new(), Vec::new());
        for id in 0..limits.shards {
            let mut sources = Vec::with_capacity(lanes.len());
            for lane in &mut lanes {
                let (writer, reader) = ring(blueprint.ring_limits());
                let (failed, taken_back) = rtrb::RingBuffer::new(FAILED_QUEUE);
                let frontier = Arc::new(Frontier::default());
                gauges.push(writer.gauge());
                lane.add_ring(writer, Arc::clone(&frontier), taken_back);
                sources.push(Source { reader, frontier, failed });
            }
            let shard_limits = blueprint.shard_limits(id, hasher.clone());
            let slab = Slab::new(shard_limits.slab);
            let sink = make_sink(ShardId(id), slab.arena())?;
            let page = Arc::new(ShardPage::default());
            shard_pages.push(Arc::clone(&page));
            shards.push(Shard::new(shard_limits, slab, sources, sink, clock.clone(), Arc::clone(&shared), page));
        }
        let (mut callers, mut letter_pages) = (Vec::new(), Vec::new());
        if blueprint.has_letters {
            for lane in &mut lanes {
                let page = Arc::new(LetterPage::default());
                callers.push(lane.add_letters(limits.dead_letter_value_bytes, Arc::clone(&page)));
                letter_pages.push(page);
            }
        }
        let plan = IngressPlan {
            partitions: blueprint.partitions,
            shards: limits.shards,
            rules: Rules { future_limit_ms: limits.future_limit_ms, past_limit_ms: limits.past_limit_ms },
            settle_window: limits.settle_window as u64,
            hasher,
            router_id: blueprint.router_id.as_str().into(),
            incarnation: blueprint.incarnation,
            generation: fork::generation(),
        };
        let common = Common {
            ingress_pages: lanes.iter().map(|lane| Arc::clone(&lane.page)).collect(),
            // Ingresses take lanes from the end: the first one gets the first.
            lanes: Arc::new(Mutex::new(lanes.into_iter().rev().collect())),
            shared,
            plan,
            clock,
            shard_pages,
            letter_pages,
            gauges,
            wakers,
            spill_page: None,
            memory: blueprint.memory(),
        };
        Ok(Assembly { shards, common, callers })
    }
}

impl<C: Clock> Common<C> {
    /// An ingress, while there are lanes left (`queue.ingresses`).
    #[must_use]
    pub fn ingress(&self) -> Option<Ingress<C>> {
        let lane = self.lanes.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        let (lanes, plan) = (Arc::clone(&self.lanes), self.plan.clone());
        Some(Ingress::new(lane, lanes, plan, Arc::clone(&self.shared), self.clock.clone()))
    }

    /// The counters now. Exact while no shard and no ingress is at work.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts::of(self)
    }

    /// What the router says to its shards, for a test or a simulator that stops them by hand.
    #[doc(hidden)]
    #[must_use]
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The largest record the topic takes, in bytes: what is larger is refused at submit, or by the shard if it was
    /// queued before. The router sets it from the topic.
    pub fn set_record_bytes_max(&self, bytes: usize) {
        self.shared.set_record_bytes_max(bytes);
    }
}

impl Lane {
    fn empty(wakers: &[Arc<Waker>]) -> Lane {
        Lane {
            writers: Vec::with_capacity(wakers.len()),
            frontiers: Vec::with_capacity(wakers.len()),
            failed: Vec::with_capacity(wakers.len()),
            wakers: wakers.to_vec(),
            last_pushed: Vec::with_capacity(wakers.len()),
            letters: None,
            seq: 0,
            page: Arc::new(IngressPage::default()),
        }
    }

    fn add_ring(&mut self, writer: crate::ring::RingWriter, frontier: Arc<Frontier>, failed: rtrb::Consumer<Failed>) {
        self.writers.push(writer);
        self.frontiers.push(frontier);
        self.failed.push(failed);
        self.last_pushed.push(0);
    }

    /// A way to the dead letters, which settle as those of a ring of their own.
    fn add_letters(&mut self, body_max: usize, page: Arc<LetterPage>) -> CallerLine {
        let (failed, taken_back) = rtrb::RingBuffer::new(FAILED_QUEUE);
        let frontier = Arc::new(Frontier::default());
        self.frontiers.push(Arc::clone(&frontier));
        self.failed.push(taken_back);
        self.last_pushed.push(0);
        let report = LaneLetters::new(failed, frontier, page);
        let (end, line) = caller_ends(caller_pipe_bytes(body_max), body_max, Box::new(report));
        self.letters = Some(end);
        line
    }
}
