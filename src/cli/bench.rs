//! `fencepost bench`: what the router costs and what it adds, measured on this machine, now.
//!
//! Each subcommand measures one thing and returns an [`Outcome`](outcome::Outcome), which is shown as text, as a JSON
//! document (`--json`) and as an HTML page (`--html`). The figures that matter are ratios: the router and the client library
//! alone take turns in one run, with the same properties, records and partitions, so that what else the machine does hits
//! both alike. Medians stand for all turns.
//!
//! Without `--kafka` the brokers are the client library's mock, in a process of their own, so that the CPU time of this one
//! is the router's and the client's alone. The mock stores nothing and answers at once: it measures clients.

mod base;
mod broker;
mod ceiling;
mod consumer;
mod context;
mod dedup;
mod document;
mod drain;
mod driver;
mod ground;
mod histogram;
mod latency;
mod load;
mod machine;
mod outage;
mod outcome;
mod pace;
mod process;
mod raw;
mod report;
mod restart;
mod shards;
mod text;
mod timeline;
mod versus;

use super::{CliError, Exit};
use crate::clock::{Clock, SystemClock};
use clap::{Args, Subcommand};
use context::Context;
use document::{Document, Program};
use ground::Ground;
use machine::Machine;
use report::flame::Profiler;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Partitions of a topic made here.
const PARTITIONS: u32 = 12;
/// The topic, unless a configuration names one.
const TOPIC: &str = "fencepost-bench";
/// The file name that stands for standard output.
const STDOUT: &str = "-";

/// Measures the router on this machine, now: latency, ceiling, outages, drains, restarts, and what a part of it costs.
///
/// Without --kafka the brokers are the client library's mock, in a process of their own; no Kafka is needed. With it, the
/// topic is created if it is missing, and is left full of records: use one that nobody reads.
///
/// Progress goes to standard error, the result to standard output. Ctrl-C ends a measurement early: what was accepted is
/// still delivered and checked, and the result is of what was done by then; a second one ends at once. The exit code is 0
/// when all is well, 1 when what was checked is wrong (something was lost, doubled, reordered or not delivered, or memory
/// grew), 2 for the command line or the configuration, and 3 when brokers, memory or a file are not available.
#[derive(Args)]
pub struct Bench {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    output: Output,
}

/// Where the result goes besides the terminal.
#[derive(Args)]
struct Output {
    /// Write the result as one JSON document, which names its schema, the command, the machine and each number's unit;
    /// - is standard output, and then nothing else is printed there.
    #[arg(long, global = true, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the result as an HTML page that needs nothing else: charts, tables, and the machine's facts.
    #[arg(long, global = true, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Show in the HTML page where the CPU time went, as a flame graph; needs `perf`, and the right to use it.
    #[arg(long, global = true, requires = "html")]
    flame: bool,
}

#[derive(Subcommand)]
enum What {
    /// As fast as it goes: triggers a second, CPU per trigger, and whether the memory stays flat.
    Ceiling(ceiling::Ceiling),
    /// At a rate, open loop: the time from submit to acknowledgement and to a consumer, the router and the client alone in
    /// turns.
    ///
    /// A trigger's time begins when it was due, not when the loop came to it (coordinated omission). It ends when it and
    /// all before it are acknowledged, which is what `settled()` says to a source, or when a consumer in this process has
    /// it; all moments are of one clock.
    E2e(latency::E2e),
    /// The router against the client library: the same settings and records, in turns, as fast as each goes.
    ///
    /// `raw` is librdkafka alone: frames made beforehand, handed over without a copy by one thread, reports taken as
    /// events. `base` is the safe producer of the Rust client on top of it.
    VsLibrdkafka(versus::Versus),
    /// Brokers frozen in the middle of a steady load: what goes over the disk, how fast it comes back, and whether anything
    /// was lost, doubled or reordered.
    ///
    /// Brokers are frozen by SIGSTOP: connections stay open and nothing answers. A consumer reads the whole topic, and the
    /// verdict compares it with what was accepted. On Kafka, name the process of each broker with --broker-pid.
    Outage(outage::Outage),
    /// How fast a filled spill drains once the brokers are back, alone and beside live traffic.
    ///
    /// The brokers go away, triggers are submitted as fast as the disk settles them, the brokers come back. Done twice with
    /// one router: the second time, live traffic queues behind what is on disk, in order.
    Drain(drain::Drain),
    /// What an ask of the dedup window costs from 100,000 to 16 million keys, each beside a bare random read of as much
    /// memory. No Kafka, no other thread.
    ///
    /// A window that costs more than the memory it lies in would show as a growing ratio to the chained read. 16 million
    /// keys take some 3 GB.
    DedupScale(dedup::DedupScale),
    /// What another shard brings: the router with 1 to n shards, with nothing behind them or with brokers.
    Shards(shards::Shards),
    /// How long a start takes that reads its dedup window from the topic, and how many records a second that is.
    ///
    /// The topic is filled by a router that stops; then others start on it, by turns with the offsets that the first one
    /// left and with an empty state directory. Each must collapse what is submitted again.
    Restart(restart::Restart),
    /// The mock's own process.
    #[command(hide = true)]
    Brokers,
}

