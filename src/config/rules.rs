//! The rules between keys: each value is allowed for itself, but do they go together? One list, from which the checks
//! and the reference are made.

use super::error::Problem;
use super::keys::{PARTITIONS_CREATED, TOPIC_NAME_BYTES};
use super::limits::{ARENA_BYTES_MAX, FRAME_BYTES_MAX, RING_BYTES_MIN, RING_TRIGGERS_MIN};
use super::{Config, DeadLetterTopic, DivertPolicy, Limits, Pin, RouteOnShed, RouteSource, size, span};
use crate::spill::{LimitError, SpillLimits};
use crate::trigger::KEY_BYTES_MAX;

/// A unix socket's path in bytes, without the NUL that ends it.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// What came, and what to do about it.
type Breach = Option<(String, String)>;

/// One rule.
pub(super) struct Rule {
    /// The rule, in words.
    pub(super) what: &'static str,
    /// Why it is there.
    pub(super) why: &'static str,
    breach: fn(&Config) -> Breach,
}

/// Triggers of one ring.
pub(super) fn ring_triggers(config: &Config) -> usize {
    config.queue.capacity.div_ceil(usize::from(config.engine.shards))
}

/// Bytes of one ring.
pub(super) fn ring_bytes(config: &Config) -> usize {
    ring_triggers(config) * config.queue.bytes_per_trigger
}

fn slots_per_shard(config: &Config) -> usize {
    let shards = usize::from(config.engine.shards);
    config.inflight.total / shards + config.inflight.waiting / shards
}

fn dedup_per_shard(config: &Config) -> usize {
    config.dedup.capacity.div_ceil(usize::from(config.engine.shards))
}

/// The rule for a number of partitions, wherever it comes from.
pub(super) fn partitions_breach(partitions: u32, shards: u16) -> Breach {
    (partitions < u32::from(shards)).then(|| {
        (
            format!("the topic has {partitions} partitions and engine.shards = {shards}"),
            format!("set engine.shards to at most {partitions}"),
        )
    })
}

/// What [`partitions_breach`] checks, in words.
pub(super) const PARTITIONS_RULE: &str = "the topic has at least as many partitions as there are shards";

