//! `fencepost check`: would a router start with this configuration, and would it be safe there? Each answer is a line:
//! ok, a warning, or a failure with its fix. Nothing is written to the topic.

use super::{CliError, Exit, table};
use crate::config::{Config, FRAME_BYTES_MAX, KafkaSettings, Limits, Pin, RecordTime, RouteSource};
use crate::engine::{Blueprint, check_memory};
use crate::sink::kafka::features::{self, Lacking};
use crate::sink::kafka::rights::{self, Writing};
use crate::sink::kafka::tail::{self, TailError};
use crate::sink::kafka::topic::{TopicDesk, TopicError, TopicFacts};
use crate::sink::kafka::{self, VERSION_MIN};
use crate::state::{Remembered, StateDir, StateError};
use crate::topology::{self, affinity};
use crate::units::{Nanos, PartitionId};
use clap::Args;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the broker is waited for.
const BROKER_LIMIT: Duration = Duration::from_secs(10);
/// How long it is asked what is granted, once the broker has answered: what goes on without that answer says so.
const RIGHTS_LIMIT: Duration = Duration::from_secs(3);
/// What Kafka puts around a record of ours at the most, besides its key.
const RECORD_OVERHEAD: usize = 512;

/// Says what is wrong with the configuration, the client library, the broker, the topic and the host, and how to mend it.
///
/// Exit codes: 0 nothing is wrong (there may be warnings); 1 something about the topic or the host is; 2 the configuration
/// is; 3 the broker cannot be reached.
#[derive(Args)]
pub struct Check {
    /// The configuration file.
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Print one JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grade {
    Ok,
    Warn,
    /// With the exit code it stands for.
    Fail(Exit),
}

struct Finding {
    what: &'static str,
    grade: Grade,
    text: String,
}

/// Collects findings; each names its fix where there is one.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn ok(&mut self, what: &'static str, text: impl Into<String>) {
        self.0.push(Finding { what, grade: Grade::Ok, text: text.into() });
    }

    fn warn(&mut self, what: &'static str, text: impl Into<String>) {
        self.0.push(Finding { what, grade: Grade::Warn, text: text.into() });
    }

    fn fail(&mut self, what: &'static str, exit: Exit, text: impl Into<String>) {
        self.0.push(Finding { what, grade: Grade::Fail(exit), text: text.into() });
    }

    /// The configuration's faults first, since the others may follow from them; then what is not available.
    fn exit(&self) -> Exit {
        let has = |exit| self.0.iter().any(|finding| finding.grade == Grade::Fail(exit));
        [Exit::Usage, Exit::Unavailable, Exit::Wrong].into_iter().find(|exit| has(*exit)).unwrap_or(Exit::Done)
    }
}

impl Check {
    pub(super) fn run(self) -> Result<Exit, CliError> {
        let config = Config::from_file(&self.config)?;
        let limits = config.limits()?;
        let settings = config.kafka_settings()?;
        let partitions = config.partitions_to_create();
        let router_id = config.router.id.clone().unwrap_or_default();
        let blueprint = Blueprint {
            limits,
            partitions,
            router_id,
            incarnation: 0,
            record_time_is_event: false,
            policy: crate::shard::Policy::Refuse,
            has_disk: config.state.dir.is_some(),
            has_letters: config.state.dir.is_some() || config.dead_letter_topic().is_some(),
            hash_seed: None,
        };
        let memory = blueprint.memory();
        let mut found = Findings::default();
        found.ok("configuration", format!("{} is valid", self.config.display()));
        match check_memory(&memory) {
            Ok(()) => found.ok("memory", format!("{} bytes will be taken at start", memory.total())),
            Err(error) => found.fail("memory", Exit::Usage, error.to_string()),
        }
        let can_connect = check_library(&settings, &mut found);
        check_host(&config, &mut found);
        check_source(&config, &mut found);
        let remembered = check_state(&config, &mut found);
        check_room(&config, &blueprint.limits, &mut found);
        if can_connect {
            check_topic(&config, &settings, remembered.as_ref(), &mut found);
            check_letters(&config, &mut found)?;
        }
        let exit = found.exit();
        if self.json {
            say!("{}", as_json(&found, &memory, exit));
        } else {
            for Finding { what, grade, text } in &found.0 {
                let word = match grade {
                    Grade::Ok => "ok",
                    Grade::Warn => "warn",
                    Grade::Fail(_) => "FAIL",
                };
                say!("{word:<4}  {what:<13}  {text}");
            }
            super::say::out(format_args!("\n{memory}"));
        }
        Ok(exit)
    }
}

