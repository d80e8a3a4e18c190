//! `fencepost route`: the daemon. Triggers from a file, standard input or the peers of a socket, to the topic.
//!
//! Pressure travels back to the source: what the router sheds is held and offered again, in order, and nothing more is
//! read meanwhile; or it goes to the dead letters at once (`route.on_shed`). What is malformed or breaks a rule is reported
//! with its line and goes to the dead letters as it came. At the source's end, or at the first signal, the router drains,
//! and the closing report says what became of every line. At the source's end it also waits for what is on disk, as long as
//! that gets less; a signal does not wait for it. `SIGHUP` reads the list of known fences anew.

mod closing;
mod connection;
mod listen;
mod progress;
mod pump;
mod resume;
mod stream;

use super::drain::{self, Drained};
use super::signals::{Reload, Signals};
use super::table::{bytes, grouped, span};
use super::{CliError, Exit};
use crate::config::{Config, KnownFences, RouteFormat, RouteOnShed, RouteSource};
use crate::engine::disk::SPILL_DIR;
use crate::engine::{Readiness, Router};
use crate::source::Format;
use clap::Args;
use closing::{Closing, Places};
use pump::{Deadline, Tally};
use std::path::PathBuf;
use std::time::Instant;

/// Takes triggers from a source and delivers them to the topic, until the source ends or a signal comes.
///
/// A source writes one JSON object a line: device_id, fence_id, state ("enter", "exit" or "dwell") and event_time_ms,
/// and if it likes priority ("low", "normal" or "high") and attributes (text). With route.format = "frames" it writes
/// protobuf fencepost.v1.Trigger instead, the length in front of each as 4 bytes, highest first.
///
/// A peer of a socket gets a line for each of its lines that is refused: {"line":12,"error":"malformed","message":"…"}.
/// When its first line that is not blank is {"acks":true}, which is not counted, it also gets {"settled":12} as its lines
/// settle. A line that is refused settles when the dead letters have it.
///
/// With a state.dir, the triggers of a partition that does not take them are spilled to disk, and go to the topic in their
/// order once it does, also in a later run. When the source has ended, route waits for them as long as their number falls,
/// and gives up when it has not fallen for shutdown.limit.
///
/// SIGHUP reads the list of validate.fences anew; one that cannot be read leaves the old list in place. SIGTERM and SIGINT
/// stop the reading and drain, but do not wait for what is on disk; a second one, or one before the start is done, ends at
/// once.
///
/// Exit codes: 0 everything was delivered. 1 something was malformed, rejected, failed, lost by the disk, is unsettled,
/// became a dead letter, or was read and not taken before a stop. Of a socket's lines, only those count that failed, were
/// lost, became dead letters or are unsettled: its peers know of the malformed and rejected ones. With route.resume, what
/// was not taken is no loss: the next run reads it. With divert.policy or route.on_shed = "dead-letter", such dead letters
/// are what was asked for: they are named, and the code is 0. 2 the configuration. 3 the source or the broker is not available; or everything is settled, and
/// some of it waits on disk for the broker: the next run delivers it, or `fencepost spill replay`.
#[derive(Args)]
pub struct Route {
    /// The configuration file.
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Read this file instead of the source of the configuration; - is standard input.
    #[arg(long, value_name = "PATH")]
    from: Option<PathBuf>,
    /// Print one JSON object at the end instead of a table.
    #[arg(long)]
    json: bool,
}

/// Where triggers come from, opened before the router starts, so that what is wrong with it is said at once.
enum Intake {
    Stream(stream::Opened),
    Listener(listen::Listener),
}

/// How the reading ended.
pub(super) enum Ended {
    AtTheEnd,
    BySignal,
    /// The source failed, or the router did.
    Broken(String),
}

