//! How far a file is settled, kept in the state directory so that the next run goes on there.
//!
//! `source.toml` names the file (path, device, inode, a hash of its first bytes), the last settled line, and a place in
//! the file at or before that line's end. A run that resumes starts at the place and passes over the lines between. A
//! file that was truncated or replaced meanwhile is refused: its lines are not those that were settled.

use crate::cli::CliError;
use crate::config::RouteFormat;
use crate::source::{Position, Trail};
use crate::state::{StateDir, StateError};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

const NAME: &str = "source.toml";
/// Bytes at the front of the file that tell it from another one.
const HEAD_BYTES: usize = 4_096;
const INTERVAL: Duration = Duration::from_secs(1);

/// What is kept. Numbers above 2⁶³ do not occur but for the hash, which is text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    path: String,
    format: String,
    device: u64,
    inode: u64,
    size: u64,
    head_bytes: usize,
    head_hash: String,
    /// Every line up to this one is settled.
    line: u64,
    /// Where to begin reading: this many lines end at this offset.
    from_line: u64,
    from_offset: u64,
}

/// See the [module](self).
pub(super) struct Resume<'a> {
    state: &'a StateDir,
    file: File,
    kept: Kept,
    written: Option<(u64, Instant)>,
    is_failing: bool,
}

impl<'a> Resume<'a> {
    /// Reads what the last run left, and holds the file against it.
    pub(super) fn open(
        state: &'a StateDir,
        path: &Path,
        file: &File,
        format: RouteFormat,
    ) -> Result<Resume<'a>, CliError> {
        let unavailable = |error: io::Error| CliError::Unavailable(format!("{}: {error}", path.display()));
        let whole_path = path.canonicalize().map_err(unavailable)?;
        let file = file.try_clone().map_err(unavailable)?;
        let about = file.metadata().map_err(unavailable)?;
        let head_bytes = HEAD_BYTES.min(usize::try_from(about.len()).unwrap_or(HEAD_BYTES));
        let mut kept = Kept {
            path: whole_path.to_string_lossy().into_owned(),
            format: format.name().to_string(),
            device: about.dev(),
            inode: about.ino(),
            size: about.len(),
            head_bytes,
            head_hash: hash_of_head(&file, head_bytes).map_err(unavailable)?,
            line: 0,
            from_line: 0,
            from_offset: 0,
        };
        let kept_at = state.path().join(NAME);
        match fs::read_to_string(&kept_at) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(CliError::Unavailable(format!("{}: {error}", kept_at.display()))),
            Ok(text) => {
                let last: Kept = toml::from_str(&text).map_err(|error| {
                    CliError::Usage(format!(
                        "{} is damaged ({}); remove it to begin at the first line",
                        kept_at.display(),
                        error.message()
                    ))
                })?;
                let head = hash_of_head(&file, last.head_bytes).map_err(unavailable)?;
                if let Some(why) = last.differs_from(&kept, &head) {
                    return Err(CliError::Usage(format!(
                        "route.resume: {why}. Its lines are not those that were settled: bring the old file back, or remove \
                         {} to begin at the first line of this one",
                        kept_at.display()
                    )));
                }
                (kept.line, kept.from_line, kept.from_offset) = (last.line, last.from_line, last.from_offset);
            }
        }
        Ok(Resume { state, file, kept, written: None, is_failing: false })
    }

    /// Where reading begins, and up to which line everything is settled.
    pub(super) fn start(&self) -> (Position, u64) {
        (Position { lines: self.kept.from_line, offset: self.kept.from_offset }, self.kept.line)
    }

    /// Keeps how far it is, at most once a second.
    pub(super) fn tick(&mut self, settled: u64, trail: &Trail) {
        let is_new = settled > self.kept.line;
        if is_new && self.written.is_none_or(|(_, at)| at.elapsed() >= INTERVAL) {
            self.keep(settled, trail.restart());
        }
    }

    /// Keeps the last word.
    pub(super) fn end(&mut self, settled: u64, trail: &Trail) {
        if settled > self.kept.line || self.written.is_none() {
            self.keep(settled.max(self.kept.line), trail.restart());
        }
    }

    fn keep(&mut self, line: u64, from: Position) {
        (self.kept.line, self.kept.from_line, self.kept.from_offset) = (line, from.lines, from.offset);
        let written = self.file.metadata().map_err(|error| error.to_string()).and_then(|about| {
            self.kept.size = about.len();
            let text = toml::to_string(&self.kept).map_err(|error| error.to_string())?;
            self.state.replace(NAME, text.as_bytes()).map_err(|error: StateError| error.to_string())
        });
        self.written = Some((line, Instant::now()));
        match written {
            Ok(()) => self.is_failing = false,
            // Said once: routing goes on, and a restart repeats what was not kept.
            Err(error) if !self.is_failing => {
                self.is_failing = true;
                log::error!("how far the source is settled cannot be kept, a restart would repeat lines: {error}");
            }
            Err(_) => {}
        }
    }
}

impl Kept {
    /// Why the file of now is not the one of then.
    fn differs_from(&self, now: &Kept, head_now: &str) -> Option<String> {
        let Kept { path, format, .. } = self;
        if *path != now.path {
            return Some(format!("the state directory belongs to {path}, not to {}", now.path));
        }
        if *format != now.format {
            return Some(format!("{path} was read as {format}, not as {}", now.format));
        }
        if now.size < self.size.max(self.from_offset) {
            return Some(format!("{path} has {} bytes and had {}: it was truncated", now.size, self.size));
        }
        if (self.device, self.inode) != (now.device, now.inode) || self.head_hash != head_now {
            return Some(format!("{path} was replaced by another file"));
        }
        None
    }
}

/// FNV-1a of the first bytes; stays the same from version to version.
fn hash_of_head(file: &File, bytes: usize) -> io::Result<String> {
    let mut head = vec![0; bytes.min(HEAD_BYTES)];
    let mut len = 0;
    while len < head.len() {
        match file.read_at(&mut head[len..], len as u64) {
            Ok(0) => break,
            Ok(count) => len += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let hash = head[..len]
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    Ok(format!("{hash:016x}"))
}
