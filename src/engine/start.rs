//! Start: from a configuration to a router that is warm. Each step is one that can fail with its own words.

use super::assembly::Common;
use super::disk::{self, DiskThread, Letters, OffsetsKeeper, Opened, Who};
use super::warming::{WarmReport, Warmed, Warming};
use super::{Assembly, Blueprint, Counts, Housekeeper, Router, export};
use crate::clock::SystemClock;
use crate::config::{
    Config, ConfigError, DivertPolicy, FencesError, Idle, KafkaSettings, Limits, MemorySum, Pin, RecordTime,
};
use crate::divert::Keeper;
use crate::hlc::Hlc;
use crate::letter::LetterSink;
use crate::partition::{self, SelfTestFailed};
use crate::shard::idle::Strategy;
use crate::shard::shared::WarmBox;
use crate::shard::{Disk, Policy, Warm};
use crate::sink::kafka::letters::KafkaLetters;
use crate::sink::kafka::tail::TailError;
use crate::sink::kafka::topic::{NewTopicPlan, TopicDesk, TopicError, TopicFacts};
use crate::sink::kafka::{self, HandleError, HandleSettings, KafkaSink, WarmUp, WarmUpError};
use crate::slab::Arena;
use crate::spill::RealDisk;
use crate::state::{Offsets, Remembered, StateDir, StateError};
use crate::topology::{self, CpuSet, Placement, PlacementError, affinity, memory};
use crate::units::{Nanos, ShardId};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Between two publications of the counters.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);
/// What the topic of dead letters gets to answer at start.
const LETTERS_LIMIT: Duration = Duration::from_secs(5);
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
    /// The spill, or the dead letters on disk.
    #[error("state.dir: {0}")]
    Spill(#[from] crate::spill::OpenError),
    /// The topic's tail, from which the dedup window is filled.
    #[error(
        "{0}; with dedup.warm_start = false the window begins empty, and repeats from before the start are sent again"
    )]
    WarmStart(#[from] TailError),
    /// The list of fences.
    #[error(transparent)]
    Fences(#[from] FencesError),
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
    /// What the dedup window was filled from; `None`: it was not, or not yet.
    pub warm_start: Option<WarmReport>,
    /// Triggers found on disk.
    pub recovered: u64,
    /// How long it took to read them.
    pub recovery: Duration,
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
        let opened = match &state {
            Some(state) => Some(Opened::open(state.path(), &limits, topic.partitions)?),
            None => None,
        };
        let letters = letters_of(config, &mut topic, state.is_some(), &placement.others)?;
        let blueprint = Blueprint {
            partitions: topic.partitions,
            router_id: identity.router_id,
            incarnation: identity.incarnation,
            record_time_is_event: settings.record_time == RecordTime::Event,
            policy: match limits.divert_policy {
                DivertPolicy::Spill => Policy::Spill,
                DivertPolicy::DeadLetter => Policy::DeadLetter,
                DivertPolicy::Refuse => Policy::Refuse,
            },
            has_disk: opened.is_some(),
            has_letters: letters.is_some(),
            limits: limits.clone(),
        };
        check_memory(&blueprint.memory())?;
        let properties = producer_properties(&blueprint, &settings, config, &mut topic);
        let (mut assembly, mut readiness) =
            assemble(&blueprint, config, properties.clone(), &topic, &placement.others, deadline)?;
        if let Some(bytes) = topic.record_bytes_max {
            assembly.common.shared.set_record_bytes_max(bytes);
        }
        let highest_on_disk = opened.as_ref().map_or(Hlc::ZERO, |opened| opened.highest);
        let keeper = match letters {
            Some(letters) => {
                if let Some(opened) = &opened {
                    (readiness.recovered, readiness.recovery) = (opened.recovery.recovered(), opened.took);
                    topic.warnings.extend(opened.warnings.iter().cloned());
                }
                let who =
                    Who { topic: &config.topic.name, router: &blueprint.router_id, partitions: blueprint.partitions };
                Some(attach(&mut assembly, &blueprint, disk::make(opened, letters, &limits, &who)))
            }
            None => None,
        };
        let known = known_offsets(config, state.as_ref(), &mut topic);
        let warming = Warming {
            properties,
            topic: config.topic.name.clone(),
            partitions: topic.partitions,
            limits: limits.clone(),
            known: known.clone(),
            highest_on_disk,
            cpus: placement.others.clone(),
        };
        let mut begun = known;
        let cold = if topic.is_reachable {
            if limits.dedup_warm_start {
                let Warmed { shards, report, offsets, mut warnings } = warming.read(&topic.leaderless, deadline)?;
                assembly.shards.iter_mut().zip(shards).for_each(|(shard, warm)| shard.warm_up(warm));
                readiness.warm_start = Some(report);
                begun = offsets;
                topic.warnings.append(&mut warnings);
            } else {
                let highest = highest_on_disk;
                assembly.shards.iter_mut().for_each(|shard| shard.warm_up(Warm { highest, ..Warm::nothing() }));
            }
            None
        } else {
            let boxes: Vec<Arc<WarmBox>> = assembly.shards.iter().map(|_| Arc::default()).collect();
            assembly.shards.iter_mut().zip(&boxes).for_each(|(shard, warm)| shard.set_cold(Arc::clone(warm)));
            Some(Cold { warming, boxes })
        };
        let offsets = state.as_ref().map(|state| OffsetsKeeper::new(state.offsets_file(), begun, limits.dedup_ttl));
        let mut router = Router::run(assembly, &placement, strategy(limits.idle))
            .map_err(|error| StartError::System { what: "starting the shards", error })?;
        if let Some(keeper) = keeper {
            let shared = Arc::clone(&router.common.shared);
            let thread =
                DiskThread::start(keeper, offsets, router.common.clock.clone(), shared, placement.others.clone());
            router.disk = Some(thread.map_err(|error| StartError::System { what: "starting the disk thread", error })?);
        }
        router.state = state;
        router.warnings.append(&mut topic.warnings);
        router.housekeeper = keep_house(topic, config.topic.name.clone(), placement, cold, Arc::clone(&router.common));
        Ok((router, readiness))
    }
}

