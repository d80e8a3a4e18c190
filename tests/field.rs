//! The measurements of `examples/field` at a small size: what must hold exactly, whatever the machine. Nothing here is about
//! time.
#![allow(dead_code, reason = "the tables' text and the check of a topic are the example's")]

#[path = "../examples/field/dedup.rs"]
mod dedup;
#[path = "../examples/field/input.rs"]
mod input;
#[path = "../examples/field/keys.rs"]
mod keys;
#[path = "../examples/field/raw.rs"]
mod raw;
#[path = "../examples/field/state.rs"]
mod state;
#[path = "../examples/field/topic.rs"]
mod topic;

use keys::{KeyBy, Plan};
use rdkafka::mocking::MockCluster;
use std::collections::HashSet;

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// The mock's partitions remember 5 MB each, far more than this.
#[test]
fn the_key_device_keeps_the_order_of_a_device_and_the_others_need_not() {
    let mock = MockCluster::new(3).expect("a mock cluster can be made");
    let plan = Plan {
        bootstrap: mock.bootstrap_servers(),
        triggers: 12_000,
        rate: 0,
        devices: 200,
        fences: 300,
        ..Plan::default()
    };
    let triggers = input::rows(plan.triggers, plan.devices, plan.fences, plan.seed);
    for by in [KeyBy::Device, KeyBy::Fence] {
        let topic = format!("field-{by:?}");
        mock.create_topic(&topic, plan.partitions as i32, 1).expect("the mock makes topics");
        let found = keys::turn(&plan, &topic, &triggers, by).expect("all triggers are consumed");
        println!("{by:?}: {found:?}");
        let devices: HashSet<u32> = triggers.iter().map(|row| row.device).collect();
        assert_eq!(found.pairs, (triggers.len() - devices.len()) as u64, "{by:?}");
        assert!(found.skew >= 1.0, "the fullest partition is not below the mean: {found:?}");
        if by == KeyBy::Device {
            assert_eq!((found.live, found.backlog), (0, 0), "{found:?}");
        }
    }
}

#[test]
fn the_exact_window_drops_nothing_and_a_bloom_filter_one_in_a_hundred() {
    let exact = dedup::exact(20_000, 200_000);
    assert_eq!((exact.dropped, exact.missed, exact.asked), (0, 0, 200_000));
    let bloom = dedup::bloom(20_000, 200_000);
    assert_eq!(bloom.missed, 0, "no false negative");
    assert!((bloom.bytes_a_key - 1.2).abs() < 0.01, "9.6 bits a key: {bloom:?}");
    let rate = bloom.dropped as f64 / bloom.asked as f64;
    // Designed for 1 %; the spread of 200,000 asks is 0.02 %, that of 20,000 keys' bits a little more.
    assert!((0.005..0.02).contains(&rate), "{bloom:?}");
}

#[test]
fn the_states_of_eight_consumers_count_every_trigger_once() {
    let triggers = input::rows(20_000, 400, 600, 7);
    let shares = state::shared_out(&triggers);
    assert_eq!(shares.iter().map(Vec::len).sum::<usize>(), triggers.len());
    let places: usize =
        shares.iter().map(|share| share.iter().map(|row| row.device).collect::<HashSet<_>>().len()).sum();
    assert_eq!(places, triggers.iter().map(|row| row.device).collect::<HashSet<_>>().len(), "one consumer a device");
    assert_eq!(state::local(&triggers, 3).expect("nothing can fail").counted, 60_000);
}

#[test]
fn the_answers_of_redis_are_read() {
    let mut text: &[u8] = b"+OK\r\n$-1\r\n$5\r\n1|a|2\r\n:7\r\n-ERR no\r\n";
    let mut next = || state::read_answer(&mut text);
    assert_eq!(next().unwrap().as_deref(), Some(&b"OK"[..]));
    assert_eq!(next().unwrap(), None);
    assert_eq!(next().unwrap().as_deref(), Some(&b"1|a|2"[..]));
    assert_eq!(next().unwrap().as_deref(), Some(&b"7"[..]));
    assert!(next().unwrap_err().to_string().contains("-ERR no"));
}

#[test]
fn the_same_seed_gives_the_same_rows() {
    let made = |seed| {
        let mut out = Vec::new();
        input::write(500, seed, &mut out).expect("a Vec takes all");
        out
    };
    assert_eq!(made(3), made(3));
    assert_ne!(made(3), made(4));
    assert_eq!(made(3).iter().filter(|&&byte| byte == b'\n').count(), 500);
}

#[test]
fn a_recording_is_played_again_with_other_devices_and_one_row_in_ten_is_a_repeat() {
    let recorded = (0..7).map(|n| {
        format!(
            "{{\"device_id\":\"v-{n}\",\"fence_id\":\"f\\\"{n}\",\"state\":\"enter\",\"event_time_ms\":{}}}\n",
            1_600_000_000_000_i64 + n
        )
    });
    let mut out = Vec::new();
    input::write_again(&recorded.collect::<String>(), 1_000, &mut out).expect("a Vec takes all");
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.lines().count(), 1_000);
    assert_eq!(text.lines().collect::<HashSet<_>>().len(), 900);
    for line in text.lines() {
        let mut line = line.as_bytes().to_vec();
        fencepost::source::ndjson::parse(&mut line).expect("each row is a trigger");
    }
    assert!(input::write_again("", 1, &mut Vec::new()).is_err());
}

#[test]
fn the_client_alone_sends_every_row_once() {
    let mock = MockCluster::new(1).expect("a mock cluster can be made");
    mock.create_topic("raw", 4, 1).expect("the mock makes topics");
    let mut rows = Vec::new();
    input::write(5_000, 1, &mut rows).expect("a Vec takes all");
    let bootstrap = mock.bootstrap_servers();
    assert_eq!(raw::send(&bootstrap, "raw", 4, &rows).expect("the mock takes all"), 5_000);
    let found = topic::check(&bootstrap, "raw", &rows).expect("the topic can be read");
    assert_eq!((found.records, found.missing, found.foreign), (5_000, 0, 0), "{found:?}");
    assert_eq!((found.misordered, found.scattered), (0, 0), "{found:?}");
}
