//! Recorded triggers of real devices: ships in the Suez canal, and phones that people carried.

use crate::common_kafka::admin::Admin;
use crate::common_kafka::load::Sent;
use crate::common_kafka::reader::{end_offsets, read_topic};
use crate::common_kafka::{Load, alone, config, finish, fresh_topic};
use crate::{in_tree, kafka};
use fencepost::config::AgeLimit;
use fencepost::engine::Router;
use fencepost::trigger::State;
use fencepost::verify::frame::Frame;
use fencepost::verify::murmur2::partition_of;
use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

const PARTITIONS: u32 = 24;

fn read_file(name: &str) -> Option<Vec<Sent>> {
    let path = in_tree("../shared/data").join(name);
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("skipped: ../shared is absent, and with it {name}");
        return None;
    };
    let read = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
        let text = |key: &str| value[key].as_str().expect("text").to_owned();
        let state = match value["state"].as_str() {
            Some("enter") => State::Enter,
            Some("exit") => State::Exit,
            Some("dwell") => State::Dwell,
            other => panic!("state {other:?}"),
        };
        Sent::new(text("device_id"), text("fence_id"), state, value["event_time_ms"].as_i64().expect("a time"))
    };
    Some(text.lines().map(read).collect())
}

/// Per device: what its triggers say, in order, repeats left out.
fn per_device(all: impl Iterator<Item = Sent>) -> HashMap<String, Vec<Sent>> {
    let mut seen = HashSet::new();
    let mut devices: HashMap<String, Vec<Sent>> = HashMap::new();
    for sent in all {
        let key = Sent { event_time_ms: sent.event_time_ms.div_euclid(1_000), ..sent.clone() };
        if seen.insert(key) {
            devices.entry(sent.device.clone()).or_default().push(sent);
        }
    }
    devices
}

fn route_recorded(name: &str) {
    let (Some(bootstrap), _alone) = (kafka(), alone()) else { return };
    let Some(all) = read_file(name) else { return };
    let topic = fresh_topic("recorded");
    Admin::new(&bootstrap).create_topic(&topic, PARTITIONS, &[]);
    let mut config = config(&bootstrap, &topic);
    config.time.past_limit = Some(AgeLimit::Off);
    // The second pass shall come within the window, however slow the machine is.
    config.dedup.ttl = Duration::from_secs(3_600);
    config.engine.shards = 2;
    let (router, _) = Router::start(&config).unwrap();
    let mut load = Load::new(router.ingress().unwrap());
    load.submit_all(&all);
    load.settle(&router);
    let ends = end_offsets(&bootstrap, &topic, PARTITIONS);
    let expected = per_device(all.iter().cloned());
    let distinct: u64 = expected.values().map(|triggers| triggers.len() as u64).sum();
    assert_eq!(ends.iter().sum::<i64>() as u64, distinct);

    load.submit_all(&all);
    load.settle(&router);
    assert_eq!(end_offsets(&bootstrap, &topic, PARTITIONS), ends, "the second pass adds no record");

    let finished = finish(router, &mut [load], &bootstrap, &topic, PARTITIONS);
    finished.assert_clean();
    let counts = finished.counts;
    println!("{name}: {} lines, {distinct} distinct, {} devices", all.len(), expected.len());
    assert_eq!((counts.delivered, counts.deduplicated), (distinct, 2 * all.len() as u64 - distinct));
    let read_back = per_device(finished.kept.iter().map(|kept| {
        let frame = Frame::read(&kept.value).expect("every record is a frame");
        assert_eq!(kept.key, frame.device_id.as_bytes());
        Sent::new(frame.device_id, frame.fence_id, frame.state, frame.event_time_ms)
    }));
    assert_eq!(read_back, expected, "each device as in the file");

    // A sample of the keys, produced by Kafka's own tool: the same partition.
    let mut devices: Vec<&String> = expected.keys().collect();
    devices.sort();
    devices.truncate(60);
    let by_java = partitions_by_kafkas_own_producer(&bootstrap, &devices);
    for device in devices {
        assert_eq!(by_java[device.as_bytes()], partition_of(device.as_bytes(), PARTITIONS), "{device}");
    }
}

/// Where Kafka's console producer, which is the Java client, puts records with these keys.
fn partitions_by_kafkas_own_producer(bootstrap: &str, keys: &[&String]) -> HashMap<Vec<u8>, u32> {
    let topic = fresh_topic("by-java");
    Admin::new(bootstrap).create_topic(&topic, PARTITIONS, &[]);
    let mut tool = Command::new(in_tree("script/kafka"))
        .args(["tool", "console-producer", "--bootstrap-server", bootstrap, "--topic", &topic])
        .args(["--reader-property", "parse.key=true", "--reader-property", "key.separator=|"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("script/kafka can be run");
    let lines: String = keys.iter().map(|key| format!("{key}|x\n")).collect();
    let mut input = tool.stdin.take().expect("a pipe");
    input.write_all(lines.as_bytes()).expect("the tool reads");
    drop(input);
    assert!(tool.wait().expect("the tool ends").success());
    let kept = read_topic(bootstrap, &topic, PARTITIONS);
    assert_eq!(kept.len(), keys.len());
    kept.into_iter().map(|record| (record.key, record.partition)).collect()
}

#[test]
fn ships_of_the_suez_canal_arrive_once_in_order_and_where_kafkas_own_client_puts_them() {
    route_recorded("suez-vessels.ndjson");
}

#[test]
fn phones_of_geolife_arrive_once_in_order_and_where_kafkas_own_client_puts_them() {
    route_recorded("geolife-phones.ndjson");
}
