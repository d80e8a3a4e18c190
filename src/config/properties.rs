//! `[kafka.properties]` and `[dead_letter.properties]`: the properties of the Kafka client that a person may set, as a closed list.
//!
//! What decides order, delivery and memory is the router's own: those names are refused, with the reason and the key
//! that steers the same thing. A value may be `${NAME}` (an environment variable) or `file:PATH` (a file's content);
//! both are read when the sink is made ([`Properties::resolve`]), and no value is ever printed by `Debug`, by an
//! error, or by serialising, unless the list below says that it is open.

use super::error::Problem;
use super::nearest::nearest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io::Read;

/// A client id's length. Brokers build metric and quota names from it.
pub const CLIENT_ID_BYTES: std::ops::RangeInclusive<usize> = 1..=249;
/// The most bytes of a `file:` value; a chain of certificates takes some 10 KiB.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// What a property's value may be.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Text,
    ClientId,
    Bool,
    Whole(i64, i64),
    /// Whole or with a fraction.
    Decimal(u32, u32),
    Word(&'static [&'static str]),
    /// Words with commas between.
    Words(&'static [&'static str]),
}

/// A property that may be set.
#[derive(Debug)]
pub(super) struct Allowed {
    pub(super) name: &'static str,
    /// Another name of the same property: the two cannot both be set.
    pub(super) same_as: Option<&'static str>,
    shape: Shape,
    /// Whether the value may be shown.
    pub(super) open: bool,
    pub(super) group: &'static str,
}

const fn open(group: &'static str, name: &'static str, shape: Shape) -> Allowed {
    Allowed { name, same_as: None, shape, open: true, group }
}

const fn secret(group: &'static str, name: &'static str) -> Allowed {
    Allowed { name, same_as: None, shape: Shape::Text, open: false, group }
}

const fn alias(group: &'static str, name: &'static str, of: &'static str, shape: Shape) -> Allowed {
    Allowed { name, same_as: Some(of), shape, open: true, group }
}

const CODECS: &[&str] = &["none", "gzip", "snappy", "lz4", "zstd"];
const CONTEXTS: &[&str] = &[
    "generic",
    "broker",
    "topic",
    "metadata",
    "feature",
    "queue",
    "msg",
    "protocol",
    "security",
    "interceptor",
    "plugin",
    "admin",
    "eos",
    "mock",
    "conf",
    "telemetry",
    "all",
];