fn as_json(found: &Findings, memory: &crate::config::MemorySum, exit: Exit) -> Value {
    let findings: Vec<Value> = found
        .0
        .iter()
        .map(|finding| {
            let grade = match finding.grade {
                Grade::Ok => "ok",
                Grade::Warn => "warn",
                Grade::Fail(_) => "fail",
            };
            json!({"what": finding.what, "grade": grade, "text": finding.text})
        })
        .collect();
    let lines: Vec<Value> = memory
        .lines()
        .iter()
        .map(|line| json!({"what": line.what, "owner": line.owner, "bytes": line.bytes}))
        .collect();
    json!({
        "ok": exit == Exit::Done,
        "exit": exit as u8,
        "findings": findings,
        "memory": {"lines": lines, "bytes": memory.total()},
    })
}

/// Whether the client library can do what is asked of it. False: there is no point in connecting.
fn check_library(settings: &KafkaSettings, found: &mut Findings) -> bool {
    const WHAT: &str = "librdkafka";
    let version = features::version();
    if kafka::handle::version() < VERSION_MIN {
        found.fail(
            WHAT,
            Exit::Unavailable,
            format!("{version} is linked, 2.10 or newer is needed; build with a newer one"),
        );
        return false;
    }
    let built_in = match features::built_in() {
        Ok(built_in) => built_in,
        Err(why) => {
            found.warn(WHAT, format!("{version}; it does not say what it was built with ({why})"));
            return true;
        }
    };
    found.ok(WHAT, format!("{version}, built with {}", built_in.join(", ")));
    let properties = kafka::properties(settings, 1);
    let lacking = features::lacking(&properties, &built_in);
    for Lacking { feature, asked_by } in &lacking {
        let fix = match feature.as_str() {
            "ssl" | "sasl" | "sasl_scram" | "sasl_plain" | "sasl_oauthbearer" => "build fencepost with --features tls",
            "zstd" => "take lz4, or link a librdkafka that has it",
            _ => "take another, or link a librdkafka that has it",
        };
        let text = format!("kafka.properties: {asked_by} needs `{feature}`, which this build does not have; {fix}");
        found.fail("features", Exit::Usage, text);
    }
    let has_files = check_files(&properties, found);
    lacking.is_empty() && has_files
}

/// Files that the client library will want to read. Their paths are no secrets; their content is never shown.
fn check_files(properties: &[(String, String)], found: &mut Findings) -> bool {
    const FILES: [&str; 6] = [
        "ssl.ca.location",
        "https.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.keystore.location",
        "ssl.crl.location",
    ];
    let mut all_there = true;
    for (name, path) in properties.iter().filter(|(name, _)| FILES.contains(&name.as_str())) {
        // The library's own word for "look in the usual places".
        if name == "ssl.ca.location" && path == "probe" {
            continue;
        }
        let is_readable = std::fs::metadata(path).and_then(|about| {
            if about.is_dir() { std::fs::read_dir(path).map(drop) } else { std::fs::File::open(path).map(drop) }
        });
        match is_readable {
            Ok(()) => found.ok("files", format!("{name}: {path} can be read")),
            Err(error) => {
                all_there = false;
                let text = format!(
                    "kafka.properties: {name} = {path}: {error}; give the path of a file that this user may read"
                );
                found.fail("files", Exit::Usage, text);
            }
        }
    }
    all_there
}

