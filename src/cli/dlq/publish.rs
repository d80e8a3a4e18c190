//! Publishes letters to the topic again: the idempotent producer with the router's own settings, so `acks=all`, and no
//! letter is given up for time. What is acknowledged is told by its place among the dead letters.

use super::letter::Letter;
use crate::cli::CliError;
use crate::config::KafkaSettings;
use crate::sink::kafka;
use crate::sink::kafka::topic::TopicDesk;
use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Letters without an ack at one time.
const IN_FLIGHT_MAX: usize = 10_000;
/// How long no ack may come while there is something to be acknowledged.
const STANDSTILL_MAX: Duration = Duration::from_secs(60);
/// How long the topic's settings are waited for.
const FACTS_LIMIT: Duration = Duration::from_secs(10);
/// One wait for acks: how soon a signal is seen.
const WAIT: Duration = Duration::from_millis(100);

/// A letter's place among the dead letters.
pub(super) type At = (u32, i64);

/// What became of it: acknowledged, or why not.
pub(super) type Outcome = (At, Result<(), String>);

/// Takes what the client tells, on the thread that polls.
#[derive(Default)]
struct Desk {
    outcomes: Mutex<Vec<Outcome>>,
    words: Mutex<Option<String>>,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ClientContext for Desk {
    fn error(&self, error: KafkaError, reason: &str) {
        if error.rdkafka_error_code() != Some(RDKafkaErrorCode::AllBrokersDown) {
            *held(&self.words) = Some(reason.to_owned());
        }
    }
}

impl ProducerContext for Desk {
    type DeliveryOpaque = Box<At>;

    fn delivery(&self, result: &DeliveryResult<'_>, at: Box<At>) {
        let outcome = result.as_ref().map(|_| ()).map_err(|(error, _)| error.to_string());
        held(&self.outcomes).push((*at, outcome));
    }
}

/// The producer.
pub(super) struct Publisher {
    producer: BaseProducer<Desk>,
    topic: Rc<str>,
    in_flight: usize,
    last_ack: Instant,
}

impl Publisher {
    /// # Errors
    /// The client does not take its properties.
    pub(super) fn new(settings: &KafkaSettings, topic: &str, partitions: u32) -> Result<Publisher, CliError> {
        let mut properties = kafka::properties(settings, partitions);
        // A broker refuses a batch that is longer than the topic takes, however short its records are.
        match TopicDesk::new(&properties, topic).facts(FACTS_LIMIT) {
            Ok(facts) => {
                let bounded = facts.record_bytes_max.and_then(|most| kafka::bound_batch(&mut properties, most));
                bounded.inspect(|size| log::info!("batch.size = {size} is more than {topic} takes, and is lowered"));
            }
            Err(error) => log::info!("what {topic} takes is not known: {error}"),
        }
        let mut client = ClientConfig::new();
        for (name, value) in properties {
            client.set(name, value);
        }
        let producer = client
            .create_with_context(Desk::default())
            .map_err(|error| CliError::Usage(format!("the Kafka client refused its configuration: {error}")))?;
        Ok(Publisher { producer, topic: topic.into(), in_flight: 0, last_ack: Instant::now() })
    }

    /// Letters without an ack.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Hands a letter over, as soon as there is room for it. `each` gets the outcomes of others meanwhile.
    ///
    /// # Errors
    /// No ack came for a minute, or the producer failed for good.
    pub(super) fn send(
        &mut self,
        letter: &Letter,
        partition: u32,
        replays: u32,
        each: &mut dyn FnMut(Outcome),
    ) -> Result<(), CliError> {
        let at = (letter.partition, letter.offset);
        let own = letter.replayed_headers(replays);
        let mut headers = OwnedHeaders::new_with_capacity(own.len());
        for (name, value) in &own {
            let Ok(key) = std::str::from_utf8(name) else {
                each((at, Err("the name of one of its headers is not UTF-8".to_owned())));
                return Ok(());
            };
            headers = headers.insert(rdkafka::message::Header { key, value: value.as_deref() });
        }
        while self.in_flight >= IN_FLIGHT_MAX {
            self.take(WAIT, each)?;
        }
        let topic = Rc::clone(&self.topic);
        let mut record: BaseRecord<'_, [u8], [u8], Box<At>> =
            BaseRecord::with_opaque_to(&topic, Box::new(at)).partition(partition as i32).headers(headers);
        record.key = letter.key.as_deref();
        record.payload = letter.value.as_deref();
        if self.in_flight == 0 {
            self.last_ack = Instant::now();
        }
        loop {
            match self.producer.send(record) {
                Ok(()) => {
                    self.in_flight += 1;
                    break;
                }
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), refused)) => {
                    record = refused;
                    self.take(WAIT, each)?;
                }
                Err((error, _)) => {
                    self.check_fatal()?;
                    each((at, Err(error.to_string())));
                    break;
                }
            }
        }
        self.take(Duration::ZERO, each)
    }

    /// Waits until all is acknowledged or refused.
    ///
    /// # Errors
    /// As [`Publisher::send`].
    pub(super) fn settle(&mut self, each: &mut dyn FnMut(Outcome)) -> Result<(), CliError> {
        while self.in_flight > 0 {
            self.take(WAIT, each)?;
        }
        Ok(())
    }

    fn take(&mut self, wait: Duration, each: &mut dyn FnMut(Outcome)) -> Result<(), CliError> {
        self.producer.poll(wait);
        let outcomes = std::mem::take(&mut *held(&self.producer.context().outcomes));
        if !outcomes.is_empty() {
            self.last_ack = Instant::now();
            self.in_flight -= outcomes.len();
            outcomes.into_iter().for_each(&mut *each);
        }
        self.check_fatal()?;
        if self.in_flight > 0 && self.last_ack.elapsed() >= STANDSTILL_MAX {
            return Err(self.unavailable(format!("no ack for {} s", STANDSTILL_MAX.as_secs())));
        }
        Ok(())
    }

    fn check_fatal(&self) -> Result<(), CliError> {
        match self.producer.client().fatal_error() {
            Some((code, why)) => Err(self.unavailable(format!("the producer failed for good: {code}: {why}"))),
            None => Ok(()),
        }
    }

    fn unavailable(&self, what: String) -> CliError {
        let words = held(&self.producer.context().words).clone();
        let words = words.map(|words| format!(" ({words})")).unwrap_or_default();
        CliError::Unavailable(format!(
            "topic {}: {what}{words}; {} letters are without an ack: run the replay again, what the topic holds by then is \
             not published twice",
            self.topic, self.in_flight
        ))
    }
}