/// Every property that may be set. Ranges are the client library's own.
pub(super) static ALLOWED: &[Allowed] = &[
    open("Identity", "client.id", Shape::ClientId),
    open("Batching", "linger.ms", Shape::Decimal(0, 900_000)),
    open("Batching", "batch.size", Shape::Whole(1, 2_147_483_647)),
    open("Batching", "batch.num.messages", Shape::Whole(1, 1_000_000)),
    open("Compression", "compression.type", Shape::Word(CODECS)),
    alias("Compression", "compression.codec", "compression.type", Shape::Word(CODECS)),
    open("Compression", "compression.level", Shape::Whole(-1, 12)),
    open("Addresses", "broker.address.family", Shape::Word(&["any", "v4", "v6"])),
    open("Addresses", "broker.address.ttl", Shape::Whole(0, 86_400_000)),
    open(
        "Addresses",
        "client.dns.lookup",
        Shape::Word(&["use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"]),
    ),
    open("Sockets", "socket.send.buffer.bytes", Shape::Whole(0, 100_000_000)),
    open("Sockets", "socket.receive.buffer.bytes", Shape::Whole(0, 100_000_000)),
    open("Sockets", "socket.keepalive.enable", Shape::Bool),
    open("Debugging", "debug", Shape::Words(CONTEXTS)),
    open("Security", "security.protocol", Shape::Word(&["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"])),
    open("Security", "ssl.cipher.suites", Shape::Text),
    open("Security", "ssl.curves.list", Shape::Text),
    open("Security", "ssl.sigalgs.list", Shape::Text),
    open("Security", "ssl.key.location", Shape::Text),
    secret("Security", "ssl.key.password"),
    secret("Security", "ssl.key.pem"),
    open("Security", "ssl.certificate.location", Shape::Text),
    secret("Security", "ssl.certificate.pem"),
    open("Security", "ssl.ca.location", Shape::Text),
    secret("Security", "ssl.ca.pem"),
    open("Security", "https.ca.location", Shape::Text),
    secret("Security", "https.ca.pem"),
    open("Security", "ssl.ca.certificate.stores", Shape::Text),
    open("Security", "ssl.crl.location", Shape::Text),
    open("Security", "ssl.keystore.location", Shape::Text),
    secret("Security", "ssl.keystore.password"),
    open("Security", "ssl.providers", Shape::Text),
    open("Security", "ssl.engine.location", Shape::Text),
    open("Security", "ssl.engine.id", Shape::Text),
    open("Security", "enable.ssl.certificate.verification", Shape::Bool),
    open("Security", "ssl.endpoint.identification.algorithm", Shape::Word(&["none", "https"])),
    open("Security", "sasl.mechanism", Shape::Text),
    alias("Security", "sasl.mechanisms", "sasl.mechanism", Shape::Text),
    open("Security", "sasl.username", Shape::Text),
    secret("Security", "sasl.password"),
    open("Security", "sasl.kerberos.service.name", Shape::Text),
    open("Security", "sasl.kerberos.principal", Shape::Text),
    secret("Security", "sasl.kerberos.kinit.cmd"),
    open("Security", "sasl.kerberos.keytab", Shape::Text),
    open("Security", "sasl.kerberos.min.time.before.relogin", Shape::Whole(0, 86_400_000)),
    secret("Security", "sasl.oauthbearer.config"),
    open("Security", "enable.sasl.oauthbearer.unsecure.jwt", Shape::Bool),
    open("Security", "sasl.oauthbearer.method", Shape::Word(&["default", "oidc"])),
    open("Security", "sasl.oauthbearer.client.id", Shape::Text),
    alias("Security", "sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.id", Shape::Text),
    secret("Security", "sasl.oauthbearer.client.secret"),
    Allowed {
        name: "sasl.oauthbearer.client.credentials.client.secret",
        same_as: Some("sasl.oauthbearer.client.secret"),
        shape: Shape::Text,
        open: false,
        group: "Security",
    },
    open("Security", "sasl.oauthbearer.scope", Shape::Text),
    secret("Security", "sasl.oauthbearer.extensions"),
    // The address may carry a user and a password.
    secret("Security", "sasl.oauthbearer.token.endpoint.url"),
    open(
        "Security",
        "sasl.oauthbearer.grant.type",
        Shape::Word(&["client_credentials", "urn:ietf:params:oauth:grant-type:jwt-bearer"]),
    ),
    open("Security", "sasl.oauthbearer.assertion.algorithm", Shape::Word(&["RS256", "ES256"])),
    open("Security", "sasl.oauthbearer.assertion.private.key.file", Shape::Text),
    secret("Security", "sasl.oauthbearer.assertion.private.key.passphrase"),
    secret("Security", "sasl.oauthbearer.assertion.private.key.pem"),
    open("Security", "sasl.oauthbearer.assertion.file", Shape::Text),
    open("Security", "sasl.oauthbearer.assertion.claim.aud", Shape::Text),
    open("Security", "sasl.oauthbearer.assertion.claim.exp.seconds", Shape::Whole(1, 2_147_483_647)),
    open("Security", "sasl.oauthbearer.assertion.claim.iss", Shape::Text),
    open("Security", "sasl.oauthbearer.assertion.claim.jti.include", Shape::Bool),
    open("Security", "sasl.oauthbearer.assertion.claim.nbf.seconds", Shape::Whole(0, 2_147_483_647)),
    open("Security", "sasl.oauthbearer.assertion.claim.sub", Shape::Text),
    open("Security", "sasl.oauthbearer.assertion.jwt.template.file", Shape::Text),
    open("Security", "sasl.oauthbearer.metadata.authentication.type", Shape::Word(&["none", "azure_imds"])),
];

