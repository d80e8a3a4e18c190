//! Configuration: [`Config`] is what a person writes, [`Limits`] is what the engine uses.
//!
//! A `Config` comes from TOML or from code. Every table and key is optional and has a documented default
//! (`docs/config.md`, made from the same table that the checks use). An unknown key, a wrong type or a value out of
//! bounds is refused with the key, what came, what is allowed and the fix; all problems come at once. `Config::limits`
//! checks the keys against each other and freezes the result, with the sum of the memory that it stands for.
//!
//! It reads the file it is told to, and the variables and files that hold secrets; it does not look at the machine.
//! Nothing here runs after start.
#![forbid(unsafe_code)]

mod error;
mod keys;
mod limits;
mod memory;
mod nearest;
mod properties;
mod read;
mod reference;
mod rules;
mod span;
mod words;

pub use error::{ConfigError, Problem};
pub use keys::{
    BREAKER_FAILURES, BREAKER_GRACE, BREAKER_RESET, CPU_IDS, DEDUP_BYTES_PER_KEY, DEDUP_CAPACITY, DEDUP_TTL,
    INFLIGHT_BYTES_PER_FRAME, INFLIGHT_PARTITION, INFLIGHT_TOTAL, INFLIGHT_WAITING, PARTITIONS, PARTITIONS_CREATED,
    PATH_BYTES, PUBLISH_TIMEOUT, QUEUE_BYTES_PER_TRIGGER, QUEUE_CAPACITY, QUEUE_INGRESSES, QUEUE_RATIO, REPLICATION,
    ROUTE_CONNECTIONS, ROUTE_LINE_BYTES, ROUTE_LINE_TIMEOUT, ROUTER_ID_BYTES, SETTLE_WINDOW, SHARDS, SHUTDOWN_LIMIT,
    START_TIMEOUT, TIME_FUTURE_LIMIT, TIME_PAST_LIMIT, TOPIC_NAME_BYTES, TURN_BATCH,
};
pub use limits::{
    ARENA_BYTES_MAX, FRAME_BYTES_MAX, LINE_BYTES, Limits, Numbers, PAST_LIMIT_DEFAULT, RING_BYTES_MIN,
    RING_TRIGGERS_MIN,
};
pub use memory::{MemoryLine, MemorySum};
pub use properties::{CLIENT_ID_BYTES, ClientProperty, FILE_BYTES_MAX, Properties, PropertyValue, Secret};
pub use reference::reference;
pub use rules::SOCKET_PATH_BYTES_MAX;
pub use words::{DivertPolicy, Idle, RecordTime, RouteFormat, RouteSource};

use crate::units::Nanos;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a person writes: every key of `docs/config.md`, by its table.
///
/// ```
/// use fencepost::config::Config;
///
/// let mut config = Config::from_toml_str("[engine]\nshards = 2\n")?;
/// config.kafka.bootstrap = Some("localhost:9092".to_owned());
/// config.kafka.properties.set("linger.ms", 1);
/// let limits = config.limits()?;
/// assert_eq!(limits.shards, 2);
/// println!("{}", limits.memory());
/// # Ok::<(), fencepost::config::ConfigError>(())
/// ```
///
/// Serialising shows `***` in place of secrets: it is for people, not for reading back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Who this router is.
    pub router: Router,
    /// Where the triggers go.
    pub topic: Topic,
    /// How the cluster is reached.
    pub kafka: Kafka,
    /// The shards.
    pub engine: Engine,
    /// What waits between a caller and the shards.
    pub queue: Queue,
    /// What is accepted and not yet settled.
    pub settle: Settle,
    /// The window in which a repeat is collapsed.
    pub dedup: Dedup,
    /// What is at the client library, or waits for a place there.
    pub inflight: Inflight,
    /// When an ack is late.
    pub publish: Publish,
    /// When a partition counts as stalled.
    pub breaker: Breaker,
    /// What happens to a stalled partition's triggers.
    pub divert: Divert,
    /// Which event times are believable.
    pub time: Time,
    /// What outlives the process.
    pub state: State,
    /// When the router is ready.
    pub start: Start,
    /// How long a stop may take.
    pub shutdown: Shutdown,
    /// The source of `fencepost route`.
    pub route: Route,
}

/// `[router]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Router {
    /// Names this router in every frame; [`ROUTER_ID_BYTES`]. `None`: one is made and kept in the state directory.
    pub id: Option<String>,
}

