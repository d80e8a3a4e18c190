//! How fast a filled spill drains: alone, and beside live traffic.
//!
//! The brokers are away, triggers are submitted as fast as the disk settles them, then the brokers come back. That is done
//! twice with one router: nobody submits during the first drain, and an open loop does during the second one.

use super::consumer::{Tail, Watching};
use super::context::{Context, Progress};
use super::driver::{DRAIN_LIMIT, Driver, Fencepost, Flood, Until, check_counts, flood};
use super::ground::Where;
use super::load::Load;
use super::outage::{Frozen, check_topic, processes, wait_for_the_disk};
use super::outcome::{Band, Outcome, Table, Unit};
use super::pace::Pace;
use super::timeline::Timeline;
use super::{CliError, Ground};
use crate::cli::table::grouped;
use clap::Args;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// How many may be filled in: what the disk's limit and the checker's memory bear twice.
const RECORDS: RangeInclusive<u64> = 1_000..=8_000_000;
/// Partitions count as stalled soon: the fill shall measure the disk, not the patience.
const GRACE: Duration = Duration::from_millis(200);
/// Between two looks at an emptying spill.
const LOOK_EVERY: Duration = Duration::from_millis(1);

#[derive(Args)]
pub(super) struct Drain {
    #[command(flatten)]
    at: Where,
    /// The processes of the brokers, to be frozen while the spill is filled; needed with --kafka, once for each broker.
    #[arg(long, value_name = "PID")]
    broker_pid: Vec<u32>,
    /// How many triggers are on disk when a drain begins.
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(RECORDS))]
    records: u64,
    /// Triggers a second of the live traffic beside the second drain.
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate: u64,
}

/// Brokers that are away; they come back when this is dropped or told to.
enum Away {
    /// The mock's cannot be reached: nothing of ours lies in their sockets, however long it takes.
    Down,
    Frozen(Frozen),
}

/// One drain.
struct Drained {
    name: &'static str,
    fill: Flood,
    /// On disk at its beginning.
    on_disk: u64,
    /// From when the brokers were back until the first came back from the disk, and until the disk was empty.
    first: Duration,
    all: Duration,
    /// How many came back, live ones that had to queue behind among them.
    drained: u64,
    /// Submitted meanwhile.
    live: u64,
    /// From the beginning of the measurement.
    from: Duration,
}

/// What both drains share.
struct Scene<'a> {
    context: &'a Context,
    fencepost: Fencepost<'a>,
    timeline: Timeline,
    began: Instant,
    processes: Vec<u32>,
}

impl Drain {
    pub(super) fn run(&self, context: &Context) -> Result<Outcome, CliError> {
        let mut ground = Ground::prepare(&self.at, context)?;
        let processes = processes(&ground, &self.broker_pid, context)?;
        let scratch = context.scratch()?;
        ground.spill_to(scratch.path());
        ground.config.breaker.grace = GRACE;
        let load = Load::new();
        let fencepost = Fencepost::start(&ground, &load)?;
        let tail = Tail::start(&ground, &load, Watching::Everything)?;
        let (timeline, began) = (Timeline::of(Duration::from_secs(30)), Instant::now());
        let mut scene = Scene { context, fencepost, timeline, began, processes };
        let mut drains = Vec::new();
        for (name, rate) in [("alone", None), ("beside live traffic", Some(self.rate))] {
            let away = scene.send_away(&mut ground)?;
            let fill = scene.fill(self.records)?;
            drains.push(scene.drain(name, fill, rate, away, &mut ground)?);
            if context.is_stopped() {
                break;
            }
        }
        let Scene { fencepost, mut timeline, began, .. } = scene;
        wait_for_the_disk(&fencepost, &mut timeline, began)?;
        let taken = fencepost.taken();
        let report = fencepost.stop();
        let seen = tail.finish()?;
        tell!("  comparing {} records with {} accepted triggers", grouped(seen.records), grouped(taken));

        let title = format!("A spill of {} triggers drains, alone and beside live traffic.", grouped(self.records));
        let mut outcome = Outcome::new("drain", title);
        ground.describe(&mut outcome);
        outcome.set("records", "filled in", self.records, Unit::Count);
        outcome.set("rate", "live traffic", self.rate, Unit::PerSecond);
        let columns = [
            ("drain", Unit::None),
            ("fill", Unit::PerSecond),
            ("on disk", Unit::Count),
            ("first after", Unit::Seconds),
            ("empty after", Unit::Seconds),
            ("drained", Unit::Count),
            ("drain rate", Unit::PerSecond),
            ("live", Unit::Count),
        ];
        let mut table = Table::new("Drains; the rate is from the first record that came back to the last", &columns);
        let mut chart = timeline.in_spill();
        for drain in &drains {
            let Drained { name, fill, on_disk, first, all, drained, live, from } = drain;
            let (first, all) = (first.as_secs_f64(), all.as_secs_f64());
            let rate = *drained as f64 / (all - first).max(1e-9);
            let cells = [fill.rate.into(), (*on_disk).into(), first.into(), all.into(), (*drained).into(), rate.into()];
            let [fill_rate, on_disk, first, all_cell, drained, rate_cell] = cells;
            table.row([(*name).into(), fill_rate, on_disk, first, all_cell, drained, rate_cell, (*live).into()]);
            let figure = if live > &0 { "live_drain_rate" } else { "alone_drain_rate" };
            outcome.figure(figure, &format!("drain rate {name}"), rate, Unit::PerSecond);
            let from = from.as_secs_f64();
            chart.bands.push(Band { label: format!("drain {name}"), from, to: from + all });
        }
        outcome.figure("spilled", "settled by the disk alone", report.counts.spilled, Unit::Count);
        outcome.figure("drained", "back from the disk", report.counts.drained, Unit::Count);
        outcome.tables.push(table);
        outcome.charts.extend([chart, timeline.throughput()]);
        check_counts(&mut outcome, &report, taken);
        let (spilled, drained) = (report.counts.spilled, report.counts.drained);
        let found = format!("{} of {} spilled triggers came back", grouped(drained), grouped(spilled));
        outcome.check("drained", spilled == drained, found);
        check_topic(&mut outcome, seen, &load, taken);
        Ok(outcome)
    }
}

