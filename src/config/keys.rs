//! Every key, in one table: name, kind, bounds, what it does. The reader of the file, the checks, the suggestions for
//! unknown keys, `docs/config.md` and the tests all come from it; a test proves that it and the structs agree.

use super::kind::{Kind, Value};
use super::words::{DivertPolicy, Idle, RecordTime, RouteFormat, RouteOnShed, RouteSource};
use super::{AgeLimit, Config, DeadLetterTopic, Pin};
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const DAY: u64 = 86_400_000;
const MIB: u64 = 1 << 20;

/// A router's id, in bytes: it travels in every frame.
pub const ROUTER_ID_BYTES: RangeInclusive<usize> = 1..=32;
/// A topic's name, in bytes. Kafka's own rule.
pub const TOPIC_NAME_BYTES: RangeInclusive<usize> = 1..=249;
/// Partitions of the topic.
pub const PARTITIONS: RangeInclusive<u64> = 1..=10_000;
/// Partitions of a topic that is created without a number in the config.
pub const PARTITIONS_CREATED: u32 = 24;
/// Replicas of a partition; Kafka counts them in 16 bits.
pub const REPLICATION: RangeInclusive<u64> = 1..=32_767;
/// Shards: each is one thread.
pub const SHARDS: RangeInclusive<u64> = 1..=64;
/// Kernel numbers of CPUs; Linux is built for at most 8,192.
pub const CPU_IDS: RangeInclusive<u64> = 0..=8_191;
/// Triggers a shard takes from one ring in one turn.
pub const TURN_BATCH: RangeInclusive<u64> = 1..=16_384;
/// Triggers of one ingress's queue.
pub const QUEUE_CAPACITY: RangeInclusive<u64> = 64..=16_777_216;
/// Ingresses of a router.
pub const QUEUE_INGRESSES: RangeInclusive<u64> = 1..=256;
/// Shares of a ring.
pub const QUEUE_RATIO: RangeInclusive<f64> = 0.01..=1.0;
/// Ring bytes per trigger of capacity.
pub const QUEUE_BYTES_PER_TRIGGER: RangeInclusive<u64> = 64..=4_096;
/// Unsettled seqs of an ingress; a power of two, since it is indexed by masking.
pub const SETTLE_WINDOW: RangeInclusive<u64> = 1_024..=67_108_864;
/// How long a key is remembered.
pub const DEDUP_TTL: RangeInclusive<Duration> = ms(100)..=ms(DAY);
/// Keys remembered over all shards.
pub const DEDUP_CAPACITY: RangeInclusive<u64> = 1_024..=268_435_456;
/// Arena bytes per key of capacity.
pub const DEDUP_BYTES_PER_KEY: RangeInclusive<u64> = 32..=1_024;
/// In-flight frames of one partition.
pub const INFLIGHT_PARTITION: RangeInclusive<u64> = 1..=1_048_576;
/// In-flight frames over all shards.
pub const INFLIGHT_TOTAL: RangeInclusive<u64> = 1..=16_777_216;
/// Waiting frames over all shards.
pub const INFLIGHT_WAITING: RangeInclusive<u64> = 1..=16_777_216;
/// Arena bytes per in-flight or waiting frame.
pub const INFLIGHT_BYTES_PER_FRAME: RangeInclusive<u64> = 64..=4_096;
/// When an ack is late.
pub const PUBLISH_TIMEOUT: RangeInclusive<Duration> = ms(1)..=ms(60_000);
/// When a partition without progress counts as stalled.
pub const BREAKER_GRACE: RangeInclusive<Duration> = ms(10)..=ms(600_000);
/// Failed outcomes in a row that open a breaker.
pub const BREAKER_FAILURES: RangeInclusive<u64> = 1..=10_000;
/// From an open breaker to the probe.
pub const BREAKER_RESET: RangeInclusive<Duration> = ms(10)..=ms(600_000);
/// Bytes of the spill.
pub const SPILL_LIMIT: RangeInclusive<u64> = 8 * MIB..=1 << 50;
/// Bytes of the spill for one partition.
pub const SPILL_PARTITION_LIMIT: RangeInclusive<u64> = MIB..=1 << 50;
/// From a record to the fsync that settles it.
pub const SPILL_SYNC: RangeInclusive<Duration> = ms(1)..=ms(1_000);
/// Bytes of a file of the spill.
pub const SPILL_SEGMENT: RangeInclusive<u64> = MIB..=1 << 30;
/// When a dead letter goes to the disk.
pub const DEAD_LETTER_GRACE: RangeInclusive<Duration> = ms(100)..=ms(600_000);
/// Bytes of the dead letters on the disk.
pub const DEAD_LETTER_LIMIT: RangeInclusive<u64> = 8 * MIB..=1 << 50;
/// How far ahead an event may be.
pub const TIME_FUTURE_LIMIT: RangeInclusive<Duration> = ms(1_000)..=ms(365 * DAY);
/// How old an event may be.
pub const TIME_PAST_LIMIT: RangeInclusive<Duration> = ms(1_000)..=ms(3_650 * DAY);
/// How long a start may take.
pub const START_TIMEOUT: RangeInclusive<Duration> = ms(100)..=ms(3_600_000);
/// How long a stop may take.
pub const SHUTDOWN_LIMIT: RangeInclusive<Duration> = ms(1)..=ms(3_600_000);
/// A line or frame of a source, in bytes.
pub const ROUTE_LINE_BYTES: RangeInclusive<u64> = 1_024..=16_777_216;
/// Connections of a socket source.
pub const ROUTE_CONNECTIONS: RangeInclusive<u64> = 1..=256;
/// How long a peer may leave a line unfinished.
pub const ROUTE_LINE_TIMEOUT: RangeInclusive<Duration> = ms(100)..=ms(3_600_000);
/// A path in bytes; Linux takes 4,095.
pub const PATH_BYTES: RangeInclusive<usize> = 1..=4_095;