/// `[topic]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Topic {
    /// The topic; Kafka's rule for names.
    pub name: String,
    /// The pinned number of partitions; [`PARTITIONS`]. `None`: as many as the topic has.
    pub partitions: Option<u32>,
    /// Makes the topic when it is not there.
    pub create: bool,
    /// Replicas of a topic made here; [`REPLICATION`].
    pub replication: u16,
    /// Replicas that must have a record, of a topic made here; [`REPLICATION`].
    pub min_insync_replicas: u16,
}

/// `[kafka]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Kafka {
    /// Brokers to ask first: `host:port`, with commas between. Needed to publish to Kafka.
    pub bootstrap: Option<String>,
    /// Which time a record carries.
    pub record_time: RecordTime,
    /// Properties of the client library, from a closed list.
    pub properties: Properties,
}

/// `[engine]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Engine {
    /// Threads that own the partitions; [`SHARDS`].
    pub shards: u16,
    /// The CPUs that the shards are pinned to.
    pub pin: Pin,
    /// What a shard does when it has nothing to do.
    pub idle: Idle,
    /// Triggers taken from one ring in one turn; [`TURN_BATCH`].
    pub turn_batch: u16,
}

/// `[queue]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Queue {
    /// Triggers of one ingress, over its rings; [`QUEUE_CAPACITY`].
    pub capacity: usize,
    /// Ingresses; [`QUEUE_INGRESSES`].
    pub ingresses: usize,
    /// `SlowDown` from this share of a ring on; [`QUEUE_RATIO`].
    pub pause_ratio: f64,
    /// Low priority is shed from this share on; [`QUEUE_RATIO`].
    pub low_shed_ratio: f64,
    /// Normal priority is shed from this share on; [`QUEUE_RATIO`].
    pub shed_ratio: f64,
    /// Ring bytes for each trigger of capacity; [`QUEUE_BYTES_PER_TRIGGER`].
    pub bytes_per_trigger: usize,
}

/// `[settle]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settle {
    /// Unsettled seqs of an ingress: a power of two in [`SETTLE_WINDOW`].
    pub window: usize,
}

/// `[dedup]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Dedup {
    /// How long a key is remembered; [`DEDUP_TTL`].
    #[serde(with = "span")]
    pub ttl: Duration,
    /// Keys over all shards; [`DEDUP_CAPACITY`].
    pub capacity: usize,
    /// Arena bytes for each key of capacity; [`DEDUP_BYTES_PER_KEY`].
    pub bytes_per_key: usize,
}

/// `[inflight]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Inflight {
    /// Frames of one partition without an ack; [`INFLIGHT_PARTITION`].
    pub partition: usize,
    /// Frames without an ack over all shards; [`INFLIGHT_TOTAL`].
    pub total: usize,
    /// Accepted triggers that wait behind a full window, over all shards; [`INFLIGHT_WAITING`].
    pub waiting: usize,
    /// Arena bytes for each frame; [`INFLIGHT_BYTES_PER_FRAME`].
    pub bytes_per_frame: usize,
}

/// `[publish]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Publish {
    /// An ack after this is late; [`PUBLISH_TIMEOUT`].
    #[serde(with = "span")]
    pub timeout: Duration,
}

/// `[breaker]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Breaker {
    /// A partition without progress for this long is stalled; [`BREAKER_GRACE`].
    #[serde(with = "span")]
    pub grace: Duration,
    /// Failed outcomes in a row that stop a partition; [`BREAKER_FAILURES`].
    pub failures: u32,
    /// How long a partition stays stopped before it is tried again; [`BREAKER_RESET`].
    #[serde(with = "span")]
    pub reset: Duration,
}

/// `[divert]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Divert {
    /// What happens to a stalled partition's triggers.
    pub policy: DivertPolicy,
}

/// `[time]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Time {
    /// How far ahead an event may be; [`TIME_FUTURE_LIMIT`].
    #[serde(with = "span")]
    pub future_limit: Duration,
    /// How old an event may be; [`TIME_PAST_LIMIT`]. `None`: [`PAST_LIMIT_DEFAULT`], or any age for a file or
    /// standard input.
    pub past_limit: Option<AgeLimit>,
}

/// `[state]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct State {
    /// Directory for what outlives the process.
    pub dir: Option<PathBuf>,
}

/// `[start]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Start {
    /// Whether start waits for every partition's leader.
    pub require_broker: bool,
    /// How long it waits; [`START_TIMEOUT`].
    #[serde(with = "span")]
    pub timeout: Duration,
}

/// `[shutdown]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Shutdown {
    /// How long a stop waits for what is in flight; [`SHUTDOWN_LIMIT`].
    #[serde(with = "span")]
    pub limit: Duration,
}

