//! A consumer at the topic's end, on a thread of its own: it reads what the router delivers, says how long each trigger took
//! from the moment it was due to its arrival here, and whether anything was lost, doubled or reordered.
//!
//! Both moments are of one monotonic clock of this process: a frame names its trigger, the load knows its number, and the
//! pace when that number was due.

use super::ground::TOPIC_LIMIT;
use super::histogram::{new_histogram, note};
use super::load::{DEVICES, Load, Numbers};
use super::pace::Pace;
use super::{CliError, Ground};
use crate::sink::kafka;
use crate::verify::{Checker, CheckerOptions, Ledger, Record, Verdict};
use crate::wire;
use hdrhistogram::Histogram;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the rest of the topic may take without a single new record.
const STANDSTILL_MAX: Duration = Duration::from_secs(10);
/// Records checked together: in between the next arrivals wait.
const POLL_LIMIT: Duration = Duration::from_millis(20);

/// What a consumer shall find out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Watching {
    /// How long things take.
    Latency,
    /// And whether each record is there once, in its order. Takes about 100 bytes of memory a record.
    Everything,
    /// Nothing: it reads so that the machine bears the same as with one that finds out something.
    Nothing,
}

/// A running consumer.
pub(super) struct Tail {
    is_drained: Arc<AtomicBool>,
    pace: Arc<OnceLock<Pace>>,
    thread: JoinHandle<Result<Seen, String>>,
}

/// What it saw.
pub(super) struct Seen {
    /// Records that were read.
    pub(super) records: u64,
    /// Records that the brokers forgot before they were read, or that never came.
    pub(super) unread: u64,
    /// From due to arrived.
    pub(super) latency: Histogram<u64>,
    checker: Option<Checker>,
}

impl Tail {
    /// Starts at the present end of every partition.
    pub(super) fn start(ground: &Ground, load: &Load, watching: Watching) -> Result<Tail, CliError> {
        let unavailable = |error: String| CliError::Unavailable(format!("the consumer: {error}"));
        let mut client = ClientConfig::new();
        // The connection is the producer's; how it produces means nothing here.
        for (name, value) in kafka::connection_properties(&kafka::properties(&ground.settings, ground.partitions)) {
            client.set(name, value);
        }
        client.set("group.id", "fencepost-bench").set("enable.auto.commit", "false");
        client.set("fetch.wait.max.ms", "5").set("fetch.min.bytes", "1").set("queued.min.messages", "100000");
        // A record forgotten unread is to be told, not a place to go on from in silence.
        client.set("auto.offset.reset", "error").set("enable.auto.offset.store", "false");
        let consumer: BaseConsumer = client.create().map_err(|error| unavailable(error.to_string()))?;
        let topic = ground.config.topic.name.clone();
        let next = ends(&consumer, &topic, ground.partitions).map_err(unavailable)?;
        let mut places = TopicPartitionList::new();
        for (partition, end) in next.iter().enumerate() {
            let placed = places.add_partition_offset(&topic, partition as i32, Offset::Offset(*end));
            placed.map_err(|error| unavailable(error.to_string()))?;
        }
        consumer.assign(&places).map_err(|error| unavailable(error.to_string()))?;
        let (is_drained, pace) = (Arc::new(AtomicBool::new(false)), Arc::new(OnceLock::new()));
        let mut reader = Reader {
            consumer,
            topic,
            next,
            is_drained: Arc::clone(&is_drained),
            pace: Arc::clone(&pace),
            numbers: load.numbers(),
            watching,
            seen: Seen {
                records: 0,
                unread: 0,
                latency: new_histogram(),
                checker: (watching == Watching::Everything)
                    .then(|| Checker::new(CheckerOptions::new(ground.partitions))),
            },
        };
        let body = move || reader.read().map(|()| reader.seen);
        let thread = std::thread::Builder::new().name("bench-consumer".into()).spawn(body);
        Ok(Tail { is_drained, pace, thread: thread.map_err(|error| unavailable(error.to_string()))? })
    }

    /// When each trigger is due. To be said before the first is offered; what comes without is not timed.
    pub(super) fn set_pace(&self, pace: Pace) {
        assert!(self.pace.set(pace).is_ok(), "a consumer has one pace");
    }

