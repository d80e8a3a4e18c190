//! The mock brokers in a process of their own: this program once more, with a word that is not in the help. Its CPU time
//! is then not ours, its memory and allocator neither, and it can be stopped as a real broker can.

use super::context::Context;
use super::outage::Frozen;
use super::{CliError, Exit, PARTITIONS, TOPIC};
use rdkafka::mocking::MockCluster;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Brokers of the cluster.
const BROKERS: i32 = 3;
/// What the other process understands, a line each, and answers with the same line once it is done.
const DOWN: &str = "down";
const UP: &str = "up";

/// The other process; it ends when this is dropped.
pub(super) struct Brokers {
    child: Child,
    /// Its end is the sign to leave.
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    bootstrap: String,
}

fn failed(what: &str, error: std::io::Error) -> CliError {
    CliError::Unavailable(format!("the mock brokers {what}: {error}"))
}

impl Brokers {
    /// Starts it and waits for its address.
    pub(super) fn start(context: &Context) -> Result<Brokers, CliError> {
        let this = std::env::current_exe().map_err(|error| failed("have no program", error))?;
        let mut command = Command::new(this);
        // A group of its own: Ctrl-C at the terminal is for us, and it shall answer to our end.
        command.args(["bench", "brokers"]).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(|error| failed("did not start", error))?;
        let process = child.id();
        // It may be frozen when the end of its input comes.
        context.at_forced_end(move || Frozen::thaw(process));
        let orders = child.stdin.take();
        let output = child.stdout.take().expect("it was asked for");
        let mut brokers = Brokers { child, orders, answers: BufReader::new(output), bootstrap: String::new() };
        brokers.bootstrap = brokers.answer()?;
        Ok(brokers)
    }

    pub(super) fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Its process, to be frozen.
    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }

    /// From now on no broker can be reached, or each can again. While they are down nothing is lost that a client was told
    /// is there.
    pub(super) fn set_down(&mut self, is_down: bool) -> Result<(), CliError> {
        let order = if is_down { DOWN } else { UP };
        if let Some(orders) = &mut self.orders {
            writeln!(orders, "{order}").map_err(|error| failed("take no order", error))?;
        }
        match self.answer()? {
            answer if answer == order => Ok(()),
            answer => Err(CliError::Unavailable(format!("the mock brokers did not go {order}: {answer}"))),
        }
    }

    fn answer(&mut self) -> Result<String, CliError> {
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(|error| failed("did not answer", error))?;
        match line.trim() {
            "" => Err(CliError::Unavailable("the mock brokers ended at once; their reason is above".into())),
            line => Ok(line.to_string()),
        }
    }
}

impl Drop for Brokers {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Err(error) = self.child.wait() {
            log::warn!("the mock brokers were not waited for: {error}");
        }
    }
}

/// The other process: brokers until standard input ends.
pub(super) fn serve() -> Result<Exit, CliError> {
    let refused = |error| CliError::Unavailable(format!("the mock brokers did not start: {error}"));
    let mock = MockCluster::new(BROKERS).map_err(refused)?;
    mock.create_topic(TOPIC, PARTITIONS as i32, 1).map_err(refused)?;
    say!("{}", mock.bootstrap_servers());
    for line in std::io::stdin().lines() {
        let line = line.map_err(|error| failed("lost their input", error))?;
        let done = (1..=BROKERS).try_for_each(|id| match line.as_str() {
            DOWN => mock.broker_down(id),
            _ => mock.broker_up(id),
        });
        match done {
            Ok(()) => say!("{line}"),
            Err(error) => say!("{error}"),
        }
    }
    Ok(Exit::Done)
}
