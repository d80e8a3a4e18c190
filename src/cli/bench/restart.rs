//! How long a start takes that finds its dedup window in the topic: with the offsets of the last run, and without.

use super::context::{Context, Progress};
use super::driver::{Driver, Fencepost, Until, check_counts, flood};
use super::ground::Where;
use super::load::Load;
use super::outcome::{Outcome, Table, Unit};
use super::{CliError, Ground, process};
use crate::cli::table::grouped;
use crate::config::DivertPolicy;
use crate::engine::{Readiness, Router};
use clap::Args;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::{Duration, Instant};

/// How many the topic may be filled with.
const RECORDS: RangeInclusive<u64> = 1_000..=20_000_000;
/// All that a run fills in is within the window.
const TTL: Duration = Duration::from_secs(3_600);
const START_LIMIT: Duration = Duration::from_secs(900);
/// What is submitted again after each start, at most: repeats that the window must know.
const REPEATS: u64 = 100_000;

#[derive(Args)]
pub(super) struct Restart {
    #[command(flatten)]
    at: Where,
    /// How many records the topic is filled with; the mock keeps 5 MB a partition.
    #[arg(long, value_name = "N", default_value_t = 300_000, value_parser = clap::value_parser!(u64).range(RECORDS))]
    records: u64,
    /// How many starts of each kind.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
}

/// One start.
struct Start {
    name: &'static str,
    took: Duration,
    readiness: Readiness,
    memory_bytes: u64,
    /// Submitted again, and of those collapsed.
    repeats: u64,
    collapsed: u64,
}

impl Restart {
    pub(super) fn run(&self, context: &Context) -> Result<Outcome, CliError> {
        let mut ground = Ground::prepare(&self.at, context)?;
        let scratch = context.scratch()?;
        let state = |name: &str| scratch.path().join(name);
        ground.config.dedup.ttl = TTL;
        ground.config.dedup.capacity = ground.config.dedup.capacity.max(self.records as usize);
        ground.config.start.timeout = START_LIMIT;
        // What a slow broker does not take at once shall wait here, and not on the disk: the topic is to be filled.
        ground.keep_state_in(&state("filled"), DivertPolicy::Refuse);
        let load = Load::new();
        let mut fencepost = Fencepost::start(&ground, &load)?;
        let mut progress = Progress::new();
        let filled = flood(&mut fencepost, Until::Records(self.records), context, &mut |_, _, acked| {
            progress.tell(|| format!("filling the topic, {:>11} of {}", grouped(acked), grouped(self.records)));
            Ok(())
        })?;
        let report = fencepost.stop();

        ground.config.dedup.warm_start = true;
        let mut starts: Vec<Start> = Vec::new();
        'rounds: for round in 0..self.rounds {
            let searched = state(&format!("searched-{round}"));
            for (name, dir) in [("offsets known", state("filled")), ("offsets searched", searched)] {
                if context.is_stopped() && !starts.is_empty() {
                    break 'rounds;
                }
                let start = start(name, &dir, &mut ground, &load, filled.records, context)?;
                let read = start.readiness.warm_start.map_or(0, |warm| warm.records);
                tell!("  {name:<16}  {:>7.2} s  {:>11} records", start.took.as_secs_f64(), grouped(read));
                starts.push(start);
            }
        }

        let title = format!("Starts of a router with {} records of its window in the topic.", grouped(filled.records));
        let mut outcome = Outcome::new("restart", title);
        ground.describe(&mut outcome);
        outcome.set("records", "filled in", self.records, Unit::Count);
        check_counts(&mut outcome, &report, filled.records);
        let columns = [
            ("start", Unit::None),
            ("ready after", Unit::Seconds),
            ("of that, reading", Unit::Seconds),
            ("warm-up", Unit::Seconds),
            ("records", Unit::Count),
            ("read", Unit::PerSecond),
            ("keys", Unit::Count),
            ("resident", Unit::Bytes),
            ("repeats collapsed", Unit::Count),
        ];
        let mut table = Table::new("Starts", &columns);
        for start in &starts {
            let warm = start.readiness.warm_start.unwrap_or_default();
            let reading = warm.took.as_secs_f64();
            table.row([
                start.name.into(),
                start.took.as_secs_f64().into(),
                reading.into(),
                (start.readiness.warm_up.0 as f64 / 1e9).into(),
                warm.records.into(),
                (warm.records as f64 / reading).into(),
                warm.keys.into(),
                start.memory_bytes.into(),
                start.collapsed.into(),
            ]);
        }
        for (name, label, of) in [
            ("known", "with the offsets known", "offsets known"),
            ("searched", "with the offsets searched", "offsets searched"),
        ] {
            let of = || starts.iter().filter(|start| start.name == of);
            let took = super::Spread::of(of().map(|start| start.took.as_secs_f64()));
            let rate = super::Spread::of(
                of().filter_map(|start| start.readiness.warm_start)
                    .map(|warm| warm.records as f64 / warm.took.as_secs_f64().max(1e-9)),
            );
            let (took, rate) = (took.map(|spread| spread.median), rate.map(|spread| spread.median));
            outcome.figure(&format!("{name}_ready_seconds"), &format!("ready {label}, median"), took, Unit::Seconds);
            outcome.figure(&format!("{name}_read_rate"), &format!("read {label}, median"), rate, Unit::PerSecond);
        }
        let read = |start: &Start| start.readiness.warm_start.map_or(0, |warm| warm.records);
        let least = starts.iter().map(read).min().unwrap_or(0);
        let is_whole = least >= filled.records;
        outcome.check(
            "read",
            is_whole,
            if is_whole {
                format!("each start read the {} records", grouped(filled.records))
            } else {
                let fix = if ground.mock.is_some() {
                    "the mock keeps 5 MB a partition: take fewer --records, or --kafka"
                } else {
                    "the topic must keep them for an hour, by time and by size"
                };
                format!("a start read {} of {} records; {fix}", grouped(least), grouped(filled.records))
            },
        );
        let (repeats, collapsed) = starts
            .iter()
            .fold((0, 0), |(repeats, collapsed), start| (repeats + start.repeats, collapsed + start.collapsed));
        let found =
            format!("{} of {} triggers that were submitted again were collapsed", grouped(collapsed), grouped(repeats));
        outcome.check("collapsed", repeats == collapsed, found);
        outcome.tables.push(table);
        outcome.notes.push(
            "Ready: Router::start has returned, connections and the producer's id are there, and the window is filled. With \
             the offsets searched, the state directory is new and where to begin is searched from the topic's end."
                .into(),
        );
        Ok(outcome)
    }
}

/// Starts a router, submits the newest triggers again, and stops it.
fn start(
    name: &'static str,
    dir: &Path,
    ground: &mut Ground,
    load: &Load,
    filled: u64,
    context: &Context,
) -> Result<Start, CliError> {
    ground.keep_state_in(dir, DivertPolicy::Refuse);
    let began = Instant::now();
    let (router, readiness) = Router::start(&ground.config)?;
    let (took, memory_bytes) = (began.elapsed(), process::memory()?);
    let repeats = filled.min(REPEATS);
    let mut again = Fencepost::on(router, load, filled - repeats);
    flood(&mut again, Until::Records(repeats), context, &mut |_, _, _| Ok(()))?;
    let repeats = again.taken();
    let counts = again.stop().counts;
    Ok(Start { name, took, readiness, memory_bytes, repeats, collapsed: counts.deduplicated })
}
