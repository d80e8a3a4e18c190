//! What the scenarios share: the best policy of this version, load at a rate, what the log says meanwhile, and an end at
//! which the disk is empty and the topic is compared.

use crate::common_kafka::load::{Finished, Sent, finish};
use crate::common_kafka::{Load, PATIENCE, Scratch, config};
use fencepost::config::{Config, DivertPolicy};
use fencepost::engine::{Counts, Router};
use fencepost::verify::frame::Frame;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

/// Triggers a second: far below what it can do, since brokers, test and router share a machine.
pub const RATE: u32 = 4_000;

/// Whether this version can spill. Where it cannot, a stalled partition sheds, and what a scenario says of the spill is
/// not looked at; all else holds either way.
pub fn can_spill() -> bool {
    DivertPolicy::from_name("spill").is_some()
}

/// With a state directory, and so with the spill where there is one.
pub fn config_with_state(bootstrap: &str, topic: &str, state: &Scratch) -> Config {
    let mut config = config(bootstrap, topic);
    config.state.dir = Some(state.0.clone());
    config.divert.policy = DivertPolicy::from_name("spill");
    config
}

/// Submits at this rate until `is_enough`, or all of it; what stood still meanwhile is made up for. Kafka's tools take
/// seconds, and more on a busy machine: so the load lasts as long as what happens meanwhile.
pub fn submit_until(load: &mut Load, all: &[Sent], is_enough: &AtomicBool) {
    let began = Instant::now();
    for (number, sent) in (0..).zip(all) {
        let due = Duration::from_secs_f64(f64::from(number) / f64::from(RATE));
        if let Some(early) = due.checked_sub(began.elapsed())
            && early > Duration::from_millis(5)
        {
            std::thread::sleep(early);
        }
        // Acquire, for the test's Release: what it did came before.
        if is_enough.load(Ordering::Acquire) {
            return;
        }
        load.submit(sent);
    }
}

/// Submits at the rate beside `meanwhile`, and for two seconds more.
pub fn under_load(load: &mut Load, all: &[Sent], meanwhile: impl FnOnce()) {
    let is_enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let feeder = scope.spawn(|| submit_until(load, all, &is_enough));
        // However it ends, the load must end too, or a failure would be waited for.
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(meanwhile));
        if ended.is_ok() {
            std::thread::sleep(Duration::from_secs(2));
        }
        is_enough.store(true, Ordering::Release);
        feeder.join().expect("the load is taken");
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
    });
}

pub fn count(counts: &Counts, name: &str) -> u64 {
    serde_json::to_value(counts).expect("counters are JSON")[name].as_u64().unwrap_or(0)
}

/// Waits until all of it is settled, and the disk holds nothing any more: it is in the topic then.
pub fn drain(router: &Router, load: &mut Load) {
    load.settle(router);
    let began = Instant::now();
    while router.counts().in_spill > 0 {
        assert!(began.elapsed() < PATIENCE, "the spill does not drain: {}", router.counts());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Drains, stops, and compares: nothing lost, nothing reordered, and no more repeats
/// than were sent again unsure.
pub fn end(router: Router, mut load: Load, bootstrap: &str, topic: &str, partitions: u32) -> Finished {
    drain(&router, &mut load);
    let shed = load.shed;
    let finished = finish(router, &mut [load], bootstrap, topic, partitions);
    let (verdict, counts) = (&finished.verdict, &finished.counts);
    println!("shed {shed}, spilled {}, {counts}", count(counts, "spilled"));
    for fault in ["lost", "reordered", "foreign", "unreadable", "wrong_partition", "key_mismatch"] {
        let found = verdict.faults().into_iter().find(|(name, _)| *name == fault).expect("a fault of that name").1;
        assert_eq!(found, 0, "{fault}: {verdict}");
    }
    assert!(verdict.repeated <= counts.uncertain, "{} repeats, {counts}", verdict.repeated);
    assert_eq!((counts.failed, counts.dead_lettered, counts.in_spill), (0, 0, 0), "{counts}");
    assert_eq!(verdict.distinct, counts.accepted - counts.deduplicated, "{counts}");
    assert_eq!(counts.delivered, verdict.distinct, "{counts}");
    if can_spill() {
        assert_eq!(shed, 0, "what a stalled partition cannot take goes to the disk");
    }
    finished
}

/// Needs the spill: some of it went over the disk, and everything came back.
pub fn assert_spilled(counts: &Counts) {
    if can_spill() {
        assert!(count(counts, "spilled") > 0, "{counts}");
    }
}

/// Per partition: how long its triggers took from acceptance to the broker's own time of appending, at the 99th
/// percentile, in ms. The topic's timestamps must be the broker's.
pub fn append_ms_p99(finished: &Finished) -> HashMap<u32, i64> {
    let mut took: HashMap<u32, Vec<i64>> = HashMap::new();
    for record in &finished.kept {
        let accepted_us = Frame::read(&record.value).expect("every record is a frame").accepted_unix_us;
        took.entry(record.partition).or_default().push(record.timestamp_ms - accepted_us / 1_000);
    }
    let p99 = |mut took: Vec<i64>| {
        took.sort_unstable();
        took[took.len() * 99 / 100]
    };
    took.into_iter().map(|(partition, took)| (partition, p99(took))).collect()
}

// -- the log ------------------------------------------------------------------------------------------------------------

static HEARD: Mutex<Vec<(Instant, String)>> = Mutex::new(Vec::new());

struct Ear;

impl log::Log for Ear {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn && metadata.target() != "librdkafka"
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            let text = format!("{}: {}", record.level(), record.args());
            println!("{text}");
            HEARD.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), text));
        }
    }

    fn flush(&self) {}
}

/// Forgets what the log said; from now on its warnings and errors are kept. For a test that has the process alone.
pub fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&Ear).expect("there is no other logger");
        log::set_max_level(log::LevelFilter::Warn);
    });
    HEARD.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// What the log said since [`listen`], and when.
pub fn heard() -> Vec<(Instant, String)> {
    HEARD.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Waits until the log says it; returns when it did.
pub fn wait_heard(what: &str, matches: impl Fn(&str) -> bool) -> (Instant, String) {
    let began = Instant::now();
    loop {
        if let Some(found) = heard().into_iter().find(|(_, text)| matches(text)) {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "the log does not say {what}: {:?}", heard());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The partitions whose breakers opened, from the log.
pub fn opened() -> Vec<u32> {
    let mut opened: Vec<u32> = heard()
        .iter()
        .filter(|(_, text)| text.contains("breaker open"))
        .filter_map(|(_, text)| text.split("partition ").nth(1)?.split(':').next()?.trim().parse().ok())
        .collect();
    opened.sort_unstable();
    opened.dedup();
    opened
}