/// Every rule, in the order of the keys.
pub(super) static RULES: &[Rule] = &[
    Rule {
        what: PARTITIONS_RULE,
        why: "partition `p` belongs to shard `p % shards`: a shard more would own nothing",
        breach: |config| {
            let created = config.topic.create.then_some(PARTITIONS_CREATED);
            partitions_breach(config.topic.partitions.or(created)?, config.engine.shards)
        },
    },
    Rule {
        what: "`topic.min_insync_replicas` is at most `topic.replication`",
        why: "no record could ever be acked",
        breach: |config| {
            let (least, all) = (config.topic.min_insync_replicas, config.topic.replication);
            (least > all).then(|| {
                (
                    format!("topic.min_insync_replicas = {least} and topic.replication = {all}"),
                    format!("set topic.replication to at least {least}, or topic.min_insync_replicas to at most {all}"),
                )
            })
        },
    },
    Rule {
        what: LINGER_RULE,
        why: "a batch that lingers that long would make every ack late",
        breach: |config| {
            let linger_ms: f64 = config.kafka.properties.literal("linger.ms")?.parse().ok()?;
            linger_breach(config, linger_ms)
        },
    },
    Rule {
        what: "`engine.pin` names one CPU for each shard",
        why: "a shard without a CPU of its own would share one with another",
        breach: |config| match &config.engine.pin {
            Pin::Cpus(cpus) if cpus.len() != usize::from(config.engine.shards) => Some((
                format!("engine.pin names {} CPUs and engine.shards = {}", cpus.len(), config.engine.shards),
                "name one CPU for each shard, or write engine.pin = \"none\"".to_owned(),
            )),
            _ => None,
        },
    },
    Rule {
        what: "`queue.capacity` gives each ring at least 64 triggers",
        why: "the ratios of a smaller ring mean nothing",
        breach: |config| {
            ((ring_triggers(config) as u64) < RING_TRIGGERS_MIN).then(|| {
                (
                    format!("queue.capacity = {} over {} shards", config.queue.capacity, config.engine.shards),
                    format!("set queue.capacity to at least {}", RING_TRIGGERS_MIN * u64::from(config.engine.shards)),
                )
            })
        },
    },
    Rule {
        what: "a ring (`queue.capacity` / `engine.shards` × `queue.bytes_per_trigger`) has 8 KiB to 4 GiB",
        why: "the greatest trigger must leave room, and places are numbered with 32 bits",
        breach: |config| {
            let bytes = ring_bytes(config) as u64;
            (!(RING_BYTES_MIN..=ARENA_BYTES_MAX).contains(&bytes)).then(|| {
                (
                    format!(
                        "queue.capacity = {} over {} shards with queue.bytes_per_trigger = {} make rings of {bytes} bytes",
                        config.queue.capacity, config.engine.shards, config.queue.bytes_per_trigger
                    ),
                    format!(
                        "change queue.capacity or queue.bytes_per_trigger until it is in \
                         {RING_BYTES_MIN}..={ARENA_BYTES_MAX} bytes"
                    ),
                )
            })
        },
    },
    Rule {
        what: "`queue.pause_ratio` < `queue.low_shed_ratio` < `queue.shed_ratio`",
        why: "a caller is asked to pace itself before anything is shed, and low priority goes first",
        breach: |config| {
            let queue = &config.queue;
            let rises = queue.pause_ratio < queue.low_shed_ratio && queue.low_shed_ratio < queue.shed_ratio;
            (!rises).then(|| {
                (
                    format!(
                        "queue.pause_ratio = {}, queue.low_shed_ratio = {} and queue.shed_ratio = {}",
                        queue.pause_ratio, queue.low_shed_ratio, queue.shed_ratio
                    ),
                    "let them rise, as in 0.7, 0.8 and 0.9".to_owned(),
                )
            })
        },
    },
    Rule {
        what: "`settle.window` is at least `queue.capacity`",
        why: "submit would shed before the queue is ever full",
        breach: |config| {
            let (window, capacity) = (config.settle.window, config.queue.capacity);
            (window < capacity).then(|| {
                (
                    format!("settle.window = {window} and queue.capacity = {capacity}"),
                    format!(
                        "set settle.window to at least {}, or queue.capacity to at most {window}",
                        capacity.next_power_of_two()
                    ),
                )
            })
        },
    },
    Rule {
        what: "`inflight.partition` is at most a shard's share of `inflight.total`",
        why: "a window that can never fill would let one stalled partition take every place of its shard",
        breach: |config| {
            let (shards, total) = (usize::from(config.engine.shards), config.inflight.total);
            let (partition, share) = (config.inflight.partition, config.inflight.total / shards);
            (partition > share).then(|| {
                (
                    format!(
                        "inflight.partition = {partition} and inflight.total = {total} over {shards} shards, {share} each"
                    ),
                    format!(
                        "set inflight.total to at least {}{}",
                        partition * shards,
                        if share > 0 { format!(", or inflight.partition to at most {share}") } else { String::new() }
                    ),
                )
            })
        },
    },
    Rule {
        what: "`inflight.waiting` gives each shard at least one place",
        why: "a shard that can keep nothing could take nothing",
        breach: |config| {
            let (waiting, shards) = (config.inflight.waiting, usize::from(config.engine.shards));
            (waiting < shards).then(|| {
                (
                    format!("inflight.waiting = {waiting} over {shards} shards"),
                    format!("set inflight.waiting to at least {shards}"),
                )
            })
        },
    },
    Rule {
        what: "the frames of a shard (`inflight.total` and `inflight.waiting` / `engine.shards` × \
               `inflight.bytes_per_frame`) have 2 KiB to 4 GiB",
        why: "the greatest frame must fit, and places are numbered with 32 bits",
        breach: |config| {
            let bytes = (slots_per_shard(config) * config.inflight.bytes_per_frame) as u64;
            (!(FRAME_BYTES_MAX..=ARENA_BYTES_MAX).contains(&bytes)).then(|| {
                (
                    format!(
                        "{} frames of inflight.bytes_per_frame = {} make {bytes} bytes a shard",
                        slots_per_shard(config),
                        config.inflight.bytes_per_frame
                    ),
                    format!(
                        "change inflight.total, inflight.waiting or inflight.bytes_per_frame until it is in \
                         {FRAME_BYTES_MAX}..={ARENA_BYTES_MAX} bytes"
                    ),
                )
            })
        },
    },
    Rule {
        what: "`dedup.capacity` is at least what can be in flight and waiting, for each shard",
        why: "a pending key is neither evicted nor expired",
        breach: |config| {
            let (keys, slots) = (dedup_per_shard(config), slots_per_shard(config));
            (keys < slots).then(|| {
                (
                    format!(
                        "dedup.capacity = {}, {keys} a shard, with inflight.total = {} and inflight.waiting = {}, \
                         {slots} a shard",
                        config.dedup.capacity, config.inflight.total, config.inflight.waiting
                    ),
                    format!("set dedup.capacity to at least {}", slots * usize::from(config.engine.shards)),
                )
            })
        },
    },
    Rule {
        what: "the keys of a shard (`dedup.capacity` / `engine.shards` × `dedup.bytes_per_key`) have 525 bytes to 4 GiB",
        why: "the longest key must fit, and places are numbered with 32 bits",
        breach: |config| {
            let bytes = (dedup_per_shard(config) * config.dedup.bytes_per_key) as u64;
            let least = KEY_BYTES_MAX as u64;
            (!(least..=ARENA_BYTES_MAX).contains(&bytes)).then(|| {
                (
                    format!(
                        "dedup.capacity = {} over {} shards with dedup.bytes_per_key = {} make {bytes} bytes a shard",
                        config.dedup.capacity, config.engine.shards, config.dedup.bytes_per_key
                    ),
                    format!(
                        "change dedup.capacity, dedup.bytes_per_key or engine.shards until it is in \
                         {least}..={ARENA_BYTES_MAX} bytes"
                    ),
                )
            })
        },
    },
    Rule {
        what: "`publish.timeout` is at most `breaker.grace`",
        why: "a partition would count as stalled before an ack is late",
        breach: |config| {
            let (timeout, grace) = (config.publish.timeout, config.breaker.grace);
            (timeout > grace).then(|| {
                let (timeout, grace) = (span::print(timeout), span::print(grace));
                (
                    format!("publish.timeout = \"{timeout}\" and breaker.grace = \"{grace}\""),
                    format!("set breaker.grace to at least \"{timeout}\", or publish.timeout to at most \"{grace}\""),
                )
            })
        },
    },
    Rule {
        what: "`divert.policy` = `spill` has a `state.dir`",
        why: "there is no disk to spill to without it",
        breach: |config| {
            let spills = config.divert.policy == Some(DivertPolicy::Spill);
            (spills && config.state.dir.is_none()).then(|| {
                (
                    "divert.policy = \"spill\" without state.dir".to_owned(),
                    "set state.dir, or leave divert.policy out".to_owned(),
                )
            })
        },
    },
    Rule {
        what: "`divert.policy` = `dead-letter` and `route.on_shed` = `dead-letter` have a dead-letter topic",
        why: "there is no topic to divert to without it",
        breach: |config| {
            let asks = [
                (config.divert.policy == Some(DivertPolicy::DeadLetter)).then_some("divert.policy"),
                (config.route.on_shed == RouteOnShed::DeadLetter).then_some("route.on_shed"),
            ];
            let key = asks.into_iter().flatten().next()?;
            (config.dead_letter.topic == Some(DeadLetterTopic::Off)).then(|| {
                (
                    format!("{key} = \"dead-letter\" with dead_letter.topic = \"off\""),
                    format!("name a topic in dead_letter.topic, or choose another {key}"),
                )
            })
        },
    },
    Rule {
        what: "`spill.partition_limit` is at most `spill.limit`",
        why: "one partition cannot take more than all",
        breach: |config| {
            let (partition, limit) = (config.spill.partition_limit?, config.spill.limit);
            (partition > limit).then(|| {
                let (partition, limit) = (size::print(partition), size::print(limit));
                (
                    format!("spill.partition_limit = {partition} and spill.limit = {limit}"),
                    format!("set spill.limit to at least {partition}, or spill.partition_limit to at most {limit}"),
                )
            })
        },
    },
    Rule {
        what: SPILL_RULE,
        why: "what was accepted is kept, also when the disk is full",
        breach: |config| spill_breach(config, config.partitions_to_create()),
    },
    Rule {
        what: DEAD_LETTERS_RULE,
        why: "space comes free by whole files, and each begins with a note on every partition",
        breach: |config| dead_letters_breach(config, config.partitions_to_create()),
    },
    Rule {
        what: "the dead-letter topic is not `topic.name` itself",
        why: "a trigger that the topic refuses would be sent there again, for ever",
        breach: |config| {
            let topic = config.dead_letter_topic()?;
            (topic == config.topic.name && is_same_cluster(config)).then(|| {
                (
                    format!("dead_letter.topic = {topic:?} and topic.name = {topic:?} on one cluster"),
                    format!(
                        "name another topic, such as \"{topic}{DEAD_LETTER_SUFFIX}\", or set dead_letter.bootstrap"
                    ),
                )
            })
        },
    },
    Rule {
        what: "the dead-letter topic's name has at most 249 bytes",
        why: "it is the topic's name with `.dlq` at its end unless it is named",
        breach: |config| {
            let bytes = config.dead_letter_topic()?.len();
            (bytes > *TOPIC_NAME_BYTES.end()).then(|| {
                (
                    format!("topic.name has {} bytes and dead_letter.topic is not set", config.topic.name.len()),
                    "name the dead-letter topic in dead_letter.topic, or write \"off\"".to_owned(),
                )
            })
        },
    },
    Rule {
        what: "the sources `file` and `unix` have a `route.path`",
        why: "there is nothing to open without it",
        breach: |config| match config.route.source {
            Some(source @ (RouteSource::File | RouteSource::Unix)) if config.route.path.is_none() => {
                Some((format!("route.source = \"{}\" without route.path", source.name()), "set route.path".to_owned()))
            }
            _ => None,
        },
    },
    Rule {
        what: "the path of a unix socket has at most 107 bytes",
        why: "the system takes no longer one",
        breach: |config| {
            let path = config.route.path.as_deref().filter(|_| config.route.source == Some(RouteSource::Unix))?;
            let bytes = path.as_os_str().len();
            (bytes > SOCKET_PATH_BYTES_MAX).then(|| {
                (format!("route.source = \"unix\" and route.path has {bytes} bytes"), "give a shorter path".to_owned())
            })
        },
    },
    Rule {
        what: "`route.listen` is a loopback address unless `route.allow_remote` is true",
        why: "whoever reaches the port can publish: there is no login and no encryption",
        breach: |config| {
            let listen = config.route.listen;
            (!listen.ip().is_loopback() && !config.route.allow_remote).then(|| {
                (
                    format!("route.listen = \"{listen}\" with route.allow_remote = false"),
                    format!(
                        "listen on \"127.0.0.1:{}\", or set route.allow_remote = true where a firewall guards the port",
                        listen.port()
                    ),
                )
            })
        },
    },
    Rule {
        what: "`route.connections_max` is at most `queue.ingresses` for the sources `unix` and `tcp`",
        why: "each connection has an ingress of its own, so that none waits for another",
        breach: |config| {
            let is_socket = matches!(config.route.source, Some(RouteSource::Unix | RouteSource::Tcp));
            let (most, ingresses) = (config.route.connections_max, config.queue.ingresses);
            (is_socket && most > ingresses).then(|| {
                (
                    format!("route.connections_max = {most} and queue.ingresses = {ingresses}"),
                    format!("set queue.ingresses to at least {most}, or route.connections_max to at most {ingresses}"),
                )
            })
        },
    },
    Rule {
        what: "`route.resume` has the source `file` and a `state.dir`",
        why: "only a file can be read again, and the progress must be kept somewhere",
        breach: |config| {
            let file = config.route.source == Some(RouteSource::File);
            let state = config.state.dir.is_some();
            (config.route.resume && !(file && state)).then(|| {
                (
                    format!(
                        "route.resume = true with {}",
                        match (file, state) {
                            (false, false) => "another source than a file and without state.dir",
                            (false, true) => "another source than a file",
                            (true, _) => "no state.dir",
                        }
                    ),
                    "set route.source = \"file\" and state.dir, or route.resume = false".to_owned(),
                )
            })
        },
    },
];

