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
mod fences;
mod keys;
mod kind;
mod limits;
mod memory;
mod nearest;
mod properties;
mod read;
mod reference;
mod rules;
mod settings;
mod size;
mod span;
mod values;
mod words;

pub use error::{ConfigError, Problem};
pub use fences::{FENCES_BYTES_MAX, FencesError, KnownFences};
pub use keys::{
    BREAKER_FAILURES, BREAKER_GRACE, BREAKER_RESET, CPU_IDS, DEAD_LETTER_GRACE, DEAD_LETTER_LIMIT, DEDUP_BYTES_PER_KEY,
    DEDUP_CAPACITY, DEDUP_TTL, INFLIGHT_BYTES_PER_FRAME, INFLIGHT_PARTITION, INFLIGHT_TOTAL, INFLIGHT_WAITING,
    PARTITIONS, PARTITIONS_CREATED, PATH_BYTES, PUBLISH_TIMEOUT, QUEUE_BYTES_PER_TRIGGER, QUEUE_CAPACITY,
    QUEUE_INGRESSES, QUEUE_RATIO, REPLICATION, ROUTE_CONNECTIONS, ROUTE_LINE_BYTES, ROUTE_LINE_TIMEOUT,
    ROUTER_ID_BYTES, SETTLE_WINDOW, SHARDS, SHUTDOWN_LIMIT, SPILL_LIMIT, SPILL_PARTITION_LIMIT, SPILL_SEGMENT,
    SPILL_SYNC, START_TIMEOUT, TIME_FUTURE_LIMIT, TIME_PAST_LIMIT, TOPIC_NAME_BYTES, TURN_BATCH,
};
pub use limits::{
    ARENA_BYTES_MAX, FRAME_BYTES_MAX, LINE_BYTES, Limits, NOTES_BYTES_MAX, Numbers, PAST_LIMIT_DEFAULT, RING_BYTES_MIN,
    RING_TRIGGERS_MIN, SPILL_META_BYTES_MAX,
};
pub use memory::{MemoryLine, MemorySum};
pub use properties::{CLIENT_ID_BYTES, ClientProperty, FILE_BYTES_MAX, Properties, PropertyValue, Secret};
pub use reference::reference;
pub use rules::SOCKET_PATH_BYTES_MAX;
pub use settings::{DeadLetterSettings, KafkaSettings};
#[cfg(feature = "cli")]
pub(crate) use span::parse as parse_span;
pub use values::{AgeLimit, DeadLetterTopic, Pin};
pub use words::{DivertPolicy, Idle, RecordTime, RouteFormat, RouteOnShed, RouteSource};

use serde::{Deserialize, Serialize};
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
    /// The triggers of stalled partitions on the disk.
    pub spill: Spill,
    /// Where triggers go that can never be delivered.
    pub dead_letter: DeadLetter,
    /// Which triggers there may be.
    pub validate: Validate,
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
    /// Reads the topic's newest records at start.
    pub warm_start: bool,
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Divert {
    /// What happens to a stalled partition's triggers. `None`: [`Config::divert_policy`] says.
    pub policy: Option<DivertPolicy>,
}

/// `[spill]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Spill {
    /// Bytes on the disk; [`SPILL_LIMIT`].
    #[serde(with = "size")]
    pub limit: u64,
    /// Bytes for one partition; [`SPILL_PARTITION_LIMIT`]. `None`: a quarter of the limit.
    #[serde(with = "size::unset")]
    pub partition_limit: Option<u64>,
    /// How long records gather before an fsync; [`SPILL_SYNC`].
    #[serde(with = "span")]
    pub sync: Duration,
    /// Bytes of one file; [`SPILL_SEGMENT`].
    #[serde(with = "size")]
    pub segment: u64,
}

/// `[dead_letter]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeadLetter {
    /// The dead-letter topic. `None`: [`Config::dead_letter_topic`] says.
    pub topic: Option<DeadLetterTopic>,
    /// Brokers of another cluster that has it.
    pub bootstrap: Option<String>,
    /// Properties of the client library towards it, from a closed list.
    pub properties: Properties,
    /// How long it may take a letter; [`DEAD_LETTER_GRACE`].
    #[serde(with = "span")]
    pub grace: Duration,
    /// Bytes of letters on the disk; [`DEAD_LETTER_LIMIT`].
    #[serde(with = "size")]
    pub limit: u64,
}

/// `[validate]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Validate {
    /// The file of [`KnownFences`]. `None`: every fence is known.
    pub fences: Option<PathBuf>,
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
    /// What becomes of a trigger that submit sheds.
    pub on_shed: RouteOnShed,
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
        Dedup { ttl: Duration::from_secs(10), capacity: 1_000_000, bytes_per_key: 96, warm_start: true }
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

impl Default for Spill {
    fn default() -> Spill {
        Spill { limit: 4 << 30, partition_limit: None, sync: Duration::from_millis(5), segment: 64 << 20 }
    }
}

impl Default for DeadLetter {
    fn default() -> DeadLetter {
        DeadLetter {
            topic: None,
            bootstrap: None,
            properties: Properties::default(),
            grace: Duration::from_secs(5),
            limit: 256 << 20,
        }
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
            on_shed: RouteOnShed::Wait,
        }
    }
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
        problems.extend(self.property_problems());
        // The rules compute with the values, so these must be inside their bounds first.
        ConfigError::unless_clean(problems)?;
        ConfigError::unless_clean(rules::problems(self))?;
        Ok(Limits::new(self))
    }

    /// Checks a number of partitions that the topic has, where the config does not pin it.
    ///
    /// # Errors
    /// There are fewer partitions than shards, or too many for the sizes of the spill.
    pub fn check_partitions(&self, partitions: u32) -> Result<(), ConfigError> {
        let breaches = [
            (rules::PARTITIONS_RULE, rules::partitions_breach(partitions, self.engine.shards)),
            (rules::SPILL_RULE, rules::spill_breach(self, partitions)),
            (rules::DEAD_LETTERS_RULE, rules::dead_letters_breach(self, partitions)),
        ];
        let problems = breaches.into_iter().filter_map(|(rule, breach)| {
            let (got, fix) = breach?;
            Some(Problem::Conflict { rule, got, fix })
        });
        ConfigError::unless_clean(problems.collect())
    }

    /// What happens to a stalled partition's triggers: as configured, else to the disk where there is one.
    #[must_use]
    pub fn divert_policy(&self) -> DivertPolicy {
        let unset = if self.state.dir.is_some() { DivertPolicy::Spill } else { DivertPolicy::Refuse };
        self.divert.policy.unwrap_or(unset)
    }

    /// The dead-letter topic, if there is one: as configured, else the topic's name with `.dlq` at its end.
    #[must_use]
    pub fn dead_letter_topic(&self) -> Option<String> {
        match &self.dead_letter.topic {
            Some(DeadLetterTopic::Off) => None,
            Some(DeadLetterTopic::Named(name)) => Some(name.clone()),
            None => Some(format!("{}{}", self.topic.name, rules::DEAD_LETTER_SUFFIX)),
        }
    }

    /// What is wrong with the client properties of both tables.
    fn property_problems(&self) -> Vec<Problem> {
        let mut problems = self.kafka.properties.problems("kafka.properties");
        problems.extend(self.dead_letter.properties.problems("dead_letter.properties"));
        problems
    }

    /// The partitions of a topic that is made here.
    #[must_use]
    pub fn partitions_to_create(&self) -> u32 {
        self.topic.partitions.unwrap_or(PARTITIONS_CREATED)
    }
}