/// What the router sets where the config does not.
pub(super) const DEFAULTS: [(&str, &str); 3] =
    [("linger.ms", "5"), ("batch.size", "16384"), ("compression.type", "lz4")];

const ACKS: &str = "the router sets acks to all, since a settled trigger is on every in-sync replica; \
                    topic.min_insync_replicas says how many these must be when the topic is created";
const IDEMPOTENCE: &str = "the router sets it, since order per device and no repeats rest on the idempotent producer; \
                           inflight.partition bounds what a partition has in flight";
const RETRIES: &str = "the router sets it: what is in flight stays with the client until the broker answers, and \
                       breaker.grace says when a partition counts as stalled";
const TIMEOUTS: &str = "the router sets it, since an expired record would break the order; publish.timeout says when \
                        an ack is late, and breaker.grace when a partition counts as stalled";
const QUEUES: &str = "the router sets it above its own limits, so that the client never answers first; \
                      inflight.partition, inflight.total and queue.capacity bound what waits";
const LINGER: &str = "it is another name of linger.ms; set linger.ms";
const REPORTS: &str = "the router sets it: settling rests on every delivery report; nothing steers it";
const TRANSACTIONS: &str = "the router uses the idempotent producer without transactions; nothing steers it";
const PLUGINS: &str = "the router loads no code into the client; nothing steers it";
const PARTITIONER: &str = "the router computes the partition itself (murmur2 of the device id, as the Java client \
                           does); topic.partitions pins their number";
const SIZE: &str = "the router follows the topic's max.message.bytes; change it on the topic";
const CREATE: &str = "the router never lets a broker make the topic by itself; topic.create makes it with the right \
                      number of partitions";
const BOOTSTRAP: &str = "kafka.bootstrap sets it";
const NAGLE: &str = "the router turns Nagle's algorithm off; linger.ms steers the batching";
const CONNECTIONS: &str = "the router sets how it reconnects and learns about the cluster; breaker.grace says when a \
                           partition counts as stalled";
const LOGS: &str = "the router takes the client's log and statistics itself; debug steers how much is logged";
const CONSUMER: &str = "it is a consumer's property, and the router produces; nothing steers it";
const TRUSTSTORE: &str = "the client reads PEM, not Java key stores; set ssl.ca.location";
const JAAS: &str = "the client knows no JAAS; set sasl.username and sasl.password";

