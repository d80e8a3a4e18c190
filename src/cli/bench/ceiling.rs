//! As fast as it goes, and whether the memory stays flat meanwhile.

use super::context::{Context, Progress};
use super::driver::{Driver, Fencepost, Until, check_counts, flood};
use super::ground::Where;
use super::load::Load;
use super::outcome::{Outcome, Table, Unit};
use super::timeline::Timeline;
use super::{CliError, Ground, Seconds, process};
use crate::cli::table::{bytes, grouped};
use clap::Args;
use std::time::Duration;

/// The memory counts as flat when it grows by less than this share in the second half. All of ours is taken at the start,
/// but a page of it is only there once it was used: up to the sum of the plan and [`OTHERS`], growth means nothing.
const GROWTH_MAX: f64 = 0.10;
/// What is not in the plan: the program, the client library's own queues, the load.
const OTHERS: u64 = 64 << 20;

#[derive(Args)]
pub(super) struct Ceiling {
    #[command(flatten)]
    at: Where,
    #[command(flatten)]
    seconds: Seconds,
}

impl Ceiling {
    pub(super) fn run(&self, context: &Context) -> Result<Outcome, CliError> {
        let ground = Ground::prepare(&self.at, context)?;
        let (load, length) = (Load::new(), self.seconds.span());
        let mut fencepost = Fencepost::start(&ground, &load)?;
        let at_start = process::memory()?;
        let (mut timeline, mut progress) = (Timeline::of(length), Progress::new());
        let mut watch = |fencepost: &Fencepost<'_>, elapsed: Duration, acked: u64| {
            timeline.look(elapsed, fencepost.router())?;
            progress.tell(|| {
                let resident = timeline.last().map_or(0, |sample| sample.memory_bytes);
                let (seconds, acked) = (elapsed.as_secs(), grouped(acked));
                format!("{seconds:>4} s  {acked:>14} acknowledged  {:>10} resident", bytes(resident))
            });
            Ok(())
        };
        let result = flood(&mut fencepost, Until::Span(length), context, &mut watch)?;
        let at_end = process::memory()?;
        let halfway = timeline.at(length / 2).map_or(at_start, |sample| sample.memory_bytes);
        let taken = fencepost.taken();
        let planned = fencepost.router().memory().total();
        let report = fencepost.stop();
        let is_flat = at_end <= planned + OTHERS || at_end as f64 <= halfway as f64 * (1.0 + GROWTH_MAX);

        let mut outcome = Outcome::new("ceiling", "The router as fast as it goes, fed by one ingress.".into());
        ground.describe(&mut outcome);
        outcome.set("seconds", "for", self.seconds.seconds, Unit::Seconds);
        outcome.figure("rate", "acknowledged", result.rate, Unit::PerSecond);
        outcome.figure("cpu_ns", "CPU time a trigger, all threads of this process", result.cpu_ns, Unit::Nanos);
        outcome.figure("memory_planned_bytes", "memory planned at start", planned, Unit::Bytes);
        outcome.figure("memory_start_bytes", "resident at the start", at_start, Unit::Bytes);
        outcome.figure("memory_halfway_bytes", "resident half way", halfway, Unit::Bytes);
        outcome.figure("memory_end_bytes", "resident at the end", at_end, Unit::Bytes);
        check_counts(&mut outcome, &report, taken);
        let limit = bytes(planned + OTHERS);
        outcome.check(
            "memory_is_flat",
            is_flat,
            if is_flat {
                format!(
                    "memory is flat: within {limit} (the plan and 64 MiB), or less than a tenth more since half way"
                )
            } else {
                format!("memory grew by more than a tenth since half way, beyond {limit} (the plan and 64 MiB)")
            },
        );
        outcome.charts.extend([timeline.throughput(), timeline.memory()]);
        outcome.tables.push(timeline.table());
        let columns = [("stage", Unit::None), ("P50", Unit::Nanos), ("P99", Unit::Nanos), ("max", Unit::Nanos)];
        let mut stages = Table::new("Stages of a trigger's way, at this load", &columns);
        for (name, stage) in report.stages.named() {
            let [p50, p99, max] = [stage.quantile(0.5), stage.quantile(0.99), stage.max()].map(|span| span.0.into());
            stages.row([name.into(), p50, p99, max]);
        }
        outcome.tables.push(stages);
        Ok(outcome)
    }
}