/// One key.
pub(super) struct Key {
    /// Table and key, dotted.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// What an unset key means; empty where it has a plain default.
    pub(super) unset: &'static str,
    pub(super) what: &'static str,
    /// What to do when the value is refused.
    pub(super) fix: &'static str,
    /// Where the rule comes from.
    pub(super) rule: &'static str,
    /// The value in a config.
    pub(super) get: fn(&Config) -> Value,
}

/// One table, in the order of the reference.
pub(super) static TABLES: &[(&str, &str)] = &[
    ("router", "Who this router is."),
    ("topic", "Where the triggers go."),
    ("kafka", "How the cluster is reached. What the client library may be told stands in `[kafka.properties]`."),
    ("engine", "The shards: one thread each, which owns its partitions alone."),
    ("queue", "What waits between a caller and the shards, for each ingress."),
    ("settle", "What an ingress may have accepted and not yet settled."),
    ("dedup", "The window in which a repeat is collapsed."),
    ("inflight", "What is at the client library, or waits for a place there."),
    ("publish", "When an ack is late."),
    ("breaker", "When a partition counts as stalled."),
    ("divert", "What happens to the triggers of a stalled partition."),
    ("spill", "The triggers of stalled partitions on the disk, below `state.dir`."),
    (
        "dead_letter",
        "Where triggers go that can never be delivered. What the client library may be told stands in \
              `[dead_letter.properties]`.",
    ),
    ("validate", "Which triggers there may be, beyond the rules for every trigger."),
    (
        "time",
        "Which event times are believable. A breach is refused at submit: it catches seconds or microseconds \
              that were sent as milliseconds.",
    ),
    ("state", "What outlives the process."),
    ("start", "When the router is ready."),
    ("shutdown", "How long a stop may take."),
    ("route", "The source of `fencepost route`; an embedded router reads nothing of it."),
];