/// Properties that exist, in this client or in Java's, and are not for the config.
pub(super) static REFUSED: &[(&str, &str)] = &[
    ("bootstrap.servers", BOOTSTRAP),
    ("metadata.broker.list", BOOTSTRAP),
    ("acks", ACKS),
    ("request.required.acks", ACKS),
    ("enable.idempotence", IDEMPOTENCE),
    ("enable.gapless.guarantee", IDEMPOTENCE),
    ("max.in.flight", IDEMPOTENCE),
    ("max.in.flight.requests.per.connection", IDEMPOTENCE),
    ("queuing.strategy", IDEMPOTENCE),
    ("retries", RETRIES),
    ("message.send.max.retries", RETRIES),
    ("retry.backoff.ms", RETRIES),
    ("retry.backoff.max.ms", RETRIES),
    ("message.timeout.ms", TIMEOUTS),
    ("delivery.timeout.ms", TIMEOUTS),
    ("request.timeout.ms", TIMEOUTS),
    ("socket.timeout.ms", TIMEOUTS),
    ("socket.blocking.max.ms", TIMEOUTS),
    ("socket.connection.setup.timeout.ms", TIMEOUTS),
    ("max.block.ms", TIMEOUTS),
    ("queue.buffering.max.messages", QUEUES),
    ("queue.buffering.max.kbytes", QUEUES),
    ("queue.buffering.backpressure.threshold", QUEUES),
    ("buffer.memory", QUEUES),
    ("queue.buffering.max.ms", LINGER),
    ("delivery.report.only.error", REPORTS),
    ("produce.offset.report", REPORTS),
    ("enabled_events", REPORTS),
    ("dr_cb", REPORTS),
    ("dr_msg_cb", REPORTS),
    ("background_event_cb", REPORTS),
    ("opaque", REPORTS),
    ("transactional.id", TRANSACTIONS),
    ("transaction.timeout.ms", TRANSACTIONS),
    ("plugin.library.paths", PLUGINS),
    ("interceptors", PLUGINS),
    ("interceptor.classes", PLUGINS),
    ("key.serializer", PLUGINS),
    ("value.serializer", PLUGINS),
    ("metric.reporters", PLUGINS),
    ("socket_cb", PLUGINS),
    ("connect_cb", PLUGINS),
    ("closesocket_cb", PLUGINS),
    ("open_cb", PLUGINS),
    ("resolve_cb", PLUGINS),
    ("error_cb", PLUGINS),
    ("throttle_cb", PLUGINS),
    ("stats_cb", PLUGINS),
    ("log_cb", PLUGINS),
    ("ssl.certificate.verify_cb", PLUGINS),
    ("oauthbearer_token_refresh_cb", PLUGINS),
    ("partitioner", PARTITIONER),
    ("partitioner_cb", PARTITIONER),
    ("partitioner.class", PARTITIONER),
    ("sticky.partitioning.linger.ms", PARTITIONER),
    ("msg_order_cmp", PARTITIONER),
    ("message.max.bytes", SIZE),
    ("max.request.size", SIZE),
    ("message.copy.max.bytes", SIZE),
    ("receive.message.max.bytes", SIZE),
    ("allow.auto.create.topics", CREATE),
    ("topic.blacklist", CREATE),
    ("socket.nagle.disable", NAGLE),
    ("socket.max.fails", CONNECTIONS),
    ("connections.max.idle.ms", CONNECTIONS),
    ("reconnect.backoff.ms", CONNECTIONS),
    ("reconnect.backoff.max.ms", CONNECTIONS),
    ("reconnect.backoff.jitter.ms", CONNECTIONS),
    ("metadata.max.age.ms", CONNECTIONS),
    ("metadata.recovery.strategy", CONNECTIONS),
    ("metadata.recovery.rebootstrap.trigger.ms", CONNECTIONS),
    ("topic.metadata.refresh.interval.ms", CONNECTIONS),
    ("topic.metadata.refresh.fast.interval.ms", CONNECTIONS),
    ("topic.metadata.refresh.fast.cnt", CONNECTIONS),
    ("topic.metadata.refresh.sparse", CONNECTIONS),
    ("topic.metadata.propagation.max.ms", CONNECTIONS),
    ("api.version.request", CONNECTIONS),
    ("api.version.request.timeout.ms", CONNECTIONS),
    ("api.version.fallback.ms", CONNECTIONS),
    ("broker.version.fallback", CONNECTIONS),
    ("enable.random.seed", CONNECTIONS),
    ("internal.termination.signal", CONNECTIONS),
    ("default_topic_conf", CONNECTIONS),
    ("statistics.interval.ms", LOGS),
    ("enable.metrics.push", LOGS),
    ("log_level", LOGS),
    ("log.queue", LOGS),
    ("log.thread.name", LOGS),
    ("log.connection.close", LOGS),
    ("group.id", CONSUMER),
    ("group.instance.id", CONSUMER),
    ("group.protocol", CONSUMER),
    ("group.protocol.type", CONSUMER),
    ("group.remote.assignor", CONSUMER),
    ("partition.assignment.strategy", CONSUMER),
    ("session.timeout.ms", CONSUMER),
    ("heartbeat.interval.ms", CONSUMER),
    ("coordinator.query.interval.ms", CONSUMER),
    ("max.poll.interval.ms", CONSUMER),
    ("enable.auto.commit", CONSUMER),
    ("auto.commit.enable", CONSUMER),
    ("auto.commit.interval.ms", CONSUMER),
    ("auto.offset.reset", CONSUMER),
    ("enable.auto.offset.store", CONSUMER),
    ("queued.min.messages", CONSUMER),
    ("queued.max.messages.kbytes", CONSUMER),
    ("fetch.wait.max.ms", CONSUMER),
    ("fetch.queue.backoff.ms", CONSUMER),
    ("fetch.message.max.bytes", CONSUMER),
    ("max.partition.fetch.bytes", CONSUMER),
    ("fetch.max.bytes", CONSUMER),
    ("fetch.min.bytes", CONSUMER),
    ("fetch.error.backoff.ms", CONSUMER),
    ("offset.store.method", CONSUMER),
    ("offset.store.path", CONSUMER),
    ("offset.store.sync.interval.ms", CONSUMER),
    ("isolation.level", CONSUMER),
    ("consume_cb", CONSUMER),
    ("consume.callback.max.messages", CONSUMER),
    ("rebalance_cb", CONSUMER),
    ("offset_commit_cb", CONSUMER),
    ("enable.partition.eof", CONSUMER),
    ("check.crcs", CONSUMER),
    ("client.rack", CONSUMER),
    ("ssl.truststore.location", TRUSTSTORE),
    ("ssl.truststore.password", TRUSTSTORE),
    ("ssl.truststore.type", TRUSTSTORE),
    ("sasl.jaas.config", JAAS),
];

