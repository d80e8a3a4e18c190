//! What another shard brings: the router with 1 to n shards, as fast as each goes, without Kafka or with it.

use super::context::{Context, Progress};
use super::driver::{Driver, Flood, Submitter, Until, flood};
use super::ground::Where;
use super::load::Load;
use super::outcome::{Axis, Chart, Outcome, Table, Unit};
use super::{CliError, Ground, PARTITIONS, Seconds, process};
use crate::cli::table::grouped;
use crate::clock::SystemClock;
use crate::config::Config;
use crate::engine::{Assembly, Blueprint, Report, Router};
use crate::shard::Policy;
use crate::shard::idle::Strategy;
use crate::sink::null::NullSink;
use crate::topology::{self, affinity};
use clap::{Args, ValueEnum};
use std::convert::Infallible;
use std::time::{Duration, Instant};

/// Partitions behind the null sink: as many as the most shards.
const NULL_PARTITIONS: u32 = 64;
/// Frames that the null sink takes at a time.
const NULL_WINDOW: usize = 65_536;

/// What stands behind the shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Behind {
    /// Nothing: every frame is acknowledged at once. It measures the router alone.
    Null,
    /// Brokers: --kafka's, or the mock.
    Kafka,
}

#[derive(Args)]
pub(super) struct Shards {
    #[command(flatten)]
    at: Where,
    #[command(flatten)]
    seconds: Seconds,
    /// What takes the frames.
    #[arg(long, value_enum, default_value_t = Behind::Null)]
    sink: Behind,
    /// The most shards; without it as many as there are CPUs.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    max: Option<u16>,
    /// Threads that submit, each through an ingress of its own.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    ingresses: u16,
}

/// One number of shards.
struct Row {
    shards: u16,
    flood: Flood,
    report: Report,
}

