//! Why a router did not start: each with the key, what came, what is allowed, and what to mend.

use crate::config::{ConfigError, FencesError};
use crate::partition::SelfTestFailed;
use crate::sink::kafka::tail::TailError;
use crate::sink::kafka::topic::TopicError;
use crate::sink::kafka::{HandleError, WarmUpError};
use crate::state::StateError;
use crate::topology::PlacementError;
use crate::units::ShardId;

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
                | StartError::State(StateError::OtherTopic { .. })
        )
    }
}
