//! Triggers through submit and the turns of one shard, from a named workload, into a sink that acknowledges everything.
//!
//! A run is 5,000 triggers, a tenth of a second of the workload: submitted as they come due, those of 5 ms together (of
//! `bursty` all at once), and the shard turns until nothing is left. Clock and hash seed are fixed. Each run sends the
//! same triggers at a later date, so that none is a repeat of another run; the dedup window is full.

use super::{Body, Size};
use crate::support::Workload;
use fencepost::clock::Clock;
use fencepost::config::Config;
use fencepost::engine::{Assembly, Blueprint};
use fencepost::ingress::Ingress;
use fencepost::metrics::ShardPage;
use fencepost::shard::{Policy, Shard};
use fencepost::sink::null::NullSink;
use fencepost::trigger::Trigger;
use fencepost::units::{Nanos, Now, Seq, UnixMicros};
use std::convert::Infallible;
use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const PARTITIONS: u32 = 24;
const SLOTS: usize = 16_384;
/// Keys in the dedup window.
const WINDOW: usize = 32_768;
/// What is due within this time is submitted together.
const TOGETHER_US: u64 = 5_000;
const START_MS: i64 = 1_772_000_000_000;
/// The dates of two runs are this far apart, which is longer than the workloads of one are.
const APART_MS: i64 = 60_000;

/// Triggers of a run.
pub fn operations(size: Size) -> u64 {
    size.pick(500, 5_000)
}

/// Time that passes when it is told to.
#[derive(Clone)]
struct HandClock {
    mono: Arc<AtomicU64>,
    runs: Arc<AtomicU64>,
}

impl Clock for HandClock {
    // Relaxed: one thread.
    fn now(&self) -> Now {
        let date_ms = START_MS + self.runs.load(Ordering::Relaxed) as i64 * APART_MS;
        Now { mono: Nanos(self.mono.load(Ordering::Relaxed)), wall: UnixMicros(date_ms * 1_000) }
    }
}

/// The router of one shard, turned by hand.
pub struct Turns {
    triggers: Vec<Trigger<'static>>,
    /// Places of what is submitted together.
    together: Vec<Range<usize>>,
    distinct: u64,
    clock: HandClock,
    ingress: Ingress<HandClock>,
    shard: Shard<NullSink, HandClock>,
    page: Arc<ShardPage>,
    runs: u64,
    accepted: u64,
}

impl Turns {
    pub fn new(name: &str, size: Size) -> Turns {
        // Triggers borrow their ids, and the body owns both: the workload lives as long as the process.
        let workload: &'static Workload =
            Box::leak(Box::new(Workload::named(name, operations(size) as usize, START_MS - 1_000)));
        let all = &workload.triggers;
        let mut together = Vec::new();
        let mut begin = 0;
        for place in 1..=all.len() {
            if place == all.len() || all[place].due_us / TOGETHER_US != all[begin].due_us / TOGETHER_US {
                together.push(begin..place);
                begin = place;
            }
        }
        let mut config = Config::default();
        config.dedup.capacity = size.pick(SLOTS, WINDOW);
        (config.inflight.partition, config.inflight.total, config.inflight.waiting) = (4_096, SLOTS / 2, SLOTS / 2);
        let blueprint = Blueprint {
            limits: config.limits().expect("the keys agree with each other"),
            partitions: PARTITIONS,
            router_id: "router-eu-1".into(),
            incarnation: 17,
            record_time_is_event: false,
            policy: Policy::Refuse,
            has_disk: false,
            has_letters: false,
            hash_seed: Some(7),
        };
        let clock = HandClock { mono: Arc::new(AtomicU64::new(0)), runs: Arc::new(AtomicU64::new(0)) };
        let make_sink = |_, _| Ok::<_, Infallible>(NullSink::new(0, SLOTS));
        let Ok(mut assembly) = Assembly::new(&blueprint, clock.clone(), make_sink);
        let mut turns = Turns {
            triggers: all.iter().map(|owned| owned.as_trigger()).collect(),
            together,
            distinct: workload.distinct() as u64,
            clock,
            ingress: assembly.common.ingress().expect("nobody else took one"),
            page: Arc::clone(&assembly.common.shard_pages[0]),
            shard: assembly.shards.remove(0),
            runs: 0,
            accepted: 0,
        };
        for _ in 0..size.pick(1, WINDOW * 5 / 4 / all.len() + 1) {
            turns.prepare();
            turns.run();
        }
        turns
    }
}

impl Body for Turns {
    fn prepare(&mut self) {
        self.clock.runs.store(self.runs + 1, Ordering::Relaxed);
        for trigger in &mut self.triggers {
            trigger.event_time_ms += APART_MS;
        }
    }

    fn run(&mut self) {
        let accepted = &mut self.accepted;
        for together in &self.together {
            self.clock.mono.fetch_add(TOGETHER_US * 1_000, Ordering::Relaxed);
            let batch = black_box(&self.triggers[together.clone()]);
            self.ingress.submit_batch(batch, |_, answer| *accepted += u64::from(answer.is_ok()));
            while black_box(self.shard.turn()).taken > 0 {}
        }
        self.runs += 1;
    }

    fn check(&mut self) {
        self.shard.turn();
        self.shard.check();
        assert!(self.shard.is_settled());
        let all = self.runs * self.triggers.len() as u64;
        assert_eq!(self.accepted, all, "nothing was refused");
        assert_eq!(self.page.delivered.get(), self.runs * self.distinct, "what is distinct was delivered");
        assert_eq!(self.page.deduplicated.get(), all - self.runs * self.distinct, "what is repeated was collapsed");
        assert_eq!(self.ingress.settled(), Seq(all));
    }
}
