//! The engine: start, warm up, stop. Nothing here is called per trigger.
//!
//! [`assembly`] makes the parts; [`Router`] starts a thread per shard on them, watches them, and stops them within a
//! limit with a report that adds up.

pub mod assembly;
pub mod disk;
#[cfg(feature = "kafka")]
mod export;
mod lane_letters;
mod report;
mod run;
#[cfg(feature = "kafka")]
mod start;
pub mod warm_start;
#[cfg(feature = "kafka")]
mod warming;

pub use assembly::{Assembly, Blueprint};
pub use report::{Counts, Report, Stages};
/// A shard's thread, for the model checks.
#[cfg(loom)]
#[doc(hidden)]
pub use run::shard_thread;
#[cfg(feature = "kafka")]
pub use start::{Readiness, StartError, check_memory};
#[cfg(feature = "kafka")]
pub use warming::WarmReport;

use crate::clock::{Clock, SystemClock};
use crate::config::{KnownFences, MemorySum};
use crate::ingress::Ingress;
use crate::shard::Fences;
use crate::shard::shared::Gate;
use crate::sink::Sink;
use crate::state::StateDir;
use crate::topology::{Placement, fork};
use assembly::Common;
use disk::LastCommit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long after its limit `shutdown` waits for what is left to be on disk.
const SPILL_LIMIT: Duration = Duration::from_millis(550);
/// How long it waits then for threads that were told to leave at once.
const LEAVE_LIMIT: Duration = Duration::from_millis(200);
/// And for the last commit.
const SYNC_LIMIT: Duration = Duration::from_millis(150);

/// A running router.
pub struct Router<C: Clock = SystemClock> {
    common: Arc<Common<C>>,
    shards: Vec<JoinHandle<()>>,
    idle_strategy: crate::shard::idle::Strategy,
    housekeeper: Option<Housekeeper>,
    /// Ends after the shards, which write to it until they leave.
    disk: Option<disk::DiskThread>,
    /// Held while the router runs.
    state: Option<StateDir>,
    warnings: Vec<String>,
    partitions: u32,
    is_stopped: bool,
}

/// Declares a router failed, also from where the router itself is gone: an ingress outlives it.
#[cfg(feature = "ffi")]
#[derive(Clone)]
pub(crate) struct FailSwitch(Arc<crate::shard::shared::Shared>);

#[cfg(feature = "ffi")]
impl FailSwitch {
    /// From now on submits are refused as failed, for good. What was accepted is still delivered.
    pub(crate) fn fail(&self) {
        self.0.close(Gate::Broken);
    }
}

/// A thread beside the shards, and how to end it.
struct Housekeeper {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl<C: Clock> Router<C> {
    /// Starts a thread per shard on parts that are ready.
    ///
    /// # Errors
    /// When the system gives no thread; those already started are stopped.
    pub fn run<S: Sink + 'static>(
        assembly: Assembly<S, C>,
        placement: &Placement,
        idle: crate::shard::idle::Strategy,
    ) -> std::io::Result<Router<C>>
    where
        C: Sync,
    {
        fork::watch();
        let partitions = assembly.common.plan.partitions;
        let mut router = Router {
            common: Arc::new(assembly.common),
            shards: Vec::new(),
            idle_strategy: idle,
            housekeeper: None,
            disk: None,
            state: None,
            warnings: placement.warning.iter().cloned().collect(),
            partitions,
            is_stopped: false,
        };
        for (index, shard) in assembly.shards.into_iter().enumerate() {
            let waker = Arc::clone(&router.common.wakers[index]);
            let shared = Arc::clone(&router.common.shared);
            let cpu = placement.shards.get(index).copied();
            let others = placement.others.clone();
            let thread = std::thread::Builder::new()
                .name(format!("fencepost-{index}"))
                .spawn(move || run::shard_thread(shard, &shared, &waker, idle, cpu, &others));
            match thread {
                Ok(thread) => router.shards.push(thread),
                Err(error) => {
                    router.stop(Duration::ZERO);
                    return Err(error);
                }
            }
        }
        Ok(router)
    }

    /// A way in for one thread; `None` once `queue.ingresses` of them exist.
    #[must_use]
    pub fn ingress(&self) -> Option<Ingress<C>> {
        self.common.ingress()
    }