fn check_host(config: &Config, found: &mut Findings) {
    const WHAT: &str = "processors";
    let pin: Vec<usize> = match &config.engine.pin {
        Pin::None => Vec::new(),
        Pin::Cpus(cpus) => cpus.iter().map(|cpu| *cpu as usize).collect(),
    };
    let allowed = match affinity::allowed() {
        Ok(allowed) => allowed,
        Err(error) => {
            return found.fail(WHAT, Exit::Wrong, format!("the system does not say which there are: {error}"));
        }
    };
    let shards = usize::from(config.engine.shards);
    match topology::place(shards, &pin, &allowed) {
        Err(error) => found.fail(WHAT, Exit::Usage, error.to_string()),
        Ok(placement) => {
            let others = &placement.others;
            match placement.warning {
                Some(warning) => found.warn(WHAT, warning),
                None if pin.is_empty() => found.ok(WHAT, format!("shards run where the scheduler likes, on {allowed}")),
                None => found.ok(WHAT, format!("shards on {pin:?}, everything else on {others}")),
            }
        }
    }
    if shards > allowed.ids().len() {
        let text = format!("engine.shards = {shards} on {} processors: they take turns; lower it", allowed.ids().len());
        found.warn(WHAT, text);
    }
}

fn check_source(config: &Config, found: &mut Findings) {
    const WHAT: &str = "source";
    let path = config.route.path.as_deref().unwrap_or(Path::new(""));
    match config.route.source {
        Some(RouteSource::File) => match std::fs::File::open(path) {
            Ok(_) => found.ok(WHAT, format!("{} can be read", path.display())),
            Err(error) => {
                let text = format!("route.path = {}: {error}; give a file that this user may read", path.display());
                found.fail(WHAT, Exit::Unavailable, text);
            }
        },
        Some(RouteSource::Unix) => {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            if parent.is_dir() {
                found.ok(WHAT, format!("unix socket {}", path.display()));
            } else {
                let text = format!("route.path: {} is no directory; make it, or give another path", parent.display());
                found.fail(WHAT, Exit::Unavailable, text);
            }
        }
        Some(RouteSource::Tcp) if !config.route.listen.ip().is_loopback() => found.warn(
            WHAT,
            format!(
                "tcp {}: other hosts can publish, without login or encryption; guard the port",
                config.route.listen
            ),
        ),
        Some(RouteSource::Tcp) => found.ok(WHAT, format!("tcp {}", config.route.listen)),
        Some(RouteSource::Stdin) | None => {}
    }
}

/// What the last run left. A directory that is not there yet is not made.
fn check_state(config: &Config, found: &mut Findings) -> Option<Remembered> {
    const WHAT: &str = "state";
    let Some(dir) = config.state.dir.as_deref() else {
        found.warn(WHAT, "no state.dir: the partition count is not pinned, and nothing outlives the process; set one");
        return None;
    };
    if !dir.exists() {
        found.ok(WHAT, format!("{} will be made", dir.display()));
        return None;
    }
    match StateDir::open(dir).and_then(|state| state.read(&config.topic.name)) {
        Ok(Some(remembered)) => {
            let Remembered { router_id, incarnation, partitions, .. } = &remembered;
            found.ok(
                WHAT,
                format!("router {router_id}, run {incarnation} was the last, {partitions} partitions pinned"),
            );
            Some(remembered)
        }
        Ok(None) => {
            found.ok(WHAT, format!("{} is empty", dir.display()));
            None
        }
        Err(error @ StateError::InUse { .. }) => {
            found.warn(WHAT, format!("{error}; what it pins is not checked"));
            None
        }
        Err(error @ (StateError::Damaged { .. } | StateError::OtherTopic { .. })) => {
            found.fail(WHAT, Exit::Usage, error.to_string());
            None
        }
        Err(error) => {
            found.fail(WHAT, Exit::Wrong, error.to_string());
            None
        }
    }
}