/// What a dead-letter topic's name ends with unless it is named.
pub(super) const DEAD_LETTER_SUFFIX: &str = ".dlq";

/// What [`spill_breach`] checks, in words.
pub(super) const SPILL_RULE: &str = "`spill.limit` holds what can be accepted and unsettled and four files of `spill.segment`, each of which holds more \
     than the notes on every partition";

/// What [`dead_letters_breach`] checks, in words.
pub(super) const DEAD_LETTERS_RULE: &str =
    "an eighth of `dead_letter.limit` holds the longest dead letters and the notes on every partition";

/// Whether the spill's sizes fit one another and the topic.
pub(super) fn spill_breach(config: &Config, partitions: u32) -> Breach {
    if config.divert_policy() != DivertPolicy::Spill || config.state.dir.is_none() {
        return None;
    }
    let limits = Limits::new(config);
    let spill = limits.spill(partitions);
    let error = spill.check().err()?;
    let SpillLimits { limit_bytes, segment_bytes, reserve_bytes, .. } = spill;
    let fix = match error {
        LimitError { name: "segment_bytes", least, .. } => format!("set spill.segment to at least {least}"),
        LimitError { name: "limit_bytes", least, .. } => format!(
            "set spill.limit to at least {least}, or lower spill.segment, or what can wait: queue.capacity, \
             queue.ingresses, inflight.total, inflight.waiting"
        ),
        other => format!("change it: {other}"),
    };
    let got = format!(
        "spill.limit = {} and spill.segment = {} over {partitions} partitions, where {reserve_bytes} bytes can be accepted \
         and unsettled",
        size::print(limit_bytes),
        size::print(segment_bytes)
    );
    Some((got, fix))
}

