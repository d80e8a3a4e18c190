//! A file or standard input. A regular file is read here; a pipe on a thread of its own, since a read of it may wait for
//! ever and a signal must be heard meanwhile.

use super::progress::Progress;
use super::pump::{Deadline, Host, Pump, Tally, Went};
use super::resume::Resume;
use super::{Ended, Outcome, Setup, format_of};
use crate::cli::CliError;
use crate::source::{Feed, Position, Trail};
use std::fmt::Display;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Bytes read at once: about 2,500 rows, which the second-level cache holds.
const BLOCK_BYTES: usize = 256 * 1_024;
/// How long a pipe is waited for before signals and what was settled are looked at.
const PIPE_WAIT: Duration = Duration::from_millis(50);
/// Blocks of a pipe on their way.
const PIPE_BLOCKS: usize = 3;
/// Between two reads of a pipe that does not wait and had nothing.
const NOTHING_YET: Duration = Duration::from_millis(2);

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
    let mut pump = Pump::new(setup, ingress, trail).patient(setup.config.inflight.partition as u64);
    let mut feed = Feed::new(format_of(setup.config), route.line_bytes_max, BLOCK_BYTES).starting_at(start, known);
    if resume.is_some() {
        feed = feed.leaving_unfinished();
    }
    let resumed_after = (known > 0).then_some(known);
    if let Some(line) = resumed_after {
        tell!("going on after line {line}, which is settled");
    }
    let progress = Progress::new(setup.tally, size, start.offset);
    let deadline = Deadline::new(setup.shutdown_limit);
    let mut host = Console { setup, progress, resume, deadline, last: known };
    let mut aside = None;
    let ended = if opened.is_regular {
        from_file(&mut file, &mut feed, &mut pump, &mut host)
    } else {
        match Aside::start(file) {
            Ok(started) => from_pipe(aside.insert(started), &mut feed, &mut pump, &mut host),
            Err(error) => broken(&error, &feed),
        }
    };
    pump.leave(&mut feed);
    if feed.has_left() {
        let why = "the file ends within it; it counts as not read, and the next run looks at it again";
        host.refused(feed.position().lines + 1, "unfinished", &why);
    }
    let mut deadline = host.deadline;
    pump.drain(&mut host, || deadline.has_passed());
    pump.end(&mut host);
    if let Some(aside) = &aside {
        aside.leave(&mut feed, &mut pump);
        // A line that was begun: nobody reads its end.
        let is_cut = matches!(ended, Ended::BySignal) && feed.untaken() > 0;
        Tally::add(&setup.tally.unoffered, u64::from(is_cut));
    }
    host.progress.end();
    Ok(Outcome { ended, deadline, resumed_after })
}

fn from_file(file: &mut File, feed: &mut Feed, pump: &mut Pump<'_>, host: &mut Console<'_>) -> Ended {
    loop {
        if host.is_stopping() {
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

fn from_pipe(aside: &Aside, feed: &mut Feed, pump: &mut Pump<'_>, host: &mut Console<'_>) -> Ended {
    loop {
        if host.is_stopping() {
            // `Relaxed`: a wish; a block that is read all the same is offered or counted.
            aside.is_stopping.store(true, Ordering::Relaxed);
            if host.is_over() {
                return Ended::BySignal;
            }
        }
        let block = match aside.full.recv_timeout(PIPE_WAIT) {
            Ok(Ok(block)) => block,
            Ok(Err(error)) => return broken(&error, feed),
            // What was read before the signal is offered. A read that still waits has nothing.
            Err(_) if host.is_stopping() => return Ended::BySignal,
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
                went => {
                    pump.leave_all(feed, rest);
                    return match went {
                        Went::Closed(why) => Ended::Broken(why.to_string()),
                        Went::On | Went::Over => Ended::BySignal,
                    };
                }
            }
        }
        // The reader is gone only when it has said so, as the next block.
        let _ = aside.empty.send(block);
    }
}

struct Block {
    bytes: Box<[u8]>,
    /// Bytes that are there; 0: the source has ended.
    len: usize,
}

/// Reads on a thread of its own, into blocks that go round. The thread ends with its source, or with the process: a pipe
/// that nobody writes to cannot be left in any other way.
struct Aside {
    full: Receiver<io::Result<Block>>,
    empty: Sender<Block>,
    /// No further read is begun.
    is_stopping: Arc<AtomicBool>,
}

impl Aside {
    fn start(mut file: File) -> io::Result<Aside> {
        let (full_in, full) = channel();
        let (empty, empty_out) = channel::<Block>();
        for _ in 0..PIPE_BLOCKS {
            let block = Block { bytes: vec![0; BLOCK_BYTES].into_boxed_slice(), len: 0 };
            // It is there: `empty_out` is below.
            let _ = empty.send(block);
        }
        let is_stopping = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_stopping);
        let read = move || {
            for mut block in empty_out {
                let answer = loop {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    match file.read(&mut block.bytes) {
                        Err(error) if error.kind() == ErrorKind::Interrupted => {}
                        // Whoever shares the other end made it so; it is no failure, there is nothing just now.
                        Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(NOTHING_YET),
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
        Ok(Aside { full, empty, is_stopping })
    }

    /// Counts what was read and not offered. When the source has ended, there is none.
    fn leave(&self, feed: &mut Feed, pump: &mut Pump<'_>) {
        self.is_stopping.store(true, Ordering::Relaxed);
        while let Ok(Ok(block)) = self.full.try_recv() {
            pump.leave_all(feed, &block.bytes[..block.len]);
        }
    }
}

/// A person, or a log, on standard error.
struct Console<'a> {
    setup: &'a Setup<'a>,
    progress: Progress<'a>,
    resume: Option<Resume<'a>>,
    /// Of the stop; runs from the signal, or from the source's end.
    deadline: Deadline,
    last: u64,
}

impl Console<'_> {
    /// Whether to read no further. What was read may still be offered, until the limit.
    fn is_stopping(&mut self) -> bool {
        let is_asked = self.setup.signals.asked_to_stop();
        if is_asked {
            self.deadline.left();
        }
        is_asked
    }
}

impl Host for Console<'_> {
    fn refused(&mut self, line: u64, code: &str, why: &dyn Display) {
        self.progress.refused(line, code, why);
    }

    fn tick(&mut self, settled: u64, trail: &Trail) {
        self.last = self.last.max(settled);
        self.setup.reload_if_asked();
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

    fn is_over(&mut self) -> bool {
        self.is_stopping() && self.deadline.has_passed()
    }
}