impl Scene<'_> {
    fn send_away(&self, ground: &mut Ground) -> Result<Away, CliError> {
        match &mut ground.mock {
            Some(mock) => mock.set_down(true).map(|()| Away::Down),
            None => Frozen::freeze(&self.processes).map(Away::Frozen),
        }
    }

    /// As fast as the disk settles them.
    fn fill(&mut self, records: u64) -> Result<Flood, CliError> {
        let (mut progress, began) = (Progress::new(), self.began);
        let timeline = &mut self.timeline;
        flood(&mut self.fencepost, Until::Records(records), self.context, &mut |fencepost, _, settled| {
            timeline.look(began.elapsed(), fencepost.router())?;
            progress.tell(|| format!("filling, {:>11} of {} settled", grouped(settled), grouped(records)));
            Ok(())
        })
    }

    /// Brings the brokers back, and goes on until the disk is empty.
    fn drain(
        &mut self,
        name: &'static str,
        fill: Flood,
        rate: Option<u64>,
        away: Away,
        ground: &mut Ground,
    ) -> Result<Drained, CliError> {
        let before = self.fencepost.router().counts();
        match away {
            Away::Down => ground.mock.as_mut().map_or(Ok(()), |mock| mock.set_down(false))?,
            Away::Frozen(frozen) => drop(frozen),
        }
        let (thawed, taken) = (Instant::now(), self.fencepost.taken());
        let from = self.began.elapsed();
        let (mut first, mut all, mut drained) = (None, None, 0);
        let (mut progress, began) = (Progress::new(), self.began);
        let timeline = &mut self.timeline;
        // True: it is not empty yet.
        let mut look = |fencepost: &mut Fencepost<'_>| {
            timeline.look(began.elapsed(), fencepost.router())?;
            let counts = fencepost.router().counts();
            drained = counts.drained - before.drained;
            if drained > 0 {
                first.get_or_insert(thawed.elapsed());
            }
            if counts.in_spill == 0 {
                all.get_or_insert(thawed.elapsed());
            }
            progress.tell(|| format!("draining {name}, {:>11} on disk", grouped(counts.in_spill)));
            if all.is_none() && thawed.elapsed() > 10 * DRAIN_LIMIT {
                let why = format!("{} triggers are still on disk after {:?}", counts.in_spill, thawed.elapsed());
                return Err(CliError::Wrong(why));
            }
            Ok(all.is_none())
        };
        match rate {
            Some(rate) => {
                let pace = Pace::new(rate, taken, 0);
                pace.drive(&mut self.fencepost, u64::MAX, self.context, &mut |fencepost, _| look(fencepost))?;
            }
            None => {
                while look(&mut self.fencepost)? {
                    std::thread::sleep(LOOK_EVERY);
                }
            }
        }
        // An interrupted load leaves a drain that goes on.
        while look(&mut self.fencepost)? {
            std::thread::sleep(LOOK_EVERY);
        }
        let live = self.fencepost.taken() - taken;
        let all = all.unwrap_or_else(|| thawed.elapsed());
        let first = first.unwrap_or(all);
        Ok(Drained { name, fill, on_disk: before.in_spill, first, all, drained, live, from })
    }
}
