//! Takes a whole topic back: every partition from its first record to the end it had when the reading began.

use super::PATIENCE;
use fencepost::verify::frame::Frame;
use fencepost::verify::{Checker, CheckerOptions, Ledger, Record, Verdict};
use rdkafka::Message;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// One record, kept.
#[derive(Clone, Debug)]
pub struct Kept {
    pub partition: u32,
    pub offset: i64,
    pub timestamp_ms: i64,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

/// Where a topic ends, for each partition.
pub fn end_offsets(bootstrap: &str, topic: &str, partitions: u32) -> Vec<i64> {
    let consumer = consumer(bootstrap);
    (0..partitions).map(|partition| watermarks(&consumer, topic, partition).1).collect()
}

/// Everything the topic holds, by partition and offset.
pub fn read_topic(bootstrap: &str, topic: &str, partitions: u32) -> Vec<Kept> {
    let consumer = consumer(bootstrap);
    let mut list = TopicPartitionList::new();
    let (mut ends, mut next) = (Vec::new(), Vec::new());
    for partition in 0..partitions {
        let (first, end) = watermarks(&consumer, topic, partition);
        list.add_partition_offset(topic, partition as i32, Offset::Offset(first)).expect("a valid offset");
        ends.push(end);
        next.push(first);
    }
    consumer.assign(&list).expect("the partitions can be assigned");
    let began = Instant::now();
    let mut kept = Vec::new();
    while next.iter().zip(&ends).any(|(next, end)| next < end) {
        assert!(began.elapsed() < PATIENCE, "{topic}: read up to {next:?} of {ends:?}");
        let record = match consumer.poll(Duration::from_millis(100)) {
            None => continue,
            Some(Ok(record)) => record,
            // Between two tries the client says what went wrong with the first.
            Some(Err(error)) => {
                println!("reading {topic}: {error}");
                continue;
            }
        };
        let partition = record.partition() as u32;
        next[partition as usize] = record.offset() + 1;
        kept.push(Kept {
            partition,
            offset: record.offset(),
            timestamp_ms: record.timestamp().to_millis().expect("a record has a time"),
            key: record.key().unwrap_or_default().to_vec(),
            value: record.payload().unwrap_or_default().to_vec(),
        });
    }
    kept.sort_by_key(|record| (record.partition, record.offset));
    kept
}

/// What the checkers say to the records of a topic that was empty before.
pub fn judge(kept: &[Kept], partitions: u32, ledgers: &[Ledger]) -> Verdict {
    let mut checker = Checker::new(CheckerOptions::new(partitions));
    for record in kept {
        checker.record(&Record::new(record.partition, record.offset, &record.key, &record.value));
    }
    checker.finish(ledgers)
}

/// How many of the numbers that a router gives out per partition are in no record, below the highest that is.
pub fn missing_numbers(kept: &[Kept]) -> u64 {
    let mut numbers: HashMap<(u64, u32), HashSet<u64>> = HashMap::new();
    for record in kept {
        let frame = Frame::read(&record.value).expect("every record is a frame");
        numbers.entry((frame.incarnation, record.partition)).or_default().insert(frame.partition_seq);
    }
    numbers.values().map(|seen| seen.iter().max().copied().unwrap_or_default() - seen.len() as u64).sum()
}

/// One that is assigned nothing yet.
pub fn consumer(bootstrap: &str) -> BaseConsumer {
    ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "fencepost-tests")
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "error")
        .set("fetch.wait.max.ms", "50")
        .set("log_level", "3")
        .create()
        .expect("a consumer can be made")
}

fn watermarks(consumer: &BaseConsumer, topic: &str, partition: u32) -> (i64, i64) {
    let began = Instant::now();
    loop {
        match consumer.fetch_watermarks(topic, partition as i32, Duration::from_secs(10)) {
            Ok(marks) => return marks,
            Err(error) => assert!(began.elapsed() < PATIENCE, "the ends of {topic} {partition}: {error}"),
        }
    }
}
