//! A consumer at the topic's end, on a thread of its own: the time from the acceptance that a frame names to its
//! arrival here. Both are of this machine's wall clock.

use super::latency::{new_histogram, note};
use super::{CliError, Ground, TOPIC_LIMIT};
use crate::clock::{Clock, SystemClock};
use crate::sink::kafka;
use crate::wire;
use hdrhistogram::Histogram;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long the end is waited for after the last record was acknowledged.
const LAST: Duration = Duration::from_millis(500);

/// A running consumer.
pub(super) struct Tail {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Histogram<u64>, String>>,
}

impl Tail {
    /// Starts at the present end of every partition.
    pub(super) fn start(ground: &Ground) -> Result<Tail, CliError> {
        let unavailable = |error: String| CliError::Unavailable(format!("the consumer: {error}"));
        let mut client = ClientConfig::new();
        // The connection is the producer's; how it produces means nothing here.
        const CONNECTION: [&str; 5] = ["bootstrap.servers", "security.", "ssl.", "sasl.", "socket."];
        for (name, value) in kafka::properties(&ground.settings, ground.partitions) {
            if CONNECTION.iter().any(|prefix| name.starts_with(prefix)) {
                client.set(name, value);
            }
        }
        client.set("group.id", "fencepost-bench").set("enable.auto.commit", "false");
        client.set("fetch.wait.max.ms", "5").set("fetch.min.bytes", "1").set("queued.min.messages", "100000");
        let consumer: BaseConsumer = client.create().map_err(|error| unavailable(error.to_string()))?;
        let topic = &ground.config.topic.name;
        let mut places = TopicPartitionList::new();
        for partition in 0..ground.partitions as i32 {
            let marks = consumer.fetch_watermarks(topic, partition, TOPIC_LIMIT);
            let (_, end) = marks.map_err(|error| unavailable(error.to_string()))?;
            let placed = places.add_partition_offset(topic, partition, Offset::Offset(end));
            placed.map_err(|error| unavailable(error.to_string()))?;
        }
        consumer.assign(&places).map_err(|error| unavailable(error.to_string()))?;
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let body = move || read(&consumer, &is_stopped);
        let thread = std::thread::Builder::new().name("bench-consumer".into()).spawn(body);
        Ok(Tail { stop, thread: thread.map_err(|error| unavailable(error.to_string()))? })
    }

    /// What it saw.
    pub(super) fn stop(self) -> Result<Histogram<u64>, CliError> {
        std::thread::sleep(LAST);
        // Release, partner: the Acquire in `read`.
        self.stop.store(true, Ordering::Release);
        match self.thread.join() {
            Ok(Ok(seen)) => Ok(seen),
            Ok(Err(error)) => Err(CliError::Unavailable(format!("the consumer: {error}"))),
            Err(_) => Err(CliError::Unavailable("the consumer panicked".into())),
        }
    }
}

fn read(consumer: &BaseConsumer, is_stopped: &AtomicBool) -> Result<Histogram<u64>, String> {
    let (clock, mut seen) = (SystemClock::new(), new_histogram());
    // Acquire, partner: the Release in `stop`.
    while !is_stopped.load(Ordering::Acquire) {
        let Some(message) = consumer.poll(Duration::from_millis(20)) else { continue };
        let message = message.map_err(|error| error.to_string())?;
        let payload = message.payload().ok_or("a record without a value")?;
        let frame = wire::decode(payload).map_err(|error| error.to_string())?.frame;
        let took = clock.now().wall.0 - frame.accepted.0;
        note(&mut seen, Duration::from_micros(u64::try_from(took).unwrap_or(0)));
    }
    Ok(seen)
}