impl Route {
    pub(super) fn run(self) -> Result<Exit, CliError> {
        let config = self.configuration()?;
        let limits = config.limits()?;
        let intake = Intake::open(&config)?;
        let listening = |error| CliError::Unavailable(format!("signals: {error}"));
        // From here on: whoever asks for a reload while the router starts does not want it to end.
        let reload = Reload::listen().map_err(listening)?;
        let (router, readiness) = Router::start(&config)?;
        // Until here nothing was accepted, and opening may wait for ever: a signal ended the process at once.
        let signals = Signals::listen_beside(reload).map_err(listening)?;
        for warning in router.warnings() {
            tell!("warning: {warning}");
        }
        let name = intake.name();
        tell_found(&router, &readiness);
        tell!("memory reserved at start, line by line:\n{}", router.memory());
        tell!("ready: {name} to topic {} of {} partitions", config.topic.name, router.partitions());
        if readiness.is_cold {
            tell!("warning: the broker is away; what comes in waits until it is back");
        }
        if config.route.on_shed == RouteOnShed::DeadLetter
            && router.ingress().is_some_and(|ingress| !ingress.has_dead_letters())
        {
            tell!(
                "warning: route.on_shed = \"dead-letter\", and there is nowhere for dead letters: what is shed waits"
            );
        }
        let tally = Tally::default();
        let began = Instant::now();
        let shutdown_limit = limits.shutdown_limit.as_duration();
        let setup = Setup { config: &config, router: &router, signals: &signals, tally: &tally, shutdown_limit };
        let outcome = match intake {
            Intake::Stream(opened) => stream::route(opened, &setup)?,
            Intake::Listener(listener) => listen::route(listener, &setup),
        };
        let Outcome { ended, mut deadline, resumed_after } = outcome;
        if matches!(ended, Ended::AtTheEnd) && router.counts().in_spill > 0 {
            if drain::wait(&router, &signals, shutdown_limit, None) == Drained::Stalled {
                tell!("what is on disk has not become less for {shutdown_limit:?}: it is left to the next run");
            }
            deadline = Deadline::new(shutdown_limit);
        }
        let report = router.shutdown(deadline.left());
        let is_socket = matches!(config.route.source, Some(RouteSource::Unix | RouteSource::Tcp));
        let is_remembered = is_socket || config.route.source == Some(RouteSource::File) && config.route.resume;
        let took = began.elapsed();
        let places = Places::of(&config);
        let closing =
            Closing { name, ended, resumed_after, report, took, tally: &tally, is_socket, is_remembered, places };
        closing.print(self.json);
        Ok(closing.exit())
    }

    /// The file's configuration with the command line's word on top.
    fn configuration(&self) -> Result<Config, CliError> {
        let mut config = Config::from_file(&self.config)?;
        match &self.from {
            Some(path) if path.as_os_str() == "-" => config.route.source = Some(RouteSource::Stdin),
            Some(path) => {
                config.route.source = Some(RouteSource::File);
                config.route.path = Some(path.clone());
            }
            None => {}
        }
        config.route.source.get_or_insert(RouteSource::Stdin);
        Ok(config)
    }
}

/// What an earlier run left: on disk, and in the topic's tail.
fn tell_found(router: &Router, readiness: &Readiness) {
    if let Some(state) = router.state_dir() {
        let (found, took) = (grouped(readiness.recovered), span(readiness.recovery.into()));
        let place = state.path().join(SPILL_DIR);
        tell!("recovered: {found} triggers of earlier runs from {} in {took}", place.display());
    }
    if let Some(warm) = &readiness.warm_start {
        tell!(
            "warm start: {} keys from {} records at the topic's end, {} in {}",
            grouped(warm.keys),
            grouped(warm.records),
            bytes(warm.bytes),
            span(warm.took.into())
        );
    }
}

/// What every source needs to route.
struct Setup<'a> {
    config: &'a Config,
    router: &'a Router,
    signals: &'a Signals,
    tally: &'a Tally,
    shutdown_limit: std::time::Duration,
}

impl Setup<'_> {
    /// Reads anew what may change while routing, if a signal asked for it. To be called often.
    fn reload_if_asked(&self) {
        if !self.signals.asked_to_reload() {
            return;
        }
        let Some(path) = &self.config.validate.fences else {
            tell!("SIGHUP: there is nothing to reload, since validate.fences is not set; other keys need a restart");
            return;
        };
        match KnownFences::read(path) {
            Ok(fences) => {
                let count = fences.len();
                self.router.reload_fences(Some(fences));
                tell!("SIGHUP: reloaded validate.fences, {count} fences are known");
            }
            Err(error) => tell!("SIGHUP: the list of fences stays as it was: {error}"),
        }
    }
}

/// What a source left when it ended.
struct Outcome {
    ended: Ended,
    /// What the stop has left of its limit.
    deadline: Deadline,
    /// The line after which a file went on.
    resumed_after: Option<u64>,
}

impl Intake {
    fn open(config: &Config) -> Result<Intake, CliError> {
        let route = &config.route;
        let path = || route.path.clone().unwrap_or_default();
        Ok(match route.source {
            Some(RouteSource::File) => Intake::Stream(stream::Opened::file(&path(), route.resume)?),
            Some(RouteSource::Unix) => Intake::Listener(listen::Listener::unix(&path())?),
            Some(RouteSource::Tcp) => Intake::Listener(listen::Listener::tcp(route.listen)?),
            Some(RouteSource::Stdin) | None => Intake::Stream(stream::Opened::stdin()?),
        })
    }

    fn name(&self) -> String {
        match self {
            Intake::Stream(opened) => opened.name(),
            Intake::Listener(listener) => listener.name(),
        }
    }
}

fn format_of(config: &Config) -> Format {
    match config.route.format {
        RouteFormat::Ndjson => Format::Ndjson,
        RouteFormat::Frames => Format::Frames,
    }
}