macro_rules! key {
    ($name:literal, $kind:expr, unset: $unset:literal, $what:literal, fix: $fix:literal, rule: $rule:literal, $get:expr) => {
        Key { name: $name, kind: $kind, unset: $unset, what: $what, fix: $fix, rule: $rule, get: $get }
    };
    ($name:literal, $kind:expr, $what:literal, fix: $fix:literal, rule: $rule:literal, $get:expr) => {
        key!($name, $kind, unset: "", $what, fix: $fix, rule: $rule, $get)
    };
}

fn whole(number: impl TryInto<i128>) -> Value {
    Value::Whole(number.try_into().ok().expect("every key's number fits 128 bits"))
}

fn text(text: &Option<String>) -> Value {
    text.clone().map_or(Value::Unset, Value::Text)
}

fn word(word: &str) -> Value {
    Value::Text(word.to_owned())
}

fn bytes(bytes: u64) -> Value {
    Value::Bytes(bytes.into())
}

fn path(path: &Option<std::path::PathBuf>) -> Value {
    path.as_deref().map_or(Value::Unset, |path: &Path| Value::Text(path.to_string_lossy().into_owned()))
}

/// Every key, in the order of the reference.
pub(super) static KEYS: &[Key] = &[
    key!("router.id", Kind::Text(ROUTER_ID_BYTES),
        unset: "made at the first start and kept in `state.dir`; without one, new at each start",
        "Names this router in every frame, so that a reader can tell the routers of a topic apart.",
        fix: "choose a short name, such as \"edge-7\"",
        rule: "it travels in every frame",
        |config| text(&config.router.id)),
    key!("topic.name", Kind::TopicName,
        "The topic that the triggers go to.",
        fix: "choose another name",
        rule: "Kafka's rule for topic names",
        |config| Value::Text(config.topic.name.clone())),
    key!("topic.partitions", Kind::Whole(PARTITIONS),
        unset: "as many as the topic has; a topic that `topic.create` makes gets 24",
        "The number of partitions, pinned: a topic with fewer is refused, and later ones are not used, since another \
         number would move devices between partitions and break their order.",
        fix: "give the number that the topic has (or shall have)",
        rule: "order per device",
        |config| config.topic.partitions.map_or(Value::Unset, whole)),
    key!("topic.create", Kind::Bool,
        "Makes the topic before use when it is not there.",
        fix: "write true or false",
        rule: "automatic creation by a broker gives a wrong number of partitions",
        |config| Value::Bool(config.topic.create)),
    key!("topic.replication", Kind::Whole(REPLICATION),
        "Replicas of each partition of a topic that `topic.create` makes.",
        fix: "3 survives the loss of a broker; a cluster of one broker can have 1",
        rule: "Kafka counts replicas in 16 bits",
        |config| whole(config.topic.replication)),
    key!("topic.min_insync_replicas", Kind::Whole(REPLICATION),
        "Replicas that must have a record before it is acked, on a topic that `topic.create` makes.",
        fix: "2 with a replication of 3 is a good start",
        rule: "the topic's `min.insync.replicas`",
        |config| whole(config.topic.min_insync_replicas)),
    key!("kafka.bootstrap", Kind::Addresses,
        unset: "none; needed to publish to Kafka",
        "Brokers to ask first, as `host:port` with commas between.",
        fix: "write it like \"broker-1:9092,broker-2:9092\" (an IPv6 address in brackets: \"[::1]:9092\")",
        rule: "the client's `bootstrap.servers`",
        |config| text(&config.kafka.bootstrap)),
    key!("kafka.record_time", Kind::Word(RecordTime::NAMES),
        "The timestamp of a record. `accepted` is when the router took the trigger, so that retention by time does \
         not delete a late device's triggers at once; `event` is when it happened.",
        fix: "write \"accepted\" unless a consumer needs event time",
        rule: "retention by time reads the record's timestamp",
        |config| word(config.kafka.record_time.name())),
    key!("kafka.properties", Kind::Properties,
        unset: "see below",
        "Properties of the client library, from a closed list.",
        fix: "write a table [kafka.properties] with one property a line",
        rule: "what decides order, delivery and memory is the router's own",
        |_| Value::Properties),
    key!("engine.shards", Kind::Whole(SHARDS),
        "Threads that own the partitions: partition `p` belongs to shard `p % shards`.",
        fix: "one per physical core is a good start",
        rule: "one thread each",
        |config| whole(config.engine.shards)),
    key!("engine.pin", Kind::Pin,
    "Kernel numbers of the CPUs that the shards are pinned to, one a shard; or `none`.",
    fix: "write \"none\", or one CPU for each shard, such as [2, 3]",
    rule: "a pinned shard keeps its caches",
    |config| match &config.engine.pin {
        Pin::None => word("none"),
        Pin::Cpus(cpus) => Value::Cpus(cpus.iter().map(|&cpu| i128::from(cpu)).collect()),
    }),
    key!("engine.idle", Kind::Word(Idle::NAMES),
        "What a shard does when it has nothing to do: `spin` burns its core and answers at once, `yield` lets others \
         run first, `park` sleeps until it is woken.",
        fix: "write \"park\", or \"spin\" where the shards have cores of their own",
        rule: "latency against the core's time",
        |config| word(config.engine.idle.name())),
    key!("engine.turn_batch", Kind::Whole(TURN_BATCH),
        "Triggers that a shard takes from one ring before it looks at the next and at the acks.",
        fix: "256 is a good start; less is fairer, more is faster",
        rule: "no ring starves another",
        |config| whole(config.engine.turn_batch)),
    key!("queue.capacity", Kind::Whole(QUEUE_CAPACITY),
        "Triggers that one ingress can hold, split evenly over its rings (one a shard).",
        fix: "two seconds of the peak rate is a good start",
        rule: "memory is sized at start",
        |config| whole(config.queue.capacity as u64)),
    key!("queue.ingresses", Kind::Whole(QUEUE_INGRESSES),
        "How many ingresses there may be; each evaluator thread, and each connection of a socket source, needs one. The \
         sources `file` and `stdin` have one reader and take one, whatever stands here.",
        fix: "give the number of threads that submit",
        rule: "memory is sized at start",
        |config| whole(config.queue.ingresses as u64)),
    key!("queue.pause_ratio", Kind::Ratio(QUEUE_RATIO),
        "From this share of a ring on, an accepted trigger is answered with `SlowDown`.",
        fix: "0.7 is a good start",
        rule: "a caller that can wait should, before anything is shed",
        |config| Value::Ratio(config.queue.pause_ratio)),
    key!("queue.low_shed_ratio", Kind::Ratio(QUEUE_RATIO),
        "From this share of a ring on, a trigger of low priority is shed.",
        fix: "0.8 is a good start",
        rule: "low priority goes first",
        |config| Value::Ratio(config.queue.low_shed_ratio)),
    key!("queue.shed_ratio", Kind::Ratio(QUEUE_RATIO),
        "From this share of a ring on, a trigger of normal priority is shed; one of high priority only when the ring \
         is full.",
        fix: "0.9 is a good start",
        rule: "room is kept for high priority",
        |config| Value::Ratio(config.queue.shed_ratio)),
    key!("queue.bytes_per_trigger", Kind::Whole(QUEUE_BYTES_PER_TRIGGER),
        "Ring bytes for each trigger of `queue.capacity`. A ring counts as full when its triggers or its bytes are.",
        fix: "take the mean size of ids and attributes together and 40 more, rounded up to a multiple of 64",
        rule: "memory is sized at start",
        |config| whole(config.queue.bytes_per_trigger as u64)),
    key!("settle.window", Kind::PowerOfTwo(SETTLE_WINDOW),
        "Triggers of one ingress that may be accepted and not settled; beyond it, submit sheds.",
        fix: "take the next power of two",
        rule: "memory stays bounded behind a watermark that stands still; indexed by masking",
        |config| whole(config.settle.window as u64)),
    key!("dedup.ttl", Kind::Span(DEDUP_TTL),
        "How long a key is remembered, from its first acceptance; a repeat does not extend it.",
        fix: "10s is a good start; longer needs dedup.capacity to grow with it",
        rule: "the longest time after which an evaluator repeats itself",
        |config| Value::Span(config.dedup.ttl)),
    key!("dedup.capacity", Kind::Whole(DEDUP_CAPACITY),
        "Keys that are remembered, over all shards. At capacity the oldest settled key goes first, and is counted.",
        fix: "twice the peak rate times dedup.ttl is a good start",
        rule: "memory is sized at start",
        |config| whole(config.dedup.capacity as u64)),
    key!("dedup.bytes_per_key", Kind::Whole(DEDUP_BYTES_PER_KEY),
        "Arena bytes for each key of `dedup.capacity`: both ids and 37 more, rounded up to a multiple of 8. The arena is never smaller than what can be in flight and waiting takes with the longest ids.",
        fix: "take the mean length of a device id and a fence id together, and 45 more",
        rule: "the whole key is stored and compared, so that a hash collision drops nothing",
        |config| whole(config.dedup.bytes_per_key as u64)),
    key!("dedup.warm_start", Kind::Bool,
        "Reads the topic's newest records at start, so that a repeat from before the start is still collapsed. Needs the \
         right to read the topic.",
        fix: "write true or false",
        rule: "a caller re-sends what was not settled when the router stopped",
        |config| Value::Bool(config.dedup.warm_start)),
    key!("inflight.partition", Kind::Whole(INFLIGHT_PARTITION),
        "Frames of one partition that may be at the client without an ack; meant to be the partition's peak rate \
         times `breaker.grace`, so that a leader election sheds nothing.",
        fix: "take the peak rate of a partition times breaker.grace",
        rule: "one stalled partition must not take every place",
        |config| whole(config.inflight.partition as u64)),
    key!("inflight.total", Kind::Whole(INFLIGHT_TOTAL),
        "Frames at the client without an ack, over all shards and split evenly over them.",
        fix: "several times inflight.partition for each shard is a good start",
        rule: "memory is sized at start",
        |config| whole(config.inflight.total as u64)),
    key!("inflight.waiting", Kind::Whole(INFLIGHT_WAITING),
        "Accepted triggers that may wait in the shards behind a full window, over all shards and split evenly. With a spill, up to an eighth of all places, those of `inflight.total` included, is kept for what comes back from it.",
        fix: "half of inflight.total is a good start",
        rule: "what was accepted is kept, in order, within sized memory",
        |config| whole(config.inflight.waiting as u64)),
    key!("inflight.bytes_per_frame", Kind::Whole(INFLIGHT_BYTES_PER_FRAME),
        "Arena bytes for each frame in flight or waiting.",
        fix: "take the mean size of ids and attributes together, and 96 more",
        rule: "memory is sized at start",
        |config| whole(config.inflight.bytes_per_frame as u64)),
    key!("publish.timeout", Kind::Span(PUBLISH_TIMEOUT),
        "An ack that comes later than this after its produce counts as late. The trigger stays in flight.",
        fix: "25ms is the delivery budget's share; set it above linger.ms and a round trip to the brokers",
        rule: "the delivery budget of 40 ms from submit to consumer",
        |config| Value::Span(config.publish.timeout)),
    key!("breaker.grace", Kind::Span(BREAKER_GRACE),
        "A partition with triggers in flight and no progress for this long opens its breaker.",
        fix: "1s rides out an ordinary leader election",
        rule: "an ordinary leader election takes less than a second",
        |config| Value::Span(config.breaker.grace)),
    key!("breaker.failures", Kind::Whole(BREAKER_FAILURES),
        "So many failed outcomes in a row open the breaker of a partition. A refused batch is one.",
        fix: "20 rides out what a retry mends",
        rule: "a refused batch says something of the partition, one bad record does not",
        |config| whole(u64::from(config.breaker.failures))),
    key!("breaker.reset", Kind::Span(BREAKER_RESET),
        "How long a breaker stays open before one frame probes the partition.",
        fix: "5s is a good start: a broker that restarts needs seconds",
        rule: "one probe at a time",
        |config| Value::Span(config.breaker.reset)),
    key!("divert.policy", Kind::Word(DivertPolicy::NAMES),
        unset: "`\"spill\"` when `state.dir` is set, else `\"refuse\"`",
        "`spill`: triggers of a stalled partition go to the disk, in order, and from there to the topic when it is \
         back. `dead-letter`: they go to the dead-letter topic and give up their order. `refuse`: submit sheds them, \
         and what was accepted waits in flight. With any of them, what the last run left on the disk of `state.dir` goes \
         to the topic first, and new triggers of those partitions go to the disk behind it until it has.",
        fix: "leave it out, or write \"spill\" with a state.dir",
        rule: "blocked is not lost",
        |config| config.divert.policy.map_or(Value::Unset, |policy| word(policy.name()))),
    key!("spill.limit", Kind::Bytes(SPILL_LIMIT),
        "Bytes that the spill may take on the disk of `state.dir`. A part of it is kept for everything that is accepted \
         and not settled; when only that is left, submit sheds the stalled partitions' triggers by priority.",
        fix: "take the peak rate times the longest outage to ride out times 300 bytes",
        rule: "the disk belongs to others too",
        |config| bytes(config.spill.limit)),
    key!("spill.partition_limit", Kind::Bytes(SPILL_PARTITION_LIMIT),
        unset: "a quarter of `spill.limit`",
        "Bytes of the spill that one partition may take.",
        fix: "a quarter of spill.limit is a good start",
        rule: "a partition that is away for days must leave the others their room",
        |config| config.spill.partition_limit.map_or(Value::Unset, bytes)),
    key!("spill.sync", Kind::Span(SPILL_SYNC),
        "How long records gather before one fsync settles them all.",
        fix: "5ms is a good start; a disk that syncs slowly wants more",
        rule: "one fsync a commit, whatever the number of partitions",
        |config| Value::Span(config.spill.sync)),
    key!("spill.segment", Kind::Bytes(SPILL_SEGMENT),
        "Bytes of one file of the spill. Space comes free by whole files.",
        fix: "64MiB is a good start; a thousandth of spill.limit or more keeps the number of files small",
        rule: "space comes free by whole files",
        |config| bytes(config.spill.segment)),
    key!("dead_letter.topic", Kind::TopicNameOrOff,
    unset: "the topic's name with `.dlq` at its end",
    "Where a trigger goes that can never be delivered: refused for itself, of an unknown fence, or malformed. `off`: \
     nowhere; such a trigger is handed back as failed.",
    fix: "leave it out, name another topic, or write \"off\"",
    rule: "one bad trigger holds up nothing, and nothing is lost in silence",
    |config| match &config.dead_letter.topic {
        None => Value::Unset,
        Some(DeadLetterTopic::Off) => word("off"),
        Some(DeadLetterTopic::Named(name)) => word(name),
    }),
    key!("dead_letter.bootstrap", Kind::Addresses,
        unset: "the cluster of `kafka.bootstrap`",
        "Brokers of the dead-letter topic, where it lies on another cluster.",
        fix: "write it like \"broker-1:9092,broker-2:9092\", or leave it out",
        rule: "the client's `bootstrap.servers`",
        |config| text(&config.dead_letter.bootstrap)),
    key!("dead_letter.properties", Kind::Properties,
        unset: "those of `[kafka.properties]` when `dead_letter.bootstrap` is not set; none when it is",
        "Properties of the client library towards the dead-letter topic, from the same closed list. When any is set here, \
         these take the place of all those of `[kafka.properties]`.",
        fix: "write a table [dead_letter.properties] with one property a line",
        rule: "what decides order, delivery and memory is the router's own; a secret goes to one cluster only",
        |_| Value::Properties),
    key!("dead_letter.grace", Kind::Span(DEAD_LETTER_GRACE),
        "A dead letter that the dead-letter topic has not taken after this goes to the disk of `state.dir`, and to the \
         topic when it is back.",
        fix: "5s rides out a broker's restart",
        rule: "a watermark must not wait on two topics",
        |config| Value::Span(config.dead_letter.grace)),
    key!("dead_letter.limit", Kind::Bytes(DEAD_LETTER_LIMIT),
        "Bytes that dead letters may take on the disk of `state.dir`.",
        fix: "256MiB is a good start: some hundred thousand letters",
        rule: "the disk belongs to others too",
        |config| bytes(config.dead_letter.limit)),
    key!("validate.fences", Kind::Path,
        unset: "none: every fence id is taken",
        "File with one fence id a line. A trigger of a fence that is not there is a dead letter at once. `fencepost route` \
         reads it anew at `SIGHUP`.",
        fix: "give a text file with one fence id a line",
        rule: "the length of a path on Linux",
        |config| path(&config.validate.fences)),
    key!("time.future_limit", Kind::Span(TIME_FUTURE_LIMIT),
        "How far ahead of the router's clock an event time may be.",
        fix: "5m is a good start: more than a device's clock is off",
        rule: "event times are Unix milliseconds",
        |config| Value::Span(config.time.future_limit)),
    key!("time.past_limit", Kind::SpanOrOff(TIME_PAST_LIMIT),
    unset: "`\"7d\"`; `\"off\"` for a file or standard input",
    "How old an event time may be; `off` takes any age.",
    fix: "write a span such as \"7d\", or \"off\" to replay old events",
    rule: "event times are Unix milliseconds; files hold old ones",
    |config| match config.time.past_limit {
        None => Value::Unset,
        Some(AgeLimit::Off) => word("off"),
        Some(AgeLimit::Span(span)) => Value::Span(span),
    }),
    key!("state.dir", Kind::Path,
        unset: "none: nothing outlives the process",
        "Directory for the router's id, the pinned number of partitions, the spill, dead letters that no topic took, and \
         the progress of a file source.",
        fix: "give a directory that this user may write, such as \"/var/lib/fencepost\"",
        rule: "the length of a path on Linux",
        |config| path(&config.state.dir)),
    key!("start.require_broker", Kind::Bool,
        "Whether start waits for every partition's leader. With `false` it also starts while the cluster is away.",
        fix: "write true or false",
        rule: "a cold client keeps its first triggers waiting for up to a second",
        |config| Value::Bool(config.start.require_broker)),
    key!("start.timeout", Kind::Span(START_TIMEOUT),
        "How long start waits for the cluster before it fails.",
        fix: "30s is a good start",
        rule: "a supervisor must get an answer",
        |config| Value::Span(config.start.timeout)),
    key!("shutdown.limit", Kind::Span(SHUTDOWN_LIMIT),
        "How long a stop waits for what is in flight; it returns at most one second later, with a report that adds up.",
        fix: "take less than your supervisor's patience; 30s is a good start",
        rule: "a supervisor kills what does not stop",
        |config| Value::Span(config.shutdown.limit)),
    key!("route.source", Kind::Word(RouteSource::NAMES),
        unset: "`\"stdin\"` in `fencepost route`",
        "Where triggers come from: standard input, a file, a unix socket, or TCP.",
        fix: "write one of them",
        rule: "the sources of this version",
        |config| config.route.source.map_or(Value::Unset, |source| word(source.name()))),
    key!("route.format", Kind::Word(RouteFormat::NAMES),
        "`ndjson`: one JSON object a line; `frames`: protobuf with its length before it.",
        fix: "write \"ndjson\" unless the peer sends frames",
        rule: "the formats of this version",
        |config| word(config.route.format.name())),
    key!("route.path", Kind::Path,
        unset: "none; needed by `file` and `unix`",
        "The file to read, or the unix socket to listen on (made with mode 0600).",
        fix: "give a path",
        rule: "the length of a path on Linux",
        |config| path(&config.route.path)),
    key!("route.listen", Kind::Socket,
        "IP address and port that the `tcp` source listens on.",
        fix: "write it like \"127.0.0.1:9465\", or \"127.0.0.1:0\" for any free port",
        rule: "one above the metrics' port",
        |config| Value::Text(config.route.listen.to_string())),
    key!("route.allow_remote", Kind::Bool,
        "Lets `route.listen` be an address that other hosts reach. There is no login and no encryption.",
        fix: "write true or false",
        rule: "whoever reaches the port can publish",
        |config| Value::Bool(config.route.allow_remote)),
    key!("route.line_bytes_max", Kind::Whole(ROUTE_LINE_BYTES),
        "The longest line or frame of a source; a longer one is malformed input.",
        fix: "65536 holds any trigger many times over",
        rule: "a peer must not make the router grow",
        |config| whole(config.route.line_bytes_max as u64)),
    key!("route.connections_max", Kind::Whole(ROUTE_CONNECTIONS),
        "Connections that a socket source holds at once, each with an ingress of its own; one more is told so and closed.",
        fix: "give the number of peers, and a few more for reconnects",
        rule: "a peer must not make the router grow",
        |config| whole(config.route.connections_max as u64)),
    key!("route.line_timeout", Kind::Span(ROUTE_LINE_TIMEOUT),
        "How long a peer of a socket source may leave a line or frame unfinished, or send nothing at all after connecting; then its connection is closed.",
        fix: "take more than the slowest peer needs for one line; 30s is a good start",
        rule: "a peer that hangs must not keep a connection from the others",
        |config| Value::Span(config.route.line_timeout)),
    key!("route.resume", Kind::Bool,
        "A file source goes on after its last settled line.",
        fix: "write true or false",
        rule: "the progress is kept in `state.dir`",
        |config| Value::Bool(config.route.resume)),
    key!("route.on_shed", Kind::Word(RouteOnShed::NAMES),
        "What becomes of a trigger that submit sheds. `wait`: the source is read no further until there is room. \
         `dead-letter`: it goes to the dead letters at once, without a second try, and the source goes on; later triggers of \
         its device overtake it. Where these have no room either, the source waits.",
        fix: "write \"wait\" unless the source cannot wait",
        rule: "a source that can wait keeps every device's order",
        |config| word(config.route.on_shed.name())),
];

/// The key of a dotted name.
pub(super) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_there_once_in_a_known_table_and_says_everything() {
        for (index, key) in KEYS.iter().enumerate() {
            assert!(KEYS[..index].iter().all(|other| other.name != key.name), "{} twice", key.name);
            let (table, _) = key.name.split_once('.').expect("a key stands in a table");
            assert!(TABLES.iter().any(|(name, _)| *name == table), "{}", key.name);
            assert!(!key.what.is_empty() && !key.fix.is_empty() && !key.rule.is_empty(), "{}", key.name);
            let default = (key.get)(&Config::default());
            assert_eq!(key.check(&default), None, "the default of {}", key.name);
            let unset = matches!(default, Value::Unset | Value::Properties);
            assert_eq!(unset, !key.unset.is_empty(), "{}: a key has a default or says what unset means", key.name);
        }
    }

    #[test]
    fn unset_partitions_are_said_with_the_number_used() {
        let key = find("topic.partitions").expect("it is a key");
        assert!(key.unset.contains(&PARTITIONS_CREATED.to_string()));
    }
}