    /// Everything was delivered: reads up to the present end and says what it saw.
    pub(super) fn finish(self) -> Result<Seen, CliError> {
        // Release, partner: the Acquire in `read`.
        self.is_drained.store(true, Ordering::Release);
        match self.thread.join() {
            Ok(Ok(seen)) => Ok(seen),
            Ok(Err(error)) => Err(CliError::Unavailable(format!("the consumer: {error}"))),
            Err(_) => Err(CliError::Unavailable("the consumer panicked".into())),
        }
    }
}

impl Seen {
    /// The topic against what was accepted: triggers 0 to `accepted` of the load, in that order, by one ingress.
    pub(super) fn verdict(self, load: &Load, accepted: u64) -> Option<Verdict> {
        let checker = self.checker?;
        let mut ledger = Ledger::with_capacity(accepted as usize, DEVICES as usize);
        (0..accepted).for_each(|n| ledger.accept(&load.trigger(n)));
        Some(checker.finish(&[ledger]))
    }
}

/// What the thread holds.
struct Reader {
    consumer: BaseConsumer,
    topic: String,
    /// Per partition, the offset that comes next.
    next: Vec<i64>,
    is_drained: Arc<AtomicBool>,
    pace: Arc<OnceLock<Pace>>,
    numbers: Numbers,
    watching: Watching,
    seen: Seen,
}

impl Reader {
    fn read(&mut self) -> Result<(), String> {
        let (mut end, mut moved) = (None, Instant::now());
        loop {
            match self.consumer.poll(POLL_LIMIT) {
                Some(Ok(message)) => {
                    let now = Instant::now();
                    moved = now;
                    let next = &mut self.next[message.partition() as usize];
                    self.seen.unread += u64::try_from(message.offset() - *next).unwrap_or(0);
                    *next = message.offset() + 1;
                    self.seen.records += 1;
                    let value = message.payload().ok_or("a record without a value")?;
                    look(&mut self.seen, self.watching, &self.pace, self.numbers, &message, value, now)?;
                    if self.seen.records & 255 != 0 {
                        continue;
                    }
                }
                // What it costs shows as unread; without that it was a hiccup of a connection, or a broker that is away.
                Some(Err(error)) => log::debug!("the consumer: {error}"),
                None => {}
            }
            // Acquire, partner: the Release in `finish`.
            if end.is_none() && self.is_drained.load(Ordering::Acquire) {
                end = Some(ends(&self.consumer, &self.topic, self.next.len() as u32)?);
                moved = Instant::now();
            }
            if let Some(end) = &end {
                let left: i64 = end.iter().zip(&self.next).map(|(end, next)| (end - next).max(0)).sum();
                if left == 0 || moved.elapsed() > STANDSTILL_MAX {
                    self.seen.unread += left.unsigned_abs();
                    return Ok(());
                }
            }
        }
    }
}

fn look(
    seen: &mut Seen,
    watching: Watching,
    pace: &OnceLock<Pace>,
    numbers: Numbers,
    message: &impl Message,
    value: &[u8],
    now: Instant,
) -> Result<(), String> {
    if watching == Watching::Nothing {
        return Ok(());
    }
    if let Some(pace) = pace.get() {
        let frame = wire::decode(value).map_err(|error| error.to_string())?.frame;
        // What was delivered before the clock ran has no number that counts.
        if let Some(due) = numbers.of(&frame).and_then(|number| pace.due_of(number)) {
            note(&mut seen.latency, now.saturating_duration_since(due));
        }
    }
    if let Some(checker) = &mut seen.checker {
        let key = message.key().unwrap_or_default();
        checker.record(&Record::new(message.partition() as u32, message.offset(), key, value));
    }
    Ok(())
}

/// Where each partition ends now.
fn ends(consumer: &BaseConsumer, topic: &str, partitions: u32) -> Result<Vec<i64>, String> {
    let end = |partition| {
        let marks = consumer.fetch_watermarks(topic, partition as i32, TOPIC_LIMIT);
        marks.map(|(_, end)| end).map_err(|error| format!("partition {partition} did not say where it ends: {error}"))
    };
    (0..partitions).map(end).collect()
}