impl Shape {
    fn allowed(self) -> String {
        match self {
            Shape::Text => "text without NUL".to_owned(),
            Shape::ClientId => {
                format!("text of {} to {} bytes without NUL", CLIENT_ID_BYTES.start(), CLIENT_ID_BYTES.end())
            }
            Shape::Bool => "true or false".to_owned(),
            Shape::Whole(least, most) => format!("{least}..={most}"),
            Shape::Decimal(least, most) => format!("{least}..={most}, also with a fraction"),
            Shape::Word(words) => words.join(", "),
            Shape::Words(words) => format!("{}, with commas between", words.join(", ")),
        }
    }

    /// Says what is wrong with `value`, without repeating it.
    fn breach(self, value: &str) -> Option<String> {
        if value.contains('\0') {
            return Some("it contains NUL".to_owned());
        }
        let holds = match self {
            Shape::Text => true,
            Shape::ClientId if CLIENT_ID_BYTES.contains(&value.len()) => true,
            Shape::ClientId => return Some(format!("it has {} bytes", value.len())),
            // The client library compares words without regard to case, and `SASL_SSL` is how Java writes it.
            Shape::Bool => ["true", "false"].iter().any(|word| word.eq_ignore_ascii_case(value)),
            Shape::Whole(least, most) => value.parse().is_ok_and(|number: i64| (least..=most).contains(&number)),
            Shape::Decimal(least, most) => {
                // Plain digits and a point: the client reads neither signs nor exponents here.
                value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
                    && value.parse().is_ok_and(|number: f64| (f64::from(least)..=f64::from(most)).contains(&number))
            }
            Shape::Word(words) => words.iter().any(|word| word.eq_ignore_ascii_case(value)),
            Shape::Words(words) => value.split(',').all(|word| words.contains(&word.trim())),
        };
        let why = match self {
            Shape::Word(_) | Shape::Bool => "it is none of the words",
            Shape::Words(_) => "one of its parts is none of the words",
            Shape::Whole(..) => "it is no whole number in the range",
            Shape::Decimal(..) => "it is no number in the range",
            Shape::Text | Shape::ClientId => "it is no text of this kind",
        };
        (!holds).then(|| why.to_owned())
    }
}

impl Allowed {
    pub(super) fn allowed(&self) -> String {
        self.shape.allowed()
    }

    fn check(&self, table: &'static str, value: &str) -> Option<Problem> {
        self.shape.breach(value).map(|why| Problem::PropertyValue {
            table,
            key: self.name.to_owned(),
            why,
            allowed: self.allowed(),
        })
    }
}

fn allowed(name: &str) -> Option<&'static Allowed> {
    ALLOWED.iter().find(|property| property.name == name)
}

/// The value of a client property, as text. Its `Debug` shows nothing: it does not know whether it is a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct PropertyValue(String);

impl From<&str> for PropertyValue {
    fn from(text: &str) -> PropertyValue {
        PropertyValue(text.to_owned())
    }
}

impl From<String> for PropertyValue {
    fn from(text: String) -> PropertyValue {
        PropertyValue(text)
    }
}

