//! The command line: a table of contents. Each command is a file of its own that translates words into calls of the
//! engine and its answers into lines a person, or a script with `--json`, can read.

#[macro_use]
mod say;

mod bench;
mod check;
mod demo;
mod directory;
mod dlq;
mod drain;
mod route;
mod scratch;
mod signals;
mod spill;
mod table;
mod whereis;

use crate::config::ConfigError;
use crate::engine::StartError;
use clap::{Parser, Subcommand};

/// Delivers geofence triggers to Apache Kafka: in order per device, deduplicated, nothing lost in silence.
///
/// Exit codes: 0 done, 1 the thing checked is wrong, 2 usage or configuration, 3 something is not available, standard output included.
#[derive(Parser)]
#[command(name = "fencepost", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Bench(bench::Bench),
    Demo(demo::Demo),
    Dlq(dlq::Dlq),
    Route(route::Route),
    Where(whereis::Where),
    Check(check::Check),
    Spill(spill::Spill),
}

/// How a command ended, for a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done, and all is well.
    Done = 0,
    /// The thing checked is wrong: something was lost, doubled, reordered, or not delivered.
    Wrong = 1,
    /// The command line or the configuration.
    Usage = 2,
    /// A broker, a file or a port is not available.
    Unavailable = 3,
}

/// Why a command could not do its work. The text is for a person and says what to mend.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The router did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The command line, beyond what the parser knows.
    #[error("{0}")]
    Usage(String),
    /// A file, a socket or a broker.
    #[error("{0}")]
    Unavailable(String),
    /// What was to be checked is wrong.
    #[error("{0}")]
    Wrong(String),
}

impl CliError {
    /// The exit code it ends with.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            CliError::Config(_) | CliError::Usage(_) => Exit::Usage,
            CliError::Start(error) if error.is_about_config() => Exit::Usage,
            CliError::Start(_) | CliError::Unavailable(_) => Exit::Unavailable,
            CliError::Wrong(_) => Exit::Wrong,
        }
    }
}

impl Cli {
    /// Runs the command.
    ///
    /// # Errors
    /// [`CliError`], to be printed; its [`CliError::exit`] is the exit code.
    pub fn run(self) -> Result<Exit, CliError> {
        // The demo and the measurements show an outage themselves, and a line for each partition's breaker would hide it.
        start_log(match self.command {
            Command::Demo(_) => "error,librdkafka=off",
            Command::Bench(_) => "error,fencepost::cli=warn,librdkafka=off",
            _ => "warn,librdkafka=off",
        });
        signals::outlive_file_limits().map_err(|error| CliError::Unavailable(format!("signals: {error}")))?;
        let exit = match self.command {
            Command::Bench(bench) => bench.run(),
            Command::Demo(demo) => demo.run(),
            Command::Dlq(dlq) => dlq.run(),
            Command::Route(route) => route.run(),
            Command::Where(whereis) => whereis.run(),
            Command::Check(check) => check.run(),
            Command::Spill(spill) => spill.run(),
        }?;
        match say::unsaid() {
            Some(why) if exit == Exit::Done => Err(CliError::Unavailable(why)),
            _ => Ok(exit),
        }
    }
}

/// Log lines go to standard error, in general from warnings on; `RUST_LOG` says otherwise. What librdkafka writes into its
/// own log the sink says too, once.
fn start_log(default_filter: &str) {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(default_filter))
        .format_timestamp_millis()
        .init();
}
