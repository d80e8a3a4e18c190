//! Start: from a configuration to a router that is warm. Each step is one that can fail with its own words.

use super::assembly::Common;
use super::{Assembly, Blueprint, Counts, Housekeeper, Router, export};
use crate::clock::SystemClock;
use crate::config::{Config, ConfigError, Idle, KafkaSettings, Limits, MemorySum, Pin, RecordTime};
use crate::partition::{self, SelfTestFailed};
use crate::shard::idle::Strategy;
use crate::sink::kafka::topic::{NewTopicPlan, TopicDesk, TopicError, TopicFacts};
use crate::sink::kafka::{self, HandleError, HandleSettings, KafkaSink, WarmUp, WarmUpError};
use crate::slab::Arena;
use crate::state::{Remembered, StateDir, StateError};
use crate::topology::{self, CpuSet, Placement, PlacementError, affinity, memory};
use crate::units::{Nanos, ShardId};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Between two publications of the counters.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);
/// Between two looks at the topic while running.
const DRIFT_INTERVAL: Duration = Duration::from_secs(10);

/// Why a router did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Something must be in the configuration for this, and is not.
    #[error("{key} is missing: {fix}")]
    Missing {
        /// The key.
        key: &'static str,
        /// What to write.
        fix: &'static str,
    },
    /// Our murmur2 does not agree with Kafka's Java client on this machine.
    #[error(transparent)]
    SelfTest(#[from] SelfTestFailed),
    /// librdkafka is too old.
    #[error("librdkafka {}.{}.{} is linked, 2.10 or newer is needed", got >> 24, got >> 16 & 0xff, got >> 8 & 0xff)]
    Library {
        /// Its version number.
        got: u32,
    },
    /// The shards cannot be placed.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// The kernel does not say which CPUs there are, or gives no thread.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system says.
        error: std::io::Error,
    },
    /// More memory than there is.
    #[error(
        "the router would take {needed} bytes, and there are {total}: lower what {owner} takes ({what}, {bytes} bytes); \
         docs/config.md says which keys size it"
    )]
    Memory {
        /// The sum of all parts.
        needed: u64,
        /// What the host, or the control group, has.
        total: u64,
        /// The largest part.
        what: String,
        /// Who takes it.
        owner: &'static str,
        /// How much.
        bytes: u64,
    },
    /// The state directory.
    #[error(transparent)]
    State(#[from] StateError),
    /// The topic.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// The topic has fewer partitions than the devices are spread over.
    #[error(
        "topic {topic} has {got} partitions, {pinned} are pinned by {by}: devices would lose their partitions; \
         add partitions to the topic, or start with another topic and state directory"
    )]
    FewerPartitions {
        /// The topic.
        topic: String,
        /// What it has.
        got: u32,
        /// What is pinned.
        pinned: u32,
        /// What pins it.
        by: &'static str,
    },
    /// The configuration and the state directory pin different counts.
    #[error(
        "topic.partitions = {configured}, but the state directory pinned {remembered} at the first start: \
         remove the key, or start with another state directory"
    )]
    OtherPin {
        /// In the configuration.
        configured: u32,
        /// In the state directory.
        remembered: u32,
    },
    /// Nobody says how many partitions there are.
    #[error(
        "the broker cannot be asked ({error}) and the partition count is not known: set topic.partitions, or \
         start once with the broker up and a state.dir"
    )]
    UnknownPartitions {
        /// Why it cannot be asked.
        error: TopicError,
    },
    /// The producer.
    #[error(transparent)]
    Producer(#[from] HandleError),
    /// A shard's producer did not get warm.
    #[error("shard {shard}: {error}; with start.require_broker = false the router starts all the same")]
    WarmUp {
        /// Which shard.
        shard: ShardId,
        /// What is missing.
        error: WarmUpError,
    },
}

impl StartError {
    /// Whether the configuration is to blame, rather than something that is not available.
    #[must_use]
    pub fn is_about_config(&self) -> bool {
        matches!(
            self,
            StartError::Config(_)
                | StartError::Missing { .. }
                | StartError::Placement(_)
                | StartError::Memory { .. }
                | StartError::OtherPin { .. }
        )
    }
}

