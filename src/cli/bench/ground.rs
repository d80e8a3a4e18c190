//! Where a measurement takes place: the brokers, the topic on them, and the configuration that the router gets.

use super::broker::Brokers;
use super::context::Context;
use super::outcome::{Outcome, Unit};
use super::{CliError, PARTITIONS, TOPIC};
use crate::config::{Config, DeadLetterTopic, DivertPolicy, KafkaSettings};
use crate::sink::kafka;
use crate::sink::kafka::topic::{NewTopicPlan, TopicDesk};
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the cluster may take to show the topic.
pub(super) const TOPIC_LIMIT: Duration = Duration::from_secs(20);
/// What a spill may take on disk.
const SPILL_BYTES: u64 = 4 << 30;
/// Small files, so that little more is allocated ahead than the reserve.
const SEGMENT_BYTES: u64 = 16 << 20;
/// No trigger of a measurement becomes a dead letter; its room is the least there may be.
const DEAD_LETTER_BYTES: u64 = 8 << 20;

/// Which brokers.
#[derive(Args, Clone)]
pub(super) struct Where {
    /// Brokers to measure on, `host:port` with commas between; without it the mock.
    #[arg(long, alias = "bootstrap", value_name = "BOOTSTRAP")]
    pub(super) kafka: Option<String>,
    /// The configuration file; its topic and brokers are used unless --kafka is given too.
    #[arg(short, long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
}

/// See the [module](self).
pub(super) struct Ground {
    pub(super) config: Config,
    pub(super) settings: KafkaSettings,
    pub(super) partitions: u32,
    /// The mock ends when this is dropped.
    pub(super) mock: Option<Brokers>,
}

impl Ground {
    pub(super) fn prepare(at: &Where, context: &Context) -> Result<Ground, CliError> {
        let mut config = match &at.config {
            Some(path) => Config::from_file(path)?,
            None => Config::default(),
        };
        if let Some(bootstrap) = &at.kafka {
            config.kafka.bootstrap = Some(bootstrap.clone());
            config.topic.name = TOPIC.into();
        }
        let mock = match &config.kafka.bootstrap {
            Some(_) => None,
            None => {
                let mock = Brokers::start(context)?;
                config.kafka.bootstrap = Some(mock.bootstrap().to_string());
                config.topic.name = TOPIC.into();
                Some(mock)
            }
        };
        // What an earlier turn left in the topic shall not collapse what this one sends.
        config.dedup.warm_start = false;
        let settings = config.kafka_settings()?;
        let desk = TopicDesk::new(&kafka::properties(&settings, PARTITIONS), &config.topic.name);
        let plan = NewTopicPlan {
            partitions: PARTITIONS,
            replication: config.topic.replication.into(),
            min_insync_replicas: config.topic.min_insync_replicas.into(),
        };
        let facts = desk.prepare(mock.is_none().then_some(&plan), TOPIC_LIMIT);
        let facts = facts.map_err(|error| CliError::Unavailable(error.to_string()))?;
        Ok(Ground { config, settings, partitions: facts.partitions, mock })
    }

    /// Gives the router a disk to spill to.
    pub(super) fn spill_to(&mut self, dir: &Path) {
        self.keep_state_in(dir, DivertPolicy::Spill);
        (self.config.spill.limit, self.config.spill.segment) = (SPILL_BYTES, SEGMENT_BYTES);
    }

    /// Gives the router a state directory, and nothing that goes to another topic.
    pub(super) fn keep_state_in(&mut self, dir: &Path, policy: DivertPolicy) {
        let config = &mut self.config;
        config.state.dir = Some(dir.to_path_buf());
        config.divert.policy = Some(policy);
        config.dead_letter.topic = Some(DeadLetterTopic::Off);
        config.dead_letter.limit = DEAD_LETTER_BYTES;
    }

    /// What stands for Kafka, for the result.
    pub(super) fn brokers(&self) -> &'static str {
        if self.mock.is_some() { "mock" } else { "kafka" }
    }

    /// The settings that every measurement on brokers has.
    pub(super) fn describe(&self, outcome: &mut Outcome) {
        outcome.set("brokers", "brokers", self.brokers(), Unit::None);
        outcome.set("partitions", "partitions", u64::from(self.partitions), Unit::Count);
        outcome.set("shards", "shards", u64::from(self.config.engine.shards), Unit::Count);
        outcome.set("linger", "linger", self.settings.linger.0, Unit::Nanos);
    }
}
