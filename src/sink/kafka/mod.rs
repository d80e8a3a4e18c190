//! Apache Kafka, through librdkafka: the only room that knows it. One producer handle per shard, idempotent, so that
//! what is in flight is neither lost, doubled nor reordered by the client's own retries.
//!
//! Frames go out without a copy and come back as arrays of reports. A handle that raised a fatal error is replaced: what
//! it holds is taken back, a new one is made aside, and the shard sends again, in order.

pub mod features;
pub mod handle;
pub mod headers;
pub mod letters;
mod pace;
mod reader;
pub mod rights;
pub mod tail;
pub mod topic;
mod warm;

pub use handle::{HandleError, HandleSettings, being_destroyed, error_name};
pub use letters::KafkaLetters;
pub use warm::{WarmUp, WarmUpError};

use super::liveness::Liveness;
use super::{Busy, Condition, Outgoing, Report, Sink};
use crate::clock::{Clock, SystemClock};
use crate::config::KafkaSettings;
use crate::slab::Arena;
use crate::units::Nanos;
use handle::{Handle, News};
use pace::Pace;
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The oldest librdkafka that is good enough: Nagle off by default, and the idempotence fixes of 2.10.
pub const VERSION_MIN: u32 = 0x020a_0000;
/// No report for so long, with frames in flight and a connection: three times `socket.timeout.ms`.
const LIVENESS_LIMIT: Nanos = Nanos::from_millis(15_000);
/// It is looked at in one of so many turns.
const WATCHED_CALLS: u32 = 64;
/// The broker's code for an operation on a topic that is not allowed.
const UNAUTHORIZED: i32 = 29;
/// The same error of the client is logged once in so long.
const LOG_INTERVAL: Nanos = Nanos::from_millis(10_000);
/// What a given-up handle gets for the answers that are on their way.
const ANSWERS_LIMIT: Nanos = Nanos::from_millis(2_000);
/// What it gets then to report the rest as taken back.
const COLLECT_LIMIT: Nanos = Nanos::from_millis(300);
/// How often what lands in its queue meanwhile is taken back.
const PURGE_INTERVAL: Nanos = Nanos::from_millis(20);
/// Between two attempts to make a new handle.
const REMAKE_PAUSE: Nanos = Nanos::from_millis(500);

/// What librdkafka is told, besides what the configuration allows a person to say.
///
/// The values may be secrets: the list is never printed.
#[must_use]
pub fn properties(settings: &KafkaSettings, partitions: u32) -> Vec<(String, String)> {
    let allowed = settings.properties.iter();
    let mut all: Vec<(String, String)> =
        allowed.map(|property| (property.name.to_string(), property.value.expose().to_string())).collect();
    // Statistics say when a handle is warm, and later whether it is healthy; one JSON text of about 1 KB a partition.
    let statistics_ms = if partitions <= 64 { "200" } else { "1000" };
    let ours = [
        ("bootstrap.servers", settings.bootstrap.as_str()),
        ("acks", "all"),
        ("enable.idempotence", "true"),
        // Expiry would tear holes into a device's order; our own deadlines are on our own clock.
        ("message.timeout.ms", "0"),
        ("queue.buffering.max.messages", "0"),
        ("queue.buffering.max.kbytes", "2147483647"),
        ("socket.nagle.disable", "true"),
        // Bounds how long a leader that swallows bytes holds a partition; must exceed any round trip we mean to survive.
        ("socket.timeout.ms", "5000"),
        ("reconnect.backoff.ms", "50"),
        ("reconnect.backoff.max.ms", "1000"),
        ("allow.auto.create.topics", "false"),
        // A topic that is not there yet, or for a moment no more, is waited for.
        ("topic.metadata.propagation.max.ms", "3600000"),
        ("topic.metadata.refresh.fast.interval.ms", "100"),
        // Connections to all leaders are there before the first trigger needs one.
        ("enable.sparse.connections", "false"),
        ("log.connection.close", "false"),
        ("statistics.interval.ms", statistics_ms),
    ];
    all.extend(ours.map(|(name, value)| (name.to_string(), value.to_string())));
    all
}

/// Whether any client needs the property to reach the same brokers as the producer: an address, security, sockets.
#[must_use]
pub fn is_connection_property(name: &str) -> bool {
    const CONNECTION: [&str; 11] = [
        "bootstrap.servers",
        "client.id",
        "client.dns.lookup",
        "broker.address.",
        "security.",
        "ssl.",
        "sasl.",
        "enable.ssl.",
        "enable.sasl.",
        "https.",
        "socket.",
    ];
    CONNECTION.iter().any(|prefix| name.starts_with(prefix))
}

