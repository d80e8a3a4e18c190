//! The configuration from outside: what a person writes, and what is answered.

use fencepost::config::{
    self, AgeLimit, Config, ConfigError, DeadLetterTopic, DivertPolicy, Idle, Numbers, Pin, Problem, RecordTime,
    RouteOnShed, RouteSource, reference,
};
use fencepost::units::Nanos;
use proptest::prelude::*;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn in_repo(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The one message about a text that has one problem.
#[track_caller]
fn refused(text: &str) -> String {
    match Config::from_toml_str(text) {
        Ok(_) => panic!("taken, and should not have been:\n{text}"),
        Err(error) => {
            assert_eq!(error.problems().count(), 1, "{error}");
            error.to_string()
        }
    }
}

#[track_caller]
fn taken(text: &str) -> Config {
    Config::from_toml_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The one message of `limits()` about a text that can be read.
#[track_caller]
fn conflicts(text: &str) -> String {
    match taken(text).limits() {
        Ok(_) => panic!("taken, and should not have been:\n{text}"),
        Err(error) => {
            assert_eq!(error.problems().count(), 1, "{error}");
            assert!(matches!(error.problems().next(), Some(Problem::Conflict { .. })), "{error}");
            error.to_string()
        }
    }
}

#[test]
fn an_empty_file_is_the_default_and_has_the_documented_numbers() {
    let config = taken("");
    assert_eq!(config, Config::default());
    let limits = config.limits().expect("the default holds");
    let numbers: &Numbers = &limits;
    assert_eq!(numbers.shards, 1);
    assert_eq!(numbers.partitions, None);
    assert_eq!(numbers.idle, Idle::Park);
    assert_eq!(numbers.turn_batch, 256);
    assert_eq!(numbers.ingresses, 8);
    assert_eq!(numbers.ring_triggers, 100_000);
    assert_eq!(numbers.ring_lines, 200_000);
    assert_eq!((numbers.pause_ratio, numbers.low_shed_ratio, numbers.shed_ratio), (0.70, 0.80, 0.90));
    assert_eq!(numbers.settle_window, 1 << 20);
    assert_eq!(numbers.dedup_ttl, Nanos::from_millis(10_000));
    assert_eq!(numbers.dedup_capacity_per_shard, 1_000_000);
    assert_eq!(numbers.dedup_arena_bytes_per_shard, 96_000_000);
    assert_eq!(numbers.inflight_partition, 16_384);
    assert_eq!(numbers.inflight_per_shard, 131_072);
    assert_eq!(numbers.waiting_per_shard, 65_536);
    assert_eq!(numbers.slots_per_shard, 196_608);
    assert_eq!(numbers.frame_arena_bytes_per_shard, 196_608 * 256);
    assert_eq!(numbers.publish_timeout, Nanos::from_millis(25));
    assert_eq!(numbers.breaker_grace, Nanos::from_millis(1_000));
    assert_eq!(numbers.future_limit_ms, 300_000);
    assert_eq!(numbers.past_limit_ms, Some(7 * 86_400_000));
    assert!(numbers.start_require_broker);
    assert_eq!(numbers.start_timeout, Nanos::from_millis(30_000));
    assert_eq!(numbers.shutdown_limit, Nanos::from_millis(30_000));
    assert_eq!(numbers.divert_policy, DivertPolicy::Refuse);
    assert_eq!(numbers.spill_limit_bytes, 4 << 30);
    assert_eq!(numbers.spill_partition_bytes, 1 << 30);
    assert_eq!(numbers.spill_segment_bytes, 64 << 20);
    assert_eq!(numbers.spill_sync, Nanos::from_millis(5));
    assert_eq!(numbers.dead_letter_grace, Nanos::from_millis(5_000));
    assert_eq!(numbers.dead_letter_limit_bytes, 256 << 20);
    assert!(numbers.dedup_warm_start);
    assert_eq!(config.dead_letter_topic().as_deref(), Some("geofence-triggers.dlq"));
}

#[test]
fn shards_split_the_numbers_and_the_sum_keeps_to_them() {
    let limits = taken("engine.shards = 3").limits().expect("three shards hold");
    // Capacities are rounded up: nobody gets less than was promised.
    assert_eq!(limits.ring_triggers, 33_334);
    assert_eq!(limits.dedup_capacity_per_shard, 333_334);
    // What bounds the load on others is rounded down.
    assert_eq!(limits.inflight_per_shard, 43_690);
    assert_eq!(limits.waiting_per_shard, 21_845);
}

#[test]
fn the_memory_sum_adds_up_and_every_line_has_its_owner() {
    let limits = Config::default().limits().expect("the default holds");
    let mut memory = limits.memory();
    assert_eq!(memory.total(), memory.lines().iter().map(|line| line.bytes).sum::<u64>());
    let rings = memory.lines().iter().find(|line| line.owner == "ring").expect("rings are in the sum");
    assert_eq!(rings.bytes, 8 * 100_000 * 128);
    for owner in ["ring", "shard", "dedup", "slab"] {
        assert!(memory.lines().iter().any(|line| line.owner == owner && line.bytes > 0), "{owner}");
    }
    // A part's own figure takes the place of the estimate.
    let (lines, before) = (memory.lines().len(), memory.total());
    memory.set("ingress rings", "ring", 1);
    assert_eq!(memory.lines().len(), lines);
    assert_eq!(memory.total(), before - 8 * 100_000 * 128 + 1);
    assert!(memory.to_string().lines().last().is_some_and(|line| line.starts_with("sum")), "{memory}");
}

/// Every number, span and ratio: just outside and just inside of both ends, in a file and in code. The bounds are the
/// published constants, so the messages, the reference and this test cannot disagree.
#[test]
fn bounds_are_pinned() {
    let whole: &[(&str, std::ops::RangeInclusive<u64>)] = &[
        ("topic.partitions", config::PARTITIONS),
        ("topic.replication", config::REPLICATION),
        ("topic.min_insync_replicas", config::REPLICATION),
        ("engine.shards", config::SHARDS),
        ("engine.turn_batch", config::TURN_BATCH),
        ("queue.capacity", config::QUEUE_CAPACITY),
        ("queue.ingresses", config::QUEUE_INGRESSES),
        ("queue.bytes_per_trigger", config::QUEUE_BYTES_PER_TRIGGER),
        ("dedup.capacity", config::DEDUP_CAPACITY),
        ("dedup.bytes_per_key", config::DEDUP_BYTES_PER_KEY),
        ("inflight.partition", config::INFLIGHT_PARTITION),
        ("inflight.total", config::INFLIGHT_TOTAL),
        ("inflight.waiting", config::INFLIGHT_WAITING),
        ("breaker.failures", config::BREAKER_FAILURES),
        ("inflight.bytes_per_frame", config::INFLIGHT_BYTES_PER_FRAME),
        ("route.line_bytes_max", config::ROUTE_LINE_BYTES),
        ("route.connections_max", config::ROUTE_CONNECTIONS),
    ];
    for (key, range) in whole {
        let allowed = format!("allowed {}..={}", range.start(), range.end());
        for inside in [*range.start(), *range.end()] {
            taken(&format!("{key} = {inside}"));
        }
        for outside in [i128::from(*range.start()) - 1, i128::from(*range.end()) + 1, -1, i128::from(u64::MAX) + 1] {
            let message = refused(&format!("{key} = {outside}"));
            assert!(message.contains(&format!("{key} = {outside}, {allowed}; ")), "{message}");
        }
    }
    let spans: &[(&str, std::ops::RangeInclusive<Duration>)] = &[
        ("dedup.ttl", config::DEDUP_TTL),
        ("publish.timeout", config::PUBLISH_TIMEOUT),
        ("breaker.grace", config::BREAKER_GRACE),
        ("breaker.reset", config::BREAKER_RESET),
        ("time.future_limit", config::TIME_FUTURE_LIMIT),
        ("time.past_limit", config::TIME_PAST_LIMIT),
        ("start.timeout", config::START_TIMEOUT),
        ("shutdown.limit", config::SHUTDOWN_LIMIT),
        ("route.line_timeout", config::ROUTE_LINE_TIMEOUT),
        ("spill.sync", config::SPILL_SYNC),
        ("dead_letter.grace", config::DEAD_LETTER_GRACE),
    ];
    for (key, range) in spans {
        let (least, most) = (range.start().as_nanos(), range.end().as_nanos());
        for inside in [least, most] {
            taken(&format!("{key} = \"{inside}ns\""));
        }
        for outside in [least - 1, most + 1] {
            let message = refused(&format!("{key} = \"{outside}ns\""));
            assert!(message.contains(&format!("{key} = \"{outside}ns\", allowed ")), "{message}");
        }
    }
    let sizes: &[(&str, std::ops::RangeInclusive<u64>)] = &[
        ("spill.limit", config::SPILL_LIMIT),
        ("spill.partition_limit", config::SPILL_PARTITION_LIMIT),
        ("spill.segment", config::SPILL_SEGMENT),
        ("dead_letter.limit", config::DEAD_LETTER_LIMIT),
    ];
    for (key, range) in sizes {
        let (least, most) = (*range.start(), *range.end());
        for inside in [least.to_string(), most.to_string(), format!("\"{}KiB\"", least >> 10)] {
            taken(&format!("{key} = {inside}"));
        }
        for outside in
            [(least - 1).to_string(), (most + 1).to_string(), "-1".to_owned(), format!("\"{}KiB\"", (most >> 10) + 1)]
        {
            let message = refused(&format!("{key} = {outside}"));
            assert!(message.contains(&format!("{key} = {outside}, allowed \"")), "{message}");
        }
    }
    for key in ["queue.pause_ratio", "queue.low_shed_ratio", "queue.shed_ratio"] {
        for inside in ["0.01", "1.0", "1"] {
            taken(&format!("{key} = {inside}"));
        }
        for outside in ["0.0099", "1.0001", "0", "-0.5", "2", "nan", "inf"] {
            let message = refused(&format!("{key} = {outside}"));
            assert!(message.contains("allowed 0.01..=1"), "{message}");
        }
    }
    for (window, holds) in
        [(512, false), (1_023, false), (1_024, true), (1_025, false), (67_108_864, true), (134_217_728, false)]
    {
        assert_eq!(Config::from_toml_str(&format!("settle.window = {window}")).is_ok(), holds, "{window}");
    }
    for (bytes, holds) in [(0, false), (1, true), (32, true), (33, false)] {
        assert_eq!(Config::from_toml_str(&format!("router.id = \"{}\"", "r".repeat(bytes))).is_ok(), holds, "{bytes}");
    }
    for (bytes, holds) in [(0, false), (1, true), (4_095, true), (4_096, false)] {
        assert_eq!(Config::from_toml_str(&format!("state.dir = \"{}\"", "d".repeat(bytes))).is_ok(), holds, "{bytes}");
    }
}

#[test]
fn bounds_hold_for_a_config_made_in_code() {
    type Spoil = fn(&mut Config);
    let broken: &[(&str, Spoil)] = &[
        ("engine.shards = 0,", |config| config.engine.shards = 0),
        ("engine.shards = 65,", |config| config.engine.shards = 65),
        ("engine.turn_batch = 0,", |config| config.engine.turn_batch = 0),
        ("queue.capacity = 18446744073709551615,", |config| config.queue.capacity = usize::MAX),
        ("queue.shed_ratio = NaN,", |config| config.queue.shed_ratio = f64::NAN),
        ("settle.window = 1025,", |config| config.settle.window = 1_025),
        ("publish.timeout = \"0s\",", |config| config.publish.timeout = Duration::ZERO),
        ("dedup.ttl = ", |config| config.dedup.ttl = Duration::MAX),
        ("engine.pin = [],", |config| config.engine.pin = Pin::Cpus(vec![])),
        ("topic.name = \"\",", |config| config.topic.name.clear()),
        ("router.id = \"a\\nb\",", |config| config.router.id = Some("a\nb".to_owned())),
        ("kafka.bootstrap = \"broker\",", |config| config.kafka.bootstrap = Some("broker".to_owned())),
        ("kafka.properties: `acks` is not for the config", |config| config.kafka.properties.set("acks", 1)),
        ("dead_letter.properties: `acks` is not for the config", |config| {
            config.dead_letter.properties.set("acks", 1);
        }),
        ("spill.limit = 1,", |config| config.spill.limit = 1),
        ("spill.partition_limit = \"1KiB\",", |config| config.spill.partition_limit = Some(1_024)),
        ("dead_letter.topic = \"a b\",", |config| {
            config.dead_letter.topic = Some(DeadLetterTopic::Named("a b".to_owned()));
        }),
    ];
    for (expected, spoil) in broken {
        let mut config = Config::default();
        spoil(&mut config);
        let error = config.limits().expect_err(expected).to_string();
        assert!(error.starts_with(expected) || error.contains(expected), "{expected}\n{error}");
    }
    // All of them at once.
    let mut config = Config::default();
    config.engine.shards = 0;
    config.queue.ingresses = 0;
    assert_eq!(config.limits().expect_err("two are wrong").problems().count(), 2);
}

#[test]
fn the_message_names_key_value_bounds_and_fix() {
    assert_eq!(
        refused("engine.shards = 65"),
        "line 1: engine.shards = 65, allowed 1..=64; one per physical core is a good start"
    );
    assert_eq!(
        refused("\n[publish]\ntimeout = \"25\""),
        "line 3: publish.timeout = \"25\", allowed a whole number and a unit (ns, us, ms, s, m, h, d), such as \"25ms\"; \
         25ms is the delivery budget's share; set it above linger.ms and a round trip to the brokers"
    );
    assert!(refused("publish.timeout = 25").starts_with("line 1: publish.timeout is a whole number, allowed text: "));
    assert!(refused("queue.capacity = \"1000\"").contains("is text, allowed a whole number without quotes, 64..="));
    assert!(refused("queue.capacity = 1e5").contains("is a number with a fraction, allowed a whole number"));
    assert!(refused("topic.create = 1").contains("topic.create is a whole number, allowed true or false"));
    assert!(refused("engine.idle = \"sleep\"").contains("\"sleep\", allowed \"spin\" or \"yield\" or \"park\""));
    let words = "\"drop\", allowed \"spill\" or \"dead-letter\" or \"refuse\"; ";
    assert!(refused("divert.policy = \"drop\"").contains(words));
    assert_eq!(
        refused("spill.limit = \"4GB\""),
        "line 1: spill.limit = \"4GB\", allowed a whole number of bytes, or one with a unit (KiB, MiB, GiB, TiB), such as \
         \"64MiB\"; take the peak rate times the longest outage to ride out times 300 bytes"
    );
    assert!(refused("spill.segment = 1.5").contains("is a number with a fraction, allowed a whole number of bytes"));
    assert!(refused("dead_letter.topic = \"a b\"").contains("allowed \"off\" or 1 to 249 of a-z"));
    assert!(refused("route.on_shed = \"drop\"").contains("allowed \"wait\" or \"dead-letter\""));
    assert!(refused("queue = 5").contains("queue is a whole number, allowed a table; write [queue]"));
    assert!(refused("engine.pin = [0, \"1\"]").contains("a list that holds more than whole numbers"));
    assert!(refused("route.listen = \"localhost:1\"").contains("allowed an IP address and a port"));
    assert!(refused("dedup.ttl = 1979-05-27").contains("dedup.ttl is a date"));
    assert_eq!(refused("a = ").split(": ").take(2).collect::<Vec<_>>(), ["line 1", "is not TOML"]);
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest() {
    for (text, unknown, nearest) in [
        ("queue.capasity = 1", "queue.capasity", "queue.capacity"),
        ("queue.pause-ratio = 0.7", "queue.pause-ratio", "queue.pause_ratio"),
        ("[qeue]\ncapacity = 1", "qeue", "queue"),
        ("shards = 4", "shards", "engine.shards"),
        ("[kafka]\nbootstrap_servers = \"a:1\"", "kafka.bootstrap_servers", "kafka.bootstrap"),
        ("topic.min_insync_replica = 1", "topic.min_insync_replica", "topic.min_insync_replicas"),
    ] {
        let message = refused(text);
        assert!(message.contains(&format!("`{unknown}` is not known; did you mean `{nearest}`?")), "{message}");
    }
    assert_eq!(refused("colour = \"red\""), "line 1: `colour` is not known");
    let message = refused(&format!("{} = 1", "x".repeat(10_000)));
    assert!(message.len() < 200, "{} bytes", message.len());
}

#[test]
fn all_problems_come_at_once_in_the_order_of_the_file() {
    let text = "[engine]\nshards = 0\n[queue]\ncapasity = 1\ningresses = \"many\"\n[kafka.properties]\nacks = 1\nlinger.ms = \"soon\"\n";
    let error = Config::from_toml_str(text).expect_err("five things are wrong");
    let message = error.to_string();
    let lines: Vec<&str> = message.lines().map(|line| line.split(": ").next().expect("a place")).collect();
    assert_eq!(lines, ["line 2", "line 4", "line 5", "line 7", "line 8"], "{error}");
}

#[test]
fn a_topic_has_a_name_that_kafka_takes() {
    for good in ["t", "a.b_c-D9", &"x".repeat(249)] {
        taken(&format!("topic.name = \"{good}\""));
    }
    for bad in ["", ".", "..", "a b", "a/b", "größe", "a:b", "a\\u0000b", &"x".repeat(250)] {
        let message = refused(&format!("topic.name = \"{bad}\""));
        assert!(message.contains("topic.name = ") && message.contains("allowed 1 to 249 of a-z"), "{message}");
        assert!(!message.contains('\0') && message.len() < 400, "{message}");
    }
    assert!(refused(&format!("topic.name = \"{}\"", "x".repeat(250))).contains("(250 bytes)"));
}

#[test]
fn each_rule_between_keys_is_broken_by_something() {
    let broken = [
        "topic.partitions = 3\nengine.shards = 4",
        "topic.create = true\nengine.shards = 25\ninflight.total = 409600\ndedup.capacity = 1000000",
        "topic.min_insync_replicas = 2",
        "kafka.properties.linger.ms = 25",
        "engine.pin = [0, 1]",
        "engine.pin = [3]\nengine.shards = 2",
        "queue.capacity = 126\nqueue.bytes_per_trigger = 4096\nengine.shards = 2",
        "queue.capacity = 127\nqueue.bytes_per_trigger = 64",
        "queue.capacity = 16777216\nqueue.bytes_per_trigger = 4096\nsettle.window = 16777216",
        "queue.pause_ratio = 0.8",
        "queue.low_shed_ratio = 0.9",
        "queue.shed_ratio = 0.75",
        "settle.window = 65536",
        "inflight.partition = 131073",
        "engine.shards = 9",
        "inflight.waiting = 1\nengine.shards = 2",
        "inflight.total = 1\ninflight.partition = 1\ninflight.waiting = 1",
        "inflight.total = 16777216\ndedup.capacity = 20000000\ninflight.bytes_per_frame = 4096",
        "dedup.capacity = 196607",
        "dedup.capacity = 268435456",
        "publish.timeout = \"1001ms\"",
        "divert.policy = \"spill\"",
        "divert.policy = \"dead-letter\"\ndead_letter.topic = \"off\"",
        "route.on_shed = \"dead-letter\"\ndead_letter.topic = \"off\"",
        "spill.partition_limit = \"4097MiB\"",
        "state.dir = \"s\"\nspill.limit = \"256MiB\"",
        "state.dir = \"s\"\nspill.segment = \"1MiB\"",
        "state.dir = \"s\"\ndead_letter.limit = \"8MiB\"\nroute.line_bytes_max = 1048576",
        "state.dir = \"s\"\ntopic.partitions = 10000\ndivert.policy = \"refuse\"\ndead_letter.limit = \"16MiB\"",
        "dead_letter.topic = \"geofence-triggers\"",
        "dead_letter.topic = \"t\"\ntopic.name = \"t\"\nkafka.bootstrap = \"a:1, B:2\"\ndead_letter.bootstrap = \"b:2\"",
        &format!("topic.name = \"{}\"", "x".repeat(246)),
        "route.source = \"file\"",
        "route.source = \"unix\"",
        &format!("route.source = \"unix\"\nroute.path = \"{}\"", "s".repeat(108)),
        "route.listen = \"0.0.0.0:9465\"",
        "route.listen = \"[::]:9465\"",
        "route.source = \"tcp\"\nroute.connections_max = 9",
        "route.resume = true",
        "route.resume = true\nroute.source = \"file\"\nroute.path = \"x\"",
        "route.resume = true\nstate.dir = \"x\"",
    ];
    let mut reached = std::collections::BTreeSet::new();
    for text in broken {
        let message = conflicts(text);
        let Err(error) = taken(text).limits() else { unreachable!("it was just refused") };
        let Some(Problem::Conflict { rule, fix, .. }) = error.problems().next() else { panic!("{message}") };
        assert!(!fix.is_empty());
        reached.insert(*rule);
    }
    let documented: Vec<String> = section("## Rules between keys").map(|row| row.0).collect();
    for rule in &documented {
        assert!(reached.iter().any(|reached| reached == rule), "no text here breaks the rule: {rule}");
    }
    assert_eq!(reached.len(), documented.len());
}

#[test]
fn the_last_value_that_a_rule_takes_is_taken() {
    for text in [
        "topic.partitions = 4\nengine.shards = 4",
        "topic.min_insync_replicas = 2\ntopic.replication = 2",
        "kafka.properties.linger.ms = 24.9",
        "engine.pin = [3, 0]\nengine.shards = 2",
        "queue.capacity = 64\nqueue.bytes_per_trigger = 128",
        "settle.window = 131072",
        "inflight.partition = 131072",
        "engine.shards = 8",
        "dedup.capacity = 196608",
        "publish.timeout = \"1s\"",
        "divert.policy = \"spill\"\nstate.dir = \"s\"",
        "divert.policy = \"dead-letter\"",
        "spill.partition_limit = \"4GiB\"",
        "state.dir = \"s\"\ntopic.partitions = 10000",
        "dead_letter.topic = \"t\"\ntopic.name = \"t\"\nkafka.bootstrap = \"a:1\"\ndead_letter.bootstrap = \"b:1\"",
        &format!("topic.name = \"{}\"", "x".repeat(245)),
        &format!("topic.name = \"{}\"\ndead_letter.topic = \"off\"", "x".repeat(249)),
        &format!("route.source = \"unix\"\nroute.path = \"{}\"", "s".repeat(107)),
        "route.listen = \"[::1]:0\"",
        "route.listen = \"0.0.0.0:9465\"\nroute.allow_remote = true",
        "route.resume = true\nroute.source = \"file\"\nroute.path = \"x\"\nstate.dir = \"s\"",
    ] {
        let config = taken(text);
        if let Err(error) = config.limits() {
            panic!("{error}\n{text}");
        }
    }
}

#[test]
fn the_fix_of_a_conflict_mends_it() {
    let message = conflicts("engine.shards = 16");
    assert!(
        message.contains("set inflight.total to at least 262144, or inflight.partition to at most 8192"),
        "{message}"
    );
    for mended in ["inflight.total = 262144", "inflight.partition = 8192"] {
        assert!(taken(&format!("engine.shards = 16\n{mended}")).limits().is_ok(), "{mended}");
    }
    let message = conflicts("settle.window = 65536");
    assert!(message.contains("set settle.window to at least 131072, or queue.capacity to at most 65536"), "{message}");
}

/// What is asked for in a message is enough, and one byte less is not.
#[test]
fn the_sizes_on_disk_that_a_message_asks_for_are_enough() {
    for (text, key) in [
        ("spill.limit = \"256MiB\"", "spill.limit"),
        ("spill.segment = \"1MiB\"", "spill.segment"),
        ("dead_letter.limit = \"8MiB\"", "dead_letter.limit"),
    ] {
        let rest = "state.dir = \"s\"\nroute.line_bytes_max = 1048576";
        let message = conflicts(&format!("{rest}\n{text}"));
        let asked = message.split(&format!("set {key} to at least ")).nth(1).unwrap_or_else(|| panic!("{message}"));
        let least: u64 = asked.chars().take_while(char::is_ascii_digit).collect::<String>().parse().expect("a number");
        assert!(taken(&format!("{rest}\n{key} = {least}")).limits().is_ok(), "{message}");
        if key != "dead_letter.limit" {
            conflicts(&format!("{rest}\n{key} = {}", least - 1));
        }
    }
    // The reserve is named, so that a person sees what it is made of.
    let message = conflicts("state.dir = \"s\"\nspill.limit = \"256MiB\"");
    let reserve = Config::default().limits().expect("the default holds").spill_reserve_bytes;
    assert!(message.contains(&format!("where {reserve} bytes can be accepted and unsettled")), "{message}");
}

/// Everything that can be accepted at one time fits the reserve as records of the spill, whatever its size.
#[test]
fn the_reserve_holds_what_can_be_accepted() {
    let limits = taken("engine.shards = 3\nstate.dir = \"s\"").limits().expect("it holds");
    let record = |frame: u64| (40 + config::SPILL_META_BYTES_MAX as u64 + frame).next_multiple_of(8);
    let slots = 3 * limits.slots_per_shard as u64;
    let arena = 3 * limits.frame_arena_bytes_per_shard as u64;
    let rings = 3 * limits.ingresses as u64;
    for ids in [2, 24, 88, 256, 512 + 1_024] {
        // A ring's record: 40 bytes before the ids and attributes, in lines of 64.
        let lines = (40 + ids as u64).div_ceil(64);
        let in_ring = (limits.ring_lines as u64 / lines).min(limits.ring_triggers as u64);
        // A frame: at most 108 bytes around them.
        let frame = fencepost::wire::FRAME_BYTES_MAX as u64 - (512 + 1_024) + ids as u64;
        let in_slots = slots.min(arena / frame);
        let needed = in_slots * record(frame) + rings * in_ring * record(frame);
        assert!(needed <= limits.spill_reserve_bytes, "{ids}: {needed} of {}", limits.spill_reserve_bytes);
    }
    let spill = limits.spill(24);
    assert_eq!((spill.limit_bytes, spill.partition_bytes, spill.segment_bytes), (4 << 30, 1 << 30, 64 << 20));
    assert_eq!(spill.reserve_bytes, limits.spill_reserve_bytes);
    assert!(spill.record_bytes >= fencepost::wire::FRAME_BYTES_MAX + config::SPILL_META_BYTES_MAX);
    assert_eq!(spill.check(), Ok(()));
    let letters = limits.dead_letters(24);
    assert!(letters.record_bytes >= 65_536 + config::NOTES_BYTES_MAX && letters.limit_bytes == 256 << 20);
    assert_eq!(letters.check(), Ok(()));
}

#[test]
fn the_policy_follows_the_disk_unless_it_is_set() {
    let policy = |text: &str| taken(text).limits().expect("it holds").divert_policy;
    assert_eq!(policy(""), DivertPolicy::Refuse);
    assert_eq!(policy("state.dir = \"s\""), DivertPolicy::Spill);
    assert_eq!(policy("state.dir = \"s\"\ndivert.policy = \"refuse\""), DivertPolicy::Refuse);
    assert_eq!(policy("divert.policy = \"dead-letter\""), DivertPolicy::DeadLetter);
    assert_eq!(taken("route.on_shed = \"dead-letter\"").route.on_shed, RouteOnShed::DeadLetter);
    let partition = |text: &str| taken(text).limits().expect("it holds").spill_partition_bytes;
    assert_eq!(partition("spill.limit = \"8GiB\""), 2 << 30);
    assert_eq!(partition("spill.limit = \"8GiB\"\nspill.partition_limit = \"8GiB\""), 8 << 30);
}

#[test]
fn dead_letters_reach_their_cluster_with_their_own_properties() {
    let settings = |text: &str| taken(text).dead_letter_settings_from(&environment).expect("it holds");
    let main = "kafka.bootstrap = \"a:1, b:2\"\nkafka.properties.\"sasl.password\" = \"${KAFKA_PASSWORD}\"\n";
    let value = |settings: &config::DeadLetterSettings, name: &str| {
        let found = settings.properties.iter().find(|property| property.name == name);
        found.map(|property| property.value.expose().to_owned())
    };
    // Beside the topic: as the triggers are.
    let beside = settings(main).expect("there is a topic");
    assert_eq!((beside.topic.as_str(), beside.bootstrap.as_str()), ("geofence-triggers.dlq", "a:1, b:2"));
    assert!(beside.same_cluster);
    assert_eq!(beside.grace, Nanos::from_millis(5_000));
    assert_eq!(value(&beside, "sasl.password").as_deref(), Some("hunter2-env"));
    assert_eq!(value(&beside, "linger.ms").as_deref(), Some("5"));
    // On another cluster: no secret of the main one goes there.
    let away = settings(&format!("{main}[dead_letter]\nbootstrap = \"c:3\"\ntopic = \"d\"")).expect("there is a topic");
    assert_eq!((away.topic.as_str(), away.bootstrap.as_str(), away.same_cluster), ("d", "c:3", false));
    assert_eq!(value(&away, "sasl.password"), None);
    // Its own properties take the place of all.
    let own = settings(&format!("{main}dead_letter.properties.linger.ms = 50")).expect("there is a topic");
    assert_eq!(value(&own, "linger.ms").as_deref(), Some("50"));
    assert_eq!(value(&own, "sasl.password"), None);
    assert!(own.same_cluster);
    assert_eq!(settings("dead_letter.topic = \"off\""), None);
    let error = Config::default().dead_letter_settings_from(&environment).expect_err("no broker").to_string();
    assert!(error.starts_with("kafka.bootstrap is not set; write it like"), "{error}");
    let text = format!("{main}dead_letter.properties.\"sasl.password\" = \"${{MISSING}}\"");
    let error = taken(&text).dead_letter_settings_from(&environment).expect_err("no variable").to_string();
    assert!(error.starts_with("dead_letter.properties: `sasl.password` takes its value from"), "{error}");
    let message = refused("[dead_letter.properties]\nlingr.ms = 5");
    assert!(message.starts_with("line 2: dead_letter.properties: `lingr.ms` is not known; did you mean"), "{message}");
}

#[test]
fn partitions_learnt_from_the_topic_obey_the_same_rule() {
    let config = taken("engine.shards = 4");
    assert!(config.check_partitions(4).is_ok());
    let error = config.check_partitions(3).expect_err("a shard would own nothing");
    assert!(error.to_string().contains("set engine.shards to at most 3"), "{error}");
    assert_eq!(config.partitions_to_create(), 24);
    // The notes on every partition must fit the files on disk.
    let small = taken("state.dir = \"s\"\nspill.segment = \"8MiB\"\ndead_letter.limit = \"64MiB\"");
    assert!(small.limits().is_ok() && small.check_partitions(24).is_ok());
    let error = small.check_partitions(100_000).expect_err("too many partitions").to_string();
    assert!(error.contains("set spill.segment to at least") && error.contains("set dead_letter.limit"), "{error}");
    assert_eq!(taken("topic.partitions = 7").partitions_to_create(), 7);
}

#[test]
fn old_events_are_taken_from_files_only() {
    let past = |text: &str| taken(text).limits().expect("it holds").past_limit_ms;
    let week = Some(7 * 86_400_000);
    assert_eq!(past(""), week);
    assert_eq!(past("route.source = \"stdin\""), None);
    assert_eq!(past("route.source = \"file\"\nroute.path = \"x\""), None);
    assert_eq!(past("route.source = \"tcp\""), week);
    assert_eq!(past("route.source = \"unix\"\nroute.path = \"x\""), week);
    assert_eq!(past("route.source = \"stdin\"\ntime.past_limit = \"1h\""), Some(3_600_000));
    assert_eq!(past("time.past_limit = \"off\""), None);
    assert!(refused("time.past_limit = \"never\"").contains("allowed \"off\" or a whole number and a unit"));
}

#[test]
fn client_properties_are_a_closed_list() {
    for (property, steer) in [
        ("acks = \"all\"", "topic.min_insync_replicas"),
        ("enable.idempotence = true", "inflight.partition"),
        ("retries = 3", "breaker.grace"),
        ("message.timeout.ms = 1", "publish.timeout"),
        ("socket.timeout.ms = 1", "publish.timeout"),
        ("queue.buffering.max.messages = 1", "inflight.total"),
        ("queue.buffering.max.ms = 1", "set linger.ms"),
        ("delivery.report.only.error = true", "delivery report"),
        ("transactional.id = \"x\"", "without transactions"),
        ("plugin.library.paths = \"x\"", "no code"),
        ("bootstrap.servers = \"x\"", "kafka.bootstrap"),
        ("metadata.max.age.ms = 1", "breaker.grace"),
        ("connections.max.idle.ms = 1", "breaker.grace"),
        ("partitioner = \"murmur2\"", "topic.partitions"),
        ("sasl.jaas.config = \"x\"", "sasl.username"),
    ] {
        let (name, _) = property.split_once(" = ").expect("name = value");
        let message = refused(&format!("[kafka.properties]\n{property}"));
        assert!(
            message.starts_with(&format!("line 2: kafka.properties: `{name}` is not for the config: ")),
            "{message}"
        );
        assert!(message.contains(steer), "{message}");
    }
    let message = refused("kafka.properties.\"lingr.ms\" = 5");
    assert!(message.contains("`lingr.ms` is not known; did you mean `linger.ms`?"), "{message}");
    // With and without quotes around the name, as text or as a number.
    for text in ["linger.ms = 5", "\"linger.ms\" = 5", "linger.ms = \"5\"", "linger.ms = 0.5"] {
        let config = taken(&format!("[kafka.properties]\n{text}"));
        assert!(config.kafka.properties.is_set("linger.ms"), "{text}");
    }
    for bad in ["-1", "900001", "\"\"", "\"5ms\"", "nan", "true", "\"1e3\""] {
        let message = refused(&format!("[kafka.properties]\nlinger.ms = {bad}"));
        assert!(message.contains("`linger.ms`") && message.contains("allowed 0..=900000"), "{message}");
    }
    assert!(refused("[kafka.properties]\nlinger.ms = [5]").contains("is a list, allowed text, a number"));
    assert!(refused("[kafka.properties]\ncompression.type = \"lz5\"").contains("none, gzip, snappy, lz4, zstd"));
    taken("[kafka.properties]\ndebug = \"broker, topic\"");
    taken("[kafka.properties]\nsecurity.protocol = \"SASL_SSL\"");
    assert!(
        refused("[kafka.properties]\ndebug = \"broker, brokre\"").contains("one of its parts is none of the words")
    );
    let both = refused("[kafka.properties]\ncompression.type = \"lz4\"\ncompression.codec = \"lz4\"");
    assert!(both.contains("keep `compression.type`"), "{both}");
}

#[test]
fn a_client_id_has_at_most_249_bytes() {
    for (bytes, holds) in [(0, false), (1, true), (249, true), (250, false)] {
        let text = format!("kafka.properties.\"client.id\" = \"{}\"", "c".repeat(bytes));
        assert_eq!(Config::from_toml_str(&text).is_ok(), holds, "{bytes}");
    }
    let message = refused(&format!("kafka.properties.\"client.id\" = \"{}\"", "c".repeat(250)));
    assert!(
        message.contains("`client.id`") && message.contains("250 bytes") && message.contains("1 to 249"),
        "{message}"
    );
    assert!(refused("kafka.properties.\"client.id\" = \"a\\u0000b\"").contains("NUL"));
}

fn environment(name: &str) -> Option<OsString> {
    match name {
        "KAFKA_PASSWORD" => Some("hunter2-env".into()),
        _ => None,
    }
}

#[test]
fn secrets_reach_the_client_and_nothing_else() {
    let folder = std::env::temp_dir().join(format!("fencepost-config-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the test");
    let file = folder.join("key-password");
    std::fs::write(&file, "hunter2-file\n").expect("a secret for the test");
    let text = format!(
        "[kafka]\nbootstrap = \"broker:9092\"\n[kafka.properties]\nsasl.username = \"u\"\n\
         sasl.password = \"${{KAFKA_PASSWORD}}\"\nssl.key.password = \"file:{}\"\nssl.keystore.password = \"hunter2-plain\"\n\
         sasl.oauthbearer.config = \"secret=hunter2-config\"\nclient.id = \"router-${{KAFKA_PASSWORD}}\"\n",
        file.display()
    );
    let config = taken(&text);
    let settings = config.kafka_settings_from(&environment).expect("both secrets are there");
    let value = |name: &str| {
        settings.properties.iter().find(|property| property.name == name).map(|property| property.value.expose())
    };
    assert_eq!(value("sasl.password"), Some("hunter2-env"));
    assert_eq!(value("ssl.key.password"), Some("hunter2-file"));
    assert_eq!(value("ssl.keystore.password"), Some("hunter2-plain"));
    assert_eq!(value("client.id"), Some("router-hunter2-env"));
    assert_eq!(value("sasl.username"), Some("u"));
    for printed in [
        format!("{config:?}"),
        format!("{settings:?}"),
        format!("{settings:#?}"),
        serde_json::to_string(&config).expect("a config can be shown"),
        toml::to_string(&config).expect("a config can be shown"),
    ] {
        assert!(!printed.contains("hunter2"), "{printed}");
        assert!(printed.contains("***") && printed.contains("sasl.password"), "{printed}");
    }
    // A file that goes away is named, with its key.
    std::fs::remove_dir_all(&folder).expect("the folder was made here");
    let error = config.kafka_settings_from(&environment).expect_err("the file is gone").to_string();
    assert!(error.contains("`ssl.key.password`") && error.contains("key-password"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}

#[test]
fn no_error_repeats_a_value_of_the_client() {
    for text in [
        "[kafka.properties]\nsasl.password = \"hunter2",
        "[kafka.properties]\nsasl.password = hunter2",
        "[kafka.properties]\nsasl.password = [\"hunter2\"]",
        "[kafka.properties]\nsasl.password = \"hunter2\\u0000\"",
        "[kafka.properties]\nsasl.passwort = \"hunter2\"",
        "[kafka.properties]\nacks = \"hunter2\"",
        "[dead_letter.properties]\nacks = \"hunter2\"",
        "[dead_letter.properties]\nsecurity.protocol = \"hunter2\"",
        "[kafka.properties]\nsecurity.protocol = \"hunter2\"",
        "[kafka.properties]\nsasl.password = \"a\"\nsasl.password = \"hunter2\"",
        "[kafka]\nproperties = \"sasl.password=hunter2\"",
        "[kafka]\nsasl.password = \"hunter2\"",
        "sasl.password = \"hunter2\"",
    ] {
        let error = Config::from_toml_str(text).expect_err(text);
        assert!(!error.to_string().contains("hunter2") && !format!("{error:?}").contains("hunter2"), "{error:?}");
    }
    let mut config = taken("kafka.bootstrap = \"b:1\"");
    config.kafka.properties.set("sasl.password", "${hunter2");
    let error = config.kafka_settings_from(&environment).expect_err("no brace").to_string();
    assert!(!error.contains("hunter2"), "{error}");
}

#[test]
fn the_sink_gets_the_defaults_unless_told_otherwise() {
    let property = |text: &str, name: &str| {
        let config = taken(&format!("kafka.bootstrap = \"a:1, b:2\"\n{text}"));
        let settings = config.kafka_settings_from(&environment).expect("it holds");
        settings.properties.iter().find(|property| property.name == name).map(|found| found.value.expose().to_owned())
    };
    assert_eq!(property("", "linger.ms").as_deref(), Some("5"));
    assert_eq!(property("", "batch.size").as_deref(), Some("16384"));
    assert_eq!(property("", "compression.type").as_deref(), Some("lz4"));
    assert_eq!(property("kafka.properties.linger.ms = 0.5", "linger.ms").as_deref(), Some("0.5"));
    // Under its other name the default must not come on top.
    let other = "kafka.properties.compression.codec = \"zstd\"";
    assert_eq!(property(other, "compression.codec").as_deref(), Some("zstd"));
    assert_eq!(property(other, "compression.type"), None);

    let settings = taken("kafka.bootstrap = \"a:1\"").kafka_settings_from(&environment).expect("it holds");
    assert_eq!(settings.linger, Nanos::from_millis(5));
    assert_eq!(settings.record_time, RecordTime::Accepted);
    let error = Config::default().kafka_settings_from(&environment).expect_err("no broker").to_string();
    assert!(error.starts_with("kafka.bootstrap is not set; write it like"), "{error}");
    // The default linger is measured against the time-out as well.
    let hasty = taken("kafka.bootstrap = \"a:1\"\npublish.timeout = \"5ms\"");
    let error = hasty.kafka_settings_from(&environment).expect_err("every ack would be late").to_string();
    assert!(error.contains("linger.ms = 5 and publish.timeout = \"5ms\""), "{error}");
}

#[test]
fn a_file_is_named_in_its_errors() {
    let missing = Config::from_file("no/such/fencepost.toml").expect_err("it is not there");
    assert!(missing.to_string().starts_with("no/such/fencepost.toml: cannot be read: "), "{missing}");
    let path = std::env::temp_dir().join(format!("fencepost-config-{}.toml", std::process::id()));
    std::fs::write(&path, "\n[engine]\nshards = 0\n").expect("a file for the test");
    let error: ConfigError = Config::from_file(&path).expect_err("no shard");
    std::fs::remove_file(&path).expect("the file was made here");
    assert!(error.to_string().starts_with(&format!("{}:3: engine.shards = 0, ", path.display())), "{error}");
    assert_eq!(error.file(), Some(path.as_path()));
}

#[test]
fn each_tuning_profile_loads_and_keeps_its_promise() {
    let load = |name: &str| {
        let path = in_repo("tuning").join(name);
        let mut config = Config::from_file(&path).unwrap_or_else(|error| panic!("{error}"));
        let limits = config.limits().unwrap_or_else(|error| panic!("{name}: {error}"));
        // With a disk, too: what can wait fits the spill.
        config.state.dir = Some(PathBuf::from("s"));
        config.limits().unwrap_or_else(|error| panic!("{name} with a state directory: {error}"));
        config.state.dir = None;
        config.kafka.bootstrap.get_or_insert_with(|| "localhost:9092".to_owned());
        let settings = config.kafka_settings_from(&|_| None).unwrap_or_else(|error| panic!("{name}: {error}"));
        (config, limits, settings)
    };
    let (_, default, standard) = {
        let mut config = Config::default();
        config.kafka.bootstrap = Some("localhost:9092".to_owned());
        let settings = config.kafka_settings_from(&|_| None).expect("the default holds");
        (config.clone(), config.limits().expect("the default holds"), settings)
    };
    let (_, latency, quick) = load("latency.toml");
    assert!(quick.linger < standard.linger && latency.idle == Idle::Spin);
    let (_, throughput, large) = load("throughput.toml");
    assert!(large.linger > standard.linger && throughput.inflight_per_shard > default.inflight_per_shard);
    let (dev, small, _) = load("dev.toml");
    assert!(dev.topic.create && small.memory().total() < 8 << 20, "{}", small.memory());
    let profiles = std::fs::read_dir(in_repo("tuning"))
        .expect("the folder is there")
        .filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().extension().is_some_and(|end| end == "toml")))
        .count();
    assert_eq!(profiles, 3, "a new profile is loaded here as well");
}

/// The rows under a heading of the reference: the first two cells of each.
fn section(heading: &str) -> impl Iterator<Item = (String, String)> {
    let text = reference();
    let (_, below) = text.split_once(&format!("{heading}\n")).unwrap_or_else(|| panic!("no {heading}"));
    let rows: Vec<(String, String)> = below
        .lines()
        .skip_while(|line| !line.starts_with("|---"))
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let mut cells = line.trim_start_matches("| ").split(" | ");
            (cells.next().expect("a cell").to_owned(), cells.next().expect("a cell").trim_end_matches(" |").to_owned())
        })
        .collect();
    rows.into_iter()
}

#[test]
fn the_table_of_keys_and_the_structs_agree() {
    // The structs, as serde writes them: unset keys are there as null.
    let shown = serde_json::to_value(Config::default()).expect("a config can be shown");
    let mut in_structs = Vec::new();
    for (table, keys) in shown.as_object().expect("tables") {
        for key in keys.as_object().expect("keys").keys() {
            in_structs.push(format!("{table}.{key}"));
        }
    }
    // The table, as the reference prints it.
    let mut in_table = Vec::new();
    for table in shown.as_object().expect("tables").keys() {
        in_table.extend(section(&format!("## `[{table}]`")).map(|(key, _)| key.trim_matches('`').to_owned()));
    }
    in_structs.sort();
    in_table.sort();
    assert_eq!(in_structs, in_table);
    assert_eq!(reference().matches("\n## `[").count(), shown.as_object().expect("tables").len() + 1);

    // Every key can be written, and what was written arrives.
    let written = r#"
        [router]
        id = "edge-7"
        [topic]
        name = "t"
        partitions = 12
        create = true
        replication = 3
        min_insync_replicas = 2
        [kafka]
        bootstrap = "a:1"
        record_time = "event"
        [kafka.properties]
        linger.ms = 1
        [engine]
        shards = 2
        pin = [4, 5]
        idle = "yield"
        turn_batch = 7
        [queue]
        capacity = 1000
        ingresses = 2
        pause_ratio = 0.1
        low_shed_ratio = 0.2
        shed_ratio = 0.3
        bytes_per_trigger = 100
        [settle]
        window = 2048
        [dedup]
        ttl = "1s"
        capacity = 5000
        bytes_per_key = 64
        warm_start = false
        [inflight]
        partition = 10
        total = 100
        waiting = 20
        bytes_per_frame = 300
        [publish]
        timeout = "30ms"
        [breaker]
        grace = "2s"
        failures = 7
        reset = "3s"
        [divert]
        policy = "refuse"
        [spill]
        limit = "1GiB"
        partition_limit = 1000000000
        sync = "10ms"
        segment = 33554433
        [dead_letter]
        topic = "d"
        bootstrap = "b:1"
        grace = "1s"
        limit = "512MiB"
        [dead_letter.properties]
        linger.ms = 2
        [validate]
        fences = "f"
        [time]
        future_limit = "1m"
        past_limit = "off"
        [state]
        dir = "s"
        [start]
        require_broker = false
        timeout = "1s"
        [shutdown]
        limit = "2s"
        [route]
        source = "tcp"
        format = "frames"
        path = "p"
        listen = "127.0.0.1:1"
        allow_remote = true
        line_bytes_max = 2048
        connections_max = 2
        line_timeout = "3s"
        resume = false
        on_shed = "dead-letter"
    "#;
    let config = taken(written);
    let arrived = serde_json::to_value(&config).expect("a config can be shown");
    let unchanged = ["route.resume"];
    let mut same = String::new();
    for name in &in_table {
        let (table, key) = name.split_once('.').expect("a dotted name");
        if arrived[table][key] == shown[table][key] && !unchanged.contains(&name.as_str()) {
            writeln!(same, "{name}").expect("writing to a String does not fail");
        }
    }
    assert_eq!(same, "", "these keys have still their default");
    assert_eq!(config.engine.pin, Pin::Cpus(vec![4, 5]));
    assert_eq!(config.time.past_limit, Some(AgeLimit::Off));
    assert_eq!(config.route.source, Some(RouteSource::Tcp));
    // What is shown can be read again, where nothing is hidden.
    assert_eq!(taken(&toml::to_string(&config).expect("a config can be shown")), config);
}

#[test]
fn the_reference_is_up_to_date() {
    let path = in_repo("docs/config.md");
    if std::env::var_os("FENCEPOST_BLESS").is_some_and(|bless| bless == "1") {
        std::fs::write(&path, reference()).expect("docs/config.md can be written");
    }
    let on_disk = std::fs::read_to_string(&path).expect("docs/config.md is there");
    assert!(
        on_disk == reference(),
        "docs/config.md is out of date; write it anew with FENCEPOST_BLESS=1 cargo test --test config"
    );
}

/// One of: the least, the default, the greatest, or anything between.
fn within(range: std::ops::RangeInclusive<u64>, default: usize) -> impl Strategy<Value = usize> {
    let (least, most) = (*range.start() as usize, *range.end() as usize);
    prop_oneof![1 => Just(least), 6 => Just(default), 1 => Just(most), 1 => least..=most]
}

proptest! {
    /// Whatever is inside the bounds is either refused, or gives limits that the parts can be made from.
    #[test]
    fn limits_hold_what_they_promise(
        shards in within(config::SHARDS, 1),
        capacity in within(config::QUEUE_CAPACITY, 100_000),
        bytes_per_trigger in within(config::QUEUE_BYTES_PER_TRIGGER, 128),
        window_bits in 10_u32..=26,
        dedup_capacity in within(config::DEDUP_CAPACITY, 1_000_000),
        bytes_per_key in within(config::DEDUP_BYTES_PER_KEY, 96),
        partition in within(config::INFLIGHT_PARTITION, 16_384),
        total in within(config::INFLIGHT_TOTAL, 131_072),
        waiting in within(config::INFLIGHT_WAITING, 65_536),
        bytes_per_frame in within(config::INFLIGHT_BYTES_PER_FRAME, 256),
    ) {
        let mut config = Config::default();
        config.engine.shards = shards as u16;
        config.queue.capacity = capacity;
        config.queue.bytes_per_trigger = bytes_per_trigger;
        config.settle.window = 1 << window_bits;
        config.dedup.capacity = dedup_capacity;
        config.dedup.bytes_per_key = bytes_per_key;
        config.inflight.partition = partition;
        config.inflight.total = total;
        config.inflight.waiting = waiting;
        config.inflight.bytes_per_frame = bytes_per_frame;
        if let Ok(limits) = config.limits() {
            let per_shard = |whole: usize| whole / shards;
            prop_assert!(limits.ring_triggers * shards >= capacity);
            prop_assert!((limits.ring_lines * config::LINE_BYTES) as u64 >= config::RING_BYTES_MIN);
            prop_assert!(limits.settle_window >= capacity);
            prop_assert!(limits.inflight_per_shard * shards <= total && limits.waiting_per_shard * shards <= waiting);
            prop_assert!(limits.waiting_per_shard >= 1 && limits.inflight_partition >= 1);
            prop_assert!(limits.inflight_partition <= limits.inflight_per_shard);
            prop_assert_eq!(limits.slots_per_shard, per_shard(total) + per_shard(waiting));
            prop_assert!(limits.dedup_capacity_per_shard >= limits.slots_per_shard);
            for bytes in [limits.dedup_arena_bytes_per_shard, limits.frame_arena_bytes_per_shard] {
                prop_assert!(bytes as u64 <= config::ARENA_BYTES_MAX);
            }
            prop_assert!(limits.memory().total() > 0);
        }
    }

    /// A file of anything is read or refused, in messages of one line a problem.
    #[test]
    fn any_text_is_read_or_refused(
        text in prop_oneof![
            ".*",
            "(\\[(queue|kafka|kafka\\.properties|é)\\]\n)?([a-zé_.\"-]{1,12} = (\"[^\"\n]*\"|[0-9a-z._-]{1,20}|\\[[0-9, ]*\\]|\\{\\})\n){0,4}"
        ]
    ) {
        if let Err(error) = Config::from_toml_str(&text) {
            prop_assert!(error.problems().count() > 0);
            prop_assert!(!error.to_string().is_empty());
        }
    }
}

/// L1: a dead letter that went to the topic itself would come back as a trigger, for ever.
#[test]
fn l1_a_dead_letter_topic_that_is_the_topic_itself_is_refused() {
    let message = conflicts("topic.name = \"t\"\ndead_letter.topic = \"t\"");
    assert!(message.contains("dead_letter.topic") && message.contains("topic.name"), "{message}");
    let elsewhere =
        "topic.name = \"t\"\ndead_letter.topic = \"t\"\nkafka.bootstrap = \"a:1\"\ndead_letter.bootstrap = \"b:1\"";
    taken(elsewhere).limits().expect("the same name on another cluster is another topic");
}
