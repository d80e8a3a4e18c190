//! Apache Kafka, through librdkafka: the only room that knows it. One producer handle per shard, idempotent, so that
//! what is in flight is neither lost, doubled nor reordered by the client's own retries.
//!
//! Frames go out without a copy and come back as arrays of reports. A handle that raised a fatal error is replaced: what
//! it holds is taken back, a new one is made aside, and the shard sends again, in order.

pub mod features;
pub mod handle;
pub mod topic;
mod warm;

pub use handle::{HandleError, HandleSettings, being_destroyed, error_name};
pub use warm::{WarmUp, WarmUpError};

use super::{Busy, Condition, Outgoing, Report, Sink};
use crate::clock::{Clock, SystemClock};
use crate::config::KafkaSettings;
use crate::slab::Arena;
use crate::units::Nanos;
use handle::{Handle, News};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The oldest librdkafka that is good enough: Nagle off by default, and the idempotence fixes of 2.10.
pub const VERSION_MIN: u32 = 0x020a_0000;
/// What a given-up handle gets to report what it holds.
const COLLECT_LIMIT: Nanos = Nanos::from_millis(2_000);
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

/// The real sink.
pub struct KafkaSink {
    settings: HandleSettings,
    arena: Arc<Arena>,
    handle: Handle,
    state: State,
    news: VecDeque<News>,
    /// Frames handed to the present handle and not reported.
    outstanding: usize,
    errors: u64,
    clock: SystemClock,
}

enum State {
    Ready,
    Replacing { until: Nanos, maker: Option<JoinHandle<Result<Handle, HandleError>>>, retry_at: Nanos },
    Replaced,
}

impl KafkaSink {
    /// A sink with a fresh handle. `arena` is the memory of the frames it will be lent.
    ///
    /// # Errors
    /// What librdkafka says to the settings.
    pub fn new(settings: HandleSettings, arena: Arc<Arena>) -> Result<KafkaSink, HandleError> {
        let handle = Handle::create(&settings, Arc::clone(&arena))?;
        Ok(KafkaSink {
            settings,
            arena,
            handle,
            state: State::Ready,
            news: VecDeque::new(),
            outstanding: 0,
            errors: 0,
            clock: SystemClock::new(),
        })
    }

    /// Frames handed over and not reported.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// The handle, for a test that breaks it.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Counts errors and notices a fatal one. Statistics are of no use here once the sink is warm.
    fn read_news(&mut self) {
        while let Some(news) = self.news.pop_front() {
            let News::Error { code, text, is_fatal } = news else { continue };
            self.errors += 1;
            log::warn!("Kafka client: {} ({})", text, error_name(code));
            if is_fatal && !matches!(self.state, State::Replacing { .. }) {
                self.give_up_handle();
            }
        }
    }

    fn give_up_handle(&mut self) {
        log::warn!("the Kafka producer failed for good and is replaced; {} frames are taken back", self.outstanding);
        self.handle.purge();
        let until = self.clock.mono() + COLLECT_LIMIT;
        self.state = State::Replacing { until, maker: Some(self.start_maker()), retry_at: Nanos(0) };
    }

    fn start_maker(&self) -> JoinHandle<Result<Handle, HandleError>> {
        let (settings, arena) = (self.settings.clone(), Arc::clone(&self.arena));
        std::thread::spawn(move || Handle::create(&settings, arena))
    }

    /// Puts the new handle in place once the old one has reported all it held, or has had its time.
    fn try_replace(&mut self) {
        let now = self.clock.mono();
        let State::Replacing { until, maker, retry_at } = &mut self.state else { return };
        if self.outstanding > 0 && now < *until {
            return;
        }
        let Some(running) = maker else {
            if now >= *retry_at {
                let started = self.start_maker();
                if let State::Replacing { maker, .. } = &mut self.state {
                    *maker = Some(started);
                }
            }
            return;
        };
        if !running.is_finished() {
            return;
        }
        let made = maker.take().map(JoinHandle::join);
        match made {
            Some(Ok(Ok(handle))) => {
                self.handle = handle;
                self.outstanding = 0;
                self.state = State::Replaced;
            }
            Some(Ok(Err(error))) => {
                log::error!("a new Kafka producer could not be made, trying again: {error}");
                *retry_at = now + REMAKE_PAUSE;
            }
            Some(Err(_)) | None => *retry_at = now + REMAKE_PAUSE,
        }
    }
}

impl Sink for KafkaSink {
    fn produce(&mut self, outgoing: Outgoing) -> Result<(), Busy> {
        if matches!(self.state, State::Replacing { .. }) {
            return Err(Busy::NotReady);
        }
        if let Err(busy) = self.handle.produce(&outgoing) {
            if busy == Busy::NotReady {
                // Only a fatal error answers so; its event may still be on the way.
                self.give_up_handle();
            }
            return Err(busy);
        }
        self.outstanding += 1;
        Ok(())
    }

    fn collect(&mut self, most: usize, each: &mut dyn FnMut(Report)) -> usize {
        let count = self.handle.poll(most, each, &mut self.news);
        self.outstanding -= count;
        if !self.news.is_empty() {
            self.read_news();
        }
        count
    }

    fn condition(&mut self) -> Condition {
        self.try_replace();
        match self.state {
            State::Ready => Condition::Ready,
            State::Replacing { .. } => Condition::Replacing,
            State::Replaced => {
                self.state = State::Ready;
                Condition::Replaced
            }
        }
    }

    fn errors(&self) -> u64 {
        self.errors
    }
}
