//! A shard: one thread, and all state of the devices whose partitions it owns. Nothing here is shared or locked; what
//! leaves is a page of counters, a frontier per ring and a flag per partition.
//!
//! `turn` is the loop body, the one place where the rooms meet. `Core` is what it works on.

pub mod flight;
pub mod idle;
mod outcome;
pub mod settled;
pub mod shared;
mod turn;

pub use turn::{REPORTS_BYTES, Turn};

use crate::breaker::BreakerLimits;
use crate::clock::Clock;
use crate::dedup::{Window, WindowLimits};
use crate::hlc::HlcClock;
use crate::metrics::{ShardPage, Streak};
use crate::ring::RingReader;
use crate::sink::{Report, Sink};
use crate::slab::{Slab, SlabLimits, SlotId};
use crate::units::{Nanos, PartitionId, ShardId};
use flight::{Flight, Line};
use settled::Outstanding;
use shared::{Failed, FailedReason, Frontier, Shared};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// How large one shard is, and what it does when.
#[derive(Clone, Debug)]
pub struct ShardLimits {
    /// Which one.
    pub id: ShardId,
    /// How many there are.
    pub shards: u16,
    /// The pinned partition count of the topic.
    pub partitions: u32,
    /// Triggers taken from one ring in a turn.
    pub turn_batch: usize,
    /// Triggers of one partition handed over and not reported.
    pub inflight_partition: u32,
    /// Triggers of all its partitions handed over and not reported.
    pub inflight_total: u32,
    /// What a frame is reckoned at: a partition may hold `inflight_partition` times as many bytes.
    pub frame_bytes_each: usize,
    /// Slots and frame bytes, for what is handed over and what waits.
    pub slab: SlabLimits,
    /// The dedup window; its tokens are the slots.
    pub dedup: WindowLimits,
    /// Seqs of one ingress that may be unsettled.
    pub settle_window: usize,
    /// When a partition's breaker opens, and for how long.
    pub breaker: BreakerLimits,
    /// An acknowledgement later than this is counted as late.
    pub publish_timeout: Nanos,
    /// Whether a record carries the event's time instead of the time of acceptance.
    pub record_time_is_event: bool,
    /// In each frame: who routed it.
    pub router_id: Box<str>,
    /// In each frame: which run of that router.
    pub incarnation: u64,
}

impl ShardLimits {
    /// Bytes of frames one partition may hold before submits for it are shed.
    fn line_bytes(&self) -> u64 {
        u64::from(self.inflight_partition) * self.frame_bytes_each as u64
    }
}

/// The shard's end of one ingress.
pub struct Source {
    /// The consuming end of the ring.
    pub reader: RingReader,
    /// What the ingress is told of it.
    pub frontier: Arc<Frontier>,
    /// The way back for what nothing durable took.
    pub failed: rtrb::Producer<Failed>,
}

/// What the shard knows of one ring besides the ring.
struct Account {
    outstanding: Outstanding,
    frontier: Arc<Frontier>,
    shown: u64,
    failed: rtrb::Producer<Failed>,
    /// Slots whose triggers failed, while the queue back to the ingress is full.
    failing: VecDeque<(SlotId, FailedReason)>,
}

/// Failed triggers of one ring that wait for the ingress without an allocation; more of them cost one.
pub const FAILING: usize = 1_024;

/// One shard.
pub struct Shard<S: Sink, C: Clock> {
    clock: C,
    rings: Vec<RingReader>,
    core: Core<S>,
    turns: u64,
    first_ring: usize,
}

/// Everything a trigger meets in a shard.
struct Core<S: Sink> {
    limits: ShardLimits,
    sink: S,
    slab: Slab,
    flights: Box<[Flight]>,
    /// One per partition of this shard: partition = line × shards + shard id.
    lines: Box<[Line]>,
    dedup: Window,
    hlc: HlcClock,
    accounts: Vec<Account>,
    /// Lines with something to send.
    to_send: VecDeque<u32>,
    /// Lines that something came back to in this turn.
    came_back: Vec<u32>,
    /// What landed in this turn behind something that came back, and what may have.
    news: Vec<SlotId>,
    /// Devices of the group that a careful line is sending.
    group_devices: HashSet<u32>,
    /// Room for the reports of a turn.
    reports: Vec<Report>,
    lent: u32,
    /// When the breakers were looked at last.
    ticked: Nanos,
    /// Every partition is blocked, since the slots run out.
    is_full: bool,
    shared: Arc<Shared>,
    page: Arc<ShardPage>,
    /// What the turn has counted and its page does not show yet.
    streaks: Streaks,
}