impl From<i64> for PropertyValue {
    fn from(number: i64) -> PropertyValue {
        PropertyValue(number.to_string())
    }
}

impl From<i32> for PropertyValue {
    fn from(number: i32) -> PropertyValue {
        PropertyValue(number.to_string())
    }
}

impl From<f64> for PropertyValue {
    fn from(number: f64) -> PropertyValue {
        PropertyValue(number.to_string())
    }
}

impl From<bool> for PropertyValue {
    fn from(flag: bool) -> PropertyValue {
        PropertyValue(flag.to_string())
    }
}

impl fmt::Debug for PropertyValue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("***")
    }
}

/// The client properties that the config sets, as written: `${NAME}` and `file:PATH` are not yet followed.
///
/// `Debug` and serialising show `***` for every value that may be a secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Properties(BTreeMap<String, PropertyValue>);

impl Properties {
    /// Sets a property. It is checked with the rest of the config.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<PropertyValue>) {
        self.0.insert(name.into(), value.into());
    }

    /// Whether a property is set.
    #[must_use]
    pub fn is_set(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Whether none is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is wrong with the names and with those values that stand in the config itself.
    pub(super) fn problems(&self, table: &'static str) -> Vec<Problem> {
        let mut problems: Vec<Problem> = self
            .0
            .iter()
            .filter_map(|(name, value)| check_name(table, name).or_else(|| check_literal(table, name, &value.0)))
            .collect();
        problems.extend(ALLOWED.iter().filter_map(|property| {
            let other = property.same_as?;
            (self.is_set(property.name) && self.is_set(other)).then(|| Problem::Conflict {
                rule: "a client property is set under one of its names",
                got: format!("{table}: `{}` and `{other}`", property.name),
                fix: format!("keep `{other}`"),
            })
        }));
        problems
    }

    /// The property's value in the config, if it stands there and is no reference.
    pub(super) fn literal(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| value.0.as_str()).filter(|value| !is_reference(value))
    }

    /// Follows every `${NAME}` and `file:PATH` and adds the router's defaults. Checks each value again, since those
    /// from outside are only known now.
    ///
    /// # Errors
    /// [`Problem::Unresolved`] for a variable or file that is not there, is empty, too long or no text, and what is
    /// wrong with the values.
    pub(super) fn resolve(
        &self,
        table: &'static str,
        environment: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Vec<ClientProperty>, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut resolved = Vec::new();
        for (name, value) in &self.0 {
            let Some(property) = allowed(name) else {
                problems.extend(check_name(table, name));
                continue;
            };
            match follow(table, name, &value.0, environment) {
                Ok(text) => {
                    problems.extend(property.check(table, &text));
                    // What came from outside is hidden whatever its name: the person who put it there chose so.
                    let open = property.open && !is_reference(&value.0);
                    resolved.push(ClientProperty { name: name.clone(), value: Secret { text, open } });
                }
                Err(problem) => problems.push(problem),
            }
        }
        for (name, value) in DEFAULTS {
            let other = ALLOWED.iter().find(|property| property.same_as == Some(name));
            if !self.is_set(name) && !other.is_some_and(|other| self.is_set(other.name)) {
                let value = Secret { text: value.to_owned(), open: true };
                resolved.push(ClientProperty { name: name.to_owned(), value });
            }
        }
        if problems.is_empty() { Ok(resolved) } else { Err(problems) }
    }
}

/// Whether the name may be set at all.
pub(super) fn check_name(table: &'static str, name: &str) -> Option<Problem> {
    if allowed(name).is_some() {
        return None;
    }
    if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
        return Some(Problem::RefusedProperty { table, key: name.to_owned(), why });
    }
    let nearest = nearest(name, ALLOWED.iter().map(|property| property.name));
    Some(Problem::UnknownProperty { table, key: name.to_owned(), nearest })
}

/// What is wrong with a value that stands in the config itself.
pub(super) fn check_literal(table: &'static str, name: &str, value: &str) -> Option<Problem> {
    if is_reference(value) {
        return None;
    }
    allowed(name)?.check(table, value)
}