/// How ready a router was when `start` returned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// How long the slowest shard's producer took to get warm.
    pub warm_up: Nanos,
    /// The broker was away, or something was missing; the router started since that is allowed.
    pub is_cold: bool,
}

impl Router<SystemClock> {
    /// Starts a router: checks everything, takes all memory, and returns once the producers are warm.
    ///
    /// # Errors
    /// [`StartError`], each with what to mend. Nothing is left running.
    pub fn start(config: &Config) -> Result<(Router, Readiness), StartError> {
        partition::self_test()?;
        let version = kafka::handle::version();
        if version < kafka::VERSION_MIN {
            return Err(StartError::Library { got: version });
        }
        let limits = config.limits()?;
        let settings = config.kafka_settings()?;
        let allowed = affinity::allowed().map_err(|error| StartError::System { what: "asking for the CPUs", error })?;
        let placement = topology::place(limits.shards.into(), &pin_list(config), &allowed)?;
        let deadline = Instant::now() + limits.start_timeout.as_duration();
        let state = config.state.dir.as_deref().map(StateDir::open).transpose()?;
        let remembered = match &state {
            Some(state) => state.read(&config.topic.name)?,
            None => None,
        };
        let mut topic = Topic::resolve(config, &settings, &limits, remembered.as_ref())?;
        config.check_partitions(topic.partitions)?;
        let identity = identify(config, remembered, topic.partitions);
        if let Some(state) = &state {
            state.write(&identity)?;
        }
        let blueprint = Blueprint {
            partitions: topic.partitions,
            router_id: identity.router_id,
            incarnation: identity.incarnation,
            record_time_is_event: settings.record_time == RecordTime::Event,
            limits: limits.clone(),
        };
        check_memory(&blueprint.memory())?;
        let (assembly, readiness) = assemble(&blueprint, &settings, config, &mut topic, &placement.others, deadline)?;
        if let Some(bytes) = topic.record_bytes_max {
            assembly.common.shared.set_record_bytes_max(bytes);
        }
        let mut router = Router::run(assembly, &placement, strategy(limits.idle))
            .map_err(|error| StartError::System { what: "starting the shards", error })?;
        router.state = state;
        router.warnings.append(&mut topic.warnings);
        router.housekeeper = keep_house(topic, config.topic.name.clone(), placement, Arc::clone(&router.common));
        Ok((router, readiness))
    }
}

/// All memory is taken at start, so a sum beyond the machine's is refused there, and not by the kernel an hour later.
///
/// # Errors
/// [`StartError::Memory`], with the largest part.
pub fn check_memory(sum: &MemorySum) -> Result<(), StartError> {
    let (Some(total), needed) = (memory::total_bytes(), sum.total()) else { return Ok(()) };
    match sum.lines().iter().max_by_key(|line| line.bytes) {
        Some(largest) if needed > total => {
            let (what, owner, bytes) = (largest.what.clone(), largest.owner, largest.bytes);
            Err(StartError::Memory { needed, total, what, owner, bytes })
        }
        _ => Ok(()),
    }
}

/// The topic as this run takes it.
struct Topic {
    desk: TopicDesk,
    partitions: u32,
    record_bytes_max: Option<usize>,
    is_reachable: bool,
    warnings: Vec<String>,
}

