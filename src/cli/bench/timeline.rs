//! A run as time goes: the router's counters and the memory of this process, looked at several times a second, and the
//! curves and tables that are made of them.

use super::outcome::{Axis, Chart, Table, Unit};
use super::process;
use crate::cli::CliError;
use crate::engine::Router;
use std::time::Duration;

/// Between two samples, for runs of up to [`SAMPLES`] of them; longer runs are looked at more seldom.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
const SAMPLES: u32 = 600;
/// Rows of the table on memory.
const ROWS: usize = 20;

/// One look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) at: Duration,
    pub(super) accepted: u64,
    pub(super) delivered: u64,
    pub(super) spilled: u64,
    pub(super) in_spill: u64,
    pub(super) memory_bytes: u64,
}

/// See the [module](self).
pub(super) struct Timeline {
    every: Duration,
    samples: Vec<Sample>,
}

impl Timeline {
    /// For a run that takes about so long.
    pub(super) fn of(run: Duration) -> Timeline {
        Timeline { every: SAMPLE_EVERY.max(run / SAMPLES), samples: Vec::new() }
    }

    /// Takes a sample if one is due. True: one was.
    pub(super) fn look(&mut self, at: Duration, router: &Router) -> Result<bool, CliError> {
        let is_due = self.samples.last().is_none_or(|last| at >= last.at + self.every);
        if is_due {
            let counts = router.counts();
            self.samples.push(Sample {
                at,
                accepted: counts.accepted,
                delivered: counts.delivered,
                spilled: counts.spilled,
                in_spill: counts.in_spill,
                memory_bytes: process::memory()?,
            });
        }
        Ok(is_due)
    }

    pub(super) fn last(&self) -> Option<&Sample> {
        self.samples.last()
    }

    /// The largest of something.
    pub(super) fn most(&self, of: impl Fn(&Sample) -> u64) -> u64 {
        self.samples.iter().map(of).max().unwrap_or(0)
    }

    /// The last sample up to a moment.
    pub(super) fn at(&self, moment: Duration) -> Option<&Sample> {
        self.samples.iter().take_while(|sample| sample.at <= moment).last()
    }

    /// How fast a counter grows, between each sample and the one before.
    fn rate(&self, of: impl Fn(&Sample) -> u64) -> Vec<(f64, f64)> {
        let step = |pair: &[Sample]| {
            let span = (pair[1].at - pair[0].at).as_secs_f64();
            (pair[1].at.as_secs_f64(), of(&pair[1]).saturating_sub(of(&pair[0])) as f64 / span)
        };
        self.samples.windows(2).map(step).collect()
    }

    fn level(&self, of: impl Fn(&Sample) -> u64) -> Vec<(f64, f64)> {
        self.samples.iter().map(|sample| (sample.at.as_secs_f64(), of(sample) as f64)).collect()
    }

    /// Throughput: what was accepted, acknowledged by the brokers, and settled by the disk where there is one.
    pub(super) fn throughput(&self) -> Chart {
        let mut chart = Chart::over_time("Throughput over time", Axis::linear("triggers a second", Unit::PerSecond));
        chart.curve("accepted", self.rate(|sample| sample.accepted));
        chart.curve("delivered", self.rate(|sample| sample.delivered));
        if self.most(|sample| sample.spilled) > 0 {
            chart.curve("spilled", self.rate(|sample| sample.spilled));
        }
        chart
    }

    /// What lies on disk.
    pub(super) fn in_spill(&self) -> Chart {
        let mut chart = Chart::over_time("On disk over time", Axis::linear("triggers in the spill", Unit::Count));
        chart.curve("in the spill", self.level(|sample| sample.in_spill));
        chart
    }

    /// Resident memory.
    pub(super) fn memory(&self) -> Chart {
        let mut chart = Chart::over_time("Memory over time", Axis::linear("resident memory", Unit::Bytes));
        chart.curve("resident", self.level(|sample| sample.memory_bytes));
        chart
    }

    /// The samples, thinned out.
    pub(super) fn table(&self) -> Table {
        let columns = [
            ("at", Unit::Seconds),
            ("accepted", Unit::Count),
            ("delivered", Unit::Count),
            ("in spill", Unit::Count),
            ("memory", Unit::Bytes),
        ];
        let mut table = Table::new("As time went", &columns);
        let each = self.samples.len().div_ceil(ROWS).max(1);
        for sample in self.samples.iter().step_by(each) {
            let Sample { at, accepted, delivered, in_spill, memory_bytes, .. } = *sample;
            let at = at.as_secs_f64();
            table.row([at.into(), accepted.into(), delivered.into(), in_spill.into(), memory_bytes.into()]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_ms: u64, accepted: u64) -> Sample {
        let at = Duration::from_millis(at_ms);
        Sample { at, accepted, delivered: accepted / 2, spilled: 0, in_spill: 0, memory_bytes: 1 << 20 }
    }

    #[test]
    fn rates_are_differences_and_tables_are_thin() {
        let samples = (0..100).map(|n| sample(n * 100, n * 500)).collect();
        let timeline = Timeline { every: SAMPLE_EVERY, samples };
        let chart = timeline.throughput();
        assert_eq!(chart.series.len(), 2, "nothing was spilled");
        assert_eq!(chart.series[0].points.len(), 99);
        assert!(chart.series[0].points.iter().all(|point| (point.1 - 5_000.0).abs() < 1e-6));
        assert_eq!(timeline.table().rows.len(), ROWS);
        assert_eq!(timeline.at(Duration::from_millis(250)).unwrap().accepted, 1_000);
        assert!(Timeline::of(Duration::from_secs(3_600)).every >= Duration::from_secs(6));
    }
}
