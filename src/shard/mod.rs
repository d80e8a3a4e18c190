//! A shard: one thread, and all state of the devices whose partitions it owns. Nothing here is shared or locked; what
//! leaves is a page of counters, a frontier per ring and a flag per partition.
//!
//! `turn` is the loop body, the one place where the rooms meet. `Core` is what it works on.

mod copies;
pub mod diversion;
mod divert;
mod drain;
mod drain_room;
pub mod flight;
pub mod idle;
mod letters;
mod outcome;
pub mod settled;
pub mod shared;
mod turn;

pub use turn::{REPORTS_BYTES, Turn};

use crate::breaker::{BreakerLimits, Cause};
use crate::canary::{Canary, is_planted};
use crate::clock::Clock;
use crate::dedup::{Window, WindowLimits};
use crate::divert::{Found, Room, ShardEnd};
use crate::hlc::{Hlc, HlcClock};
use crate::metrics::{ShardPage, Streak};
use crate::ring::RingReader;
use crate::sink::{Report, Sink};
use crate::slab::{Slab, SlabLimits, SlotId};
use crate::sync::rtrb;
use crate::trigger::Key;
use crate::units::{Nanos, PartitionId, ShardId, UnixMicros};
use crate::wire::Frame;
use diversion::Diversion;
use drain_room::DrainRoom;
use flight::{Flight, Line, Phase};
use foldhash::fast::FixedState;
use settled::Outstanding;
use shared::{Failed, FailedReason, Frontier, Gate, Shared, WarmBox};
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
    /// What happens to the triggers of a partition that does not take them.
    pub policy: Policy,
    /// Whether there is somewhere for dead letters.
    pub has_letters: bool,
    /// The hash of keys, the same one as the ingresses'.
    pub hasher: FixedState,
    /// An acknowledgement later than this is counted as late.
    pub publish_timeout: Nanos,
    /// Whether a record carries the event's time instead of the time of acceptance.
    pub record_time_is_event: bool,
    /// In each frame: who routed it.
    pub router_id: Box<str>,
    /// In each frame: which run of that router.
    pub incarnation: u64,
}

/// What happens to the triggers of a partition that does not take them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// They are spilled, and come back in order.
    Spill,
    /// They become dead letters.
    DeadLetter,
    /// Submits for it are shed; what was accepted waits.
    Refuse,
}