impl Topic {
    /// Asks the cluster, and holds its answer against what is pinned.
    fn resolve(
        config: &Config,
        settings: &KafkaSettings,
        limits: &Limits,
        remembered: Option<&Remembered>,
    ) -> Result<Topic, StartError> {
        let name = &config.topic.name;
        let desk = TopicDesk::new(&kafka::properties(settings, 1), name);
        let remembered = remembered.map(|state| state.partitions);
        if let (Some(configured), Some(remembered)) = (config.topic.partitions, remembered)
            && configured != remembered
        {
            return Err(StartError::OtherPin { configured, remembered });
        }
        let by = if config.topic.partitions.is_some() { "topic.partitions" } else { "the state directory" };
        let pinned = config.topic.partitions.or(remembered);
        let plan = config.topic.create.then(|| NewTopicPlan {
            partitions: pinned.unwrap_or(crate::config::PARTITIONS_CREATED),
            replication: config.topic.replication.into(),
            min_insync_replicas: config.topic.min_insync_replicas.into(),
        });
        let limit = limits.start_timeout.as_duration();
        let facts = match desk.prepare(plan.as_ref(), if limits.start_require_broker { limit } else { limit / 4 }) {
            Ok(facts) => facts,
            Err(error) if limits.start_require_broker => return Err(error.into()),
            Err(error) => {
                let Some(partitions) = pinned else { return Err(StartError::UnknownPartitions { error }) };
                let warnings = vec![format!("started without the broker: {error}")];
                return Ok(Topic { desk, partitions, record_bytes_max: None, is_reachable: false, warnings });
            }
        };
        let partitions = pinned.unwrap_or(facts.partitions);
        if facts.partitions < partitions {
            return Err(StartError::FewerPartitions {
                topic: name.clone(),
                got: facts.partitions,
                pinned: partitions,
                by,
            });
        }
        let warnings = warnings_of(name, &facts, partitions);
        Ok(Topic { desk, partitions, record_bytes_max: facts.record_bytes_max, is_reachable: true, warnings })
    }
}

fn warnings_of(name: &str, facts: &TopicFacts, pinned: u32) -> Vec<String> {
    let mut warnings = Vec::new();
    if facts.partitions > pinned {
        warnings.push(drift_text(name, facts.partitions, pinned));
    }
    if let Some(why) = &facts.unread {
        warnings.push(format!("max.message.bytes of topic {name} cannot be read ({why}): records above it fail late"));
    }
    if !facts.leaderless.is_empty() {
        warnings.push(format!("partitions {:?} of topic {name} have no leader just now", facts.leaderless));
    }
    warnings
}

fn drift_text(name: &str, got: u32, pinned: u32) -> String {
    let meaning = match got.cmp(&pinned) {
        std::cmp::Ordering::Greater => "the new ones are not used, since devices would change their partition",
        std::cmp::Ordering::Less => "triggers for the missing ones wait; add partitions to the topic",
        std::cmp::Ordering::Equal => "as it should be again",
    };
    format!("partition_count_drift: topic {name} has {got} partitions, {pinned} are pinned; {meaning}")
}

/// Who this run is. Without a state directory the incarnation is the date, so that it still rises.
fn identify(config: &Config, remembered: Option<Remembered>, partitions: u32) -> Remembered {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (kept_id, incarnation) = match remembered {
        Some(kept) => (Some(kept.router_id), kept.incarnation + 1),
        None if config.state.dir.is_some() => (None, 1),
        None => (None, since.as_millis() as u64),
    };
    let fresh_id = || {
        let luck = RandomState::new().hash_one((std::process::id(), since.as_nanos()));
        format!("{:012x}", luck >> 16)
    };
    let router_id = config.router.id.clone().or(kept_id).unwrap_or_else(fresh_id);
    Remembered { router_id, incarnation, topic: config.topic.name.clone(), partitions }
}

/// Makes the parts and warms every shard's producer, all at the same time.
fn assemble(
    blueprint: &Blueprint,
    settings: &KafkaSettings,
    config: &Config,
    topic: &mut Topic,
    cpus: &CpuSet,
    deadline: Instant,
) -> Result<(Assembly<KafkaSink, SystemClock>, Readiness), StartError> {
    let mut properties = kafka::properties(settings, blueprint.partitions);
    if let Some(limit) = topic.record_bytes_max
        && let Some(configured) = kafka::bound_batch(&mut properties, limit)
        && config.kafka.properties.is_set("batch.size")
    {
        topic.warnings.push(format!(
            "kafka.properties batch.size = {configured} is above the topic's max.message.bytes = {limit}: batches are kept \
             below the topic's limit"
        ));
    }
    let handle_settings = HandleSettings { topic: config.topic.name.clone(), properties, cpus: cpus.clone() };
    let make_sink = |_: ShardId, arena: Arc<Arena>| KafkaSink::new(handle_settings.clone(), arena);
    let mut assembly = Assembly::new(blueprint, SystemClock::new(), make_sink)?;
    let mut readiness = Readiness { is_cold: !topic.is_reachable, ..Readiness::default() };
    if !topic.is_reachable {
        return Ok((assembly, readiness));
    }
    for (id, answer) in warm_all(&mut assembly, blueprint, deadline) {
        match answer {
            Ok(warm) => readiness.warm_up = readiness.warm_up.max(warm.took),
            Err(error) if blueprint.limits.start_require_broker => {
                return Err(StartError::WarmUp { shard: id, error });
            }
            Err(error) => {
                log::warn!("shard {id} starts cold: {error}");
                readiness.is_cold = true;
            }
        }
    }
    Ok((assembly, readiness))
}