/// Whether the dead letters' limit fits the topic.
pub(super) fn dead_letters_breach(config: &Config, partitions: u32) -> Breach {
    config.state.dir.as_ref()?;
    let letters = Limits::new(config).dead_letters(partitions);
    let error = letters.check().err()?;
    let least = config.dead_letter.limit.div_ceil(letters.segment_bytes) * error.least;
    let got = format!(
        "dead_letter.limit = {} over {partitions} partitions, for letters of up to {} bytes",
        size::print(config.dead_letter.limit),
        letters.record_bytes
    );
    Some((got, format!("set dead_letter.limit to at least {least}, or lower route.line_bytes_max")))
}

/// Whether the dead letters go to the cluster of the triggers: one address in common is enough.
pub(super) fn is_same_cluster(config: &Config) -> bool {
    let addresses = |list: &str| list.split(',').map(|one| one.trim().to_ascii_lowercase()).collect::<Vec<_>>();
    match (&config.dead_letter.bootstrap, &config.kafka.bootstrap) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(own), Some(main)) => {
            let main = addresses(main);
            addresses(own).iter().any(|address| main.contains(address))
        }
    }
}

/// Whether batches linger too long for the time-out.
pub(super) fn linger_breach(config: &Config, linger_ms: f64) -> Breach {
    let timeout_ms = config.publish.timeout.as_secs_f64() * 1_000.0;
    (linger_ms >= timeout_ms).then(|| {
        (
            format!("linger.ms = {linger_ms} and publish.timeout = \"{}\"", span::print(config.publish.timeout)),
            "lower linger.ms, or raise publish.timeout by what a round trip takes".to_owned(),
        )
    })
}

