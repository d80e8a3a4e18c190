//! A file or standard input. A regular file is read here; a pipe on a thread of its own, since a read of it may wait for
//! ever and a signal must be heard meanwhile.

use super::progress::Progress;
use super::pump::{Deadline, Host, Pump, Went};
use super::resume::Resume;
use super::{Ended, Outcome, Setup, format_of};
use crate::cli::CliError;
use crate::cli::signals::Signals;
use crate::source::{Feed, Position, Trail};
use std::fmt::Display;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Bytes read at once: about 2,500 rows, which the second-level cache holds.
const BLOCK_BYTES: usize = 256 * 1_024;
/// How long a pipe is waited for before signals and what was settled are looked at.
const PIPE_WAIT: Duration = Duration::from_millis(50);
/// Blocks of a pipe on their way.
const PIPE_BLOCKS: usize = 3;

/// A stream that can be read.
pub(super) struct Opened {
    file: File,
    /// `None`: standard input.
    path: Option<PathBuf>,
    is_regular: bool,
}

impl Opened {
    pub(super) fn file(path: &Path, resume: bool) -> Result<Opened, CliError> {
        let failed = |error: io::Error| {
            CliError::Unavailable(format!(
                "route.path = {}: {error}; give a file that this user may read",
                path.display()
            ))
        };
        let about = std::fs::metadata(path).map_err(failed)?;
        if about.is_dir() {
            return Err(CliError::Usage(format!("route.path = {} is a directory; give a file", path.display())));
        }
        if resume && !about.is_file() {
            return Err(CliError::Usage(format!(
                "route.resume = true, but {} is no regular file: only a file can be read again",
                path.display()
            )));
        }
        let file = File::open(path).map_err(failed)?;
        Ok(Opened { file, path: Some(path.to_path_buf()), is_regular: about.is_file() })
    }

    pub(super) fn stdin() -> Result<Opened, CliError> {
        let file = io::stdin().as_fd().try_clone_to_owned().map(File::from);
        let file = file.map_err(|error| CliError::Unavailable(format!("standard input: {error}")))?;
        let is_regular = file.metadata().is_ok_and(|about| about.is_file());
        Ok(Opened { file, path: None, is_regular })
    }

    pub(super) fn name(&self) -> String {
        self.path.as_ref().map_or_else(|| "standard input".into(), |path| path.display().to_string())
    }
}

/// Routes it all.
pub(super) fn route(opened: Opened, setup: &Setup<'_>) -> Result<Outcome, CliError> {
    let route = &setup.config.route;
    let resume = match (route.resume, setup.router.state_dir(), &opened.path) {
        (true, Some(state), Some(path)) => Some(Resume::open(state, path, &opened.file, route.format)?),
        _ => None,
    };
    let (start, known) = resume.as_ref().map_or((Position::default(), 0), Resume::start);
    let mut file = opened.file;
    if start.offset > 0 {
        file.seek(SeekFrom::Start(start.offset))
            .map_err(|error| CliError::Unavailable(format!("route.path: going to byte {}: {error}", start.offset)))?;
    }
    let size = opened.is_regular.then(|| file.metadata().map(|about| about.len()).ok()).flatten();
    let ingress = setup
        .router
        .ingress()
        .ok_or_else(|| CliError::Usage("queue.ingresses leaves no ingress for the source; raise it".into()))?;
    let trail = Trail::new(start, setup.config.settle.window);
    let mut pump = Pump::new(setup.router, ingress, trail, setup.tally);
    let mut feed = Feed::new(format_of(setup.config), route.line_bytes_max, BLOCK_BYTES).starting_at(start, known);
    if resume.is_some() {
        feed = feed.leaving_unfinished();
    }
    let resumed_after = (known > 0).then_some(known);
    if let Some(line) = resumed_after {
        tell!("going on after line {line}, which is settled");
    }
    let progress = Progress::new(setup.tally, size, start.offset);
    let mut host = Console { signals: setup.signals, progress, resume, is_draining: false, last: known };
    let ended = if opened.is_regular {
        from_file(&mut file, &mut feed, &mut pump, &mut host)
    } else {
        from_pipe(file, &mut feed, &mut pump, &mut host)
    };
    if feed.has_left() {
        let why = "the file ends within it; it counts as not read, and the next run looks at it again";
        host.refused(feed.position().lines + 1, "unfinished", &why);
    }
    host.is_draining = true;
    let draining_since = Instant::now();
    let mut deadline = Deadline::new(setup.shutdown_limit);
    pump.drain(&mut host, || deadline.has_passed());
    pump.end(&mut host);
    host.progress.end();
    Ok(Outcome { ended, draining_since, resumed_after })
}