/// Whether the volume has the room that the spill sets aside at start, and what it may grow to.
fn check_room(config: &Config, limits: &Limits, found: &mut Findings) {
    const WHAT: &str = "disk";
    let Some(dir) = config.state.dir.as_deref() else { return };
    // A directory that will be made lies where its nearest ancestor does.
    let there = dir.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."));
    let free = match rustix::fs::statvfs(there) {
        Ok(volume) => volume.f_bavail.saturating_mul(volume.f_frsize),
        Err(error) => {
            let text = format!("state.dir = {}: how much space there is cannot be told: {error}", dir.display());
            return found.warn(WHAT, text);
        }
    };
    let (reserve, limit) = (limits.spill_reserve_bytes, limits.spill_limit_bytes);
    let (room, place) = (table::bytes(free), there.display());
    if free < reserve {
        let text = format!(
            "state.dir: {room} are free on the volume of {place}, and {} are kept for what is accepted and not delivered: \
             nothing would be spilled; free space, or lower queue.capacity, queue.ingresses or inflight.total",
            table::bytes(reserve)
        );
        found.fail(WHAT, Exit::Wrong, text);
    } else if free < limit {
        let text = format!(
            "state.dir: {room} are free on the volume of {place}, spill.limit is {}: the volume ends an outage's spill first",
            table::bytes(limit)
        );
        found.warn(WHAT, text);
    } else {
        found.ok(WHAT, format!("{room} are free for spill.limit = {}", table::bytes(limit)));
    }
}

/// Whether dead letters have their topic.
fn check_letters(config: &Config, found: &mut Findings) -> Result<(), CliError> {
    const WHAT: &str = "dead letters";
    let has_disk = config.state.dir.is_some();
    let Some(settings) = config.dead_letter_settings()? else {
        let text =
            if has_disk { "dead_letter.topic is off: they stay on disk" } else { "off: what fails is handed back" };
        found.ok(WHAT, text);
        return Ok(());
    };
    let client = KafkaSettings {
        bootstrap: settings.bootstrap,
        record_time: RecordTime::Accepted,
        properties: settings.properties,
        linger: Nanos(0),
    };
    let properties = kafka::letters::letter_properties(&client);
    let desk = TopicDesk::new(&properties, &settings.topic);
    let meanwhile = if has_disk { "they stay on disk until then" } else { "what cannot be delivered is handed back" };
    let account = Account { principal: rights::principal(&properties), without: meanwhile };
    match desk.facts(BROKER_LIMIT) {
        Ok(facts) => {
            found.ok(WHAT, format!("topic {} has {} partitions", settings.topic, facts.partitions));
            found.0.push(account.writing(WHAT, &settings.topic, &desk.may_write(RIGHTS_LIMIT)));
        }
        Err(TopicError::Missing { .. }) if config.topic.create => {
            found.ok(WHAT, format!("topic {} will be made", settings.topic));
        }
        // A topic that nobody named may just as well not be there.
        Err(TopicError::Refused { .. }) if config.dead_letter.topic.is_some() => {
            found.0.push(account.writing(WHAT, &settings.topic, &desk.may_write(RIGHTS_LIMIT)));
        }
        Err(error) => found.warn(WHAT, format!("{error}; {meanwhile}")),
    }
    Ok(())
}

fn check_topic(config: &Config, settings: &KafkaSettings, remembered: Option<&Remembered>, found: &mut Findings) {
    let name = &config.topic.name;
    let properties = kafka::properties(settings, 1);
    let desk = TopicDesk::new(&properties, name);
    let account = Account { principal: rights::principal(&properties), without: "no trigger is delivered until then" };
    let facts = match desk.facts(BROKER_LIMIT) {
        Ok(facts) => facts,
        Err(error @ TopicError::Unreachable { .. }) => {
            return found.fail("broker", Exit::Unavailable, error.to_string());
        }
        Err(TopicError::Missing { bootstrap, .. }) if config.topic.create => {
            found.ok("broker", format!("{bootstrap} answers"));
            let partitions = config.partitions_to_create();
            return found
                .ok("topic", format!("{name} is not there yet; topic.create makes it, with {partitions} partitions"));
        }
        Err(error @ TopicError::Client(_)) => return found.fail("broker", Exit::Usage, error.to_string()),
        Err(error) => {
            found.ok("broker", format!("{} answers", settings.bootstrap));
            found.fail("topic", Exit::Wrong, error.to_string());
            if matches!(error, TopicError::Refused { .. }) {
                found.0.push(account.writing("writing", name, &desk.may_write(RIGHTS_LIMIT)));
            }
            return;
        }
    };
    found.ok("broker", format!("{} answers, {} brokers", settings.bootstrap, facts.brokers));
    check_partitions(config, remembered, &facts, found);
    check_replicas(name, &facts, found);
    check_record_size(name, &facts, found);
    check_reading(name, settings, &facts, found);
    found.0.push(account.writing("writing", name, &desk.may_write(RIGHTS_LIMIT)));
}

