//! Records put into a topic by hand, where they are wanted; frames with the times they are wanted at; and a plan that reads
//! them back.

use super::PATIENCE;
use fencepost::config::Config;
use fencepost::hlc::Hlc;
use fencepost::sink::kafka;
use fencepost::sink::kafka::tail::{TailError, TailPart, TailPlan, TailRead, read_tail};
use fencepost::topology::affinity;
use fencepost::trigger::{Priority, State};
use fencepost::units::{Nanos, PartitionId, UnixMicros};
use fencepost::wire;
use rdkafka::config::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use std::time::{Duration, Instant};

/// The acceptance of the first frame, in milliseconds.
pub const BEGAN_MS: i64 = 1_772_000_000_000;

/// A producer that does what it is told.
pub struct Raw(pub BaseProducer);

impl Raw {
    pub fn new(bootstrap: &str) -> Raw {
        Raw::with(bootstrap, &[])
    }

    pub fn with(bootstrap: &str, properties: &[(&str, &str)]) -> Raw {
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", bootstrap).set("enable.idempotence", "true").set("log_level", "3");
        client.set("queue.buffering.max.messages", "0").set("linger.ms", "5");
        for (name, value) in properties {
            client.set(*name, *value);
        }
        Raw(client.create().expect("a producer can be made"))
    }

    pub fn send(&self, topic: &str, partition: u32, key: &[u8], value: &[u8]) {
        let record = BaseRecord::to(topic).partition(partition as i32).key(key).payload(value);
        self.0.send(record).unwrap_or_else(|(error, _)| panic!("a record for {topic}: {error}"));
    }

    /// Frames `numbers` of one device of the partition, one a millisecond.
    pub fn send_frames(&self, topic: &str, partition: u32, numbers: std::ops::Range<u64>) {
        for number in numbers {
            self.send(topic, partition, b"device", &frame(partition, number, BEGAN_MS + number as i64));
        }
    }

    /// Waits until all of it is in the topic.
    pub fn flush(&self) {
        self.0.flush(PATIENCE).expect("the broker takes the records");
    }
}

/// Frame `number` of a partition.
pub fn frame(partition: u32, number: u64, accepted_ms: i64) -> Vec<u8> {
    let fence = format!("fence-{partition}-{number}");
    let frame = wire::Frame {
        device_id: b"device",
        fence_id: fence.as_bytes(),
        state: State::Enter,
        event_time_ms: accepted_ms,
        hlc: Hlc::new(accepted_ms as u64, 0),
        accepted: UnixMicros(accepted_ms * 1_000),
        priority: Priority::Normal,
        attributes: b"",
        router_id: b"raw",
        incarnation: 1,
        partition_seq: number + 1,
        salt: 0,
    };
    let mut bytes = vec![0; wire::encoded_len(&frame)];
    wire::encode(&frame, &mut bytes);
    bytes
}

/// Reads `parts` with the connection of a configuration's producer; a ttl of 10 s, and a clock that is ahead of all frames.
pub fn plan(config: &Config, parts: Vec<TailPart>) -> TailPlan {
    let settings = config.kafka_settings().expect("the settings hold");
    TailPlan {
        properties: kafka::properties(&settings, parts.len() as u32),
        topic: config.topic.name.clone(),
        partitions: parts,
        ttl: Nanos::from_millis(10_000),
        accepted_of: |value| wire::decode(value).ok().map(|decoded| decoded.frame.accepted),
        now: UnixMicros((BEGAN_MS + 86_400_000) * 1_000),
        deadline: Instant::now() + PATIENCE,
        records_max_per_partition: 1 << 40,
        cpus: affinity::allowed().expect("the kernel says which CPUs there are"),
    }
}

pub fn known(partition: u32, from: i64) -> TailPart {
    TailPart { partition: PartitionId(partition), from: Some(from), acked: None }
}

pub fn unknown(partition: u32) -> TailPart {
    TailPart { partition: PartitionId(partition), from: None, acked: None }
}

/// One record that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Got {
    pub partition: u32,
    pub offset: i64,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    pub timestamp_ms: Option<i64>,
}

/// Reads all of a plan, and holds the answer against what was handed over.
pub fn read_all(plan: &TailPlan) -> Result<(TailRead, Vec<Got>), TailError> {
    let mut all: Vec<Got> = Vec::new();
    let read = read_tail(plan, &mut |record| {
        all.push(Got {
            partition: record.partition.0,
            offset: record.offset,
            key: record.key.to_vec(),
            value: record.value.to_vec(),
            timestamp_ms: record.timestamp.map(|time| time.0),
        });
        true
    })?;
    println!("{read:?}");
    assert!(!read.is_stopped);
    assert_eq!(read.records, all.len() as u64);
    assert_eq!(read.bytes, all.iter().map(|got| (got.key.len() + got.value.len()) as u64).sum::<u64>());
    assert_eq!(
        read.partitions.iter().map(|part| part.partition).collect::<Vec<_>>(),
        plan.partitions.iter().map(|part| part.partition).collect::<Vec<_>>()
    );
    for part in &read.partitions {
        let offsets: Vec<i64> =
            all.iter().filter(|got| got.partition == part.partition.0).map(|got| got.offset).collect();
        assert!(offsets.is_sorted_by(|one, next| one < next), "in order, once: {part:?}");
        assert!(offsets.iter().all(|offset| (part.from..part.upto).contains(offset)), "{part:?}");
        assert_eq!(offsets.len() as u64, part.records);
    }
    Ok((read, all))
}

/// The offsets of one partition.
pub fn offsets_of(all: &[Got], partition: u32) -> Vec<i64> {
    all.iter().filter(|got| got.partition == partition).map(|got| got.offset).collect()
}

/// Long enough for whatever is not waited for.
pub const SOON: Duration = Duration::from_secs(60);
