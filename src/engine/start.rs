//! Start: from a configuration to a router that is warm. Each step is one that can fail with its own words.

mod error;
mod house;
mod topic;

pub use error::StartError;
use house::{Cold, keep_house};
use topic::Topic;

use super::disk::{self, DiskThread, Letters, OffsetsKeeper, Opened, Who};
use super::warming::{WarmReport, Warmed, Warming};
use super::{Assembly, Blueprint, Router};
use crate::clock::{Clock, SystemClock};
use crate::config::{Config, DivertPolicy, Idle, KafkaSettings, KnownFences, MemorySum, Pin, RecordTime};
use crate::divert::Keeper;
use crate::hlc::Hlc;
use crate::letter::LetterSink;
use crate::partition::{self};
use crate::shard::idle::Strategy;
use crate::shard::shared::WarmBox;
use crate::shard::{Disk, Fences, Policy, Warm};
use crate::sink::Sink;
use crate::sink::kafka::letters::KafkaLetters;
use crate::sink::kafka::tail::TailError;
use crate::sink::kafka::topic::{NewTopicPlan, TopicDesk, TopicError};
use crate::sink::kafka::{self, HandleSettings, KafkaSink, WarmUp, WarmUpError};
use crate::slab::Arena;
use crate::spill;
use crate::state::{Offsets, Remembered, StateDir, next_incarnation};
use crate::topology::{self, CpuSet, affinity, memory};
use crate::units::{Nanos, ShardId};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What the topic of dead letters gets to answer at start.
const LETTERS_LIMIT: Duration = Duration::from_secs(5);

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
        let fences = config.validate.fences.as_deref().map(KnownFences::read).transpose()?;
        let deadline = Instant::now() + limits.start_timeout.as_duration();
        let state = config.state.dir.as_deref().map(StateDir::open).transpose()?;
        let remembered = match &state {
            Some(state) => state.read(&config.topic.name)?,
            None => None,
        };
        let mut topic = Topic::resolve(config, &settings, &limits, remembered.as_ref())?;
        config.check_partitions(topic.partitions)?;
        let is_known = remembered.is_some();
        let identity = identify(config, remembered, topic.partitions);
        match state.as_ref().map(|state| state.write(&identity)) {
            None | Some(Ok(())) => {}
            // What the next run needs of it is there; and only a run can drain what fills the disk.
            Some(Err(error)) if is_known && error.is_for_space() => {
                topic.warnings.push(format!("{error}: the disk is full, and is drained first"));
            }
            Some(Err(error)) => return Err(error.into()),
        }
        let opened = match &state {
            Some(state) => Some(Opened::open(state.path(), &limits, topic.partitions)?),
            None => None,
        };
        // `start.timeout` is about the cluster: however long the disk took to read, a healthy broker is asked in time.
        let deadline = deadline + opened.as_ref().map_or(Duration::ZERO, |opened| opened.took);
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
            hash_seed: None,
            limits: limits.clone(),
        };
        check_memory(&blueprint.memory())?;
        let properties = producer_properties(&blueprint, &settings, config, &mut topic);
        let (mut assembly, mut readiness) =
            assemble(&blueprint, config, properties.clone(), &topic, &placement.others, deadline)?;
        if let Some(bytes) = topic.record_bytes_max {
            assembly.common.shared.set_record_bytes_max(bytes);
        }
        assembly.common.shared.set_fences(fences.map(|fences| Arc::new(fences) as Arc<dyn Fences>));
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
        // Above all that the last run stamped, for a start that does not read what the topic has of it.
        let highest_unread = highest_on_disk.max(known.ceiling);
        let mut begun = known;
        // Without a single leader there is nothing to read yet.
        let mut is_cold = !topic.is_reachable || topic.leaderless.len() >= topic.partitions as usize;
        let mut unread: Vec<u32> = Vec::new();
        if !is_cold && limits.dedup_warm_start {
            // What came before may have used up the time; reading gets its share all the same.
            let deadline = deadline.max(Instant::now() + limits.start_timeout.as_duration() / 2);
            let (without, with) = (0..topic.partitions).partition(|partition| topic.leaderless.contains(partition));
            unread = without;
            let with: Vec<u32> = with;
            match warming.read(&with, deadline) {
                Ok(Warmed { shards, report, offsets, mut warnings }) => {
                    assembly.shards.iter_mut().zip(shards).for_each(|(shard, warm)| shard.warm_up(warm));
                    readiness.warm_start = Some(report);
                    begun = offsets;
                    topic.warnings.append(&mut warnings);
                }
                Err(error) if limits.start_require_broker || matches!(error, TailError::Unauthorized { .. }) => {
                    return Err(error.into());
                }
                Err(error) => {
                    topic.warnings.push(format!("started cold: {error}"));
                    (is_cold, readiness.is_cold) = (true, true);
                }
            }
        } else if !is_cold {
            let highest = highest_unread;
            assembly.shards.iter_mut().for_each(|shard| shard.warm_up(Warm { highest, ..Warm::nothing() }));
        }
        if is_cold {
            unread = (0..topic.partitions).collect();
        }
        let cold = (!unread.is_empty()).then(|| {
            let boxes: Vec<Arc<WarmBox>> = assembly.shards.iter().map(|_| Arc::default()).collect();
            for (shard, warm) in assembly.shards.iter_mut().zip(&boxes) {
                if is_cold {
                    shard.set_cold(Arc::clone(warm), highest_unread);
                } else {
                    shard.set_unread(Arc::clone(warm), |partition| unread.contains(&partition.0));
                }
            }
            Cold { warming, boxes, unread, told: Vec::new() }
        });
        let offsets = state.as_ref().map(|state| OffsetsKeeper::new(state.offsets_file(), begun, limits.dedup_ttl));
        let mut router = Router::run(assembly, &placement, strategy(limits.idle))
            .map_err(|error| StartError::System { what: "starting the shards", error })?;
        if let Some(keeper) = keeper {
            let shared = Arc::clone(&router.common.shared);
            let thread = DiskThread::start(keeper, offsets, router.common.clock, shared, placement.others.clone());
            router.disk = Some(thread.map_err(|error| StartError::System { what: "starting the disk thread", error })?);
        }
        router.state = state;
        router.warnings.append(&mut topic.warnings);
        router.housekeeper = keep_house(topic, config.topic.name.clone(), placement, cold, Arc::clone(&router.common));
        Ok((router, readiness))
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
pub(super) fn attach<S: Sink, C: Clock, D: spill::Disk, L: LetterSink>(
    assembly: &mut Assembly<S, C>,
    blueprint: &Blueprint,
    made: disk::Made<D, L>,
) -> Keeper<D, Letters<L>> {
    let disk::Made { mut keeper, shard_ends, room, page } = made;
    keeper.set_callers(std::mem::take(&mut assembly.callers));
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
            let is_needed = config.dead_letter.topic.is_some() || config.divert_policy() == DivertPolicy::DeadLetter;
            if !has_disk && !is_needed && matches!(error, TopicError::Missing { .. }) {
                topic.warnings.push(format!(
                    "there is no topic for dead letters ({}), and no state.dir: what cannot be delivered is handed back as \
                     failed; make the topic, name another one as dead_letter.topic, or set it to \"off\"",
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

/// Who this run is.
fn identify(config: &Config, remembered: Option<Remembered>, partitions: u32) -> Remembered {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let incarnation = next_incarnation(remembered.as_ref(), since);
    let kept_id = remembered.map(|kept| kept.router_id);
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
