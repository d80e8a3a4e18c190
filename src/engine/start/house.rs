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
use crate::units::PartitionId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two publications of the counters.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);
/// Between two looks at the topic while running.
const DRIFT_INTERVAL: Duration = Duration::from_secs(10);

/// What a start without the broker, or without some partitions' leaders, still has to do.
pub(super) struct Cold {
    pub(super) warming: Warming,
    pub(super) boxes: Vec<Arc<WarmBox>>,
    /// Partitions whose records were not read yet: nothing of theirs is sent.
    pub(super) unread: Vec<u32>,
    /// Those without a leader that were spoken of last.
    pub(super) told: Vec<u32>,
}

impl Cold {
    /// Reads what has a leader by now and hands the shards what it says. False: something is left to be read.
    fn try_warm(&mut self, leaderless: &[u32]) -> bool {
        let warming = &self.warming;
        let highest = warming.highest_on_disk;
        if !warming.limits.dedup_warm_start {
            self.boxes.iter().for_each(|warm| warm.put(Warm { highest, ..Warm::nothing() }));
            return true;
        }
        let (waiting, readable): (Vec<u32>, Vec<u32>) =
            self.unread.iter().partition(|partition| leaderless.contains(partition));
        if waiting != self.told {
            if !waiting.is_empty() {
                log::warn!(
                    "partitions {waiting:?} have no leader yet; nothing is sent to them before they can be read"
                );
            }
            self.told.clone_from(&waiting);
        }
        if readable.is_empty() {
            return false;
        }
        let unread: Arc<[PartitionId]> = waiting.iter().map(|partition| PartitionId(*partition)).collect();
        match warming.read(&readable, Instant::now() + warming.limits.start_timeout.as_duration()) {
            Ok(Warmed { shards, report, warnings, .. }) => {
                warnings.iter().for_each(|warning| log::warn!("{warning}"));
                log::warn!(
                    "{} of {} partitions are there: the dedup window has {} more keys of {} records, read in {:.1} s",
                    readable.len(),
                    self.unread.len(),
                    report.keys,
                    report.records,
                    report.took.as_secs_f64()
                );
                for (warm, content) in self.boxes.iter().zip(shards) {
                    warm.put(Warm { unread: Arc::clone(&unread), ..content });
                }
            }
            Err(error @ TailError::Unauthorized { .. }) => {
                log::error!("{error}; the window begins empty, and repeats from before the start are sent again");
                let nothing = || Warm { highest, unread: Arc::clone(&unread), ..Warm::nothing() };
                self.boxes.iter().for_each(|warm| warm.put(nothing()));
            }
            Err(error) => {
                log::warn!("the topic's tail cannot be read yet, nothing is sent before: {error}");
                return false;
            }
        }
        self.unread = waiting;
        self.unread.is_empty()
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
