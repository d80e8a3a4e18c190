//! A partition that is away, a start without a broker, and what a restart finds: the router on the mock cluster with a
//! state directory.
//!
//! Outages stay below the producer's socket time-out, since the mock does not know an idempotent producer's sequences.

use crate::common_kafka::load::{Sent, assert_conserved, stop, turns, turns_of};
use crate::common_kafka::reader::{judge, read_topic};
use crate::common_kafka::{Load, Mock, PATIENCE, Scratch, alone, config, finish, fresh_topic, now_ms};
use fencepost::config::{Config, DivertPolicy};
use fencepost::engine::Router;
use fencepost::hlc::Hlc;
use fencepost::partition::partition_of;
use fencepost::state::{Offsets, StateDir};
use fencepost::units::PartitionId;
use fencepost::verify::Ledger;
use fencepost::wire;
use std::time::{Duration, Instant};

/// With a state directory, small files, and breakers that open soon.
fn spilling(bootstrap: &str, topic: &str, state: &Scratch) -> Config {
    let mut config = config(bootstrap, topic);
    config.state.dir = Some(state.0.clone());
    config.spill.limit = 512 << 20;
    config.spill.segment = 8 << 20;
    // Windows that an outage fills: beyond them everything is diverted.
    config.inflight.partition = 256;
    config.breaker.grace = Duration::from_millis(300);
    config.breaker.reset = Duration::from_millis(500);
    config
}

fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_there() {
        assert!(began.elapsed() < PATIENCE, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A life that delivers all of it.
fn live_once(config: &Config, all: &[Sent]) {
    let (router, _) = Router::start(config).unwrap();
    let mut load = Load::new(router.ingress().unwrap());
    load.submit_all(all);
    load.settle(&router);
    wait_for("the spill to be drained", || router.counts().in_spill == 0);
    stop(router, &mut [load]);
}

#[test]
fn an_outage_is_spilled_and_drained_in_order_and_nothing_is_shed() {
    let _alone = alone();
    let (topic, state) = (fresh_topic("outage"), Scratch::new("outage"));
    let mock = Mock::with_topic(3, &topic, 6);
    let (router, _) = Router::start(&spilling(&mock.bootstrap(), &topic, &state)).unwrap();
    let mut load = Load::new(router.ingress().unwrap());
    let all = turns(200, 40_000);
    all[..5_000].chunks(500).for_each(|part| load.submit_all(part));
    mock.set_round_trip_ms(-1, 3_000);
    // What is under way when the brokers freeze, and all that comes after it, settles all the same.
    // At a pace that the ring takes: it is the partitions that shall shed nothing.
    for part in all[5_000..30_000].chunks(500) {
        load.submit_all(part);
        std::thread::sleep(Duration::from_millis(5));
    }
    load.settle(&router);
    let counts = router.counts();
    assert!(counts.spilled > 0 && counts.in_spill > 0, "{counts}");
    assert_eq!(load.shed, 0, "{counts}");
    mock.set_round_trip_ms(-1, 0);
    // While it is drained, newer ones come in behind it.
    for part in all[30_000..].chunks(500) {
        load.submit_all(part);
        std::thread::sleep(Duration::from_millis(5));
    }
    wait_for("the spill to be drained", || router.counts().in_spill == 0);
    let finished = finish(router, &mut [load], &mock.bootstrap(), &topic, 6);
    finished.assert_clean();
    let counts = &finished.counts;
    assert_eq!((counts.delivered, counts.drained, counts.shed), (40_000, counts.spilled, 0), "{counts}");
}

#[test]
fn a_start_without_a_broker_spills_from_the_first_trigger_on() {
    let _alone = alone();
    let (topic, state) = (fresh_topic("cold"), Scratch::new("cold"));
    let mock = Mock::with_topic(1, &topic, 4);
    let mut config = spilling(&mock.bootstrap(), &topic, &state);
    config.topic.partitions = Some(4);
    config.start.require_broker = false;
    config.start.timeout = Duration::from_secs(4);
    mock.set_down(1);
    let (router, readiness) = Router::start(&config).unwrap();
    assert!(readiness.is_cold && readiness.warm_start.is_none());
    let mut load = Load::new(router.ingress().unwrap());
    let all = turns(50, 5_000);
    load.submit_all(&all);
    load.settle(&router);
    let counts = router.counts();
    assert_eq!((counts.in_spill, counts.delivered, counts.shed), (5_000, 0, 0), "{counts}");
    mock.set_up(1);
    wait_for("the spill to be drained", || router.counts().in_spill == 0);
    // The window was met on the way.
    load.submit_all(&all[4_000..]);
    let finished = finish(router, &mut [load], &mock.bootstrap(), &topic, 4);
    finished.assert_clean();
    assert_eq!((finished.counts.delivered, finished.counts.deduplicated), (5_000, 1_000));
}

/// The topic cannot be read, and the wall clock was set back by an hour: what the last run stamped is below the ceiling of the
/// file of offsets, and so is nothing that this start stamps.
#[test]
fn s6_a_start_without_its_broker_stamps_above_the_ceiling_of_the_last_run() {
    const HOUR_MS: u64 = 3_600_000;
    let _alone = alone();
    let (topic, state) = (fresh_topic("ceiling"), Scratch::new("ceiling"));
    let mock = Mock::with_topic(1, &topic, 4);
    let mut config = spilling(&mock.bootstrap(), &topic, &state);
    config.topic.partitions = Some(4);
    config.start.require_broker = false;
    config.start.timeout = Duration::from_secs(4);
    let ceiling = Hlc::new(now_ms() as u64 + HOUR_MS, 7);
    let last_run = Offsets { ceiling, ..Offsets::unknown(&topic, 4) };
    StateDir::open(&state.0).unwrap().write_offsets(&last_run).unwrap();
    mock.set_down(1);
    let (router, readiness) = Router::start(&config).unwrap();
    assert!(readiness.is_cold);
    let mut load = Load::new(router.ingress().unwrap());
    load.submit_all(&turns(50, 1_000));
    load.settle(&router);
    assert_eq!(router.counts().in_spill, 1_000, "{}", router.counts());
    mock.set_up(1);
    wait_for("the spill to be drained", || router.counts().in_spill == 0);
    finish(router, &mut [load], &mock.bootstrap(), &topic, 4).assert_clean();
    let kept = read_topic(&mock.bootstrap(), &topic, 4);
    let stamps: Vec<Hlc> = kept.iter().map(|record| wire::decode(&record.value).unwrap().frame.hlc).collect();
    assert_eq!(stamps.len(), 1_000);
    let (least, most) = (*stamps.iter().min().unwrap(), *stamps.iter().max().unwrap());
    assert!(least > ceiling, "{least:?} is not above {ceiling:?}");
    // The next start that cannot read the topic is above these in turn.
    let written = StateDir::open(&state.0).unwrap().read_offsets(&topic, 4).offsets.expect("it was written").ceiling;
    assert!(written > most, "{written:?} is not above {most:?}");
}

#[test]
fn s1_a_stop_with_the_brokers_away_leaves_the_rest_in_the_spill_and_the_next_run_delivers_it() {
    let _alone = alone();
    let (topic, state) = (fresh_topic("s1"), Scratch::new("s1"));
    let mock = Mock::with_topic(1, &topic, 4);
    let mut config = spilling(&mock.bootstrap(), &topic, &state);
    // The breaker stays closed: it is the stop that spills.
    config.breaker.grace = Duration::from_secs(60);
    let (router, _) = Router::start(&config).unwrap();
    let mut load = Load::new(router.ingress().unwrap());
    let all = turns(20, 2_000);
    load.submit_all(&all[..1_000]);
    load.settle(&router);
    mock.set_round_trip_ms(-1, 4_000);
    load.submit_all(&all[1_000..]);
    let began = Instant::now();
    let report = router.shutdown(Duration::from_millis(500));
    assert!(began.elapsed() < Duration::from_millis(1_500), "{:?}", began.elapsed());
    let counts = report.counts;
    assert_conserved(&counts);
    assert_eq!((counts.unsettled(), counts.failed, counts.accepted), (0, 0, 2_000), "{counts}");
    assert_eq!(counts.delivered + counts.in_spill, 2_000, "{counts}");
    assert!(counts.in_spill > 0 && report.is_synced, "{counts}");
    assert!(load.is_settled(), "each of them has its outcome");
    mock.set_round_trip_ms(-1, 0);
    // What the stopped router had at the brokers lands, or not: the next start looks.
    std::thread::sleep(Duration::from_millis(500));
    let (router, readiness) = Router::start(&config).unwrap();
    assert_eq!(readiness.recovered, counts.in_spill);
    wait_for("the spill to be drained", || router.counts().in_spill == 0);
    let second = stop(router, &mut []).counts;
    assert_eq!(second.recovered, counts.in_spill);
    let kept = read_topic(&mock.bootstrap(), &topic, 4);
    let verdict = judge(&kept, 4, &[load.ledger()]);
    println!("{verdict}");
    assert_eq!((verdict.lost, verdict.repeated, verdict.reordered), (0, 0, 0), "{verdict}");
}

#[test]
fn d8_what_a_caller_sends_again_after_a_restart_is_collapsed() {
    let _alone = alone();
    let (topic, state) = (fresh_topic("d8"), Scratch::new("d8"));
    let mock = Mock::with_topic(3, &topic, 6);
    let mut config = spilling(&mock.bootstrap(), &topic, &state);
    config.dedup.ttl = Duration::from_secs(2);
    let all = turns(100, 10_000);
    live_once(&config, &all);
    // The host is away for longer than the ttl; the start reads by offsets, not by the clock.
    std::thread::sleep(Duration::from_millis(2_500));
    let (router, readiness) = Router::start(&config).unwrap();
    let warm = readiness.warm_start.expect("the broker is there");
    assert!(warm.keys >= 5_000, "{warm:?}");
    let mut load = Load::new(router.ingress().unwrap());
    load.submit_all(&all[5_000..]);
    let more = turns_of("new", 10, 100);
    load.submit_all(&more);
    load.settle(&router);
    wait_for("the spill to be drained", || router.counts().in_spill == 0);
    let report = stop(router, &mut [load]);
    assert_eq!((report.counts.delivered, report.counts.deduplicated), (100, 5_000), "{}", report.counts);
    let kept = read_topic(&mock.bootstrap(), &topic, 6);
    let mut ledger = Ledger::with_capacity(10_100, 128);
    all.iter().chain(&more).for_each(|sent| ledger.accept(&sent.trigger()));
    let verdict = judge(&kept, 6, &[ledger]);
    assert_eq!((verdict.lost, verdict.repeated, verdict.reordered), (0, 0, 0), "{verdict}");
}

/// D8 where one partition has no leader at the second start: nothing is sent to it before its tail could be read, so what
/// its callers send again is collapsed there too; the other partitions flow meanwhile.
#[test]
fn d8_a_partition_that_gets_its_leader_after_the_start_holds_nothing_twice() {
    let _alone = alone();
    let (topic, state) = (fresh_topic("leaderless"), Scratch::new("leaderless"));
    let mock = Mock::with_topic(3, &topic, 6);
    let mut config = spilling(&mock.bootstrap(), &topic, &state);
    config.start.timeout = Duration::from_secs(3);
    let all = turns(100, 2_000);
    live_once(&config, &all);
    mock.set_leader(&topic, 2, -1);
    config.start.require_broker = false;
    let (router, readiness) = Router::start(&config).unwrap();
    let warm = readiness.warm_start.expect("the other partitions are read");
    assert!(warm.keys > 0 && warm.keys < 2_000, "{warm:?}");
    let mut load = Load::new(router.ingress().unwrap());
    load.submit_all(&all);
    let more = turns_of("new", 60, 300);
    load.submit_all(&more);
    // With the spill everything settles, wherever it is.
    load.settle(&router);
    let of_two = |sent: &&Sent| partition_of(sent.trigger().device_id.as_bytes(), 6) == PartitionId(2);
    let (again, fresh) = (all.iter().filter(of_two).count() as u64, more.iter().filter(of_two).count() as u64);
    assert!(again > 0 && fresh > 0);
    wait_for("the others to flow", || router.counts().delivered == 300 - fresh);
    assert_eq!(router.counts().in_spill, again + fresh, "{}", router.counts());
    mock.set_leader(&topic, 2, 1);
    wait_for("the late partition to be read and drained", || router.counts().in_spill == 0);
    let report = stop(router, &mut [load]);
    assert_eq!((report.counts.delivered, report.counts.deduplicated), (300, 2_000), "{}", report.counts);
    let kept = read_topic(&mock.bootstrap(), &topic, 6);
    let mut ledger = Ledger::with_capacity(2_400, 128);
    all.iter().chain(&more).for_each(|sent| ledger.accept(&sent.trigger()));
    let verdict = judge(&kept, 6, &[ledger]);
    assert_eq!((verdict.lost, verdict.repeated, verdict.reordered), (0, 0, 0), "{verdict}");
}

#[test]
fn with_the_policy_dead_letter_an_outage_goes_to_the_dead_letters() {
    let _alone = alone();
    let (topic, state) = (fresh_topic("letters"), Scratch::new("letters"));
    let mock = Mock::with_topic(3, &topic, 6);
    mock.create_topic(&format!("{topic}.dlq"), 6);
    let mut config = spilling(&mock.bootstrap(), &topic, &state);
    config.divert.policy = Some(DivertPolicy::DeadLetter);
    config.dead_letter.grace = Duration::from_secs(1);
    let (router, _) = Router::start(&config).unwrap();
    let mut load = Load::new(router.ingress().unwrap());
    let all = turns(100, 12_000);
    load.submit_all(&all[..2_000]);
    load.settle(&router);
    mock.set_round_trip_ms(-1, 3_000);
    load.submit_all(&all[2_000..10_000]);
    wait_for("dead letters", || router.counts().dead_lettered > 0);
    mock.set_round_trip_ms(-1, 0);
    load.settle(&router);
    // Delivered again once the breaker has closed.
    wait_for("the breaker to close", || {
        let before = router.counts().delivered;
        let device = format!("late:{before}");
        load.submit(&Sent::new(device, "f", fencepost::trigger::State::Enter, crate::common_kafka::now_ms()));
        std::thread::sleep(Duration::from_millis(20));
        router.counts().delivered > before
    });
    let report = stop(router, &mut [load]);
    let counts = &report.counts;
    assert!(counts.dead_lettered > 0 && counts.spilled == 0, "{counts}");
    assert_eq!(counts.accepted, counts.delivered + counts.dead_lettered, "{counts}");
    let kept = read_topic(&mock.bootstrap(), &topic, 6);
    assert_eq!(kept.len() as u64, counts.delivered);
}

#[test]
fn a_callers_dead_letters_settle_like_its_triggers() {
    let _alone = alone();
    let topic = fresh_topic("callers");
    let mock = Mock::with_topic(1, &topic, 4);
    mock.create_topic(&format!("{topic}.dlq"), 4);
    let (router, _) = Router::start(&config(&mock.bootstrap(), &topic)).unwrap();
    let mut ingress = router.ingress().unwrap();
    assert!(ingress.has_dead_letters());
    let all = turns(10, 300);
    for (number, sent) in all.iter().enumerate() {
        let accepted = match number % 3 {
            0 => ingress.dead_letter(&sent.trigger(), "shed").unwrap(),
            1 => ingress.dead_letter_raw(b"{ no json", "malformed", "line 7").unwrap(),
            _ => ingress.submit(&sent.trigger()).unwrap(),
        };
        assert_eq!(accepted.seq.0, number as u64 + 1);
    }
    wait_for("everything to settle", || ingress.settled().0 == 300);
    let report = router.shutdown(Duration::from_secs(10));
    let counts = &report.counts;
    assert_conserved(counts);
    assert_eq!((counts.delivered, counts.dead_lettered, counts.unsettled()), (100, 200, 0), "{counts}");
    let letters = read_topic(&mock.bootstrap(), &format!("{topic}.dlq"), 4);
    assert_eq!(letters.len(), 200);
    assert_eq!(letters.iter().filter(|letter| *letter.value == *b"{ no json").count(), 100);
}