/// Who asks, as far as it is known, and what comes of it where it may not write.
struct Account {
    principal: Option<String>,
    without: &'static str,
}

impl Account {
    /// What it means whether it may write to a topic.
    fn writing(&self, what: &'static str, topic: &str, answer: &Writing) -> Finding {
        let Account { principal, without } = self;
        let (grade, text) = match answer {
            Writing::Granted => (Grade::Ok, format!("topic {topic} may be written")),
            Writing::Denied => {
                let who = principal.as_deref().unwrap_or("the account of this client");
                let named = principal.as_deref().unwrap_or("User:NAME");
                let text = format!(
                    "topic {topic}: {who} may not write to it, since WRITE is not granted: {without}; allow it: kafka-acls \
                     --add --allow-principal {named} --operation Write --topic {topic}"
                );
                (Grade::Fail(Exit::Wrong), text)
            }
            Writing::NotSaid(why) => {
                (Grade::Warn, format!("topic {topic}: it cannot be told whether WRITE is granted: {why}"))
            }
        };
        Finding { what, grade, text }
    }
}

/// A start fills the dedup window from the topic.
fn check_reading(name: &str, settings: &KafkaSettings, facts: &TopicFacts, found: &mut Findings) {
    const WHAT: &str = "reading";
    // Without any leader there is nobody to ask, which is said elsewhere.
    let Some(partition) = (0..facts.partitions).find(|partition| !facts.leaderless.contains(partition)) else { return };
    let properties = kafka::properties(settings, 1);
    let answer = affinity::allowed()
        .map_err(|error| error.to_string())
        .map(|cpus| tail::may_read(&properties, name, PartitionId(partition), &cpus, BROKER_LIMIT));
    match answer {
        Ok(Ok(())) => found.ok(WHAT, format!("topic {name} may be read: the dedup window is filled from it at start")),
        Ok(Err(error @ TailError::Unauthorized { .. })) => found.fail(WHAT, Exit::Wrong, error.to_string()),
        Ok(Err(error)) => found.warn(WHAT, format!("it cannot be told whether READ is granted: {error}")),
        Err(error) => found.warn(WHAT, format!("it cannot be told whether READ is granted: {error}")),
    }
}

fn check_partitions(config: &Config, remembered: Option<&Remembered>, facts: &TopicFacts, found: &mut Findings) {
    const WHAT: &str = "partitions";
    let (name, got) = (&config.topic.name, facts.partitions);
    let kept = remembered.map(|kept| kept.partitions);
    if let (Some(configured), Some(kept)) = (config.topic.partitions, kept)
        && configured != kept
    {
        let text = format!(
            "topic.partitions = {configured}, but the state directory pinned {kept} at the first start: remove the key, or \
             start with another state directory"
        );
        return found.fail(WHAT, Exit::Usage, text);
    }
    match config.topic.partitions.or(kept) {
        Some(pinned) if got < pinned => {
            let text = format!("topic {name} has {got}, {pinned} are pinned: add partitions, or take another topic");
            return found.fail(WHAT, Exit::Wrong, text);
        }
        Some(pinned) if got > pinned => {
            found.warn(WHAT, format!("topic {name} has {got}, {pinned} are pinned: the new ones are not used"));
        }
        Some(pinned) => found.ok(WHAT, format!("topic {name} has {got}, as pinned ({pinned})")),
        None => found.ok(WHAT, format!("topic {name} has {got}; none are pinned yet")),
    }
    if let Err(error) = config.check_partitions(config.topic.partitions.or(kept).unwrap_or(got)) {
        found.fail(WHAT, Exit::Usage, error.to_string());
    }
    if !facts.leaderless.is_empty() {
        let text = format!("partitions {:?} have no leader just now: look at the brokers", facts.leaderless);
        found.fail(WHAT, Exit::Unavailable, text);
    }
}

