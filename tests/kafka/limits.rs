//! The topic's `max.message.bytes`: known at the start, and lowered under a running router.

use crate::common_kafka::admin::Admin;
use crate::common_kafka::load::{Sent, turns_of};
use crate::common_kafka::{Load, PATIENCE, alone, config, finish, fresh_topic, now_ms};
use crate::kafka;
use fencepost::engine::Router;
use fencepost::ingress::Refused;
use fencepost::shard::shared::FailedReason;
use fencepost::trigger::{Reason, State, Trigger};
use std::time::{Duration, Instant};

#[test]
fn l8_a_trigger_above_the_topics_limit_is_refused_at_submit_by_both_numbers() {
    let (Some(bootstrap), _alone) = (kafka(), alone()) else { return };
    let topic = fresh_topic("small");
    Admin::new(&bootstrap).create_topic(&topic, 6, &[("max.message.bytes", "1000")]);
    let mut config = config(&bootstrap, &topic);
    // A batch above the limit is warned of where a person asked for it; the router keeps its own below by itself.
    config.kafka.properties.set("batch.size", 16_384);
    let (router, _) = Router::start(&config).unwrap();
    let warnings = router.warnings().join("\n");
    assert!(warnings.contains("batch.size") && warnings.contains("max.message.bytes = 1000"), "{warnings}");
    finish(router, &mut [], &bootstrap, &topic, 6).assert_clean();
    config.kafka.properties = Default::default();
    let (router, _) = Router::start(&config).unwrap();
    assert!(router.warnings().iter().all(|warning| warning.contains("dead letters")), "{:?}", router.warnings());
    let mut load = Load::new(router.ingress().unwrap());
    let attributes = [b'x'; 1_024];
    let large = Trigger::new("d", "f", State::Enter, now_ms()).with_attributes(&attributes);
    let refused = load.ingress.submit(&large).unwrap_err();
    let Refused::Rejected(Reason::FrameTooLarge { size, limit }) = refused else { panic!("{refused:?}") };
    assert_eq!(limit, 1_000);
    assert!(size > 1_024, "{size}");
    let text = refused.to_string();
    assert!(text.contains(&size.to_string()) && text.contains("1000"), "{text}");
    // Many batches' worth: each of them must fit the topic too.
    load.submit_all(&turns_of("small", 200, 5_000));
    let finished = finish(router, &mut [load], &bootstrap, &topic, 6);
    finished.assert_clean();
    let counts = finished.counts;
    assert_eq!((counts.delivered, counts.failed, counts.rejected), (5_000, 0, 1), "{counts}");
    assert_eq!(counts.refused_batches, 0, "no batch is made that the topic does not take");
}

#[test]
fn o12_l8_when_the_limit_is_lowered_under_way_only_what_is_too_large_fails() {
    let (Some(bootstrap), _alone) = (kafka(), alone()) else { return };
    let topic = fresh_topic("lowered");
    let admin = Admin::new(&bootstrap);
    admin.create_topic(&topic, 3, &[]);
    let (router, _) = Router::start(&config(&bootstrap, &topic)).unwrap();
    let mut load = Load::new(router.ingress().unwrap());
    load.submit_all(&turns_of("before", 100, 1_000));
    load.settle(&router);
    admin.set(&topic, "max.message.bytes", "700");
    // Each broker learns it by itself, a moment after the one that answered.
    std::thread::sleep(Duration::from_millis(1_500));
    // Each of its own device, so that nothing stands behind another; 5 of 100 do not compress below the limit.
    let noise: Vec<u8> = (0..1_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 23) as u8).collect();
    let mut large_seqs = Vec::new();
    for number in 0..300 {
        let sent = Sent::new(format!("lowered:{number}"), "cell:1", State::Enter, now_ms());
        let is_large = number % 20 == 7;
        let trigger = sent.trigger().with_attributes(if is_large { &noise } else { &[] });
        let accepted = load.ingress.submit(&trigger).expect("there is room, and the new limit is not known yet");
        if is_large {
            large_seqs.push(accepted.seq.0);
        }
        load.accepted.push(sent);
    }
    load.settle(&router);
    let mut failed: Vec<u64> = load.failed.iter().map(|failed| failed.seq.0).collect();
    failed.sort_unstable();
    println!("{} failed, {:?}", failed.len(), load.failed.first());
    assert_eq!(failed, large_seqs, "exactly the too large ones");
    let is_too_large = |reason: FailedReason| {
        matches!(reason, FailedReason::Refused { code: 10 } | FailedReason::TooLarge { limit: 700, .. })
    };
    assert!(load.failed.iter().all(|failed| is_too_large(failed.reason)), "{:?}", load.failed);
    assert_eq!(router.blocked_partitions(), 0, "no partition is blocked by them");

    // The router learns the new limit by itself, and refuses such a trigger at submit from then on.
    let began = Instant::now();
    let large = Trigger::new("learnt", "f", State::Enter, now_ms()).with_attributes(&noise);
    loop {
        match load.ingress.submit(&large) {
            Err(Refused::Rejected(Reason::FrameTooLarge { limit: 700, .. })) => break,
            Ok(_) => load.accepted.push(Sent::new("learnt", "f", State::Enter, large.event_time_ms)),
            Err(refused) => panic!("{refused}"),
        }
        assert!(began.elapsed() < PATIENCE, "the new limit is not learnt");
        load.settle(&router);
        std::thread::sleep(Duration::from_millis(500));
    }
    println!("learnt after {:?}", began.elapsed());
    for sent in turns_of("after", 50, 100) {
        load.submit(&sent);
        load.settle(&router);
    }
    let finished = finish(router, &mut [load], &bootstrap, &topic, 3);
    finished.assert_clean();
    assert!(finished.counts.refused_batches > 0, "batches were refused");
    assert_eq!(finished.counts.would_reorder, 0);
}