/// Of a producer's properties those that [`is_connection_property`] picks.
///
/// The values may be secrets: the list is never printed.
#[must_use]
pub fn connection_properties(properties: &[(String, String)]) -> Vec<(String, String)> {
    properties.iter().filter(|(name, _)| is_connection_property(name)).cloned().collect()
}

/// Keeps batches below what the topic takes, since a broker refuses a batch as a whole. Returns the configured size if
/// that was too large.
pub fn bound_batch(properties: &mut [(String, String)], record_bytes_max: usize) -> Option<u64> {
    // librdkafka may exceed the size by one record.
    let most = record_bytes_max.saturating_sub(crate::slab::FRAME_BYTES_MAX + 512).max(1_024);
    let (_, size) = properties.iter_mut().find(|(name, _)| name == "batch.size")?;
    let configured: u64 = size.parse().ok()?;
    if configured <= most as u64 {
        return None;
    }
    *size = most.to_string();
    Some(configured)
}

/// The real sink.
pub struct KafkaSink {
    settings: HandleSettings,
    arena: Arc<Arena>,
    handle: Handle,
    state: State,
    pace: Pace,
    news: VecDeque<News>,
    /// Frames handed to the present handle and not reported.
    outstanding: usize,
    errors: u64,
    /// The last error that was logged, and when.
    logged: (i32, Nanos),
    liveness: Liveness,
    /// Something was reported since it was looked at last.
    heard: bool,
    condition_calls: u32,
    clock: SystemClock,
}

enum State {
    Ready,
    Replacing(Replacing),
    Replaced,
}

/// A handle on its way out, and its successor on its way in.
struct Replacing {
    /// Until then answers are waited for.
    answers_until: Nanos,
    /// Until then reports are, once the answers' time is over.
    reports_until: Option<Nanos>,
    purge_at: Nanos,
    maker: Option<JoinHandle<Result<Handle, HandleError>>>,
    retry_at: Nanos,
}

impl KafkaSink {
    /// A sink with a fresh handle. `arena` is the memory of the frames it will be lent.
    ///
    /// # Errors
    /// What librdkafka says to the settings.
    pub fn new(settings: HandleSettings, arena: Arc<Arena>) -> Result<KafkaSink, HandleError> {
        let handle = Handle::create(&settings, Arc::clone(&arena))?;
        Ok(KafkaSink {
            pace: Pace::new(&settings.properties),
            settings,
            arena,
            handle,
            state: State::Ready,
            news: VecDeque::new(),
            outstanding: 0,
            errors: 0,
            logged: (0, Nanos(0)),
            liveness: Liveness::new(LIVENESS_LIMIT),
            heard: true,
            condition_calls: 0,
            clock: SystemClock::new(),
        })
    }

    /// Frames handed over and not reported.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// The handle alone, without what this sink does before and beside it: what the router is measured against.
    #[must_use]
    pub fn into_handle(self) -> Handle {
        self.handle
    }

    /// The handle, for a test that breaks it.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Counts errors and notices a fatal one. Statistics are asked for only while the client is suspiciously silent.
    fn read_news(&mut self) {
        while let Some(news) = self.news.pop_front() {
            let (code, text, is_fatal) = match news {
                News::Error { code, text, is_fatal } => (code, text, is_fatal),
                News::Statistics(json) => {
                    let is_up = warm::is_connected(&json, &self.settings.topic);
                    self.liveness.connected(is_up, self.clock.mono());
                    continue;
                }
            };
            self.errors += 1;
            // A broker that is away says so with each attempt to reach it.
            let now = self.clock.mono();
            if self.logged.0 != code || now.since(self.logged.1) >= LOG_INTERVAL {
                self.logged = (code, now);
                log::warn!("Kafka client: {} ({})", text, error_name(code));
            }
            if is_fatal && !matches!(self.state, State::Replacing(_)) {
                self.give_up_handle();
            }
        }
    }

    /// Now and then: whether the client still does its work.
    fn watch(&mut self) {
        self.condition_calls = self.condition_calls.wrapping_add(1);
        if !self.condition_calls.is_multiple_of(WATCHED_CALLS) {
            return;
        }
        let now = self.clock.mono();
        if std::mem::take(&mut self.heard) || self.outstanding == 0 || !matches!(self.state, State::Ready) {
            self.liveness.is_well(now);
        }
        self.handle.reads_statistics = self.liveness.is_suspicious(now);
        if self.liveness.is_dead(now) {
            log::error!(
                "the Kafka client has {} frames in flight, a connection, and has reported nothing for {} s",
                self.outstanding,
                LIVENESS_LIMIT.0 / 1_000_000_000
            );
            self.liveness.is_well(now);
            self.give_up_handle();
        }
    }

