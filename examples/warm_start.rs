//! How fast a start reads the tail of a topic: fills a topic of its own with frames, then reads it all, several times, alone
//! and with what a warm start makes of it.
//!
//! `script/kafka run -- cargo run --release --example warm_start [RECORDS] [PARTITIONS] [ROUNDS]`

use fencepost::clock::{Clock, SystemClock};
use fencepost::config::Config;
use fencepost::engine::warm_start::{WarmLimits, WarmStart, accepted_of};
use fencepost::hlc::Hlc;
use fencepost::sink::kafka;
use fencepost::sink::kafka::tail::{TailPart, TailPlan, read_tail};
use fencepost::sink::kafka::topic::{NewTopicPlan, TopicDesk};
use fencepost::topology::affinity;
use fencepost::trigger::{Priority, State};
use fencepost::units::{Nanos, PartitionId, UnixMicros};
use fencepost::{partition, wire};
use rdkafka::config::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use std::error::Error;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let records = arguments.next().transpose()?.unwrap_or(3_000_000);
    let partitions = arguments.next().transpose()?.unwrap_or(24) as u32;
    let rounds = arguments.next().transpose()?.unwrap_or(7);
    let bootstrap = std::env::var("KAFKA_BOOTSTRAP").map_err(|_| "KAFKA_BOOTSTRAP is not set: script/kafka run")?;
    let mut config = Config::default();
    config.topic.name = format!("warm-start-{}", std::process::id());
    config.kafka.bootstrap = Some(bootstrap.clone());
    let properties = kafka::properties(&config.kafka_settings()?, partitions);
    let new = NewTopicPlan { partitions, replication: 1, min_insync_replicas: 1 };
    TopicDesk::new(&properties, &config.topic.name).prepare(Some(&new), Duration::from_secs(60))?;
    let bytes = fill(&bootstrap, &config.topic.name, partitions, records)?;
    println!("{records} frames of {} bytes in {partitions} partitions", bytes / records);

    let now = SystemClock::new().now().wall;
    let part = |known: Option<i64>| {
        move |partition: u32| TailPart { partition: PartitionId(partition), from: known, acked: None }
    };
    let plan = |known| TailPlan {
        properties: properties.clone(),
        topic: config.topic.name.clone(),
        partitions: (0..partitions).map(part(known)).collect(),
        // All frames are of one hour: a search goes back to the beginning.
        ttl: Nanos::from_millis(2 * 3_600_000),
        accepted_of,
        now,
        deadline: Instant::now() + Duration::from_secs(120),
        records_max_per_partition: u64::MAX,
        cpus: affinity::allowed().unwrap_or_default(),
    };
    println!("{:<28} {:>12} {:>10} {:>12} {:>12}", "", "records/s", "took", "of that, search", "memory");
    for round in 1..=rounds {
        for (name, known, collects) in
            [("read", Some(0), false), ("read and collect", Some(0), true), ("search, read and collect", None, true)]
        {
            let mut start = WarmStart::new(WarmLimits {
                shards: 2,
                partitions,
                keys_per_shard: 500_000,
                key_bytes_per_shard: 48_000_000,
                ranges: 100_000,
            });
            let (mut count, mut memory) = (0_u64, 0);
            let read = read_tail(&plan(known), &mut |record| {
                count += 1;
                if collects {
                    start.record(record.partition, record.value);
                    if count % 65_536 == 0 {
                        memory = memory.max(start.memory_bytes());
                    }
                }
                true
            })?;
            assert_eq!(read.records, records, "{read:?}");
            let warm = start.finish();
            if collects {
                assert_eq!((warm.frames, warm.foreign), (records, 0));
                assert_eq!(warm.already.ranges(), partitions as usize);
            }
            println!(
                "{round:>2} {name:<25} {:>12.0} {:>8.2} s {:>10.0} ms {:>9.1} MB",
                records as f64 / read.took.as_secs_f64(),
                read.took.as_secs_f64(),
                read.searched.as_secs_f64() * 1e3,
                memory as f64 / 1e6,
            );
        }
    }
    Ok(())
}

/// Frames of devices where the router would put them. Returns their bytes.
fn fill(bootstrap: &str, topic: &str, partitions: u32, records: u64) -> Result<u64, Box<dyn Error>> {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("enable.idempotence", "true")
        .set("compression.type", "lz4")
        .set("linger.ms", "5")
        .set("queue.buffering.max.messages", "100000")
        .create()?;
    let mut numbers = vec![0; partitions as usize];
    let mut place = [0; wire::FRAME_BYTES_MAX];
    let mut bytes = 0;
    for index in 0..records {
        let device = format!("vehicle-{:07}", index % 100_003);
        let home = partition::partition_of(device.as_bytes(), partitions);
        let number: &mut u64 = &mut numbers[home.0 as usize];
        *number += 1;
        let accepted_ms = 1_772_000_000_000 + (index * 3_600_000 / records) as i64;
        let frame = wire::Frame {
            device_id: device.as_bytes(),
            fence_id: b"depot:north",
            state: State::Enter,
            event_time_ms: accepted_ms - 40,
            hlc: Hlc::new(accepted_ms as u64, 0),
            accepted: UnixMicros(accepted_ms * 1_000),
            priority: Priority::Normal,
            attributes: b"",
            router_id: b"warm-start",
            incarnation: 1,
            partition_seq: *number,
            salt: 0,
        };
        let len = wire::encode(&frame, &mut place);
        bytes += len as u64;
        let mut record = BaseRecord::to(topic).partition(home.0 as i32).key(device.as_bytes()).payload(&place[..len]);
        while let Err((error, back)) = producer.send(record) {
            if error.rdkafka_error_code() != Some(rdkafka::types::RDKafkaErrorCode::QueueFull) {
                return Err(error.into());
            }
            producer.poll(Duration::from_millis(5));
            record = back;
        }
    }
    producer.flush(Duration::from_secs(120))?;
    Ok(bytes)
}
