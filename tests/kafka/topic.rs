//! The topic: made by the router, pinned, grown by others; and the time its records carry.

use crate::common_kafka::admin::Admin;
use crate::common_kafka::load::{stop, turns_of};
use crate::common_kafka::reader::{judge, read_topic};
use crate::common_kafka::{Load, Scratch, alone, config, finish, fresh_topic, now_ms};
use crate::kafka;
use fencepost::config::RecordTime;
use fencepost::engine::{Router, StartError};
use fencepost::verify::frame::Frame;

#[test]
fn o8_o11_a_topic_is_made_with_24_partitions_pinned_and_keeps_its_map_when_it_grows() {
    let (Some(bootstrap), _alone) = (kafka(), alone()) else { return };
    let topic = fresh_topic("made");
    let state = Scratch::new("made");
    let mut config = config(&bootstrap, &topic);
    let missing = Router::start(&config).err().expect("there is no such topic");
    assert!(missing.to_string().contains("topic.create = true"), "{missing}");

    config.topic.create = true;
    config.state.dir = Some(state.0.clone());
    let mut loads = Vec::new();
    let mut delivered = 0;
    for run in ["first", "second", "grown"] {
        if run == "grown" {
            Admin::new(&bootstrap).grow_topic(&topic, 30);
        }
        let (router, _) = Router::start(&config).unwrap();
        assert_eq!(router.partitions(), 24, "{run}");
        let warnings = router.warnings().join("\n");
        println!("{run}: {warnings:?}");
        if run == "grown" {
            assert!(warnings.contains("partition_count_drift"), "{warnings}");
            assert!(warnings.contains("30 partitions") && warnings.contains("24 are pinned"), "{warnings}");
        } else {
            assert_eq!(warnings, "", "{run}");
        }
        let mut load = Load::new(router.ingress().unwrap());
        load.submit_all(&turns_of(run, 300, 3_000));
        let mut own = [load];
        delivered += stop(router, &mut own).counts.delivered;
        loads.extend(own);
    }
    assert_eq!(delivered, 9_000);
    let kept = read_topic(&bootstrap, &topic, 30);
    assert!(kept.iter().all(|record| record.partition < 24), "the new partitions are not used");
    let ledgers: Vec<_> = loads.iter().map(Load::ledger).collect();
    let verdict = judge(&kept, 24, &ledgers);
    assert!(verdict.is_clean(), "{verdict}");

    config.topic.partitions = Some(30);
    let other = Router::start(&config).err().expect("another count is pinned");
    assert!(matches!(other, StartError::OtherPin { configured: 30, remembered: 24 }), "{other}");
    config.topic.partitions = Some(31);
    config.state.dir = None;
    let fewer = Router::start(&config).err().expect("the topic has fewer").to_string();
    assert!(fewer.contains("30 partitions") && fewer.contains("31"), "{fewer}");
}

/// The topic's records beside their frames, with this setting of `kafka.record_time`.
fn route_and_read(record_time: RecordTime) -> (i64, i64, Vec<(i64, i64)>) {
    let bootstrap = kafka().expect("asked before");
    let topic = fresh_topic("time");
    Admin::new(&bootstrap).create_topic(&topic, 6, &[]);
    let mut config = config(&bootstrap, &topic);
    config.kafka.record_time = record_time;
    let (router, _) = Router::start(&config).unwrap();
    let mut load = Load::new(router.ingress().unwrap());
    let mut all = turns_of("late", 50, 1_000);
    // Two days late: neither time can be taken for the other.
    all.iter_mut().for_each(|sent| sent.event_time_ms -= 2 * 86_400_000);
    let before = now_ms();
    load.submit_all(&all);
    load.settle(&router);
    let after = now_ms();
    let finished = finish(router, &mut [load], &bootstrap, &topic, 6);
    finished.assert_clean();
    let pair = |record: &crate::common_kafka::reader::Kept| {
        (record.timestamp_ms, Frame::read(&record.value).unwrap().event_time_ms)
    };
    (before, after, finished.kept.iter().map(pair).collect())
}

#[test]
fn a_record_carries_the_time_of_acceptance_or_of_the_event() {
    let (Some(_), _alone) = (kafka(), alone()) else { return };
    let (before, after, records) = route_and_read(RecordTime::Accepted);
    assert_eq!(records.len(), 1_000);
    for (time, event) in records {
        assert!((before..=after).contains(&time), "record {time} not in {before}..={after}, event {event}");
    }
    let (_, _, records) = route_and_read(RecordTime::Event);
    assert_eq!(records.len(), 1_000);
    for (time, event) in records {
        assert_eq!(time, event);
    }
}
