//! The consumer: a real client that reads all partitions from the beginning while they are filled, notes when each record
//! arrived, and hands copies on. It checks nothing itself, so that a check never delays the next arrival.
//!
//! It must keep up: the in-process brokers keep 5 MB a partition and then forget the oldest. What they forgot unread is
//! counted, since the router is not to blame for it.

use super::cluster::{PARTITIONS, TOPIC};
use crate::cli::CliError;
use crate::clock::{Clock, SystemClock};
use crate::units::UnixMicros;
use crate::verify::Record;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// Records handed on together.
const CHUNK_RECORDS: usize = 512;
/// How long a poll waits, and so how long a chunk that is not full may wait.
const POLL_LIMIT: Duration = Duration::from_millis(2);
/// How long the rest of the topic may take without a single new record.
const STANDSTILL_MAX: Duration = Duration::from_secs(10);
/// How long a broker may take to say where a partition ends.
const END_LIMIT: Duration = Duration::from_secs(10);

/// What other threads see of the consumer.
#[derive(Default)]
pub struct Progress {
    /// Records read.
    pub read: AtomicU64,
    /// Everything was delivered: read up to the present end and stop.
    pub is_drained: AtomicBool,
}

/// What the consumer found out about itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOut {
    /// Records that the brokers forgot before they were read, or that never came.
    pub unread: u64,
}

/// Copies of records, in the order of their arrival.
#[derive(Default)]
pub struct Chunk {
    heads: Vec<Head>,
    bytes: Vec<u8>,
}

struct Head {
    partition: u32,
    offset: i64,
    received: UnixMicros,
    key_len: usize,
    value_len: usize,
}

impl Chunk {
    fn push(&mut self, partition: u32, offset: i64, received: UnixMicros, key: &[u8], value: &[u8]) {
        self.heads.push(Head { partition, offset, received, key_len: key.len(), value_len: value.len() });
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }

    /// The records.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let mut rest = self.bytes.as_slice();
        self.heads.iter().map(move |head| {
            let (key, behind) = rest.split_at(head.key_len);
            let (value, behind) = behind.split_at(head.value_len);
            rest = behind;
            Record {
                received: Some(head.received),
                // No trigger of the demo was ever a dead letter.
                replays: 0,
                ..Record::new(head.partition, head.offset, key, value)
            }
        })
    }
}

/// A consumer that is assigned and connected.
pub struct Reader {
    consumer: BaseConsumer,
    progress: Arc<Progress>,
    chunks: Sender<Chunk>,
    /// Per partition, the offset that comes next.
    next: Vec<i64>,
    read_out: ReadOut,
}

impl Reader {
    /// Assigns all partitions of the new topic from their beginning, and connects to their leaders.
    ///
    /// # Errors
    /// When the client cannot be made or the brokers do not answer it.
    pub fn connect(bootstrap: &str, progress: Arc<Progress>, chunks: Sender<Chunk>) -> Result<Reader, CliError> {
        let refused = |error: KafkaError| CliError::Unavailable(format!("the demo's consumer did not start: {error}"));
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", bootstrap)
            // The client asks for a name even where nothing is committed.
            .set("group.id", "fencepost-demo")
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            // A record forgotten unread is an error to be told, not a place to go on from in silence.
            .set("auto.offset.reset", "error")
            // The mock sits out this time even when records come meanwhile, so it adds to what we measure.
            .set("fetch.wait.max.ms", "2")
            .set("fetch.min.bytes", "1")
            .set("allow.auto.create.topics", "false")
            .set("log.connection.close", "false")
            .create()
            .map_err(refused)?;
        let mut assignment = TopicPartitionList::new();
        for partition in 0..PARTITIONS {
            assignment.add_partition_offset(TOPIC, partition as i32, Offset::Offset(0)).map_err(refused)?;
        }
        consumer.assign(&assignment).map_err(refused)?;
        let next = vec![0; PARTITIONS as usize];
        let reader = Reader { consumer, progress, chunks, next, read_out: ReadOut::default() };
        // Asking for the ends connects to every leader before the first record.
        reader.ends()?;
        Ok(reader)
    }

    /// Reads until everything was delivered and read.
    ///
    /// # Errors
    /// When the brokers do not say where the topic ends.
    pub fn read_all(mut self) -> Result<ReadOut, CliError> {
        let clock = SystemClock::new();
        let mut chunk = Chunk::default();
        let mut ends = None;
        let mut moved = Instant::now();
        loop {
            let is_idle = match self.consumer.poll(POLL_LIMIT) {
                Some(Ok(message)) => {
                    let (partition, offset) = (message.partition() as u32, message.offset());
                    let received = clock.now().wall;
                    let (key, value) = (message.key().unwrap_or_default(), message.payload().unwrap_or_default());
                    chunk.push(partition, offset, received, key, value);
                    let next = &mut self.next[partition as usize];
                    self.read_out.unread += u64::try_from(offset - *next).unwrap_or(0);
                    *next = offset + 1;
                    moved = Instant::now();
                    false
                }
                Some(Err(error)) => {
                    // What it costs shows as unread; without that it was a hiccup of a connection.
                    log::debug!("the demo's consumer: {error}");
                    true
                }
                None => true,
            };
            if chunk.heads.len() >= CHUNK_RECORDS || is_idle && !chunk.heads.is_empty() {
                self.hand_on(&mut chunk);
            }
            // Acquire, partner: the Release in `mod.rs` once the router is drained.
            if ends.is_none() && self.progress.is_drained.load(Ordering::Acquire) {
                ends = Some(self.ends()?);
                moved = Instant::now();
            }
            if let Some(ends) = &ends {
                let left: i64 = ends.iter().zip(&self.next).map(|(end, next)| (end - next).max(0)).sum();
                if left == 0 || moved.elapsed() > STANDSTILL_MAX {
                    self.hand_on(&mut chunk);
                    self.read_out.unread += left.unsigned_abs();
                    return Ok(self.read_out);
                }
            }
        }
    }

    fn hand_on(&self, chunk: &mut Chunk) {
        // Relaxed: for the display alone.
        self.progress.read.fetch_add(chunk.heads.len() as u64, Ordering::Relaxed);
        // The checker only leaves before us when it panicked, and then its join says so.
        let _ = self.chunks.send(std::mem::take(chunk));
    }

    /// Where each partition ends now.
    fn ends(&self) -> Result<Vec<i64>, CliError> {
        let end = |partition| {
            let marks = self.consumer.fetch_watermarks(TOPIC, partition as i32, END_LIMIT);
            marks.map(|(_, high)| high).map_err(|error| {
                let why = format!("partition {partition} did not say where it ends: {error}");
                CliError::Unavailable(why)
            })
        };
        (0..PARTITIONS).map(end).collect()
    }
}