fn warm_all(
    assembly: &mut Assembly<KafkaSink, SystemClock>,
    blueprint: &Blueprint,
    deadline: Instant,
) -> Vec<(ShardId, Result<WarmUp, WarmUpError>)> {
    let limit = deadline.saturating_duration_since(Instant::now()).max(Duration::from_secs(1));
    std::thread::scope(|scope| {
        let mut warming = Vec::new();
        for (index, shard) in assembly.shards.iter_mut().enumerate() {
            let id = ShardId(index as u16);
            let partitions = blueprint.partitions_of(id);
            warming.push((id, scope.spawn(move || shard.sink_mut().warm_up(&partitions, limit))));
        }
        let panicked = || WarmUpError { waited: Nanos(0), lacks: "its thread: it panicked".into(), last_error: None };
        warming.into_iter().map(|(id, thread)| (id, thread.join().unwrap_or_else(|_| Err(panicked())))).collect()
    })
}

/// Looks at the topic now and then, more partitions than pinned are an alarm, once; and publishes the counters.
fn keep_house(
    mut topic: Topic,
    name: String,
    placement: Placement,
    common: Arc<Common<SystemClock>>,
) -> Option<Housekeeper> {
    let stop = Arc::new(AtomicBool::new(false));
    let is_stopped = Arc::clone(&stop);
    // The clients that start used were made on any CPU; housekeeping makes its own, off the shards'.
    topic.desk.close();
    let body = move || {
        if let Err(error) = affinity::restrict_to(&placement.others) {
            log::warn!("housekeeping is not kept on CPUs {}: {error}", placement.others);
        }
        let mut alarmed = topic.partitions;
        let mut looked = Instant::now();
        loop {
            std::thread::park_timeout(PUBLISH_INTERVAL);
            // Acquire, partner: the Release in `Router::stop`.
            let is_last = is_stopped.load(Ordering::Acquire);
            export::publish(&Counts::of(&common), common.shared.blocked_count());
            if is_last {
                return;
            }
            if looked.elapsed() < DRIFT_INTERVAL {
                continue;
            }
            looked = Instant::now();
            match topic.desk.facts(Duration::from_secs(5)) {
                Ok(facts) => {
                    if facts.partitions != alarmed {
                        alarmed = facts.partitions;
                        log::error!("{}", drift_text(&name, facts.partitions, topic.partitions));
                    }
                    // The limit may be changed while we run.
                    if let Some(bytes) = facts.record_bytes_max {
                        common.shared.set_record_bytes_max(bytes);
                    }
                }
                Err(error) => log::debug!("housekeeping: {error}"),
            }
        }
    };
    match std::thread::Builder::new().name("fencepost-house".into()).spawn(body) {
        Ok(thread) => Some(Housekeeper { stop, thread }),
        Err(error) => {
            log::error!("no thread for housekeeping, partition drift is not noticed: {error}");
            None
        }
    }
}

fn pin_list(config: &Config) -> Vec<usize> {
    match &config.engine.pin {
        Pin::None => Vec::new(),
        Pin::Cpus(cpus) => cpus.iter().map(|cpu| *cpu as usize).collect(),
    }
}

fn strategy(idle: Idle) -> Strategy {
    match idle {
        Idle::Spin => Strategy::Spin,
        Idle::Yield => Strategy::Yield,
        Idle::Park => Strategy::Park,
    }
}