/// The frames that a start found in the topic: asked for each record that was found on disk as well.
pub trait InTopic: Send + Sync {
    /// Whether this very frame, and not only one of its key, is in the partition.
    fn holds(&self, partition: PartitionId, frame: &Frame<'_>) -> bool;
}

/// The fences that there are.
pub trait Fences: Send + Sync {
    /// Whether a trigger may be of this fence.
    fn has(&self, fence_id: &[u8]) -> bool;
}

/// The disk, as a shard begins with it.
pub struct Disk {
    /// The way to it.
    pub end: ShardEnd,
    /// How much room it has; `None`: there is no spill, only dead letters.
    pub room: Option<Arc<Room>>,
    /// What was found on it, for each partition of the shard, in order.
    pub found: Vec<Found>,
}

/// Hands over keys, one after the other.
pub type WarmKeys = Box<dyn FnOnce(&mut dyn FnMut(Key<'_>)) + Send>;

/// What a start learnt of the topic.
pub struct Warm {
    /// Hands over the keys that have settled, oldest first.
    pub keys: WarmKeys,
    /// The frames of the topic, to be held against what was found on disk.
    pub already: Option<Arc<dyn InTopic>>,
    /// The highest stamp of the topic and the disk.
    pub highest: Hlc,
    /// Partitions of which nothing could be read yet, for want of a leader: what they hold comes later.
    pub unread: Arc<[PartitionId]>,
}

impl Warm {
    /// Nothing learnt.
    #[must_use]
    pub fn nothing() -> Warm {
        Warm { keys: Box::new(|_| {}), already: None, highest: Hlc::ZERO, unread: Arc::default() }
    }
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
    /// The way to the disk and back; `None`: there is none.
    disk: Option<ShardEnd>,
    room: Option<Arc<Room>>,
    /// As the lines.
    diversions: Box<[Diversion]>,
    /// By slot: the sequence of its copy on disk, or the epoch of the order that is to make one.
    sequences: Box<[u64]>,
    /// Partitions that a turn looks after.
    diverted: Vec<u32>,
    /// Slots for what comes back; none without a spill.
    drain_room: Option<DrainRoom>,
    /// Records that are done with out of their turn.
    marks: VecDeque<(u32, u64)>,
    /// Records that are in no line and not done with: of dead letters that are not durable yet, and of repeats that wait.
    held_back: Vec<(u32, u64)>,
    /// Dead letters to be written, and from when on.
    letters: VecDeque<(SlotId, Nanos)>,
    /// Slots of dead letters under way.
    dying: u64,
    /// Slots of delivered triggers whose copy is still being written.
    leaving: u64,
    /// Slots in use whose triggers are settled.
    settled_slots: u64,
    /// Settled on disk, with a fate to come.
    in_spill: u64,
    /// Where what the topic holds of the unread partitions will be. Until then nothing of them is sent.
    warm_box: Option<Arc<WarmBox>>,
    is_spilling_rest: bool,
    /// What was read of the topic, by each time it was read.
    already: Vec<Arc<dyn InTopic>>,
    /// `None`: every fence is known.
    fences: Option<Arc<dyn Fences>>,
    /// Which list of the shared ones it is.
    fences_version: u64,
    /// The wall clock at the start of the turn.
    wall: UnixMicros,
    /// Room for the words of an error.
    words: String,
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
            disk: None,
            room: None,
            diversions: vec![Diversion::NONE; owned as usize].into_boxed_slice(),
            sequences: vec![0; limits.slab.slots].into_boxed_slice(),
            diverted: Vec::with_capacity(owned as usize),
            drain_room: None,
            marks: VecDeque::with_capacity(1_024),
            held_back: Vec::new(),
            letters: VecDeque::with_capacity(1_024),
            dying: 0,
            leaving: 0,
            settled_slots: 0,
            in_spill: 0,
            warm_box: None,
            is_spilling_rest: false,
            already: Vec::new(),
            fences: None,
            fences_version: 0,
            wall: UnixMicros(0),
            words: String::with_capacity(512),
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

    /// Opens a partition's breaker, as whoever reads lag or latency does.
    #[doc(hidden)]
    pub fn trip(&mut self, partition: PartitionId, cause: Cause) {
        let (now, index) = (self.clock.mono(), self.core.line_of(partition));
        let breaker = &mut self.core.lines[index as usize].breaker;
        let was_closed = breaker.is_closed();
        breaker.trip(cause, now, &self.core.limits.breaker);
        if was_closed {
            self.core.breaker_changed(index, was_closed);
        }
    }

    /// Says that what opened a breaker by [`Shard::trip`] was read and is good.
    #[doc(hidden)]
    pub fn good_read(&mut self, partition: PartitionId) {
        let (now, index) = (self.clock.mono(), self.core.line_of(partition));
        if self.core.lines[index as usize].breaker.good_read(now) {
            self.core.breaker_changed(index, false);
        }
    }

    /// The clock.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// Gives the shard its disk, before the first turn. What lies there waits for its partition, and what comes in for
    /// such a partition goes behind it.
    ///
    /// # Panics
    /// If there are not as many partitions found as the shard has.
    pub fn set_disk(&mut self, disk: Disk) {
        let core = &mut self.core;
        assert_eq!(disk.found.len(), core.lines.len(), "one for each partition");
        for (index, found) in disk.found.into_iter().enumerate() {
            let diversion = Diversion::with(found);
            core.in_spill += diversion.parked - diversion.known_lost;
            core.page.recovered.add(diversion.parked);
            core.page.corrupt.add(diversion.known_lost);
            core.diversions[index] = diversion;
            if diversion.parked > 0 {
                core.lines[index].is_diverted = true;
                core.diversions[index].listed = true;
                core.diverted.push(index as u32);
            }
        }
        core.page.in_spill.set(core.in_spill);
        (core.disk, core.room) = (Some(disk.end), disk.room);
        if core.room.is_some() {
            core.drain_room = Some(DrainRoom::new(&core.slab, core.lines.len()));
            core.keep_drain_room();
        }
        // A full disk sheds from the first submit on, not from the first turn on.
        (0..core.lines.len() as u32).for_each(|index| core.judge_fill(index));
    }

    /// The broker is not reachable: nothing is sent until something lies in the box. With the policy `spill`, everything is
    /// spilled meanwhile, with stamps above `highest`: the highest one that was found on disk, or the stamp ceiling of the
    /// last run, since what the topic holds is not known yet.
    pub fn set_cold(&mut self, warm: Arc<WarmBox>, highest: Hlc) {
        self.core.follow_stamp(highest);
        self.set_unread(warm, |_| true);
    }

    /// The same for some of its partitions: those that had no leader when the topic was read.
    pub fn set_unread(&mut self, warm: Arc<WarmBox>, is_unread: impl Fn(PartitionId) -> bool) {
        let core = &mut self.core;
        core.warm_box = Some(warm);
        for index in 0..core.lines.len() as u32 {
            if !is_unread(core.partition(index)) {
                continue;
            }
            core.lines[index as usize].is_unread = true;
            if core.limits.policy == Policy::Spill && core.room.is_some() && !core.lines[index as usize].is_diverted {
                core.divert(index);
                core.judge_fill(index);
            }
        }
    }

    /// Fills the dedup window with what the topic holds. From then on records are sent.
    pub fn warm_up(&mut self, warm: Warm) {
        let now = self.clock.mono();
        self.core.warm_up(warm, now);
    }

    /// Whether something waits in its rings.
    #[must_use]
    pub fn has_come(&self) -> bool {
        self.rings.iter().any(|ring| !ring.is_empty())
    }

    /// Whether nothing waits in its rings, and everything it took is settled. What failed and is not taken back yet does
    /// not count: no time brings it further.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let in_use = (self.core.slab.slots() - self.core.slab.free_slots()) as u64;
        in_use - self.core.settled_slots == self.core.failing() as u64 && !self.has_come()
    }

    /// Whether nothing is at the sink whose outcome could still come: what is at a sink that does not acknowledge has its
    /// copy on disk.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.core.lines.iter().all(|line| line.lent == 0 || !line.breaker.is_closed())
    }

    /// Settled triggers on disk whose fate is to come.
    #[must_use]
    pub fn in_spill(&self) -> u64 {
        self.core.in_spill
    }

    /// The highest acknowledged offset of each of its partitions that has one.
    pub fn last_acked(&self) -> impl Iterator<Item = (PartitionId, i64)> + '_ {
        let lines = self.core.lines.iter().enumerate();
        lines
            .filter(|(_, line)| line.last_acked >= 0)
            .map(|(index, line)| (self.core.partition(index as u32), line.last_acked))
    }