/// Whether the value stands elsewhere, in whole or in part.
fn is_reference(value: &str) -> bool {
    value.starts_with("file:") || value.contains("${")
}

/// The value with its `${NAME}`s replaced, or the content of its `file:PATH` without the newline at its end.
/// `$${` stands for a plain `${`.
fn follow(
    table: &'static str,
    key: &str,
    value: &str,
    environment: &dyn Fn(&str) -> Option<OsString>,
) -> Result<String, Problem> {
    let unresolved = |from: String, why: &str, fix| Problem::Unresolved {
        table,
        key: key.to_owned(),
        from,
        why: why.to_owned(),
        fix,
    };
    if let Some(path) = value.strip_prefix("file:") {
        let from = format!("the file {path:?}");
        let fix = "give the path of a text file that this user may read";
        let file = std::fs::File::open(path)
            .map_err(|error| unresolved(from.clone(), &format!("cannot be opened: {error}"), fix))?;
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| unresolved(from.clone(), &format!("cannot be read: {error}"), fix))?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(unresolved(from, &format!("has more than {FILE_BYTES_MAX} bytes"), fix));
        }
        let Ok(mut text) = String::from_utf8(bytes) else {
            return Err(unresolved(from, "is not UTF-8", fix));
        };
        if text.ends_with('\n') {
            text.pop();
            if text.ends_with('\r') {
                text.pop();
            }
        }
        if text.is_empty() {
            return Err(unresolved(from, "is empty", fix));
        }
        return Ok(text);
    }
    let mut text = String::new();
    let mut rest = value;
    while let Some(at) = rest.find("${") {
        let (before, reference) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('$') {
            text.push_str(before);
            text.push_str("${");
            rest = &reference[2..];
            continue;
        }
        text.push_str(before);
        // The name is not repeated when the brace is missing: the rest may be a password.
        let Some(end) = reference.find('}') else {
            return Err(unresolved(
                "a `${` without `}`".to_owned(),
                "names no variable",
                "close it as in \"${NAME}\", or write `$${` for a plain `${`",
            ));
        };
        let name = &reference[2..end];
        // Text that cannot be a variable's name may be a piece of a password: not repeated either.
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err(unresolved(
                "a `${…}`".to_owned(),
                "names no variable",
                "a name is made of A to Z, a to z, 0 to 9 and _; write `$${` for a plain `${`",
            ));
        }
        let from = format!("the environment variable {name}");
        let fix = "set it for this process";
        let found = environment(name).ok_or_else(|| unresolved(from.clone(), "is not set", fix))?;
        let found = found.into_string().map_err(|_| unresolved(from.clone(), "is not UTF-8", fix))?;
        if found.is_empty() {
            return Err(unresolved(from, "is empty", fix));
        }
        text.push_str(&found);
        rest = &reference[end + 1..];
    }
    text.push_str(rest);
    Ok(text)
}

/// A text that is shown only when it is known to be harmless.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    text: String,
    open: bool,
}

impl Secret {
    /// The text itself, for the client library and nobody else.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.open { self.text.fmt(out) } else { out.write_str("***") }
    }
}

/// A property as the client library takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientProperty {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: Secret,
}

/// What may be shown of a property as written: open values, and where a hidden one stands.
fn shown<'v>(name: &str, value: &'v PropertyValue) -> &'v str {
    if allowed(name).is_some_and(|property| property.open) { &value.0 } else { "***" }
}

impl fmt::Debug for Properties {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_map().entries(self.0.iter().map(|(name, value)| (name, shown(name, value)))).finish()
    }
}

impl Serialize for Properties {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_map(self.0.iter().map(|(name, value)| (name, shown(name, value))))
    }
}

/// A value, or a table that a dotted name without quotes made: `linger.ms = 5` is the table `linger` with `ms` in it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Node {
    Flag(bool),
    Whole(i64),
    Decimal(f64),
    Text(String),
    Table(BTreeMap<String, Node>),
}

