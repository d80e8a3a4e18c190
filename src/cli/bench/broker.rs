//! The mock brokers in a process of their own: this program once more, with a word that is not in the help. Its CPU time
//! is then not ours, and its memory and allocator neither.

use super::{CliError, Exit, PARTITIONS, TOPIC};
use rdkafka::mocking::MockCluster;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

/// The other process; it ends when this is dropped.
pub(super) struct Brokers {
    child: Child,
    bootstrap: String,
}

impl Brokers {
    /// Starts it and waits for its address.
    pub(super) fn start() -> Result<Brokers, CliError> {
        let failed =
            |what: &str, error: std::io::Error| CliError::Unavailable(format!("the mock brokers {what}: {error}"));
        let this = std::env::current_exe().map_err(|error| failed("have no program", error))?;
        let mut command = Command::new(this);
        command.args(["bench", "brokers"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed("did not start", error))?;
        let mut bootstrap = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut bootstrap).map_err(|error| failed("did not answer", error))?;
        }
        let bootstrap = bootstrap.trim().to_string();
        let brokers = Brokers { child, bootstrap };
        if brokers.bootstrap.is_empty() {
            return Err(CliError::Unavailable("the mock brokers ended at once; their reason is above".into()));
        }
        Ok(brokers)
    }

    pub(super) fn bootstrap(&self) -> &str {
        &self.bootstrap
    }
}

impl Drop for Brokers {
    fn drop(&mut self) {
        // The end of its input is its sign to leave.
        drop(self.child.stdin.take());
        if let Err(error) = self.child.wait() {
            log::warn!("the mock brokers were not waited for: {error}");
        }
    }
}

/// The other process: brokers until standard input ends.
pub(super) fn serve() -> Result<Exit, CliError> {
    let refused = |error| CliError::Unavailable(format!("the mock brokers did not start: {error}"));
    let mock = MockCluster::new(3).map_err(refused)?;
    mock.create_topic(TOPIC, PARTITIONS as i32, 1).map_err(refused)?;
    say!("{}", mock.bootstrap_servers());
    let ended = std::io::stdin().read_to_end(&mut Vec::new());
    ended.map_err(|error| CliError::Unavailable(format!("the mock brokers' input: {error}")))?;
    Ok(Exit::Done)
}
