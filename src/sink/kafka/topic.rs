//! The topic as the cluster has it: asked for at start, created when that is wished, watched for drift while running.

use super::connection_properties;
use super::rights::{self, Writing};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::{ClientContext, DefaultClientContext};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;
use std::cell::OnceCell;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// How long the topic's settings are waited for: without them large records are refused late, which is no reason to hold
/// up a start. They are asked for again while running.
const SETTINGS_LIMIT: Duration = Duration::from_millis(1_000);

/// Properties that name a file.
const FILES: [&str; 5] =
    ["ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.crl.location", "ssl.keystore.location"];

/// How a topic is to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTopicPlan {
    /// Its partitions.
    pub partitions: u32,
    /// Copies of each.
    pub replication: u32,
    /// Copies that must be in sync for an acknowledgement.
    pub min_insync_replicas: u32,
}

/// What the cluster says of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicFacts {
    /// Its partitions.
    pub partitions: u32,
    /// Copies of the partition that has the fewest.
    pub replication: usize,
    /// `max.message.bytes`, if we may read it.
    pub record_bytes_max: Option<usize>,
    /// `min.insync.replicas`, if we may read it.
    pub min_insync_replicas: Option<usize>,
    /// Brokers in the cluster.
    pub brokers: usize,
    /// Partitions without a leader.
    pub leaderless: Vec<u32>,
    /// Why the topic's settings could not be read, if they could not.
    pub unread: Option<String>,
}

/// What the topic's own settings say.
#[derive(Default)]
struct TopicSettings {
    record_bytes_max: Option<usize>,
    min_insync_replicas: Option<usize>,
}

/// Why the topic cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopicError {
    /// No answer.
    #[error("no answer from {bootstrap} within {} ms: {why}; is kafka.bootstrap right and the broker up?", limit.as_millis())]
    Unreachable {
        /// Who was asked.
        bootstrap: String,
        /// For how long.
        limit: Duration,
        /// The client's last words.
        why: String,
    },
    /// It does not exist.
    #[error("topic {name} does not exist on {bootstrap}: create it, or set topic.create = true")]
    Missing {
        /// The topic.
        name: String,
        /// The cluster.
        bootstrap: String,
    },
    /// The cluster refused.
    #[error("topic {name}: {operation} was refused: {why}")]
    Refused {
        /// The topic.
        name: String,
        /// What was tried.
        operation: &'static str,
        /// The cluster's words.
        why: String,
    },
    /// The client refused its configuration.
    #[error("the Kafka client refused its configuration: {0}")]
    Client(String),
}

/// Keeps the client's last words on why it got no connection: a password, a certificate, an address. The call that fails
/// for it only says that time ran out.
#[derive(Default)]
struct Listener(Mutex<Option<String>>);

impl ClientContext for Listener {
    fn error(&self, error: KafkaError, reason: &str) {
        log::debug!("asking about the topic: {reason}");
        // That all are down follows from what was said before.
        if error.rdkafka_error_code() != Some(RDKafkaErrorCode::AllBrokersDown) {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.to_string());
        }
    }
}

impl ConsumerContext for Listener {}

/// Asks the cluster about one topic.
///
/// Its clients are made at the first question and kept: each has threads and connections of its own.
pub struct TopicDesk {
    client: ClientConfig,
    consumer: OnceCell<BaseConsumer<Listener>>,
    admin: OnceCell<AdminClient<DefaultClientContext>>,
    bootstrap: String,
    topic: String,
}

impl TopicDesk {
    /// With the connection properties of the producer (bootstrap, security); what only a producer knows is left out.
    #[must_use]
    pub fn new(properties: &[(String, String)], topic: &str) -> TopicDesk {
        let mut client = ClientConfig::new();
        for (name, value) in connection_properties(properties) {
            client.set(name, value);
        }
        client.set("allow.auto.create.topics", "false");
        client.set("log.connection.close", "false");
        let bootstrap = client.get("bootstrap.servers").unwrap_or_default().to_string();
        TopicDesk { client, consumer: OnceCell::new(), admin: OnceCell::new(), bootstrap, topic: topic.to_string() }
    }