/// `[route]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Route {
    /// Where triggers come from. `None`: an embedded router; `fencepost route` takes standard input then.
    pub source: Option<RouteSource>,
    /// How they are written.
    pub format: RouteFormat,
    /// The file, or the unix socket.
    pub path: Option<PathBuf>,
    /// The address of the TCP source.
    pub listen: SocketAddr,
    /// Lets it be an address that other hosts reach.
    pub allow_remote: bool,
    /// The longest line or frame; [`ROUTE_LINE_BYTES`].
    pub line_bytes_max: usize,
    /// Connections at once; [`ROUTE_CONNECTIONS`].
    pub connections_max: usize,
    /// How long a peer may leave a line unfinished; [`ROUTE_LINE_TIMEOUT`].
    #[serde(with = "span")]
    pub line_timeout: Duration,
    /// A file source goes on after its last settled line.
    pub resume: bool,
}

/// The CPUs of the shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pin {
    /// The scheduler chooses.
    None,
    /// Kernel numbers, one a shard, each once; [`CPU_IDS`].
    Cpus(Vec<u32>),
}

/// How old an event may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgeLimit {
    /// Any age.
    Off,
    /// At most this old.
    Span(Duration),
}

impl Default for Topic {
    fn default() -> Topic {
        Topic {
            name: "geofence-triggers".to_owned(),
            partitions: None,
            create: false,
            replication: 1,
            min_insync_replicas: 1,
        }
    }
}

impl Default for Kafka {
    fn default() -> Kafka {
        Kafka { bootstrap: None, record_time: RecordTime::Accepted, properties: Properties::default() }
    }
}

impl Default for Engine {
    fn default() -> Engine {
        Engine { shards: 1, pin: Pin::None, idle: Idle::Park, turn_batch: 256 }
    }
}

impl Default for Queue {
    fn default() -> Queue {
        Queue {
            capacity: 100_000,
            ingresses: 8,
            pause_ratio: 0.70,
            low_shed_ratio: 0.80,
            shed_ratio: 0.90,
            bytes_per_trigger: 128,
        }
    }
}

impl Default for Settle {
    fn default() -> Settle {
        Settle { window: 1 << 20 }
    }
}

impl Default for Dedup {
    fn default() -> Dedup {
        Dedup { ttl: Duration::from_secs(10), capacity: 1_000_000, bytes_per_key: 96 }
    }
}

impl Default for Inflight {
    fn default() -> Inflight {
        Inflight { partition: 16_384, total: 131_072, waiting: 65_536, bytes_per_frame: 256 }
    }
}

impl Default for Publish {
    fn default() -> Publish {
        Publish { timeout: Duration::from_millis(25) }
    }
}

impl Default for Breaker {
    fn default() -> Breaker {
        Breaker { grace: Duration::from_secs(1), failures: 20, reset: Duration::from_secs(5) }
    }
}

impl Default for Divert {
    fn default() -> Divert {
        Divert { policy: DivertPolicy::Refuse }
    }
}

impl Default for Time {
    fn default() -> Time {
        Time { future_limit: Duration::from_secs(300), past_limit: None }
    }
}

impl Default for Start {
    fn default() -> Start {
        Start { require_broker: true, timeout: Duration::from_secs(30) }
    }
}

impl Default for Shutdown {
    fn default() -> Shutdown {
        Shutdown { limit: Duration::from_secs(30) }
    }
}

impl Default for Route {
    fn default() -> Route {
        Route {
            source: None,
            format: RouteFormat::Ndjson,
            path: None,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 9_465)),
            allow_remote: false,
            line_bytes_max: 65_536,
            connections_max: 8,
            line_timeout: Duration::from_secs(30),
            resume: false,
        }
    }
}

impl Serialize for Pin {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            Pin::None => out.serialize_str("none"),
            Pin::Cpus(cpus) => cpus.serialize(out),
        }
    }
}

impl<'de> Deserialize<'de> for Pin {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Pin, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Word(String),
            Cpus(Vec<u32>),
        }
        match Form::deserialize(from)? {
            Form::Word(word) if word == "none" => Ok(Pin::None),
            Form::Word(word) => Err(serde::de::Error::custom(format!("{word:?} is neither \"none\" nor a list"))),
            Form::Cpus(cpus) => Ok(Pin::Cpus(cpus)),
        }
    }
}

impl Serialize for AgeLimit {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            AgeLimit::Off => out.serialize_str("off"),
            AgeLimit::Span(span) => span::serialize(span, out),
        }
    }
}

impl<'de> Deserialize<'de> for AgeLimit {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<AgeLimit, D::Error> {
        let text = String::deserialize(from)?;
        match span::parse(&text) {
            Some(span) => Ok(AgeLimit::Span(span)),
            None if text == "off" => Ok(AgeLimit::Off),
            None => Err(serde::de::Error::custom(format!("{text:?} is neither \"off\" nor {}", span::SHAPE))),
        }
    }
}