fn flatten(prefix: &str, nodes: BTreeMap<String, Node>, into: &mut Properties) {
    for (name, node) in nodes {
        let name = format!("{prefix}{name}");
        match node {
            Node::Flag(flag) => into.set(name, flag),
            Node::Whole(number) => into.set(name, number),
            Node::Decimal(number) => into.set(name, number),
            Node::Text(text) => into.set(name, text),
            Node::Table(inner) => flatten(&format!("{name}."), inner, into),
        }
    }
}

impl<'de> Deserialize<'de> for Properties {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Properties, D::Error> {
        let mut properties = Properties::default();
        flatten("", BTreeMap::deserialize(from)?, &mut properties);
        Ok(properties)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    fn environment(name: &str) -> Option<OsString> {
        match name {
            "PASSWORD" => Some("hunter2".into()),
            "HOST" => Some("edge-7".into()),
            "EMPTY" => Some("".into()),
            "BINARY" => Some(OsString::from_vec(vec![0xff])),
            "LONG" => Some("x".repeat(300).into()),
            _ => None,
        }
    }

    fn followed(value: &str) -> Result<String, String> {
        follow("kafka.properties", "sasl.password", value, &environment).map_err(|problem| problem.to_string())
    }

    #[test]
    fn references_are_followed() {
        assert_eq!(followed("plain"), Ok("plain".to_owned()));
        assert_eq!(followed("${PASSWORD}"), Ok("hunter2".to_owned()));
        assert_eq!(followed("a${HOST}b${HOST}"), Ok("aedge-7bedge-7".to_owned()));
        assert_eq!(followed("$${HOST}"), Ok("${HOST}".to_owned()));
        assert_eq!(followed("p$w}{"), Ok("p$w}{".to_owned()));
    }

    #[test]
    fn a_reference_that_leads_nowhere_names_the_key_and_the_place() {
        assert_eq!(
            followed("${MISSING}").unwrap_err(),
            "kafka.properties: `sasl.password` takes its value from the environment variable MISSING, which is not \
             set; set it for this process"
        );
        assert!(followed("${EMPTY}").unwrap_err().contains("is empty"));
        assert!(followed("${BINARY}").unwrap_err().contains("is not UTF-8"));
        assert!(followed("file:/no/such/file").unwrap_err().contains("\"/no/such/file\""));
        // What stands behind a broken brace may be the password itself.
        for broken in ["${hunter2", "${hun-ter2}", "${}hunter2"] {
            let error = followed(broken).unwrap_err();
            assert!(error.contains("names no variable") && !error.contains("ter2"), "{error}");
        }
    }

    #[test]
    fn a_value_from_outside_is_checked_when_it_comes() {
        let mut properties = Properties::default();
        properties.set("client.id", "${LONG}");
        assert_eq!(properties.problems("kafka.properties"), vec![]);
        let problems = properties.resolve("kafka.properties", &environment).unwrap_err();
        assert!(problems[0].to_string().contains("it has 300 bytes"), "{problems:?}");
    }

    #[test]
    fn every_property_of_the_list_is_there_once_and_secrets_are_closed() {
        for (index, property) in ALLOWED.iter().enumerate() {
            let name = property.name;
            assert!(ALLOWED[..index].iter().all(|other| other.name != name), "{name} twice");
            assert!(REFUSED.iter().all(|(refused, _)| *refused != name), "{name} allowed and refused");
            assert!(property.same_as.is_none_or(|other| allowed(other).is_some()), "{name}");
            let telling = ["password", "secret", "passphrase", "pem", "config", "extensions", "cmd", "url"];
            if telling.iter().any(|word| name.ends_with(word)) {
                assert!(!property.open, "{name} may hold a secret");
            }
        }
        for (index, (name, why)) in REFUSED.iter().enumerate() {
            assert!(REFUSED[..index].iter().all(|(other, _)| other != name), "{name} twice");
            assert!(!why.is_empty());
        }
    }

    #[test]
    fn the_defaults_obey_the_list() {
        for (name, value) in DEFAULTS {
            let property = allowed(name).expect("a default is an allowed property");
            assert_eq!(property.check("kafka.properties", value), None, "{name}");
        }
    }
}