/// How long a turn takes.
#[derive(Args, Clone, Copy)]
struct Seconds {
    /// How long each turn takes, in seconds.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
}

impl Seconds {
    fn span(self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

impl Bench {
    pub(super) fn run(self) -> Result<Exit, CliError> {
        if matches!(self.what, What::Brokers) {
            return broker::serve();
        }
        // Before anything is measured: a report that cannot be written is not worth an hour.
        for path in [&self.output.json, &self.output.html].into_iter().flatten().filter(|path| !is_stdout(path)) {
            fs::write(path, "").map_err(|error| unwritable(path, &error))?;
        }
        if self.output.html.as_deref().is_some_and(is_stdout) {
            return Err(CliError::Usage("--html -: a page goes to a file; name one".into()));
        }
        let context = Context::listen()?;
        let (mut machine, began) = (Machine::read(), Instant::now());
        let wall = SystemClock::new().now().wall.as_ms();
        let profiler = self.output.flame.then(|| Profiler::start(&context)).transpose()?;
        let mut outcome = match &self.what {
            What::Ceiling(ceiling) => ceiling.run(&context),
            What::E2e(e2e) => e2e.run(&context),
            What::VsLibrdkafka(versus) => versus.run(&context),
            What::Outage(outage) => outage.run(&context),
            What::Drain(drain) => drain.run(&context),
            What::DedupScale(dedup) => dedup.run(&context),
            What::Shards(shards) => shards.run(&context),
            What::Restart(restart) => restart.run(&context),
            What::Brokers => return broker::serve(),
        }?;
        let flame = profiler.map(Profiler::finish).transpose()?;
        machine.note_end();
        outcome.is_interrupted = context.is_stopped();
        let document = Document {
            schema: document::SCHEMA.into(),
            version: document::VERSION,
            program: Program::this(),
            command: std::env::args().collect(),
            began: report::date::utc(wall.0),
            took_seconds: began.elapsed().as_secs_f64(),
            machine,
            outcome,
            flame,
        };
        self.output.write(&document)?;
        Ok(if document.outcome.is_good() { Exit::Done } else { Exit::Wrong })
    }
}

impl Output {
    fn write(&self, document: &Document) -> Result<(), CliError> {
        match &self.json {
            Some(path) if is_stdout(path) => super::say::out(format_args!("{}", document.json())),
            json => {
                super::say::out(format_args!("{}", text::text(document)));
                if let Some(path) = json {
                    fs::write(path, document.json()).map_err(|error| unwritable(path, &error))?;
                }
            }
        }
        if let Some(path) = &self.html {
            fs::write(path, report::page(document)).map_err(|error| unwritable(path, &error))?;
            tell!("the report is in {}", path.display());
        }
        Ok(())
    }
}

fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == STDOUT
}

fn unwritable(path: &Path, error: &std::io::Error) -> CliError {
    let path = path.display();
    CliError::Unavailable(format!("{path}: {error}; name a file in a directory that this user may write"))
}

/// The middle of some figures, and between which bounds the middle half of them lies.
#[derive(Clone, Copy, Debug)]
struct Spread {
    median: f64,
    low: f64,
    high: f64,
}

impl Spread {
    /// `None`: there are no values.
    fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let last = values.len().checked_sub(1)?;
        let at = |quantile: f64| values[(last as f64 * quantile).round() as usize];
        Some(Spread { median: at(0.5), low: at(0.25), high: at(0.75) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_of_none_of_one_and_of_five() {
        assert!(Spread::of([]).is_none());
        let one = Spread::of([3.0]).unwrap();
        assert_eq!((one.low, one.median, one.high), (3.0, 3.0, 3.0));
        let five = Spread::of([5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        assert_eq!((five.low, five.median, five.high), (2.0, 3.0, 4.0));
    }
}