fn check_replicas(name: &str, facts: &TopicFacts, found: &mut Findings) {
    const WHAT: &str = "replicas";
    let copies = facts.replication;
    match facts.min_insync_replicas {
        Some(least) if least > copies => {
            let text = format!(
                "min.insync.replicas = {least} with {copies} replicas: a broker may acknowledge nothing; lower it"
            );
            found.warn(WHAT, text);
        }
        _ if copies < 2 => {
            found.warn(
                WHAT,
                format!("topic {name} has {copies}: a broker's disk that dies takes triggers along; keep 3"),
            );
        }
        Some(1) => {
            let text = format!(
                "{copies}, but min.insync.replicas = 1: an acknowledged record may be on one disk; set it to 2"
            );
            found.warn(WHAT, text);
        }
        Some(least) if least == copies => {
            let text =
                format!("{copies}, and min.insync.replicas = {least}: a broker away stops the topic; lower it by one");
            found.warn(WHAT, text);
        }
        Some(least) => found.ok(WHAT, format!("{copies}, min.insync.replicas = {least}")),
        None => found.warn(WHAT, format!("{copies}; min.insync.replicas cannot be read: allow DESCRIBE_CONFIGS")),
    }
}

fn check_record_size(name: &str, facts: &TopicFacts, found: &mut Findings) {
    const WHAT: &str = "record size";
    let needed = FRAME_BYTES_MAX as usize + RECORD_OVERHEAD;
    match facts.record_bytes_max {
        Some(limit) if limit < needed => found.warn(
            WHAT,
            format!(
                "max.message.bytes of {name} is {limit}: the longest triggers are refused; set it to {needed} or more"
            ),
        ),
        Some(limit) => found.ok(WHAT, format!("max.message.bytes of {name} is {limit}, {needed} would do")),
        None => {
            let why = facts.unread.as_deref().unwrap_or("not said");
            found.warn(WHAT, format!("max.message.bytes cannot be read ({why}): allow DESCRIBE_CONFIGS on the topic"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit_of(finding: Finding) -> Exit {
        Findings(vec![finding]).exit()
    }

    #[test]
    fn a_right_that_lacks_is_wrong_with_who_where_and_the_fix_and_one_that_is_not_told_is_a_note() {
        let account = |principal: Option<&str>| Account {
            principal: principal.map(str::to_owned),
            without: "they stay on disk until then",
        };
        let denied = account(Some("User:alice")).writing("writing", "t.dlq", &Writing::Denied);
        assert_eq!(
            denied.text,
            "topic t.dlq: User:alice may not write to it, since WRITE is not granted: they stay on disk until then; allow it: \
             kafka-acls --add --allow-principal User:alice --operation Write --topic t.dlq"
        );
        assert_eq!(exit_of(denied), Exit::Wrong);
        let unnamed = account(None).writing("writing", "t", &Writing::Denied);
        assert!(unnamed.text.contains("the account of this client may not write"), "{}", unnamed.text);
        assert!(unnamed.text.contains("--allow-principal User:NAME "), "{}", unnamed.text);
        let not_said = account(None).writing("writing", "t", &Writing::NotSaid("_TIMED_OUT".into()));
        assert_eq!((not_said.grade, exit_of(not_said)), (Grade::Warn, Exit::Done));
        let granted = account(None).writing("writing", "t", &Writing::Granted);
        assert_eq!((granted.grade, exit_of(granted)), (Grade::Ok, Exit::Done));
    }
}