impl Shards {
    pub(super) fn run(&self, context: &Context) -> Result<Outcome, CliError> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u16;
        let max = self.max.unwrap_or(cores.min(if self.sink == Behind::Null { 64 } else { PARTITIONS as u16 }));
        if self.sink == Behind::Kafka && u32::from(max) > PARTITIONS && self.at.config.is_none() {
            return Err(CliError::Usage(format!(
                "--max {max}, allowed 1..={PARTITIONS} with --sink kafka: the topic made here has {PARTITIONS} partitions, \
                 and a shard without one has nothing to do"
            )));
        }
        let ground = match self.sink {
            Behind::Null => None,
            Behind::Kafka => Some(Ground::prepare(&self.at, context)?),
        };
        let load = Load::new();
        let mut rows = Vec::new();
        for shards in 1..=max {
            let router = self.router(shards, ground.as_ref())?;
            let flood = self.flood(&router, &load, context)?;
            let report = router.shutdown(Duration::from_secs(5));
            tell!("  {shards:>2} shards  {:>11}/s  {:>6.0} ns CPU", grouped(flood.rate as u64), flood.cpu_ns);
            rows.push(Row { shards, flood, report });
            if context.is_stopped() {
                break;
            }
        }
        Ok(self.outcome(ground.as_ref(), cores, &rows))
    }

    fn router(&self, shards: u16, ground: Option<&Ground>) -> Result<Router, CliError> {
        let mut config = ground.map_or_else(Config::default, |ground| ground.config.clone());
        config.engine.shards = shards;
        config.queue.ingresses = self.ingresses.into();
        // A partition's window fits into its shard's share of all that may be in flight.
        config.inflight.partition = config.inflight.partition.min(config.inflight.total / usize::from(shards));
        if ground.is_some() {
            return Ok(Router::start(&config)?.0);
        }
        let blueprint = Blueprint {
            limits: config.limits()?,
            partitions: NULL_PARTITIONS,
            router_id: "bench".into(),
            incarnation: 1,
            record_time_is_event: false,
            policy: Policy::Refuse,
            has_disk: false,
            has_letters: false,
            hash_seed: None,
        };
        let make_sink = |_, _| Ok::<_, Infallible>(NullSink::new(0, NULL_WINDOW));
        let Ok(assembly) = Assembly::new(&blueprint, SystemClock::new(), make_sink);
        let unavailable = |error: String| CliError::Unavailable(format!("placing the shards: {error}"));
        let allowed = affinity::allowed().map_err(|error| unavailable(error.to_string()))?;
        let placed = topology::place(shards.into(), &[], &allowed).map_err(|error| unavailable(error.to_string()))?;
        Router::run(assembly, &placed, Strategy::Park).map_err(|error| unavailable(error.to_string()))
    }

    /// Each ingress as fast as it goes, on a thread of its own.
    fn flood(&self, router: &Router, load: &Load, context: &Context) -> Result<Flood, CliError> {
        let (began, cpu) = (Instant::now(), process::cpu_time()?);
        let (of, until) = (u64::from(self.ingresses), Until::Span(self.seconds.span()));
        let mut submitters: Vec<_> = (0..of).map(|index| Submitter::new(router, load, index, of)).collect();
        let floods: Vec<Result<Flood, CliError>> = std::thread::scope(|scope| {
            let threads: Vec<_> = submitters
                .iter_mut()
                .map(|submitter| {
                    let mut progress = Progress::new();
                    scope.spawn(move || {
                        flood(submitter, until, context, &mut |submitter, elapsed, _| {
                            progress.tell(|| {
                                format!("{:>4} s  {:>14} taken", elapsed.as_secs(), grouped(submitter.taken()))
                            });
                            Ok(())
                        })
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("a submitter does not panic")).collect()
        });
        let records = floods.into_iter().map(|flood| flood.map(|flood| flood.records)).sum::<Result<u64, _>>()?;
        let cpu = process::cpu_time()?.saturating_sub(cpu);
        Ok(Flood {
            rate: records as f64 / began.elapsed().as_secs_f64(),
            cpu_ns: cpu.as_nanos() as f64 / records.max(1) as f64,
            records,
        })
    }

    fn outcome(&self, ground: Option<&Ground>, cores: u16, rows: &[Row]) -> Outcome {
        let mut outcome = Outcome::new("shards", "The router with more and more shards, as fast as each goes.".into());
        match ground {
            Some(ground) => {
                ground.describe(&mut outcome);
                // They are what is measured.
                outcome.settings.retain(|setting| setting.name != "shards");
            }
            None => outcome.set("brokers", "brokers", "none, a null sink", Unit::None),
        }
        outcome.set("ingresses", "submitting threads", u64::from(self.ingresses), Unit::Count);
        outcome.set("seconds", "each", self.seconds.seconds, Unit::Seconds);
        let columns = [
            ("shards", Unit::Count),
            ("rate", Unit::PerSecond),
            ("of one shard", Unit::Ratio),
            ("CPU each", Unit::Nanos),
            ("delivered", Unit::Count),
        ];
        let mut table = Table::new("By number of shards", &columns);
        for Row { shards, flood, report } in rows {
            let ratio = flood.rate / rows[0].flood.rate;
            let delivered = report.counts.delivered.into();
            table.row([u64::from(*shards).into(), flood.rate.into(), ratio.into(), flood.cpu_ns.into(), delivered]);
        }
        let (x, y) = (Axis::linear("shards", Unit::Count), Axis::linear("triggers a second", Unit::PerSecond));
        let mut chart = Chart::new("Rate by number of shards", x, y);
        chart.curve("fencepost", rows.iter().map(|row| (f64::from(row.shards), row.flood.rate)));
        let taken: u64 = rows.iter().map(|row| row.flood.records).sum();
        let delivered: u64 = rows.iter().map(|row| row.report.counts.delivered).sum();
        outcome.figure("accepted", "accepted", taken, Unit::Count);
        outcome.figure("delivered", "delivered", delivered, Unit::Count);
        let adds_up = rows.iter().all(|row| {
            let counts = &row.report.counts;
            counts.add_up() && counts.delivered == row.flood.records
        });
        let found = format!("{} of {} accepted triggers are acknowledged", grouped(delivered), grouped(taken));
        outcome.check("adds_up", adds_up, found);
        outcome.tables.push(table);
        outcome.charts.push(chart);
        outcome.notes.push(format!(
            "This process may use {cores} CPUs. Each shard and each submitting thread wants one; beyond that they take turns, \
             and more shards bring nothing."
        ));
        outcome
    }
}
