//! The topic as a run takes it: what the cluster says, held against what is pinned.

use super::StartError;
use crate::config::{Config, KafkaSettings, Limits};
use crate::sink::kafka;
use crate::sink::kafka::topic::{NewTopicPlan, TopicDesk, TopicFacts};
use crate::state::Remembered;

/// The topic as this run takes it.
pub(super) struct Topic {
    pub(super) desk: TopicDesk,
    pub(super) partitions: u32,
    pub(super) leaderless: Vec<u32>,
    pub(super) record_bytes_max: Option<usize>,
    pub(super) is_reachable: bool,
    pub(super) warnings: Vec<String>,
}

impl Topic {
    /// Asks the cluster, and holds its answer against what is pinned.
    pub(super) fn resolve(
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

pub(super) fn drift_text(name: &str, got: u32, pinned: u32) -> String {
    let meaning = match got.cmp(&pinned) {
        std::cmp::Ordering::Greater => "the new ones are not used, since devices would change their partition",
        std::cmp::Ordering::Less => "triggers for the missing ones wait; add partitions to the topic",
        std::cmp::Ordering::Equal => "as it should be again",
    };
    format!("partition_count_drift: topic {name} has {got} partitions, {pinned} are pinned; {meaning}")
}