/// Stages that whole batches pass at once.
#[derive(Default)]
struct Streaks {
    queue: Streak,
    publish: Streak,
    settle: Streak,
}

impl<S: Sink, C: Clock> Shard<S, C> {
    /// Takes all memory the shard will ever have.
    ///
    /// # Panics
    /// If the limits contradict each other; `Config::limits` refuses such a configuration.
    #[must_use]
    pub fn new(
        limits: ShardLimits,
        slab: Slab,
        sources: Vec<Source>,
        sink: S,
        clock: C,
        shared: Arc<Shared>,
        page: Arc<ShardPage>,
    ) -> Shard<S, C> {
        assert!(limits.id.0 < limits.shards, "shard {} of {}", limits.id, limits.shards);
        assert!(limits.inflight_total as usize <= limits.slab.slots, "every trigger in flight has a slot");
        assert_eq!(slab.slots(), limits.slab.slots, "the slab is the one these limits describe");
        let owned = (limits.partitions.saturating_sub(u32::from(limits.id.0))).div_ceil(u32::from(limits.shards));
        assert!(owned > 0, "shard {} would own none of {} partitions", limits.id, limits.partitions);
        let (mut rings, mut accounts) = (Vec::with_capacity(sources.len()), Vec::with_capacity(sources.len()));
        for source in sources {
            rings.push(source.reader);
            accounts.push(Account {
                outstanding: Outstanding::new(limits.settle_window),
                frontier: source.frontier,
                shown: 0,
                failed: source.failed,
                failing: VecDeque::with_capacity(FAILING),
            });
        }
        let core = Core {
            sink,
            flights: vec![Flight::FREE; limits.slab.slots].into_boxed_slice(),
            lines: vec![Line::EMPTY; owned as usize].into_boxed_slice(),
            dedup: Window::new(limits.dedup),
            hlc: HlcClock::default(),
            accounts,
            to_send: VecDeque::with_capacity(owned as usize),
            came_back: Vec::with_capacity(owned as usize),
            news: Vec::with_capacity(limits.slab.slots),
            group_devices: HashSet::new(),
            reports: Vec::with_capacity(turn::REPORTS + turn::BATCH),
            lent: 0,
            ticked: Nanos(0),
            is_full: false,
            slab,
            limits,
            shared,
            page,
            streaks: Streaks::default(),
        };
        Shard { clock, rings, core, turns: 0, first_ring: 0 }
    }

    /// The sink, for a test or a simulator that steers it.
    pub fn sink_mut(&mut self) -> &mut S {
        &mut self.core.sink
    }

    /// The clock.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// Whether nothing waits in its rings, its lines or at the sink. What failed and is not taken back yet does not
    /// count: no time brings it further.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let in_use = self.core.slab.slots() - self.core.slab.free_slots();
        in_use == self.core.failing() && self.rings.iter().all(|ring| ring.is_empty())
    }

    /// The highest acknowledged offset of each of its partitions that has one.
    pub fn last_acked(&self) -> impl Iterator<Item = (PartitionId, i64)> + '_ {
        let lines = self.core.lines.iter().enumerate();
        lines
            .filter(|(_, line)| line.last_acked >= 0)
            .map(|(index, line)| (self.core.partition(index as u32), line.last_acked))
    }

    /// Checks what must hold between two turns.
    ///
    /// # Panics
    /// If the sums do not add up: our mistake, never a caller's.
    pub fn check(&self) {
        let (core, page) = (&self.core, &self.core.page);
        let held: u32 = core.lines.iter().map(|line| line.held).sum();
        let in_flight = (core.slab.slots() - core.slab.free_slots()) as u64;
        assert_eq!(u64::from(held) + core.failing() as u64, in_flight, "every slot in use is in a line or failing");
        assert_eq!(
            page.taken.get(),
            page.delivered.get() + page.deduplicated.get() + page.failed.get() + in_flight,
            "taken = delivered + deduplicated + failed + in flight"
        );
        assert_eq!(core.lines.iter().map(|line| line.lent).sum::<u32>(), core.lent);
        assert_eq!(core.slab.lent(), core.lent as usize);
    }
}

impl<S: Sink> Core<S> {
    fn failing(&self) -> usize {
        self.accounts.iter().map(|account| account.failing.len()).sum()
    }

    fn partition(&self, line: u32) -> PartitionId {
        PartitionId(line * u32::from(self.limits.shards) + u32::from(self.limits.id.0))
    }

    fn line_of(&self, partition: PartitionId) -> u32 {
        debug_assert_eq!(partition.0 % u32::from(self.limits.shards), u32::from(self.limits.id.0), "{partition:?}");
        partition.0 / u32::from(self.limits.shards)
    }
}
