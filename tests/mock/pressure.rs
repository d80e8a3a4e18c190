//! Brokers that are away: at the start, and at the stop.

use crate::common_kafka::load::{Sent, assert_conserved, turns};
use crate::common_kafka::mock::Answer;
use crate::common_kafka::{Load, Mock, PATIENCE, alone, config, finish, fresh_topic, now_ms};
use fencepost::engine::Router;
use fencepost::ingress::Refused;
use fencepost::trigger::State;
use std::time::{Duration, Instant};

#[test]
fn p2_before_the_first_connection_triggers_are_taken_up_to_the_bound_then_shed() {
    let _alone = alone();
    let topic = fresh_topic("p2");
    let mock = Mock::with_topic(2, &topic, 6);
    let mut config = config(&mock.bootstrap(), &topic);
    mock.set_down(1);
    mock.set_down(2);
    config.start.require_broker = false;
    config.start.timeout = Duration::from_secs(4);
    config.topic.partitions = Some(6);
    config.queue.capacity = 2_000;
    config.inflight.partition = 1_000;
    config.inflight.total = 4_000;
    config.inflight.waiting = 1_000;
    let bound = 2_000 + 4_000 + 1_000;
    let (router, readiness) = Router::start(&config).unwrap();
    assert!(readiness.is_cold);
    assert!(!router.warnings().is_empty(), "it says that it started without the broker");
    let mut load = Load::new(router.ingress().unwrap());
    for n in 0..200_000 {
        let sent = Sent::new(format!("d{}", n % 1_000), format!("f{n}"), State::Enter, now_ms());
        match load.offer(&sent) {
            Ok(()) | Err(Refused::Shed(_)) => {}
            Err(refused) => panic!("{refused}"),
        }
    }
    let accepted = load.accepted.len();
    println!("accepted {accepted} of 200,000, shed {}", load.shed);
    assert!((1_000..=bound).contains(&accepted), "accepted {accepted}, the bound is {bound}");
    assert_eq!(load.shed, 200_000 - accepted as u64);
    assert_eq!(router.counts().delivered, 0);
    mock.set_up(1);
    mock.set_up(2);
    let finished = finish(router, &mut [load], &mock.bootstrap(), &topic, 6);
    finished.assert_clean();
    assert_eq!((finished.counts.delivered, finished.counts.failed), (accepted as u64, 0));
    assert_eq!(finished.counts.shed, 200_000 - accepted as u64);
}

#[test]
fn p1_publishing_resumes_after_each_of_three_outages_without_a_restart() {
    let _alone = alone();
    let topic = fresh_topic("p1");
    let mock = Mock::with_topic(2, &topic, 6);
    let (router, _) = Router::start(&config(&mock.bootstrap(), &topic)).unwrap();
    let mut load = Load::new(router.ingress().unwrap());
    let all = turns(200, 9_000);
    for part in all.chunks(3_000) {
        load.submit_all(&part[..1_000]);
        load.settle(&router);
        mock.set_down(1);
        mock.set_down(2);
        load.submit_all(&part[1_000..]);
        std::thread::sleep(Duration::from_secs(2));
        assert!(!load.is_settled(), "the brokers are away");
        mock.set_up(1);
        mock.set_up(2);
        let began = Instant::now();
        load.settle(&router);
        println!("everything settled {:?} after the brokers were back", began.elapsed());
    }
    let finished = finish(router, &mut [load], &mock.bootstrap(), &topic, 6);
    finished.assert_clean();
    assert_eq!((finished.counts.delivered, finished.counts.producer_rebuilds), (9_000, 0));
}

#[test]
fn s1_a_stop_with_the_brokers_away_returns_in_time_and_adds_up() {
    let _alone = alone();
    let topic = fresh_topic("s1");
    let mock = Mock::with_topic(2, &topic, 6);
    let (router, _) = Router::start(&config(&mock.bootstrap(), &topic)).unwrap();
    let mut load = Load::new(router.ingress().unwrap());
    let all = turns(100, 1_100);
    load.submit_all(&all[..100]);
    load.settle(&router);
    mock.set_down(1);
    mock.set_down(2);
    load.submit_all(&all[100..]);
    let limit = Duration::from_secs(1);
    let began = Instant::now();
    let report = router.shutdown(limit);
    let took = began.elapsed();
    println!("stopped after {took:?}: {}", report.counts);
    // Promised is the limit and one second; a loaded machine may be late to notice.
    assert!(took < limit + Duration::from_secs(1) + Duration::from_secs(3), "{took:?}");
    assert_conserved(&report.counts);
    assert_eq!(report.lost_shards, Vec::<u16>::new());
    let counts = report.counts;
    assert_eq!((counts.accepted, counts.delivered, counts.failed), (1_100, 100, 0), "{counts}");
    assert_eq!(counts.unsettled(), 1_000, "each outcome once: {counts}");
    assert_eq!(load.ingress.settled().0, 100, "nothing is called settled that is not");
    let began = Instant::now();
    while fencepost::sink::kafka::being_destroyed() > 0 {
        assert!(began.elapsed() < PATIENCE, "the given-up handle is gone some time");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn l10_unknown_topic_for_10_s_is_tried_again_and_nothing_fails() {
    let _alone = alone();
    let topic = fresh_topic("l10");
    let mock = Mock::with_topic(2, &topic, 6);
    let (router, _) = Router::start(&config(&mock.bootstrap(), &topic)).unwrap();
    let mut load = Load::new(router.ingress().unwrap());
    let all = turns(200, 4_000);
    load.submit_all(&all[..1_000]);
    load.settle(&router);
    // One of the two brokers is stale: it says so to every request it gets, the other one answers as ever.
    let stale = [Answer::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART; 20];
    let began = Instant::now();
    let mut given = 0;
    std::thread::scope(|scope| {
        let feeder = scope.spawn(|| load.submit_all(&all[1_000..]));
        while began.elapsed() < Duration::from_secs(10) {
            for answer in stale {
                mock.answer_produce_of(1, answer, 0);
                given += 1;
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        // What was not asked for in the ten seconds is answered to the tries after them.
        assert!(router.counts().delivered < 4_000, "the stale broker's partitions still wait: {}", router.counts());
        feeder.join().unwrap();
    });
    load.settle(&router);
    println!("{given} such answers were ready; all settled {:?} after the first", began.elapsed());
    let finished = finish(router, &mut [load], &mock.bootstrap(), &topic, 6);
    finished.assert_clean();
    let counts = finished.counts;
    assert_eq!((counts.delivered, counts.failed, counts.dead_lettered), (4_000, 0, 0), "{counts}");
}