    /// Its partitions that have something to do, in words: for a simulator or a test that is stuck.
    #[must_use]
    pub fn describe(&self) -> String {
        use std::fmt::Write as _;
        let mut text = String::new();
        for (index, (line, diversion)) in self.core.lines.iter().zip(&self.core.diversions).enumerate() {
            if line.held > 0 || !diversion.is_quiet() {
                let written = writeln!(text, "partition {}: {line:?} {diversion:?}", self.core.partition(index as u32));
                debug_assert!(written.is_ok(), "a string takes all text");
            }
        }
        text
    }

    /// Checks what must hold between two turns.
    ///
    /// # Panics
    /// If the sums do not add up: our mistake, never a caller's.
    pub fn check(&self) {
        let (core, page) = (&self.core, &self.core.page);
        let held: u32 = core.lines.iter().map(|line| line.held).sum();
        let in_use = (core.slab.slots() - core.slab.free_slots()) as u64;
        let elsewhere = core.failing() as u64 + core.dying + core.leaving;
        assert_eq!(u64::from(held) + elsewhere, in_use, "every slot in use is in a line, dying, leaving or failing");
        let settled = page.delivered.get()
            + page.deduplicated.get()
            + page.dead_lettered.get()
            + page.failed.get()
            + page.corrupt.get();
        assert_eq!(
            page.taken.get() + page.recovered.get(),
            settled + core.in_spill + (in_use - core.settled_slots),
            "taken + recovered = delivered + deduplicated + dead lettered + failed + corrupt + in spill + in flight"
        );
        let settled = core.flights.iter().filter(|flight| flight.phase != flight::Phase::Free && flight.is_settled);
        assert_eq!(settled.count() as u64, core.settled_slots, "slots whose triggers are settled");
        assert_eq!(core.lines.iter().map(|line| line.lent).sum::<u32>(), core.lent);
        assert_eq!(core.slab.lent(), core.lent as usize);
        // A record that is on its way back has no slot yet.
        let most = core.slab.slots() + 4_096;
        let lists =
            [core.marks.len(), core.held_back.len(), core.letters.len(), core.news.len(), core.group_devices.len()];
        assert!(lists.iter().all(|length| *length <= most), "no list outgrows the slots: {lists:?}, {most}");
        let drained =
            core.flights.iter().filter(|flight| flight.phase != Phase::Free && flight.ring == flight::NO_RING);
        assert_eq!(
            drained.count(),
            core.drain_room.map_or(0, |room| room.held()),
            "slots of what came back from the disk"
        );
    }
}

