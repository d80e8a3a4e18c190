//! `fencepost dlq`: what became a dead letter, and publishing it again.
//!
//! Reading order: `letter`, `filter` (which), `place` and `source` (from where), `ls`, `show`, `replay`, and below it
//! `resume` and `publish`.

mod filter;
mod letter;
mod ls;
mod place;
mod progress;
mod publish;
mod reader;
mod replay;
mod resume;
mod show;
mod source;
mod when;

use super::{CliError, Exit};
use clap::{Args, Subcommand};

/// Lists, shows and replays dead letters: triggers that could not be delivered as they should.
#[derive(Args)]
pub struct Dlq {
    #[command(subcommand)]
    command: DlqCommand,
}

#[derive(Subcommand)]
enum DlqCommand {
    Ls(ls::Ls),
    Show(show::Show),
    Replay(replay::Replay),
}

impl Dlq {
    pub(super) fn run(self) -> Result<Exit, CliError> {
        match self.command {
            DlqCommand::Ls(ls) => ls.run(),
            DlqCommand::Show(show) => show.run(),
            DlqCommand::Replay(replay) => replay.run(),
        }
    }
}

/// Now, in Unix milliseconds.
fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