    /// The topic's facts; creates it first if it is missing and there is a plan.
    ///
    /// # Errors
    /// [`TopicError`], when there is no answer within `limit`, or the topic is missing, or the cluster refuses.
    pub fn prepare(&self, plan: Option<&NewTopicPlan>, limit: Duration) -> Result<TopicFacts, TopicError> {
        let deadline = Instant::now() + limit;
        let left = || deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(100));
        match self.facts(left()) {
            Err(TopicError::Missing { .. }) if plan.is_some() => {}
            answer => return answer,
        }
        if let Some(plan) = plan {
            self.create(plan, left())?;
        }
        // A fresh topic shows up on all brokers a moment later.
        loop {
            match self.facts(left()) {
                Ok(facts) if facts.leaderless.is_empty() => return Ok(facts),
                answer if Instant::now() >= deadline => return answer,
                _ => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// The topic's facts.
    ///
    /// # Errors
    /// [`TopicError::Unreachable`] and [`TopicError::Missing`], and [`TopicError::Refused`] when we may not see it.
    pub fn facts(&self, limit: Duration) -> Result<TopicFacts, TopicError> {
        let consumer = self.consumer().map_err(|error| self.client_refused(&error))?;
        let metadata = consumer.fetch_metadata(Some(&self.topic), limit).map_err(|error| TopicError::Unreachable {
            bootstrap: self.bootstrap.clone(),
            limit,
            why: last_words(consumer).unwrap_or_else(|| error.to_string()),
        })?;
        let missing = || TopicError::Missing { name: self.topic.clone(), bootstrap: self.bootstrap.clone() };
        let topic = metadata.topics().iter().find(|topic| topic.name() == self.topic).ok_or_else(missing)?;
        if let Some(error) = topic.error() {
            let code = RDKafkaErrorCode::from(error);
            return Err(match code {
                RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic => missing(),
                code => self.refused("DESCRIBE", code.to_string()),
            });
        }
        if topic.partitions().is_empty() {
            return Err(missing());
        }
        let leaderless =
            topic.partitions().iter().filter(|part| part.leader() < 0).map(|part| part.id() as u32).collect();
        let replication = topic.partitions().iter().map(|part| part.replicas().len()).min().unwrap_or_default();
        let (settings, unread) = match self.settings(limit.min(SETTINGS_LIMIT)) {
            Ok(settings) => (settings, None),
            Err(why) => (TopicSettings::default(), Some(why)),
        };
        Ok(TopicFacts {
            partitions: topic.partitions().len() as u32,
            replication,
            record_bytes_max: settings.record_bytes_max,
            min_insync_replicas: settings.min_insync_replicas,
            brokers: metadata.brokers().len(),
            leaderless,
            unread,
        })
    }

    /// Whether the account may write to the topic. Blocks, for `limit` and half a second at the most.
    #[must_use]
    pub fn may_write(&self, limit: Duration) -> Writing {
        match self.admin() {
            Ok(admin) => rights::may_write(admin.inner(), &self.topic, limit),
            Err(error) => Writing::NotSaid(self.client_refused(&error).to_string()),
        }
    }

    fn settings(&self, limit: Duration) -> Result<TopicSettings, String> {
        let admin = self.admin().map_err(|error| error.to_string())?;
        let options = AdminOptions::new().request_timeout(Some(limit));
        let resources = [ResourceSpecifier::Topic(&self.topic)];
        let answers = wait_for(admin.describe_configs(&resources, &options)).map_err(|error| error.to_string())?;
        for answer in answers {
            let config = answer.map_err(|code| code.to_string())?;
            let number = |name| -> Result<Option<usize>, String> {
                let Some(entry) = config.get(name) else { return Ok(None) };
                let value = entry.value.as_deref().unwrap_or_default();
                value.parse().map(Some).map_err(|_| format!("{name} = {value}"))
            };
            let record_bytes_max = number("max.message.bytes")?;
            if record_bytes_max.is_some() {
                return Ok(TopicSettings { record_bytes_max, min_insync_replicas: number("min.insync.replicas")? });
            }
        }
        Err("the topic's settings do not name max.message.bytes".into())
    }

    fn create(&self, plan: &NewTopicPlan, limit: Duration) -> Result<(), TopicError> {
        let admin = self.admin().map_err(|error| self.client_refused(&error))?;
        let min_insync = plan.min_insync_replicas.to_string();
        let replication = TopicReplication::Fixed(plan.replication as i32);
        let topic =
            NewTopic::new(&self.topic, plan.partitions as i32, replication).set("min.insync.replicas", &min_insync);
        let options = AdminOptions::new().operation_timeout(Some(limit)).request_timeout(Some(limit));
        let answers = wait_for(admin.create_topics([&topic], &options));
        for answer in answers.map_err(|error| self.refused("CREATE", error.to_string()))? {
            match answer {
                // Another router was a moment faster.
                Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((_, code)) => return Err(self.refused("CREATE", code.to_string())),
            }
        }
        Ok(())
    }

    fn consumer(&self) -> Result<&BaseConsumer<Listener>, KafkaError> {
        if let Some(consumer) = self.consumer.get() {
            return Ok(consumer);
        }
        let consumer = self.client.create_with_context(Listener::default())?;
        Ok(self.consumer.get_or_init(|| consumer))
    }

    fn admin(&self) -> Result<&AdminClient<DefaultClientContext>, KafkaError> {
        if let Some(admin) = self.admin.get() {
            return Ok(admin);
        }
        let admin = self.client.create()?;
        Ok(self.admin.get_or_init(|| admin))
    }

    /// Lets its clients go; the next question makes new ones, on the thread that asks.
    pub fn close(&mut self) {
        self.consumer = OnceCell::new();
        self.admin = OnceCell::new();
    }

    /// The client names a property whose file it cannot use, but not the file.
    fn client_refused(&self, error: &KafkaError) -> TopicError {
        let mut text = error.to_string();
        for name in FILES {
            if let Some(path) = self.client.get(name).filter(|_| text.contains(name)) {
                text.push_str(&format!("; {name} = {path:?}: is the file there, readable, and in the right format?"));
            }
        }
        TopicError::Client(text)
    }

    fn refused(&self, operation: &'static str, why: String) -> TopicError {
        TopicError::Refused { name: self.topic.clone(), operation, why }
    }
}

/// What the client said last, read from the events that wait for us.
fn last_words(consumer: &BaseConsumer<Listener>) -> Option<String> {
    /// More than a client raises while it waits for one answer; it says the same thing only every 30 seconds.
    const EVENTS: usize = 64;
    for _ in 0..EVENTS {
        // Errors go to the listener; nothing is subscribed to, so there is nothing else.
        drop(consumer.poll(Duration::ZERO));
    }
    consumer.context().0.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Waits for one future on this thread. The admin calls are futures, answered by a thread of librdkafka's wrapper; there
/// is no runtime behind this and none is needed.
fn wait_for<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