fn from_file(file: &mut File, feed: &mut Feed, pump: &mut Pump<'_>, host: &mut Console<'_>) -> Ended {
    loop {
        if host.is_over() {
            return Ended::BySignal;
        }
        let count = match feed.fill(file) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return broken(&error, feed),
        };
        match pump.take(feed, host) {
            Went::On if count == 0 => return Ended::AtTheEnd,
            Went::On => {}
            Went::Over => return Ended::BySignal,
            Went::Closed(why) => return Ended::Broken(why.to_string()),
        }
    }
}

fn broken(error: &io::Error, feed: &Feed) -> Ended {
    Ended::Broken(format!("reading the source failed behind line {}: {error}", feed.position().lines))
}

fn from_pipe(file: File, feed: &mut Feed, pump: &mut Pump<'_>, host: &mut Console<'_>) -> Ended {
    let (blocks, empties) = match read_aside(file) {
        Ok(channels) => channels,
        Err(error) => return broken(&error, feed),
    };
    loop {
        if host.is_over() {
            return Ended::BySignal;
        }
        let block = match blocks.recv_timeout(PIPE_WAIT) {
            Ok(Ok(block)) => block,
            Ok(Err(error)) => return broken(&error, feed),
            Err(RecvTimeoutError::Timeout) => {
                pump.look_after(host);
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Ended::Broken("the thread that reads the source ended".into());
            }
        };
        let mut rest = &block.bytes[..block.len];
        loop {
            if block.len == 0 {
                feed.end();
            } else if let Err(error) = feed.fill(&mut rest) {
                return broken(&error, feed);
            }
            match pump.take(feed, host) {
                Went::On if block.len == 0 => return Ended::AtTheEnd,
                Went::On if rest.is_empty() => break,
                Went::On => {}
                Went::Over => return Ended::BySignal,
                Went::Closed(why) => return Ended::Broken(why.to_string()),
            }
        }
        // The reader is gone only when it has said so, as the next block.
        let _ = empties.send(block);
    }
}

struct Block {
    bytes: Box<[u8]>,
    /// Bytes that are there; 0: the source has ended.
    len: usize,
}

type Blocks = (Receiver<io::Result<Block>>, Sender<Block>);

/// Reads on a thread of its own, into blocks that go round. The thread ends with its source, or with the process: a pipe
/// that nobody writes to cannot be left in any other way.
fn read_aside(mut file: File) -> io::Result<Blocks> {
    let (full_in, full_out) = channel();
    let (empty_in, empty_out) = channel::<Block>();
    for _ in 0..PIPE_BLOCKS {
        let block = Block { bytes: vec![0; BLOCK_BYTES].into_boxed_slice(), len: 0 };
        // It is there: `empty_out` is below.
        let _ = empty_in.send(block);
    }
    let read = move || {
        for mut block in empty_out {
            let answer = loop {
                match file.read(&mut block.bytes) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    answer => break answer,
                }
            };
            let is_over = !matches!(answer, Ok(1..));
            let answer = answer.map(|len| Block { len, ..block });
            if full_in.send(answer).is_err() || is_over {
                return;
            }
        }
    };
    std::thread::Builder::new().name("fencepost-read".into()).spawn(read)?;
    Ok((full_out, empty_in))
}

/// A person, or a log, on standard error.
struct Console<'a> {
    signals: &'a Signals,
    progress: Progress<'a>,
    resume: Option<Resume<'a>>,
    is_draining: bool,
    last: u64,
}

impl Host for Console<'_> {
    fn refused(&mut self, line: u64, code: &str, why: &dyn Display) {
        self.progress.refused(line, code, why);
    }

    fn tick(&mut self, settled: u64, trail: &Trail) {
        self.last = self.last.max(settled);
        self.progress.tick();
        if let Some(resume) = &mut self.resume {
            resume.tick(self.last, trail);
        }
    }

    fn end(&mut self, settled: u64, trail: &Trail) {
        self.last = self.last.max(settled);
        if let Some(resume) = &mut self.resume {
            resume.end(self.last, trail);
        }
    }

    fn is_over(&self) -> bool {
        !self.is_draining && self.signals.asked_to_stop()
    }
}