/// What a cold start still has to do.
struct Cold {
    warming: Warming,
    boxes: Vec<Arc<WarmBox>>,
}

impl Cold {
    /// Reads the topic and hands the shards what it says; false: it cannot be read yet.
    fn try_warm(&self, leaderless: &[u32]) -> bool {
        let warming = &self.warming;
        let highest = warming.highest_on_disk;
        let nothing = || Warm { highest, ..Warm::nothing() };
        if !warming.limits.dedup_warm_start {
            self.boxes.iter().for_each(|warm| warm.put(nothing()));
            return true;
        }
        match warming.read(leaderless, Instant::now() + warming.limits.start_timeout.as_duration()) {
            Ok(Warmed { shards, report, warnings, .. }) => {
                warnings.iter().for_each(|warning| log::warn!("{warning}"));
                log::warn!(
                    "the topic is there: the dedup window has {} keys of {} records, read in {:.1} s",
                    report.keys,
                    report.records,
                    report.took.as_secs_f64()
                );
                self.boxes.iter().zip(shards).for_each(|(warm, content)| warm.put(content));
                true
            }
            Err(error @ TailError::Unauthorized { .. }) => {
                log::error!("{error}; the window begins empty, and repeats from before the start are sent again");
                self.boxes.iter().for_each(|warm| warm.put(nothing()));
                true
            }
            Err(error) => {
                log::warn!("the topic's tail cannot be read yet, nothing is sent before: {error}");
                false
            }
        }
    }
}

/// What the last run left of offsets.
fn known_offsets(config: &Config, state: Option<&StateDir>, topic: &mut Topic) -> Offsets {
    let name = &config.topic.name;
    let read = state.map(|state| state.read_offsets(name, topic.partitions));
    let Some(read) = read else { return Offsets::unknown(name, topic.partitions) };
    topic.warnings.extend(read.warning);
    read.offsets.unwrap_or_else(|| Offsets::unknown(name, topic.partitions))
}

