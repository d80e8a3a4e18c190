//! After warm-up the engine allocates nothing: an allocator that counts, over a million triggers through submit, turn and
//! reports, by hand and with threads, and behind a watermark that stands still.
//!
//! A thread is counted where it asks to be, so the tests of this binary do not count one another.

use fencepost::clock::{Clock, SystemClock};
use fencepost::config::Config;
use fencepost::engine::{Assembly, Blueprint, Router};
use fencepost::ingress::{Ingress, Refused, ShedWhy};
use fencepost::partition::partition_of;
use fencepost::shard::idle::Strategy;
use fencepost::sink::null::NullSink;
use fencepost::sink::{Busy, Outcome, Outgoing, Report, Sink};
use fencepost::slab::SlotId;
use fencepost::topology::{CpuSet, place};
use fencepost::trigger::{State, Trigger};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::convert::Infallible;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const TRIGGERS: u64 = 1_000_000;
const WARM_UP: u64 = 300_000;

struct Counting;

/// What a test's threads allocated while they were counted.
type Count = AtomicU64;

thread_local! {
    static COUNT: Cell<Option<&'static Count>> = const { Cell::new(None) };
}

fn note() {
    // A thread that is ending has no such cell any more, and is not counted.
    if let Ok(Some(count)) = COUNT.try_with(Cell::get) {
        // Relaxed: read after the threads were joined.
        count.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: each call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        note();
        // SAFETY: the caller keeps the contract of `realloc`, and `place` came from `System`.
        unsafe { System.realloc(place, layout, new_size) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, and `place` came from `System`.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Counts this thread's allocations while it lives.
struct Counted;

impl Counted {
    fn in_(count: &'static Count) -> Counted {
        COUNT.set(Some(count));
        Counted
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        COUNT.set(None);
    }
}

/// Of the test with threads; its shards count themselves between the warm-up and the end.
static ON_THREADS: Count = AtomicU64::new(0);
static SHARDS_COUNT: AtomicBool = AtomicBool::new(false);

/// The null sink; the shard's thread counts itself once it is told to.
struct CountingSink(NullSink);

// SAFETY: what it wraps never reads a frame.
unsafe impl Sink for CountingSink {
    fn produce(&mut self, outgoing: Outgoing) -> Result<(), Busy> {
        self.0.produce(outgoing)
    }

    fn collect(&mut self, most: usize, reports: &mut Vec<Report>) {
        COUNT.set(SHARDS_COUNT.load(Ordering::Relaxed).then_some(&ON_THREADS));
        self.0.collect(most, reports);
    }
}

/// The null sink, but what is for partition 0 stays in flight until it is let go.
struct StallingSink {
    others: NullSink,
    stalled: Vec<SlotId>,
    is_stalled: bool,
}

// SAFETY: it never reads a frame.
unsafe impl Sink for StallingSink {
    fn produce(&mut self, outgoing: Outgoing) -> Result<(), Busy> {
        if outgoing.partition.0 == 0 {
            self.stalled.push(outgoing.frame.slot());
            return Ok(());
        }
        self.others.produce(outgoing)
    }

    fn collect(&mut self, most: usize, reports: &mut Vec<Report>) {
        self.others.collect(most, reports);
        if !self.is_stalled {
            let acked = |slot| Report { slot, outcome: Outcome::Acked { offset: -1 }, batch: 1, first: true };
            reports.extend(self.stalled.drain(..).map(acked));
        }
    }
}

/// Devices with two fences each, made before anything is counted. Each trigger is new: the second rises.
struct Workload {
    devices: Vec<String>,
    end_ms: i64,
}

impl Workload {
    fn new(name: &str, fits: impl Fn(&str) -> bool) -> Workload {
        let devices = (0..).map(|number| format!("{name}-vehicle-{number:08}")).filter(|device| fits(device));
        let end_ms = SystemClock::new().now().wall.as_ms().0;
        Workload { devices: devices.take(1_000).collect(), end_ms }
    }

    /// The trigger of this number; every tenth is a repeat of the one 5 before it.
    fn trigger(&self, number: u64) -> Trigger<'_> {
        let number = if number % 10 == 9 { number - 5 } else { number };
        let device = &self.devices[number as usize % self.devices.len()];
        // Up to 6 days back, in seconds; with fence and state, a key comes again long after it has left the window.
        let second = (number / self.devices.len() as u64 / 2 % 500_000) as i64;
        let fence = if number.is_multiple_of(2) { "depot:north" } else { "depot:south" };
        let state = if number / 1_000 % 2 == 0 { State::Enter } else { State::Exit };
        Trigger::new(device, fence, state, self.end_ms - 1_000 * second).with_attributes(b"attributes")
    }
}

fn config() -> Config {
    let mut config = Config::default();
    // So small that the warm-up fills it and every later key pushes one out.
    config.dedup.capacity = 200_000;
    config.queue.ingresses = 2;
    config
}

fn assemble<S: Sink>(config: &Config, partitions: u32, sink: impl Fn() -> S) -> Assembly<S, SystemClock> {
    let blueprint = Blueprint {
        limits: config.limits().expect("the test's configuration is sound"),
        partitions,
        router_id: "router-t".to_owned(),
        incarnation: 1,
        record_time_is_event: false,
        policy: fencepost::shard::Policy::Refuse,
        has_disk: false,
        has_letters: false,
        hash_seed: None,
    };
    match Assembly::new::<Infallible>(&blueprint, SystemClock::new(), |_, _| Ok(sink())) {
        Ok(assembly) => assembly,
        Err(never) => match never {},
    }
}

#[test]
fn one_thread_by_hand_allocates_nothing() {
    let mut assembly = assemble(&config(), 12, || NullSink::new(2_000, 1 << 17));
    let mut ingress = assembly.common.ingress().expect("there are two");
    let workload = Workload::new("hand", |_| true);
    let shard = &mut assembly.shards[0];
    let run = |shard: &mut fencepost::shard::Shard<NullSink, SystemClock>,
               ingress: &mut Ingress,
               numbers: std::ops::Range<u64>| {
        for number in numbers {
            ingress.submit(&workload.trigger(number)).expect("there is room");
            if number % 64 == 0 {
                shard.turn();
                ingress.settled();
                assert_eq!(ingress.take_failed(), None);
            }
        }
    };
    run(shard, &mut ingress, 0..WARM_UP);
    static SANITY: Count = AtomicU64::new(0);
    {
        let _counted = Counted::in_(&SANITY);
        drop(std::hint::black_box(Box::new(7)));
    }
    assert_eq!(SANITY.load(Ordering::Relaxed), 1, "the allocator counts");
    static BY_HAND: Count = AtomicU64::new(0);
    {
        let _counted = Counted::in_(&BY_HAND);
        run(shard, &mut ingress, WARM_UP..WARM_UP + TRIGGERS);
    }
    assert_eq!(BY_HAND.load(Ordering::Relaxed), 0, "allocations over {TRIGGERS} triggers");
    shard.sink_mut().release();
    while !shard.is_settled() {
        shard.turn();
    }
    let counts = assembly.common.counts();
    assert!(counts.add_up(), "{counts}");
    assert_eq!(counts.accepted, WARM_UP + TRIGGERS);
    assert!(counts.deduplicated >= TRIGGERS / 11 && counts.dedup_evicted_early > 0, "{counts}");
}

#[test]
fn shards_and_callers_on_threads_allocate_nothing() {
    let mut config = config();
    config.engine.shards = 2;
    let assembly = assemble(&config, 12, || CountingSink(NullSink::new(0, 1 << 17)));
    let placement = place(2, &[], &CpuSet::default()).expect("nothing is pinned");
    let router = Router::run(assembly, &placement, Strategy::Park).expect("threads can be had");
    let warm = Barrier::new(2);
    std::thread::scope(|scope| {
        for caller in 0..2 {
            let mut ingress = router.ingress().expect("there are two");
            let (workload, warm) = (Workload::new(&format!("caller-{caller}"), |_| true), &warm);
            scope.spawn(move || {
                let insist = |ingress: &mut Ingress, number| loop {
                    match ingress.submit(&workload.trigger(number)) {
                        Ok(_) => return,
                        Err(Refused::Shed(_)) => std::thread::yield_now(),
                        Err(other) => panic!("{other}"),
                    }
                };
                (0..WARM_UP).for_each(|number| insist(&mut ingress, number));
                warm.wait();
                SHARDS_COUNT.store(true, Ordering::Relaxed);
                let _counted = Counted::in_(&ON_THREADS);
                for number in WARM_UP..WARM_UP + TRIGGERS / 2 {
                    insist(&mut ingress, number);
                    if number % 64 == 0 {
                        ingress.settled();
                        assert_eq!(ingress.take_failed(), None);
                    }
                }
                while ingress.settled().0 < ingress.accepted() {
                    std::thread::yield_now();
                }
            });
        }
    });
    SHARDS_COUNT.store(false, Ordering::Relaxed);
    let report = router.shutdown(Duration::from_secs(120));
    assert_eq!(ON_THREADS.load(Ordering::Relaxed), 0, "allocations over {TRIGGERS} triggers");
    assert_eq!(report.counts.accepted, 2 * WARM_UP + TRIGGERS, "{}", report.counts);
    assert_eq!(report.counts.unsettled(), 0, "{}", report.counts);
}

/// P9: watermark frozen by one seq, later ones settle by the million → memory flat; `submit` sheds at the settle window of
/// that ingress, 2²⁰, and takes triggers again once the one has settled. `FENCEPOST_P9` sets how many settle meanwhile:
/// the hour of the case at 50,000/s is 180,000,000.
#[test]
fn p9_millions_settle_behind_a_frozen_watermark() {
    let default = if cfg!(debug_assertions) { 300_000 } else { 20_000_000 };
    let later: u64 = std::env::var("FENCEPOST_P9").map_or(default, |count| count.parse().expect("a number"));
    let config = config();
    let mut assembly = assemble(&config, 2, || StallingSink {
        others: NullSink::new(0, 1 << 17),
        stalled: Vec::with_capacity(64),
        is_stalled: true,
    });
    let (mut frozen, mut other) =
        (assembly.common.ingress().expect("there are two"), assembly.common.ingress().expect("there are two"));
    let stalled = Workload::new("stalled", |device| partition_of(device.as_bytes(), 2).0 == 0);
    let mine = Workload::new("mine", |device| partition_of(device.as_bytes(), 2).0 == 1);
    let theirs = Workload::new("theirs", |device| partition_of(device.as_bytes(), 2).0 == 1);
    let shard = &mut assembly.shards[0];
    // Warm: every page of the window and of the slab was used.
    for number in 0..WARM_UP {
        other.submit(&theirs.trigger(number)).expect("there is room");
        if number % 64 == 0 {
            shard.turn();
        }
    }
    static BEHIND: Count = AtomicU64::new(0);
    let counted = Counted::in_(&BEHIND);
    frozen.submit(&stalled.trigger(0)).expect("there is room");
    let mut taken = 1;
    let refused = loop {
        match frozen.submit(&mine.trigger(taken)) {
            Ok(_) => taken += 1,
            Err(refused) => break refused,
        }
        if taken % 64 == 0 {
            shard.turn();
        }
    };
    assert_eq!((refused, taken), (Refused::Shed(ShedWhy::SettleWindow), 1 << 20));
    for number in WARM_UP..WARM_UP + later {
        other.submit(&theirs.trigger(number)).expect("the other ingress is not frozen");
        if number % 64 == 0 {
            shard.turn();
        }
    }
    shard.turn();
    shard.turn();
    assert_eq!(frozen.settled().0, 0);
    assert_eq!(frozen.submit(&mine.trigger(taken)), Err(refused));
    assert_eq!(other.settled().0, WARM_UP + later);
    shard.sink_mut().is_stalled = false;
    shard.turn();
    assert_eq!(frozen.settled().0, 1 << 20);
    assert!(frozen.submit(&mine.trigger(taken)).is_ok());
    shard.turn();
    shard.turn();
    drop(counted);
    assert_eq!(BEHIND.load(Ordering::Relaxed), 0, "allocations behind the frozen watermark");
    shard.check();
    let counts = assembly.common.counts();
    assert!(counts.add_up() && counts.unsettled() == 0, "{counts}");
}
