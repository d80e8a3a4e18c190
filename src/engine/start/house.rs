//! Housekeeping: a thread that looks at the topic now and then, publishes the counters, and fills the windows of a router
//! that started without its broker.

use super::topic::{Topic, drift_text};
use crate::clock::SystemClock;
use crate::engine::assembly::Common;
use crate::engine::warming::{Warmed, Warming};
use crate::engine::{Counts, Housekeeper, export};
use crate::shard::Warm;
use crate::shard::shared::WarmBox;
use crate::sink::kafka::tail::TailError;
use crate::topology::{Placement, affinity};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two publications of the counters.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);
/// Between two looks at the topic while running.
const DRIFT_INTERVAL: Duration = Duration::from_secs(10);

/// What a cold start still has to do.
pub(super) struct Cold {
    pub(super) warming: Warming,
    pub(super) boxes: Vec<Arc<WarmBox>>,
    /// Since when the cluster answers.
    pub(super) answered: Option<Instant>,
}

impl Cold {
    /// Reads the topic and hands the shards what it says; false: it cannot be read yet. A cluster that comes back has its
    /// leaders one after the other, and of a partition without one nothing is learnt: they are waited for, for a while.
    fn try_warm(&mut self, leaderless: &[u32]) -> bool {
        let waited = self.answered.get_or_insert_with(Instant::now).elapsed();
        let warming = &self.warming;
        if !leaderless.is_empty() {
            if waited < warming.limits.start_timeout.as_duration() {
                log::warn!("partitions {leaderless:?} have no leader yet, nothing is sent before they can be read");
                return false;
            }
            log::error!(
                "partitions {leaderless:?} have no leader and are not read: of what is sent to them, what landed before the \
                 start may be there twice"
            );
        }
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

/// Looks at the topic now and then, more partitions than pinned are an alarm, once; and publishes the counters.
pub(super) fn keep_house(
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