    fn give_up_handle(&mut self) {
        log::warn!("the Kafka producer failed for good and is replaced; {} frames are taken back", self.outstanding);
        let now = self.clock.mono();
        self.state = State::Replacing(Replacing {
            answers_until: now + ANSWERS_LIMIT,
            reports_until: None,
            purge_at: now,
            maker: self.start_maker(),
            retry_at: now + REMAKE_PAUSE,
        });
    }

    /// Has a new handle made aside; `None`: there is no thread for it just now.
    fn start_maker(&self) -> Option<JoinHandle<Result<Handle, HandleError>>> {
        let (settings, arena) = (self.settings.clone(), Arc::clone(&self.arena));
        let make = move || Handle::create(&settings, arena);
        let started = std::thread::Builder::new().name("fencepost-maker".into()).spawn(make);
        started.inspect_err(|error| log::error!("no thread to make a Kafka producer on, trying again: {error}")).ok()
    }

    /// Puts the new handle in place once the old one has reported all it held, or has had its time. Requests that are on
    /// their way are waited for: their answers tell what is in the log.
    fn try_replace(&mut self) {
        let now = self.clock.mono();
        let State::Replacing(mut replacing) = std::mem::replace(&mut self.state, State::Ready) else { return };
        let is_drained = self.outstanding == 0;
        if !is_drained && now >= replacing.purge_at {
            replacing.purge_at = now + PURGE_INTERVAL;
            let is_late = now >= replacing.answers_until;
            self.handle.purge(is_late);
            if is_late && replacing.reports_until.is_none() {
                replacing.reports_until = Some(now + COLLECT_LIMIT);
            }
        }
        if replacing.maker.is_none() && now >= replacing.retry_at {
            replacing.retry_at = now + REMAKE_PAUSE;
            replacing.maker = self.start_maker();
        }
        let may_go = is_drained || replacing.reports_until.is_some_and(|until| now >= until);
        if may_go && let Some(maker) = replacing.maker.take_if(|maker| maker.is_finished()) {
            match maker.join() {
                Ok(Ok(handle)) => {
                    self.handle = handle;
                    self.pace.forget();
                    self.outstanding = 0;
                    self.state = State::Replaced;
                    return;
                }
                Ok(Err(error)) => log::error!("a new Kafka producer could not be made, trying again: {error}"),
                Err(_) => log::error!("the thread that makes a new Kafka producer panicked, trying again"),
            }
            replacing.retry_at = now + REMAKE_PAUSE;
        }
        self.state = State::Replacing(replacing);
    }
}

// SAFETY: librdkafka is done with a message when it reports it; the frames of a handle that was given up stay lent to it,
// which `Condition::Replaced` says.
unsafe impl Sink for KafkaSink {
    fn produce(&mut self, outgoing: Outgoing) -> Result<(), Busy> {
        if matches!(self.state, State::Replacing(_)) {
            return Err(Busy::NotReady);
        }
        if !self.pace.may_take(outgoing.partition) {
            return Err(Busy::QueueFull);
        }
        if let Err(busy) = self.handle.produce(&outgoing) {
            if busy == Busy::NotReady {
                // Only a fatal error answers so; its event may still be on the way.
                self.give_up_handle();
            }
            return Err(busy);
        }
        self.pace.took(outgoing.partition, outgoing.frame.len() + usize::from(outgoing.key.1));
        self.outstanding += 1;
        Ok(())
    }

    fn collect(&mut self, most: usize, reports: &mut Vec<Report>) {
        let pace = &mut self.pace;
        let each = &mut |report| reports.push(report);
        let count =
            self.handle.poll(most, each, &mut |partition, count| pace.reported(partition, count), &mut self.news);
        self.outstanding -= count;
        if !self.news.is_empty() {
            self.read_news();
        }
        self.heard |= count > 0;
    }

    fn condition(&mut self) -> Condition {
        self.pace.look(self.clock.mono());
        if matches!(self.state, State::Replacing(_)) {
            self.try_replace();
        }
        self.watch();
        match self.state {
            State::Ready => Condition::Ready,
            State::Replacing(_) => Condition::Replacing,
            State::Replaced => {
                self.state = State::Ready;
                Condition::Replaced
            }
        }
    }

    fn explain(&self, code: i32) -> String {
        if code == UNAUTHORIZED {
            let topic = &self.settings.topic;
            return format!("{}: unauthorized: WRITE on topic {topic} is not allowed", error_name(code));
        }
        error_name(code)
    }

    fn errors(&self) -> u64 {
        self.errors
    }
}
