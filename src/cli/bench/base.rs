//! The safe producer of the Rust client, as an application would use it: `BaseProducer`, a record by its fields, a poll
//! now and then. The payload is copied and the topic's name made into a C string for each record.

use super::driver::{DRAIN_LIMIT, Driver};
use super::load::Load;
use super::{CliError, Ground};
use crate::sink::kafka;
use crate::slab::{Slab, SlabLimits};
use crate::units::PartitionId;
use crate::wire;
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::error::KafkaError;
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use rdkafka::types::RDKafkaErrorCode;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Frames made beforehand; records take turns with them.
const FRAMES: u64 = 16_384;
const POLL_EVERY: u64 = 64;

/// Counts. Relaxed: the callbacks run in `poll`, on the thread that reads them.
#[derive(Default)]
struct Counter {
    acked: AtomicU64,
    failed: AtomicU64,
}

struct Counting(Arc<Counter>);

impl ClientContext for Counting {}

impl ProducerContext for Counting {
    type DeliveryOpaque = ();
    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let counter = if result.is_ok() { &self.0.acked } else { &self.0.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// rdkafka's producer.
pub(super) struct Base {
    producer: BaseProducer<Counting>,
    counter: Arc<Counter>,
    topic: String,
    frames: Vec<(Vec<u8>, std::ops::Range<usize>, PartitionId)>,
    taken: u64,
    in_flight_max: u64,
    seen: Cell<u64>,
}

impl Base {
    pub(super) fn start(ground: &Ground, load: &Load) -> Result<Base, CliError> {
        let mut client = ClientConfig::new();
        for (name, value) in kafka::properties(&ground.settings, ground.partitions) {
            client.set(name, value);
        }
        let counter = Arc::new(Counter::default());
        let unavailable = |error: KafkaError| CliError::Unavailable(format!("the Rust client: {error}"));
        let producer = client.create_with_context(Counting(Arc::clone(&counter))).map_err(unavailable)?;
        let mut slab = Slab::new(SlabLimits { slots: 1, frame_bytes: SlabLimits::FRAME_BYTES_MIN });
        let frames = (0..FRAMES)
            .map(|n| {
                let slot = load.encode(n, &mut slab).expect("the slab has room for one frame");
                let frame = slab.frame(slot).to_vec();
                slab.free(slot);
                let key = wire::device_id_range(&frame);
                (frame, key, load.partition(n, ground.partitions))
            })
            .collect();
        let limits = ground.config.limits()?;
        let in_flight_max = (limits.inflight_per_shard * usize::from(limits.shards)) as u64;
        let topic = ground.config.topic.name.clone();
        let mut base = Base { producer, counter, topic, frames, taken: 0, in_flight_max, seen: Cell::new(0) };
        base.warm_up(ground.partitions)?;
        Ok(base)
    }

    /// A record of each partition must have been acknowledged: connections and the producer id are there then.
    fn warm_up(&mut self, partitions: u32) -> Result<(), CliError> {
        let began = Instant::now();
        for _ in 0..100 * partitions {
            self.offer()?;
        }
        while self.acknowledged()? < self.taken {
            if began.elapsed() > DRAIN_LIMIT {
                return Err(CliError::Unavailable("the Rust client did not get warm".into()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Driver for Base {
    fn name(&self) -> &'static str {
        "base"
    }

    fn offer(&mut self) -> Result<bool, CliError> {
        if self.taken.is_multiple_of(POLL_EVERY) {
            self.producer.poll(Duration::ZERO);
        }
        if self.taken - self.seen.get() >= self.in_flight_max && self.taken - self.acknowledged()? >= self.in_flight_max
        {
            return Ok(false);
        }
        let (frame, key, partition) = &self.frames[(self.taken % FRAMES) as usize];
        let record = BaseRecord::to(&self.topic)
            .partition(partition.0 as i32)
            .payload(frame.as_slice())
            .key(&frame[key.clone()]);
        match self.producer.send(record) {
            Ok(()) => {
                self.taken += 1;
                Ok(true)
            }
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => Ok(false),
            Err((error, _)) => Err(CliError::Unavailable(format!("the Rust client refused a record: {error}"))),
        }
    }

    /// Not in order: it counts, and does not say which.
    fn acknowledged(&mut self) -> Result<u64, CliError> {
        self.producer.poll(Duration::ZERO);
        let failed = self.counter.failed.load(Ordering::Relaxed);
        if failed > 0 {
            return Err(CliError::Unavailable(format!("{failed} records of the Rust client failed")));
        }
        self.seen.set(self.counter.acked.load(Ordering::Relaxed));
        Ok(self.seen.get())
    }

    fn taken(&self) -> u64 {
        self.taken
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        // What was sent is acknowledged by now; without this, dropping waits for half a second.
        if let Err(error) = self.producer.flush(Duration::from_secs(1)) {
            log::warn!("the Rust client did not flush: {error}");
        }
    }
}
