//! One shard on the real sink, turned by the test's own thread: so that a test sees what the sink is handed, breaks its
//! handle at a chosen moment, or counts what its own threads allocate.

use fencepost::clock::SystemClock;
use fencepost::config::{Config, RecordTime};
use fencepost::engine::assembly::Common;
use fencepost::engine::{Assembly, Blueprint};
use fencepost::metrics::ShardPage;
use fencepost::shard::{Shard, Turn};
use fencepost::sink::kafka::{self, HandleError, HandleSettings, KafkaSink};
use fencepost::sink::{Busy, Condition, Outgoing, Report, Sink};
use fencepost::topology::affinity;
use fencepost::units::ShardId;
use std::sync::Arc;
use std::time::Duration;

/// The real sink, and what it was handed.
pub struct Watched {
    pub kafka: KafkaSink,
    /// Frames taken, by partition.
    pub produced: Vec<u64>,
}

// SAFETY: every call goes to the real sink, which keeps the contract; the frame itself is not looked at.
unsafe impl Sink for Watched {
    fn produce(&mut self, outgoing: Outgoing) -> Result<(), Busy> {
        self.kafka.produce(outgoing)?;
        self.produced[outgoing.partition.0 as usize] += 1;
        Ok(())
    }

    fn collect(&mut self, most: usize, reports: &mut Vec<Report>) {
        self.kafka.collect(most, reports);
    }

    fn condition(&mut self) -> Condition {
        self.kafka.condition()
    }

    fn errors(&self) -> u64 {
        self.kafka.errors()
    }
}

/// A warm shard and what belongs to it.
pub struct Hand {
    pub shard: Shard<Watched, SystemClock>,
    pub common: Common<SystemClock>,
}

impl Hand {
    /// One shard for all partitions, warm.
    pub fn new(config: &Config, partitions: u32) -> Hand {
        assert_eq!(config.engine.shards, 1, "one thread turns one shard");
        let limits = config.limits().expect("the configuration holds");
        let settings = config.kafka_settings().expect("the settings hold");
        let blueprint = Blueprint {
            partitions,
            router_id: "by-hand".into(),
            incarnation: 1,
            record_time_is_event: settings.record_time == RecordTime::Event,
            policy: fencepost::shard::Policy::Refuse,
            has_disk: false,
            has_letters: false,
            hash_seed: None,
            limits,
        };
        let handle_settings = HandleSettings {
            topic: config.topic.name.clone(),
            properties: kafka::properties(&settings, partitions),
            cpus: affinity::allowed().expect("the kernel says which CPUs there are"),
        };
        let make = |_: ShardId, arena: Arc<_>| -> Result<Watched, HandleError> {
            let kafka = KafkaSink::new(handle_settings.clone(), arena)?;
            Ok(Watched { kafka, produced: vec![0; partitions as usize] })
        };
        let mut assembly = Assembly::new(&blueprint, SystemClock::new(), make).expect("the sink can be made");
        let mut shard = assembly.shards.remove(0);
        let own = blueprint.partitions_of(ShardId(0));
        shard.sink_mut().kafka.warm_up(&own, Duration::from_secs(60)).expect("the sink gets warm");
        Hand { shard, common: assembly.common }
    }

    pub fn turn(&mut self) -> Turn {
        self.shard.turn()
    }

    pub fn page(&self) -> &ShardPage {
        &self.common.shard_pages[0]
    }

    pub fn page_text(&self) -> String {
        let page = self.page();
        format!(
            "taken {} delivered {} deduplicated {} failed {} in_flight {} waiting {} rebuilds {} errors {}",
            page.taken.get(),
            page.delivered.get(),
            page.deduplicated.get(),
            page.failed.get(),
            page.in_flight.get(),
            page.waiting.get(),
            page.producer_rebuilds.get(),
            page.client_errors.get()
        )
    }
}