impl<S: Sink> Core<S> {
    fn failing(&self) -> usize {
        self.accounts.iter().map(|account| account.failing.len()).sum()
    }

    fn is_stopping(&self) -> bool {
        self.shared.gate() != Gate::Open
    }

    fn warm_up(&mut self, warm: Warm, now: Nanos) {
        let (Core { dedup, flights, limits, .. }, mut repeats) = (&mut *self, Vec::new());
        (warm.keys)(&mut |key| {
            if is_planted(Canary::WindowNotFilled) {
                return;
            }
            let Some(slot) = dedup.restore(key, key.hash_with(&limits.hasher), now) else { return };
            // What was taken before this was known, and not sent, is a repeat of what the topic holds.
            let flight = &mut flights[slot as usize];
            if matches!(flight.phase, Phase::Spilling | Phase::Waiting) {
                dedup.commit(slot);
                flight.is_bare = true;
                if flight.phase == Phase::Waiting {
                    repeats.push(SlotId(slot));
                }
            }
        });
        repeats.into_iter().for_each(|slot| self.conclude_repeat_of_topic(slot));
        self.follow_stamp(warm.highest);
        self.already.extend(warm.already);
        for index in 0..self.lines.len() as u32 {
            let partition = self.partition(index);
            self.lines[index as usize].is_unread &= warm.unread.contains(&partition);
            self.keep_sending(index);
        }
        if !self.lines.iter().any(|line| line.is_unread) {
            self.warm_box = None;
        }
    }

    fn follow_stamp(&mut self, highest: Hlc) {
        if is_planted(Canary::StampNotFollowed) {
            return;
        }
        if let Err(error) = self.hlc.observe(highest) {
            log::error!("the stamp of what was found at start is not followed: {error}");
        }
    }

    fn partition(&self, line: u32) -> PartitionId {
        PartitionId(line * u32::from(self.limits.shards) + u32::from(self.limits.id.0))
    }

    fn line_of(&self, partition: PartitionId) -> u32 {
        debug_assert_eq!(partition.0 % u32::from(self.limits.shards), u32::from(self.limits.id.0), "{partition:?}");
        partition.0 / u32::from(self.limits.shards)
    }
}