/// Gives each shard its way to the disk thread.
fn attach<L: LetterSink>(
    assembly: &mut Assembly<KafkaSink, SystemClock>,
    blueprint: &Blueprint,
    made: disk::Made<RealDisk, L>,
) -> Keeper<RealDisk, Letters<L>> {
    let disk::Made { keeper, shard_ends, room, page } = made;
    for (id, (shard, end)) in assembly.shards.iter_mut().zip(shard_ends).enumerate() {
        let owned = blueprint.partitions_of(ShardId(id as u16));
        let found = owned.into_iter().map(|partition| keeper.found(partition)).collect();
        shard.set_disk(Disk { end, room: room.clone(), found });
    }
    assembly.common.spill_page = Some(page);
    keeper
}

/// Where dead letters go; `None`: nowhere, so that what cannot be delivered is handed back.
fn letters_of(
    config: &Config,
    topic: &mut Topic,
    has_disk: bool,
    cpus: &CpuSet,
) -> Result<Option<Letters<KafkaLetters>>, StartError> {
    let Some(settings) = config.dead_letter_settings()? else {
        return Ok(has_disk.then_some(Letters::DiskOnly));
    };
    let client = KafkaSettings {
        bootstrap: settings.bootstrap,
        record_time: RecordTime::Accepted,
        properties: settings.properties,
        linger: Nanos(0),
    };
    let properties = kafka::letters::letter_properties(&client);
    if topic.is_reachable || !settings.same_cluster {
        let mut desk = TopicDesk::new(&properties, &settings.topic);
        let plan = config.topic.create.then(|| NewTopicPlan {
            partitions: topic.partitions,
            replication: config.topic.replication.into(),
            min_insync_replicas: config.topic.min_insync_replicas.into(),
        });
        let answer = desk.prepare(plan.as_ref(), LETTERS_LIMIT);
        desk.close();
        if let Err(error) = answer {
            let is_named = config.dead_letter.topic.is_some();
            if !has_disk && !is_named && matches!(error, TopicError::Missing { .. }) {
                topic.warnings.push(format!(
                    "there is no topic for dead letters ({}), and no state.dir: what cannot be delivered is handed back as                      failed; make the topic, name another one as dead_letter.topic, or set it to \"off\"",
                    settings.topic
                ));
                return Ok(None);
            }
            topic.warnings.push(format!(
                "dead letters {} until their topic can be used: {error}",
                if has_disk { "stay on disk" } else { "wait in memory" }
            ));
        }
    }
    let handle = HandleSettings { topic: settings.topic, properties, cpus: cpus.clone() };
    Ok(Some(Letters::Topic(KafkaLetters::new(handle)?)))
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
    leaderless: Vec<u32>,
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
                let leaderless = Vec::new();
                return Ok(Topic {
                    desk,
                    partitions,
                    leaderless,
                    record_bytes_max: None,
                    is_reachable: false,
                    warnings,
                });
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
        let (record_bytes_max, leaderless) = (facts.record_bytes_max, facts.leaderless);
        Ok(Topic { desk, partitions, leaderless, record_bytes_max, is_reachable: true, warnings })
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

/// The producer's properties, with batches that the topic takes.
fn producer_properties(
    blueprint: &Blueprint,
    settings: &KafkaSettings,
    config: &Config,
    topic: &mut Topic,
) -> Vec<(String, String)> {
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
    properties
}

/// Makes the parts and warms every shard's producer, all at the same time.
fn assemble(
    blueprint: &Blueprint,
    config: &Config,
    properties: Vec<(String, String)>,
    topic: &Topic,
    cpus: &CpuSet,
    deadline: Instant,
) -> Result<(Assembly<KafkaSink, SystemClock>, Readiness), StartError> {
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
    mut cold: Option<Cold>,
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
            let interval = if cold.is_some() { PUBLISH_INTERVAL } else { DRIFT_INTERVAL };
            if looked.elapsed() < interval {
                continue;
            }
            looked = Instant::now();
            match topic.desk.facts(Duration::from_secs(5)) {
                Ok(facts) => {
                    if facts.partitions != alarmed {
                        alarmed = facts.partitions;
                        log::error!("{}", drift_text(&name, facts.partitions, topic.partitions));
                    }
                    cold = cold.take_if(|cold| !cold.try_warm(&facts.leaderless));
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
