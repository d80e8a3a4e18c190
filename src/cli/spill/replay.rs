//! `fencepost spill replay`: a router without a source, which drains what earlier runs left on disk into the topic.

use super::{said, survey};
use crate::cli::directory;
use crate::cli::drain::{self, Drained};
use crate::cli::signals::Signals;
use crate::cli::table::{grouped, span};
use crate::cli::{CliError, Exit};
use crate::config::{Config, DivertPolicy, RouteSource};
use crate::engine::disk::SPILL_DIR;
use crate::engine::{Report, Router, StartError};
use crate::spill::{PartitionFound, Recovery};
use crate::state::StateError;
use clap::Args;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where a number is asked for, so many parts of it may be in flight at once: then it is not exceeded by much.
const PARTS: u64 = 8;
/// Frames of a shard that may be in flight at the least.
const WINDOW_MIN: usize = 16;

/// Sends what earlier runs left on disk to the topic, in order, and ends when nothing is left.
///
/// It takes the configuration of the router that left it, and must be alone: a router that runs on the same state.dir
/// drains it by itself. What is in the topic already is not sent again. It may be stopped at any time, by Ctrl-C or in
/// any other way, and goes on where it was when it is started again. It gives up when nothing has come back from the disk
/// for shutdown.limit.
///
/// Exit codes: 0 everything was drained, or as much as --max asked for; 1 something became a dead letter, or the disk has
/// lost it; 2 the command line or the configuration; 3 the broker or the state directory is not available, or it was stopped
/// before the end: it says what is left.
#[derive(Args)]
pub(super) struct Replay {
    /// The configuration file.
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Stop once N have come back from the disk. What is under way then is still delivered, so it may be some more.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "dry_run")]
    max: Option<u64>,
    /// Say what is there, by partition, and send nothing. It needs no broker and changes nothing. The exit code is that of
    /// `fencepost spill verify`.
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object at the end instead of text.
    #[arg(long)]
    json: bool,
}

impl Replay {
    pub(super) fn run(self) -> Result<Exit, CliError> {
        let mut config = Config::from_file(&self.config)?;
        let Some(state) = config.state.dir.clone() else {
            let file = self.config.display();
            return Err(CliError::Usage(format!(
                "state.dir is missing in {file}: nothing is spilled without it; give the configuration of the router that \
                 left the spill"
            )));
        };
        // A start would make it, and find that nothing is left.
        let fix = format!(
            "the triggers are where the router left them: mount or name its directory in {}",
            self.config.display()
        );
        directory::must_be_there(&state, &format!("state.dir = {}", state.display()), &fix)?;
        let dir = state.join(SPILL_DIR);
        if self.dry_run {
            return Ok(said(&dir, &spilled(&dir)?, self.json));
        }
        self.prepare(&mut config);
        let patience = config.limits()?.shutdown_limit.as_duration();
        let began = Instant::now();
        let (router, readiness) = match Router::start(&config) {
            Ok(started) => started,
            Err(error) => return self.not_started(error, &dir),
        };
        let signals = Signals::listen().map_err(|error| CliError::Unavailable(format!("signals: {error}")))?;
        for warning in router.warnings() {
            tell!("warning: {warning}");
        }
        let (found, took) = (grouped(readiness.recovered), span(readiness.recovery.into()));
        tell!("recovered: {found} triggers from {} in {took}", dir.display());
        let drained = drain::wait(&router, &signals, patience, self.max);
        let report = router.shutdown(patience);
        let end = End { drained, report, took: began.elapsed(), dir: &dir, patience };
        if self.json {
            say!("{}", end.json());
        } else {
            say!("{}", end.text());
        }
        for problem in end.problems() {
            tell!("{problem}");
        }
        Ok(end.exit())
    }

    /// The router's configuration as a replay needs it.
    fn prepare(&self, config: &mut Config) {
        // Without a broker there is nothing to do here, and what comes back from the disk shall go to the topic alone.
        config.start.require_broker = true;
        config.divert.policy = Some(DivertPolicy::Spill);
        // Nothing is submitted: without this the rings of `queue.ingresses` callers count against `spill.limit`, and what
        // `fencepost route` took from one reader is refused here.
        config.route.source = Some(RouteSource::Stdin);
        config.route.resume = false;
        if let Some(max) = self.max {
            let (shards, inflight) = (usize::from(config.engine.shards), &mut config.inflight);
            let window = usize::try_from(max / PARTS).unwrap_or(usize::MAX).max(WINDOW_MIN * shards);
            inflight.total = inflight.total.min(window);
            inflight.partition = inflight.partition.min((inflight.total / shards / 4).max(1));
            inflight.waiting = inflight.waiting.min(window);
        }
    }

