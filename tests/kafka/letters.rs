//! Dead letters that their topic refuses: a real broker refuses the batch, and names nobody.

use crate::common_kafka::admin::Admin;
use crate::common_kafka::reader::read_topic;
use crate::common_kafka::{PATIENCE, alone, config, fresh_topic};
use crate::kafka;
use fencepost::clock::{Clock, SystemClock};
use fencepost::letter::{Desk, DeskLimits, Headers, Letter, Notes, Reason, Settled};
use fencepost::sink::kafka::letters::letter_properties;
use fencepost::sink::kafka::{HandleSettings, KafkaLetters};
use fencepost::spill::RealDisk;
use fencepost::topology::affinity;
use fencepost::units::{PartitionId, UnixMs};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

#[test]
fn s3_of_a_hundred_letters_the_three_too_large_are_refused_and_the_others_delivered() {
    let (Some(bootstrap), _alone) = (kafka(), alone()) else { return };
    let topic = fresh_topic("dlq");
    Admin::new(&bootstrap).create_topic(&topic, 2, &[("max.message.bytes", "3000")]);
    let settings = config(&bootstrap, "triggers").kafka_settings().unwrap();
    let properties = letter_properties(&settings);
    let cpus = affinity::allowed().unwrap();
    let sink = KafkaLetters::new(HandleSettings { topic: topic.clone(), properties, cpus }).unwrap();
    // Without a disk, so that what the topic refuses is said to be refused.
    let mut desk: Desk<KafkaLetters, RealDisk> = Desk::new(sink, None, DeskLimits::new(3));
    let clock = SystemClock::new();
    // What no compression makes smaller.
    let mut luck = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        luck = luck.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (luck >> 56) as u8
    })
    .take(5_000)
    .collect();
    let large = [10_u64, 50, 90];
    for id in 0..100_u64 {
        let mut value = id.to_le_bytes().to_vec();
        value.extend(if large.contains(&id) { &noise[..] } else { &noise[..40] });
        let letter = Letter {
            // The third partition's letters go to the first of the two that the topic has.
            partition: PartitionId((id % 3) as u32),
            key: Some(b"bus-7"),
            value: Some(&value),
            headers: Headers::List(&[]),
            record_time: Some(UnixMs(1_700_000_000_000)),
            notes: Notes { reason: Reason::Refused, topic: "triggers", stage: "publish", ..Notes::default() },
        };
        desk.take(id, &letter, clock.mono()).unwrap();
    }
    let (began, mut reports) = (Instant::now(), BTreeMap::new());
    while reports.len() < 100 {
        assert!(began.elapsed() < PATIENCE, "{:?}, {}", desk.counts(), desk.trouble());
        desk.turn(clock.mono(), &mut |token, settled| {
            let refused = match settled {
                Settled::Durable { on_disk } => {
                    assert!(!on_disk, "there is no disk");
                    None
                }
                Settled::Refused { text } => Some(text.to_owned()),
            };
            assert_eq!(reports.insert(token, refused), None, "{token} is reported twice");
        });
        std::thread::sleep(Duration::from_millis(2));
    }
    println!("{:?} after {:?}", desk.counts(), began.elapsed());
    let refused: Vec<u64> = reports.iter().filter(|(_, refused)| refused.is_some()).map(|(id, _)| *id).collect();
    assert_eq!(refused, large);
    assert!(reports[&10].as_ref().unwrap().contains("too large"), "{:?}", reports[&10]);
    let kept = read_topic(&bootstrap, &topic, 2);
    let id_of = |value: &[u8]| u64::from_le_bytes(value[..8].try_into().unwrap());
    let ids: BTreeSet<u64> = kept.iter().map(|record| id_of(&record.value)).collect();
    assert_eq!(ids, (0..100).filter(|id| !large.contains(id)).collect());
    assert_eq!(kept.len(), 97, "none twice");
    for record in &kept {
        assert_eq!(u64::from(record.partition), id_of(&record.value) % 3 % 2);
        assert_eq!(record.timestamp_ms, 1_700_000_000_000);
    }
}
