//! A topic against the rows it was made from: is each distinct trigger in it, how often, and in the order of its device?
//! Values are the router's frames or rows of JSON; the frames are read by the checkers' own reader.
//!
//! The rate comes from the broker: with `LogAppendTime`, the records' times run from the first append to the last, which
//! leaves out how long a program takes to start and to stop, alike for all.

use super::Failed;
use fencepost::config::Config;
use fencepost::sink::kafka;
use fencepost::sink::kafka::topic::{NewTopicPlan, TopicDesk};
use fencepost::source::ndjson;
use fencepost::trigger::{KEY_BYTES_MAX, Trigger};
use fencepost::verify::frame::Frame;
use rdkafka::Message;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// How long a topic may stay silent before its end.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// What is in the topic.
#[derive(Debug, Default)]
pub struct Found {
    /// Records read.
    pub records: u64,
    /// Distinct triggers of the rows.
    pub expected: u64,
    /// Of those, not in the topic.
    pub missing: u64,
    /// Records of a trigger that was there already.
    pub repeats: u64,
    /// Records that are none of the rows.
    pub foreign: u64,
    /// First appearances whose device had a later trigger before them, in their partition.
    pub misordered: u64,
    /// Devices that are in more than one partition, where nothing orders them.
    pub scattered: u64,
    /// From the first append to the last, by the broker's clock.
    pub took_ms: i64,
}

impl Found {
    /// For a script.
    pub fn as_json(&self) -> serde_json::Value {
        serde_json::json!({
            "records": self.records, "expected": self.expected, "missing": self.missing, "repeats": self.repeats,
            "foreign": self.foreign, "misordered": self.misordered, "scattered": self.scattered,
            "took_ms": self.took_ms,
        })
    }
}

/// Makes a topic, and waits until the cluster shows it.
///
/// # Errors
/// What the cluster says.
pub fn create(bootstrap: &str, topic: &str, partitions: u32) -> Result<(), Failed> {
    let mut config = Config::default();
    config.kafka.bootstrap = Some(bootstrap.into());
    config.topic.name = topic.into();
    let properties = kafka::properties(&config.kafka_settings()?, partitions);
    let plan = NewTopicPlan { partitions, replication: 1, min_insync_replicas: 1 };
    TopicDesk::new(&properties, topic).prepare(Some(&plan), Duration::from_secs(300))?;
    Ok(())
}

/// The trigger's idempotency key, as it is stored.
fn key_of(trigger: &Trigger<'_>) -> Vec<u8> {
    let mut place = [0; KEY_BYTES_MAX];
    let len = trigger.key().write_to(&mut place);
    place[..len].to_vec()
}

/// A device and the number of its trigger, by the trigger's key.
type Wanted = HashMap<Vec<u8>, (u32, u32)>;

/// Distinct triggers in the order of the rows.
fn wanted(rows: &[u8]) -> Result<(Wanted, usize), Failed> {
    let mut devices: HashMap<String, (u32, u32)> = HashMap::new();
    let mut wanted = Wanted::new();
    for line in rows.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        let mut line = line.to_vec();
        let trigger = ndjson::parse(&mut line)?;
        let key = key_of(&trigger);
        if wanted.contains_key(&key) {
            continue;
        }
        let number = devices.len() as u32;
        let device = devices.entry(trigger.device_id.to_owned()).or_insert((number, 0));
        device.1 += 1;
        wanted.insert(key, *device);
    }
    Ok((wanted, devices.len()))
}

/// Reads the whole topic.
///
/// # Errors
/// What the cluster says, or a topic that ends too early.
pub fn check(bootstrap: &str, topic: &str, rows: &[u8]) -> Result<Found, Failed> {
    let (wanted, devices) = wanted(rows)?;
    let mut found = Found { expected: wanted.len() as u64, ..Found::default() };
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "field-check")
        .set("enable.auto.commit", "false")
        .set("isolation.level", "read_uncommitted")
        .create()?;
    let limit = Duration::from_secs(30);
    let metadata = consumer.fetch_metadata(Some(topic), limit)?;
    let partitions = metadata.topics().first().map_or(0, |topic| topic.partitions().len());
    let (mut list, mut left) = (TopicPartitionList::new(), 0);
    for partition in 0..partitions as i32 {
        let (low, high) = consumer.fetch_watermarks(topic, partition, limit)?;
        list.add_partition_offset(topic, partition, Offset::Beginning)?;
        left += high - low;
    }
    consumer.assign(&list)?;
    let mut last: Vec<Option<(i32, u32)>> = vec![None; devices];
    let mut scattered = vec![false; devices];
    let mut seen: HashSet<(u32, u32)> = HashSet::with_capacity(wanted.len());
    let (mut first_ms, mut last_ms) = (i64::MAX, i64::MIN);
    let mut heard = Instant::now();
    while left > 0 {
        let Some(record) = consumer.poll(Duration::from_millis(200)) else {
            if heard.elapsed() > SILENCE_MAX {
                return Err(format!("topic {topic}: {left} records did not come").into());
            }
            continue;
        };
        let record = record?;
        (heard, left) = (Instant::now(), left - 1);
        found.records += 1;
        if let Some(at) = record.timestamp().to_millis() {
            (first_ms, last_ms) = (first_ms.min(at), last_ms.max(at));
        }
        let value = record.payload().unwrap_or_default();
        let mut line = value.to_vec();
        let key = match Frame::read(value) {
            Ok(frame) => key_of(&Trigger::new(frame.device_id, frame.fence_id, frame.state, frame.event_time_ms)),
            Err(_) => match ndjson::parse(&mut line) {
                Ok(trigger) => key_of(&trigger),
                Err(_) => Vec::new(),
            },
        };
        let Some(&(device, number)) = wanted.get(&key) else {
            found.foreign += 1;
            continue;
        };
        if !seen.insert((device, number)) {
            found.repeats += 1;
            continue;
        }
        let device = device as usize;
        match last[device] {
            Some((partition, _)) if partition != record.partition() => scattered[device] = true,
            Some((_, before)) if before > number => found.misordered += 1,
            _ => last[device] = Some((record.partition(), number)),
        }
    }
    found.missing = found.expected - seen.len() as u64;
    found.scattered = scattered.iter().filter(|&&is| is).count() as u64;
    found.took_ms = (last_ms - first_ms).max(1);
    Ok(found)
}
