//! The outage, step by step: when it comes, how long it lasts, and when everything it held up is through.

use super::Watch;
use super::cluster::Cluster;
use super::outcome::Outage;
use crate::cli::CliError;
use crate::clock::{Clock, SystemClock};
use crate::engine::{Router, Stages};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The longest freeze: below the producer's socket time-out of 5 s with room to spare, see [`super::cluster`].
const FREEZE_MAX: Duration = Duration::from_secs(3);
/// The shortest that can be told from a hiccup.
const FREEZE_MIN: Duration = Duration::from_millis(300);

/// So long before the end the brokers are told that it is over. What they hold back is answered at the end of the freeze,
/// when it is the time for the first of it; what a client sends on that answer must find them as they were.
const THAW_AHEAD: Duration = Duration::from_millis(100);

/// See the [module](self).
pub struct OutagePlan {
    at: Duration,
    freeze: Duration,
    is_told_of_end: bool,
    state: State,
    /// The most that was under way before.
    backlog: u64,
    /// As they were before.
    late: u64,
    before: Stages,
    /// From when everything it had held up was through.
    after: Option<Stages>,
    frozen_at: Option<Instant>,
    /// When it was over for the brokers, and how many records had come back from the disk by then.
    thawed: Option<(Instant, u64)>,
    seen: Outage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Ahead,
    Frozen,
    CatchingUp,
    Over,
}

/// How long the freeze of a run is: three tenths of it, within bounds.
fn freeze_of(run: Duration) -> Duration {
    (run * 3 / 10).clamp(FREEZE_MIN, FREEZE_MAX)
}

impl OutagePlan {
    /// An outage in the middle of a run of that length.
    pub fn of(run: Duration) -> OutagePlan {
        let freeze = freeze_of(run);
        OutagePlan {
            at: (run - freeze) / 2,
            freeze,
            is_told_of_end: false,
            state: State::Ahead,
            backlog: 0,
            late: 0,
            before: Stages::default(),
            after: None,
            frozen_at: None,
            thawed: None,
            seen: Outage::default(),
        }
    }

    /// Whether the brokers do not answer just now.
    pub fn is_frozen(&self) -> bool {
        self.state == State::Frozen
    }

    /// A word on what happens just now.
    pub fn remark(&self, watch: &Watch<'_>) -> &'static str {
        match self.state {
            State::Ahead | State::Over => "",
            State::Frozen => "FROZEN",
            State::CatchingUp if watch.router.counts().in_spill > 0 => "draining",
            State::CatchingUp => "catch-up",
        }
    }

    /// An outage that has not come yet does not come any more.
    pub fn end_load(&mut self) {
        if self.state == State::Ahead {
            self.state = State::Over;
        }
    }

    /// Looks at the time and the counters, and does what is due.
    ///
    /// # Errors
    /// When the brokers do not take an order.
    pub fn step(&mut self, cluster: &Cluster, watch: &Watch<'_>) -> Result<(), CliError> {
        let now_us = || SystemClock::new().now().wall.0;
        let frozen_for = self.frozen_at.map_or(Duration::ZERO, |at| at.elapsed());
        let counts = watch.router.counts();
        self.seen.in_spill_max = self.seen.in_spill_max.max(counts.in_spill);
        match self.state {
            State::Ahead if Instant::now() < watch.began + self.at => {
                // What is usual shows after the first moments; one look alone may meet the gap between two batches.
                if Instant::now() > watch.began + self.at / 2 {
                    self.backlog = self.backlog.max(watch.backlog());
                }
            }
            State::Ahead => {
                self.backlog = self.backlog.max(watch.backlog());
                self.late = counts.late;
                self.before = watch.router.stages();
                // Relaxed: a record at the very edge may count on either side.
                watch.inspection.outage_began_us.store(now_us(), Ordering::Relaxed);
                cluster.freeze(self.freeze)?;
                self.frozen_at = Some(Instant::now());
                self.seen.at = Some(watch.began.elapsed());
                self.state = State::Frozen;
            }
            State::Frozen => {
                self.seen.backlog_max = self.seen.backlog_max.max(counts.unsettled());
                if frozen_for + THAW_AHEAD >= self.freeze && !self.is_told_of_end {
                    cluster.thaw()?;
                    self.is_told_of_end = true;
                }
                if frozen_for >= self.freeze {
                    self.seen.frozen = frozen_for;
                    self.thawed = Some((Instant::now(), counts.drained));
                    self.state = State::CatchingUp;
                }
            }
            State::CatchingUp => {
                if counts.in_spill == 0 && self.seen.drained_after.is_none() {
                    self.note_drained(counts.drained);
                }
                // The figure jumps with each batch, by about a thousand when all is well.
                if counts.in_spill == 0 && watch.backlog() <= self.backlog.max(1_000) {
                    watch.inspection.outage_over_us.store(now_us(), Ordering::Relaxed);
                    self.after = Some(watch.router.stages());
                    self.seen.late = watch.router.counts().late - self.late;
                    self.seen.over_after = Some(frozen_for);
                    self.state = State::Over;
                }
            }
            State::Over => {}
        }
        Ok(())
    }

    fn note_drained(&mut self, drained: u64) {
        let Some((at, before)) = self.thawed else { return };
        if self.seen.in_spill_max > 0 {
            let took = at.elapsed();
            self.seen.drained_after = Some(took);
            self.seen.drain_rate = (drained - before) as f64 / took.as_secs_f64().max(1e-9);
        }
    }

    /// With the stages outside the outage: what came before it and what came after.
    pub fn finish(mut self, router: &Router) -> Outage {
        if self.seen.at.is_none() {
            self.seen.outside = router.stages();
            return self.seen;
        }
        self.seen.outside = self.before;
        if self.after.is_none() {
            self.seen.late = router.counts().late - self.late;
        }
        if let Some(after) = &self.after {
            let outside = &mut self.seen.outside;
            let end = router.stages();
            for (mine, (end, after)) in [
                (&mut outside.emit, (&end.emit, &after.emit)),
                (&mut outside.queue, (&end.queue, &after.queue)),
                (&mut outside.dedup, (&end.dedup, &after.dedup)),
                (&mut outside.publish, (&end.publish, &after.publish)),
                (&mut outside.settle, (&end.settle, &after.settle)),
            ] {
                mine.merge(&end.since(after));
            }
        }
        self.seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_any_length_has_room_for_its_freeze_and_none_outlasts_a_socket() {
        for (seconds, freeze_ms) in [(1, 300), (2, 600), (5, 1_500), (10, 3_000), (3_600, 3_000)] {
            let run = Duration::from_secs(seconds);
            let plan = OutagePlan::of(run);
            assert_eq!(plan.freeze, Duration::from_millis(freeze_ms), "{seconds} s");
            assert_eq!(plan.at * 2 + plan.freeze, run, "as much before as after, {seconds} s");
        }
    }
}
