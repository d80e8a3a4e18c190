//! Model checks of what threads share without a lock: loom runs the product's own code through every order of its
//! threads' steps, and through every older value that a load may still see by its ordering. Run it as
//! `script/test --only loom`.
//!
//! Promises: what is checked is the code of `src`, on loom's atomics (`src/sync`); rtrb alone is a stand-in
//! (`src/sync/rtrb.rs`). Models have two or three threads and few records. Those with three threads,
//! or a ring to fill, are bounded to two or three preemptions; the others are not. Costs: ten seconds to run, and a debug
//! build of its own.
//!
//! Each model was seen to fail on these, put into the product by hand and taken out again:
//!
//! | model | what it caught |
//! |---|---|
//! | ring: the gauge never counts below none | the store or the load of `taken` `Relaxed`; `pushed` read before `taken`; `pushed` stored after the lines are published |
//! | ring: what was accepted is there when the writer has gone | `is_finished` asking for emptiness first; a drop that does not publish; rtrb's flag set `Relaxed` |
//! | ring: a batch is seen as a whole | a publication by each `stage` |
//! | ring: a ring never holds more triggers than it may | a verdict that takes the count of triggers for none |
//! | ring and divert: round the end of the memory | rtrb's head or tail stored or loaded `Relaxed`: a slot touched by both threads at once |
//! | divert: orders come whole, who sees a drained record | a message's head and body committed one after the other |
//! | divert: a level does not go back | a volume's level stored the wrong way round |
//! | shared: a gate never opens again | `close` by a store instead of the greater of the two |
//! | shared: a shard ends with the newest list | the version raised, or read, after the lock of the list is gone |
//! | settle: the watermark waits until what failed is taken | a frontier stored or loaded `Relaxed`; the queue of failed triggers read before the frontiers; a frontier set too far |
//! | settle: the watermark is the lowest of the rings | the last unsettled ring's frontier in place of the lowest; a frontier set too far |
//! | stop: what passed the gate is delivered | a shard that does not linger |
//!
//! They pass, so the stronger ordering is not needed for what we promise, with `Relaxed` for the gate, for `abort`, for the
//! version of the list of fences and for the flag of the warm box: in the first two nothing else is read on their word, in
//! the others a lock orders what is. The comments there say so. And two models are of what is not promised: what a sleep
//! without its limit would miss, and what a submit that outlasts the lingering shard leaves in its ring.
#![cfg(loom)]

mod divert;
mod ring;
mod settle;
mod shared;
mod stop;
mod wake;

use fencepost::clock::Clock;
use fencepost::config::{AgeLimit, Config};
use fencepost::engine::{Assembly, Blueprint};
use fencepost::shard::Policy;
use fencepost::sink::null::NullSink;
use fencepost::trigger::{State, Trigger};
use fencepost::units::{Nanos, Now, UnixMicros};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Runs a model through all orders, or all with so many preemptions at the most, and answers how many those were. A
/// model that has one order only checks nothing.
fn explore(preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) -> usize {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = 20_000;
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let runs = runs.load(Ordering::Relaxed);
    println!("{runs} orders");
    assert!(runs > 1, "nothing was explored");
    runs
}

/// What must be seen in some of a model's runs, so that it shows what it is for.
#[derive(Clone, Default)]
struct Seen(Arc<AtomicBool>);

impl Seen {
    fn note(&self, is_seen: bool) {
        self.0.fetch_or(is_seen, Ordering::Relaxed);
    }

    fn was(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Time moves when somebody asks for it, and not while a submit is under way: no submit takes as long as a shard lingers.
#[derive(Clone, Default)]
struct ModelClock(Arc<Hands>);

#[derive(Default)]
struct Hands {
    ms: AtomicU64,
    stops: AtomicU64,
}

const EVENT_MS: i64 = 1_800_000_000_000;
/// How far a look at the clock moves it: a shard that lingers 20 ms looks a few times.
const STEP_MS: u64 = 8;

impl ModelClock {
    /// Runs something that takes no time.
    fn stopped<T>(&self, run: impl FnOnce() -> T) -> T {
        self.0.stops.fetch_add(1, Ordering::Relaxed);
        let result = run();
        self.0.stops.fetch_sub(1, Ordering::Relaxed);
        result
    }
}

impl Clock for ModelClock {
    fn now(&self) -> Now {
        let step = if self.0.stops.load(Ordering::Relaxed) == 0 { STEP_MS } else { 0 };
        let ms = self.0.ms.fetch_add(step, Ordering::Relaxed);
        Now { mono: Nanos::from_millis(ms), wall: UnixMicros(EVENT_MS * 1_000 + ms as i64 * 1_000) }
    }
}

/// The parts of the smallest router: one ingress, so many shards of one partition each, a sink that takes everything.
fn assemble(shards: u16, clock: &ModelClock) -> Assembly<NullSink, ModelClock> {
    let mut config = Config::default();
    config.engine.shards = shards;
    (config.queue.capacity, config.queue.ingresses) = (64 * usize::from(shards), 1);
    config.settle.window = 1_024;
    config.dedup.capacity = 1_024;
    (config.inflight.partition, config.inflight.total, config.inflight.waiting) = (16, 32, 32);
    config.time.past_limit = Some(AgeLimit::Off);
    let blueprint = Blueprint {
        limits: config.limits().expect("the model's configuration is sound"),
        partitions: shards.into(),
        router_id: "r".to_owned(),
        incarnation: 1,
        record_time_is_event: false,
        policy: Policy::Refuse,
        has_disk: false,
        has_letters: false,
        hash_seed: None,
    };
    let made = Assembly::new::<Infallible>(&blueprint, clock.clone(), |_, _| Ok(NullSink::new(0, 64)));
    match made {
        Ok(assembly) => assembly,
        Err(never) => match never {},
    }
}

fn trigger(device_id: &str) -> Trigger<'_> {
    Trigger::new(device_id, "f", State::Enter, EVENT_MS)
}
