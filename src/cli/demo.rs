//! placeholder until the command lands
use super::{CliError, Exit};
use clap::Args;

/// Placeholder.
#[derive(Args)]
pub struct Demo {}

impl Demo {
    pub(super) fn run(self) -> Result<Exit, CliError> {
        Ok(Exit::Done)
    }
}