    /// The counters now. While the router runs they may be off by what moves meanwhile.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts::of(&self.common)
    }

    /// Triggers that were accepted and that nothing durable has taken, as far as its threads have said so.
    #[must_use]
    pub fn unsettled(&self) -> u64 {
        self.counts().unsettled()
    }

    /// How many triggers of one partition are in flight or waiting, of the partition that has the most of them and is not
    /// diverted; a few milliseconds old.
    #[must_use]
    pub fn fullest_window(&self) -> u64 {
        self.common.shard_pages.iter().map(|page| page.fullest_window.get()).max().unwrap_or(0)
    }

    /// How long each stage took, up to now.
    #[must_use]
    pub fn stages(&self) -> Stages {
        Stages::of(&self.common)
    }

    /// The memory taken at start, line by line.
    #[must_use]
    pub fn memory(&self) -> &MemorySum {
        &self.common.memory
    }

    /// The pinned partition count.
    #[must_use]
    pub fn partitions(&self) -> u32 {
        self.partitions
    }

    /// What a person should know about how it started.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The state directory, locked by this router; `None` without `state.dir`.
    #[must_use]
    pub fn state_dir(&self) -> Option<&StateDir> {
        self.state.as_ref()
    }

    /// Whether every thread is alive. False after a panic of a shard; submits are refused then.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.common.shared.gate() != Gate::Broken
    }

    /// For a face that catches a panic on a caller's thread: what that call left half done is not known.
    #[cfg(feature = "ffi")]
    pub(crate) fn fail_switch(&self) -> FailSwitch {
        FailSwitch(Arc::clone(&self.common.shared))
    }

    /// How many partitions are blocked just now.
    #[must_use]
    pub fn blocked_partitions(&self) -> usize {
        self.common.shared.blocked_count()
    }

    /// Replaces the list of known fences (`validate.fences`): triggers of others become dead letters. `None`: every fence is
    /// known. The shards take it over within 5 ms.
    pub fn reload_fences(&self, fences: Option<KnownFences>) {
        self.common.shared.set_fences(fences.map(|fences| Arc::new(fences) as Arc<dyn Fences>));
    }

    /// How the shards wait for work.
    #[must_use]
    pub fn idle_strategy(&self) -> crate::shard::idle::Strategy {
        self.idle_strategy
    }

    /// Stops: refuses new triggers, delivers what was accepted for as long as `limit`, and returns at the latest a second
    /// after it. What is not settled then is named in the report as `in_flight` and `in_rings`: nothing durable has it.
    #[must_use = "the report says whether everything was delivered"]
    pub fn shutdown(mut self, limit: Duration) -> Report {
        self.stop(limit)
    }

    fn stop(&mut self, limit: Duration) -> Report {
        self.is_stopped = true;
        let deadline = Instant::now() + limit;
        self.common.shared.close(Gate::Stopping);
        self.wait_for_shards(deadline);
        // Dead letters of the callers pass no shard.
        while self.disk.is_some() && self.letters_under_way() > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.disk.is_some() {
            // The time to deliver is over: what is left goes to the disk.
            self.common.shared.spill_rest();
            self.wait_for_shards(Instant::now() + SPILL_LIMIT);
        }
        self.common.shared.abort();
        self.wait_for_shards(Instant::now() + LEAVE_LIMIT);
        // A slow disk may take what is left of the limit.
        let until = deadline.max(Instant::now() + SYNC_LIMIT);
        let last_commit = self.disk.take().map(|disk| disk.finish(until));
        let mut lost_shards = Vec::new();
        for (index, shard) in self.shards.drain(..).enumerate() {
            // A thread that hangs in the client library is left behind; the process outlives it or ends with it.
            if !shard.is_finished() || shard.join().is_err() {
                lost_shards.push(index as u16);
            }
        }
        if let Some(housekeeper) = self.housekeeper.take() {
            // Release, partner: the Acquire in its loop.
            housekeeper.stop.store(true, Ordering::Release);
            housekeeper.thread.thread().unpark();
            // It may be asking a broker that does not answer; then it ends by itself a little later.
            let until = Instant::now() + Duration::from_millis(100);
            while !housekeeper.thread.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            if housekeeper.thread.is_finished() && housekeeper.thread.join().is_err() {
                log::error!("the housekeeping thread panicked");
            }
        }
        if last_commit == Some(LastCommit::Hangs) {
            // Its thread may write yet: the directory stays locked for as long as the process lives.
            std::mem::forget(self.state.take());
        }
        self.state = None;
        let is_synced = last_commit.is_none_or(|commit| commit == LastCommit::Made);
        Report { counts: self.counts(), stages: self.stages(), lost_shards, is_synced }
    }

    /// Dead letters that callers gave and that are not durable yet.
    fn letters_under_way(&self) -> u64 {
        let given: u64 = self.common.ingress_pages.iter().map(|page| page.lettered.get()).sum();
        let done = self.common.letter_pages.iter().map(|page| page.dead_lettered.get() + page.failed.get());
        given.saturating_sub(done.sum())
    }

    fn wait_for_shards(&self, deadline: Instant) {
        while !self.shards.iter().all(JoinHandle::is_finished) && Instant::now() < deadline {
            for waker in &self.common.wakers {
                waker.wake();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // Acquire, partner: the Release with which a thread that ends lets go of what its handle shares. `is_finished` itself
        // orders nothing, and what a shard ordered last of the disk must be seen by whoever is told next to finish.
        fence(Ordering::Acquire);
    }
}

impl<C: Clock> Drop for Router<C> {
    /// A router that is dropped without `shutdown` delivers for a second what it has, and says what it lost.
    fn drop(&mut self) {
        if self.is_stopped {
            return;
        }
        let report = self.stop(Duration::from_secs(1));
        if report.counts.unsettled() > 0 {
            log::error!("a router was dropped without shutdown, {} triggers are lost", report.counts.unsettled());
        }
    }
}

impl Fences for KnownFences {
    fn has(&self, fence_id: &[u8]) -> bool {
        self.contains(fence_id)
    }
}
