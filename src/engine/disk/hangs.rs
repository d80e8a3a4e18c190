//! A disk that hangs while the router stops: its thread is left behind and may write yet, so nobody else may have the
//! directory before the process is gone. And one that does not, whose directory is free at once.
#![cfg(all(feature = "sim", feature = "kafka"))]

use super::*;
use crate::clock::SystemClock;
use crate::config::Config;
use crate::engine::start::attach;
use crate::engine::{Blueprint, Router};
use crate::shard::Policy;
use crate::shard::idle::Strategy;
use crate::sim::host::assemble;
use crate::spill::faulty::FaultyDisk;
use crate::state::{StateDir, StateError};
use crate::topology::place;
use crate::trigger::{State, Trigger};
use std::path::PathBuf;

const PARTITIONS: u32 = 2;

/// There is no topic of dead letters.
enum Nowhere {}

impl LetterSink for Nowhere {
    fn post(&mut self, _: u64, _: &Letter<'_>) -> Result<(), PostBusy> {
        match *self {}
    }

    fn collect(&mut self, _: &mut dyn FnMut(u64, Posted<'_>)) {
        match *self {}
    }
}

/// A directory of this test alone.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        // A test that failed has its own word to say.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A router on a disk in memory, with ten triggers that a stop has to spill where the broker does not acknowledge them. It
/// holds the lock of a real state directory.
fn router(state: &Path, disk: &FaultyDisk, acks: bool) -> Router {
    let mut config = Config::default();
    config.state.dir = Some(state.to_path_buf());
    config.queue.capacity = 1_024;
    config.queue.ingresses = 1;
    config.dedup.capacity = 4_096;
    config.inflight.partition = 256;
    config.inflight.total = 1_024;
    config.inflight.waiting = 1_024;
    config.spill.limit = 256 << 20;
    config.spill.segment = 4 << 20;
    config.dead_letter.limit = 8 << 20;
    // It is the stop that spills.
    config.breaker.grace = Duration::from_secs(60);
    let blueprint = Blueprint {
        limits: config.limits().expect("the configuration is sound"),
        partitions: PARTITIONS,
        router_id: "router-t".to_owned(),
        incarnation: 1,
        record_time_is_event: false,
        policy: Policy::Spill,
        has_disk: true,
        has_letters: true,
        hash_seed: None,
    };
    let limits = &blueprint.limits;
    let spill_limits = limits.spill(PARTITIONS);
    let (spill, recovery) = Spill::open(disk.clone(), Path::new(SPILL_DIR), spill_limits.clone()).unwrap();
    let letter_limits = limits.dead_letters(PARTITIONS);
    let (letters, letters_found) = Spill::open(disk.clone(), Path::new(LETTER_DIR), letter_limits).unwrap();
    let (highest, took, warnings) = (Hlc::ZERO, Duration::ZERO, Vec::new());
    let opened = Opened { spill, spill_limits, letters, letters_found, highest, recovery, took, warnings };
    let who = Who { topic: "triggers", router: "router-t", partitions: PARTITIONS };
    let made = make(Some(opened), Letters::<Nowhere>::DiskOnly, limits, &who);

    let (mut assembly, brokers) = assemble(&blueprint, &SystemClock::new());
    brokers[0].state().acks_by_itself = acks;
    let keeper = attach(&mut assembly, &blueprint, made);
    let placement = place(1, &[], &CpuSet::default()).expect("nothing is pinned");
    let mut router = Router::run(assembly, &placement, Strategy::Park).expect("threads can be had");
    let (clock, shared) = (router.common.clock, Arc::clone(&router.common.shared));
    let cpus = affinity::allowed().expect("the kernel says which there are");
    router.disk = Some(DiskThread::start(keeper, None, clock, shared, cpus).expect("a thread can be had"));
    router.state = Some(StateDir::open(state).expect("nobody holds it"));
    let mut ingress = router.ingress().expect("there is one");
    let now_ms = clock.now().wall.as_ms().0;
    for number in 0..10 {
        let device = format!("device-{number}");
        ingress.submit(&Trigger::new(&device, "fence", State::Enter, now_ms)).expect("there is room");
    }
    router
}

fn place_of(name: &str) -> Place {
    Place(std::env::temp_dir().join(format!("fencepost-hangs-{}-{name}", std::process::id())))
}

#[test]
fn a_disk_that_hangs_at_the_stop_keeps_its_directory_locked() {
    let (place, disk) = (place_of("hangs"), FaultyDisk::new(1));
    let router = router(&place.0, &disk, false);
    let hang = disk.hang();
    let report = router.shutdown(Duration::from_millis(100));
    assert!(!report.is_synced);
    assert!(report.counts.add_up(), "{}", report.counts);
    assert_eq!((report.counts.spilled, report.counts.unsettled()), (0, 10), "{}", report.counts);
    let error = StateDir::open(&place.0).expect_err("the thread that was left behind may write yet");
    assert!(matches!(error, StateError::InUse { .. }), "{error}");
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    drop(hang);
    assert!(StateDir::open(&place.0).is_err(), "whatever it does then, until the process ends");
}

#[test]
fn a_disk_that_answers_lets_its_directory_go() {
    let (place, disk) = (place_of("answers"), FaultyDisk::new(1));
    let router = router(&place.0, &disk, true);
    assert!(matches!(StateDir::open(&place.0), Err(StateError::InUse { .. })), "it runs");
    // Beyond this the stop has hung.
    let report = router.shutdown(Duration::from_secs(60));
    assert!(report.is_synced && report.counts.add_up(), "{}", report.counts);
    assert_eq!((report.counts.delivered, report.counts.unsettled()), (10, 0), "{}", report.counts);
    StateDir::open(&place.0).expect("nobody writes there any more");
}