/// What [`linger_breach`] checks, in words.
pub(super) const LINGER_RULE: &str = "`linger.ms` is below `publish.timeout`";

/// Every rule that the config breaks. Its keys are inside their bounds already.
pub(super) fn problems(config: &Config) -> Vec<Problem> {
    RULES
        .iter()
        .filter_map(|rule| {
            let (got, fix) = (rule.breach)(config)?;
            Some(Problem::Conflict { rule: rule.what, got, fix })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers in the rules' words are those of the constants.
    #[test]
    fn words_and_constants_agree() {
        let said = |start: &str, number: &str| {
            let rule = RULES.iter().find(|rule| rule.what.contains(start)).unwrap_or_else(|| panic!("no rule {start}"));
            assert!(rule.what.contains(number), "{} does not say {number}", rule.what);
        };
        let in_units = |bytes: u64| match bytes {
            GIB.. => format!("{} GiB", bytes / GIB),
            _ => format!("{} KiB", bytes / 1_024),
        };
        const GIB: u64 = 1 << 30;
        // The last place is not used, so that the number of places fits 32 bits.
        let most = in_units(ARENA_BYTES_MAX + 1);
        said("`queue.capacity` gives each ring", &format!("at least {RING_TRIGGERS_MIN} triggers"));
        said("a ring (", &format!("has {} to {most}", in_units(RING_BYTES_MIN)));
        said("the frames of a shard", &format!("have {} to {most}", in_units(FRAME_BYTES_MAX)));
        said("the keys of a shard", &format!("have {KEY_BYTES_MAX} bytes to {most}"));
        said("the path of a unix socket", &format!("at most {SOCKET_PATH_BYTES_MAX} bytes"));
    }
}