    /// What is left, said with why it is.
    fn not_started(&self, error: StartError, dir: &Path) -> Result<Exit, CliError> {
        if error.is_about_config() || matches!(error, StartError::State(StateError::InUse { .. })) {
            return Err(error.into());
        }
        let (recovery, _) = spilled(dir)?;
        if recovery.recovered() == 0 {
            if self.json {
                say!("{}", json!({"found": 0, "left": 0, "ended": "drained"}));
            } else {
                say!("nothing is on disk in {}", dir.display());
            }
            tell!("{error}");
            return Ok(Exit::Done);
        }
        let left = grouped(recovery.records);
        Err(CliError::Unavailable(format!("{error}; {left} triggers are left on disk in {}", dir.display())))
    }
}

/// What lies in the spill of a state directory that is there.
fn spilled(dir: &Path) -> Result<(Recovery, Vec<PartitionFound>), CliError> {
    // A router that never came so far has not made it yet.
    if dir.exists() { survey(dir) } else { Ok((Recovery::default(), Vec::new())) }
}

/// What came of it.
struct End<'a> {
    drained: Drained,
    report: Report,
    took: Duration,
    dir: &'a Path,
    patience: Duration,
}

impl End<'_> {
    fn left(&self) -> u64 {
        self.report.counts.in_spill
    }

    fn problems(&self) -> Vec<String> {
        let counts = &self.report.counts;
        let mut problems = Vec::new();
        for (count, what) in [
            (counts.dead_lettered, "became dead letters: they cannot be delivered"),
            (counts.corrupt, "were settled on disk, and the disk has lost them"),
            (counts.failed, "failed: nothing durable would take them"),
        ] {
            if count > 0 {
                problems.push(format!("{} triggers {what}", grouped(count)));
            }
        }
        if !counts.add_up() || !self.report.lost_shards.is_empty() {
            problems.push(format!(
                "the counters may be off: shards {:?} did not end in time\n{counts}",
                self.report.lost_shards
            ));
        }
        problems
    }

    fn exit(&self) -> Exit {
        if !self.problems().is_empty() {
            return Exit::Wrong;
        }
        match self.drained {
            Drained::Broken => Exit::Unavailable,
            Drained::Enough => Exit::Done,
            _ if self.left() == 0 => Exit::Done,
            Drained::All | Drained::BySignal | Drained::Stalled => Exit::Unavailable,
        }
    }

    fn ended(&self) -> &'static str {
        match self.drained {
            _ if self.left() == 0 => "drained",
            Drained::All => "drained",
            Drained::Enough => "max",
            Drained::BySignal => "signal",
            Drained::Stalled => "stalled",
            Drained::Broken => "failure",
        }
    }

    fn json(&self) -> Value {
        let counts = &self.report.counts;
        let mut all = serde_json::to_value(counts).unwrap_or_else(|_| json!({}));
        let extra = json!({
            "found": counts.recovered,
            "left": self.left(),
            "ended": self.ended(),
            "seconds": self.took.as_secs_f64(),
            "adds_up": counts.add_up(),
        });
        if let (Value::Object(all), Value::Object(extra)) = (&mut all, extra) {
            all.extend(extra);
        }
        all
    }

    fn text(&self) -> String {
        let counts = &self.report.counts;
        let mut text = format!(
            "{} of {} triggers are off the disk after {}: {} sent to the topic, {} were there already",
            grouped(counts.recovered - self.left().min(counts.recovered)),
            grouped(counts.recovered),
            span(self.took.into()),
            grouped(counts.delivered),
            grouped(counts.deduplicated),
        );
        if self.left() > 0 {
            let why = match self.drained {
                Drained::All | Drained::Enough => "as many as were asked for have come back",
                Drained::BySignal => "a signal ended it",
                Drained::Stalled => "the broker takes nothing",
                Drained::Broken => "the router failed, see its log",
            };
            text += &format!("\n{} are left in {}: {why}", grouped(self.left()), self.dir.display());
            if self.drained == Drained::Stalled {
                text += &format!(", and has not for {}", span(self.patience.into()));
            }
        }
        text
    }
}