/// What the Kafka sink is made from: addresses, topic, and every client property with its final value.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct KafkaSettings {
    /// Brokers to ask first.
    pub bootstrap: String,
    /// Which time a record carries.
    pub record_time: RecordTime,
    /// The properties of the config and the router's defaults for batching, each allowed and checked. Those that
    /// order and delivery rest on are not among them: the sink sets them itself.
    pub properties: Vec<ClientProperty>,
    /// How long a batch waits for more.
    pub linger: Nanos,
}

impl Config {
    /// Reads TOML text. Each key is checked for itself; [`Config::limits`] checks them against each other.
    ///
    /// # Errors
    /// Every problem that was found, with its line.
    pub fn from_toml_str(text: &str) -> Result<Config, ConfigError> {
        read::read(text)
    }

    /// Reads a TOML file, like [`Config::from_toml_str`].
    ///
    /// # Errors
    /// The file cannot be read, or the problems in it, with the file's name and their lines.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Config, ConfigError> {
        let path = path.as_ref();
        std::fs::read_to_string(path)
            .map_err(|error| ConfigError::new(vec![(None, Problem::Unreadable { why: error.to_string() })]))
            .and_then(|text| Config::from_toml_str(&text))
            .map_err(|error| error.in_file(path))
    }

    /// Checks each key and then the rules between them, and freezes the numbers for the engine.
    ///
    /// # Errors
    /// Every value out of bounds; or, when there is none, every broken rule between keys.
    pub fn limits(&self) -> Result<Limits, ConfigError> {
        let mut problems: Vec<Problem> = keys::KEYS.iter().filter_map(|key| key.check(&(key.get)(self))).collect();
        problems.extend(self.kafka.properties.problems());
        // The rules compute with the values, so these must be inside their bounds first.
        ConfigError::unless_clean(problems)?;
        ConfigError::unless_clean(rules::problems(self))?;
        Ok(Limits::new(self))
    }

    /// Checks a number of partitions that the topic has, where the config does not pin it.
    ///
    /// # Errors
    /// There are fewer partitions than shards.
    pub fn check_partitions(&self, partitions: u32) -> Result<(), ConfigError> {
        let problems = rules::partitions_breach(partitions, self.engine.shards).map(|(got, fix)| Problem::Conflict {
            rule: rules::PARTITIONS_RULE,
            got,
            fix,
        });
        ConfigError::unless_clean(problems.into_iter().collect())
    }

    /// The partitions of a topic that is made here.
    #[must_use]
    pub fn partitions_to_create(&self) -> u32 {
        self.topic.partitions.unwrap_or(PARTITIONS_CREATED)
    }

    /// What the Kafka sink needs; reads the environment variables and files that the properties name.
    ///
    /// # Errors
    /// `kafka.bootstrap` is not set, a variable or file is not there, or a value is not allowed. No value is named.
    pub fn kafka_settings(&self) -> Result<KafkaSettings, ConfigError> {
        self.kafka_settings_from(&|name| std::env::var_os(name))
    }

    /// Like [`Config::kafka_settings`], with the environment as an argument.
    ///
    /// # Errors
    /// As there.
    pub fn kafka_settings_from(
        &self,
        environment: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<KafkaSettings, ConfigError> {
        let mut problems = self.kafka.properties.problems();
        let key = keys::find("kafka.bootstrap").expect("it is in the table of keys");
        problems.extend(match &self.kafka.bootstrap {
            Some(_) => key.check(&(key.get)(self)),
            None => Some(Problem::Missing { key: key.name, fix: key.fix }),
        });
        ConfigError::unless_clean(problems)?;
        let properties = self.kafka.properties.resolve(environment).map_err(|problems| {
            ConfigError::unless_clean(problems).expect_err("an unresolved config has at least one problem")
        })?;
        let linger_ms: f64 = properties
            .iter()
            .find(|property| property.name == "linger.ms")
            .map(|property| property.value.expose().parse().expect("linger.ms was checked to be a number"))
            .expect("linger.ms has a default");
        if let Some((got, fix)) = rules::linger_breach(self, linger_ms) {
            return Err(ConfigError::new(vec![(None, Problem::Conflict { rule: rules::LINGER_RULE, got, fix })]));
        }
        let bootstrap = self.kafka.bootstrap.clone().expect("it was checked to be there");
        let linger = Duration::from_secs_f64(linger_ms / 1_000.0).into();
        Ok(KafkaSettings { bootstrap, record_time: self.kafka.record_time, properties, linger })
    }
}
