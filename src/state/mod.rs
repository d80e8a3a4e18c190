//! The state directory: what a router remembers between two runs. One router at a time; a second one is refused, and
//! told who holds it.
//!
//! `lock` is held while the router runs and names its process. `router.toml` holds the router's id, the number of this
//! run, the topic and its pinned partition count; it is replaced as a whole: written aside, synced, renamed, and the
//! directory synced. `offsets` holds how far each partition was acknowledged ([`offsets`]) and what no stamp has reached
//! ([`ceiling`]), replaced likewise.

pub mod ceiling;
pub mod offsets;

pub use ceiling::Ceiling;
pub use offsets::{OffsetTrail, Offsets, OffsetsFile, OffsetsRead, PartitionOffsets};

use crate::config::{PARTITIONS, ROUTER_ID_BYTES};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

const LOCK_FILE: &str = "lock";
const ROUTER_FILE: &str = "router.toml";

/// Why a state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another router runs on it.
    #[error("state.dir = {dir:?} is in use by {holder}: stop that router, or give this one a directory of its own")]
    InUse {
        /// The directory.
        dir: PathBuf,
        /// Who holds it, as far as the lock file tells.
        holder: String,
    },
    /// The disk said no.
    #[error("state.dir: {operation} {path:?}: {error}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The file is there and cannot be understood.
    #[error("state.dir: {path:?} is damaged ({why}); restore it, or remove it to pin the partition count anew")]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// It belongs to another topic.
    #[error(
        "state.dir = {dir:?} belongs to topic {kept}, not {got}: give each topic a directory of its own, or set topic.name = {kept:?}"
    )]
    OtherTopic {
        /// The directory.
        dir: PathBuf,
        /// The topic it was made for.
        kept: String,
        /// The topic of this configuration.
        got: String,
    },
}

impl StateError {
    /// Whether the volume has no space left.
    #[must_use]
    pub fn is_for_space(&self) -> bool {
        let StateError::Io { error, .. } = self else { return false };
        matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}

/// What is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// Who this router is, in every frame.
    pub router_id: String,
    /// Rises with each start: see [`next_incarnation`].
    pub incarnation: u64,
    /// The topic.
    pub topic: String,
    /// Its partition count when it was first seen. Devices keep their partition, so this does not change.
    pub partitions: u32,
}

/// Which run the next one is: above the last one that is remembered, and by the date. A number that began anew where nothing
/// is remembered would come again, with its own partition numbers, under a `router.id` that is configured: when a state
/// directory is lost, or put back from a copy. A start would then take what lies on disk for what is in the topic.
#[must_use]
pub fn next_incarnation(remembered: Option<&Remembered>, since_epoch: Duration) -> u64 {
    let next = remembered.map_or(1, |kept| kept.incarnation + 1);
    next.max(u64::try_from(since_epoch.as_millis()).unwrap_or(0))
}

/// An open state directory, locked until it is dropped.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    _lock: File,
}

impl StateDir {
    /// Opens and locks it; makes it if it is not there.
    ///
    /// # Errors
    /// [`StateError::InUse`] when a router runs on it, [`StateError::Io`] otherwise.
    pub fn open(path: &Path) -> Result<StateDir, StateError> {
        fs::create_dir_all(path).map_err(|error| StateDir::io("making", path, error))?;
        let lock_path = path.join(LOCK_FILE);
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&lock_path)
            .map_err(|error| StateDir::io("opening", &lock_path, error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // The name is a courtesy: without it the refusal stands all the same.
                let holder = match lock.read_to_string(&mut holder) {
                    Ok(_) if !holder.trim().is_empty() => holder.trim().to_string(),
                    _ => "another process".to_string(),
                };
                return Err(StateError::InUse { dir: path.to_path_buf(), holder });
            }
            Err(TryLockError::Error(error)) => return Err(StateDir::io("locking", &lock_path, error)),
        }
        let name = format!("process {}\n", std::process::id());
        let written =
            lock.set_len(0).and_then(|()| lock.seek(SeekFrom::Start(0))).and_then(|_| lock.write_all(name.as_bytes()));
        written.map_err(|error| StateDir::io("writing", &lock_path, error))?;
        Ok(StateDir { path: path.to_path_buf(), _lock: lock })
    }

    /// What the last run left; `None` in a new directory.
    ///
    /// # Errors
    /// When the file cannot be read or understood, or is another topic's.
    pub fn read(&self, topic: &str) -> Result<Option<Remembered>, StateError> {
        StateDir::peek(&self.path, topic)
    }

    /// What the last run left in a directory, also while a router runs on it: the file is only ever replaced as a whole.
    ///
    /// # Errors
    /// As [`StateDir::read`].
    pub fn peek(dir: &Path, topic: &str) -> Result<Option<Remembered>, StateError> {
        let path = dir.join(ROUTER_FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StateDir::io("reading", &path, error)),
        };
        let damaged = |why: String| StateError::Damaged { path: path.clone(), why };
        let remembered: Remembered = toml::from_str(&text).map_err(|error| damaged(error.message().to_string()))?;
        if !PARTITIONS.contains(&u64::from(remembered.partitions)) {
            return Err(damaged(format!("partitions = {}, allowed {:?}", remembered.partitions, PARTITIONS)));
        }
        if !ROUTER_ID_BYTES.contains(&remembered.router_id.len()) {
            let len = remembered.router_id.len();
            return Err(damaged(format!("a router_id of {len} bytes, allowed {:?}", ROUTER_ID_BYTES)));
        }
        if remembered.topic != topic {
            let (dir, kept, got) = (dir.to_path_buf(), remembered.topic, topic.to_string());
            return Err(StateError::OtherTopic { dir, kept, got });
        }
        Ok(Some(remembered))
    }

    /// Replaces what is remembered, durably.
    ///
    /// # Errors
    /// What the disk says; the old file is then still there, whole.
    pub fn write(&self, remembered: &Remembered) -> Result<(), StateError> {
        let text = toml::to_string(remembered).expect("four plain fields are TOML");
        self.replace(ROUTER_FILE, text.as_bytes())
    }

    /// Replaces a small file as a whole, durably.
    ///
    /// # Errors
    /// What the disk says; the old file is then still there, whole.
    pub fn replace(&self, name: &str, content: &[u8]) -> Result<(), StateError> {
        replace(&self.path, name, content)
    }

    /// The file of the acknowledged offsets, for whoever keeps it while the router runs.
    #[must_use]
    pub fn offsets_file(&self) -> OffsetsFile {
        OffsetsFile::new(&self.path)
    }

    /// How far each of `partitions` was acknowledged when the last run wrote it down.
    #[must_use]
    pub fn read_offsets(&self, topic: &str, partitions: u32) -> OffsetsRead {
        self.offsets_file().read(topic, partitions)
    }

    /// Replaces the acknowledged offsets, durably.
    ///
    /// # Errors
    /// What the disk says; the old file is then still there, whole.
    pub fn write_offsets(&self, offsets: &Offsets) -> Result<(), StateError> {
        self.offsets_file().write(offsets)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn io(operation: &'static str, path: &Path, error: io::Error) -> StateError {
        StateError::Io { operation, path: path.to_path_buf(), error }
    }
}

/// Written aside, synced, renamed, and the directory synced.
fn replace(dir: &Path, name: &str, content: &[u8]) -> Result<(), StateError> {
    let (path, aside) = (dir.join(name), dir.join(format!("{name}.new")));
    let mut file = File::create(&aside).map_err(|error| StateDir::io("writing", &aside, error))?;
    file.write_all(content).and_then(|()| file.sync_all()).map_err(|error| StateDir::io("writing", &aside, error))?;
    fs::rename(&aside, &path).map_err(|error| StateDir::io("renaming", &aside, error))?;
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(|error| StateDir::io("syncing", dir, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of this test alone, removed when it ends.
    pub(super) struct Scratch(pub(super) PathBuf);

    impl Scratch {
        pub(super) fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("fencepost-state-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn sample() -> Remembered {
        Remembered { router_id: "r1".into(), incarnation: 3, topic: "triggers".into(), partitions: 12 }
    }

    /// A state directory that was lost, or put back from a copy, under a router.id that is configured.
    #[test]
    fn no_run_has_the_number_of_an_earlier_one() {
        let first = next_incarnation(None, Duration::from_millis(1_700_000_000_000));
        let kept = |incarnation| Remembered { incarnation, ..sample() };
        let second = next_incarnation(Some(&kept(first)), Duration::from_millis(1_700_000_060_000));
        assert!(second > first);
        // The directory is gone, or the copy is of before the second run.
        for copy in [None, Some(kept(first))] {
            assert!(next_incarnation(copy.as_ref(), Duration::from_millis(1_700_000_120_000)) > second, "{copy:?}");
        }
        // The clock stepped back.
        assert_eq!(next_incarnation(Some(&kept(second)), Duration::from_millis(5)), second + 1);
    }

    #[test]
    fn what_is_written_is_read_again_by_the_next_run() {
        let scratch = Scratch::new("again");
        let dir = StateDir::open(&scratch.0).unwrap();
        assert_eq!(dir.read("triggers").unwrap(), None);
        dir.write(&sample()).unwrap();
        drop(dir);
        assert_eq!(StateDir::open(&scratch.0).unwrap().read("triggers").unwrap(), Some(sample()));
    }

    #[test]
    fn w10_a_second_router_is_refused_and_told_who_holds_it() {
        let scratch = Scratch::new("second");
        let _first = StateDir::open(&scratch.0).unwrap();
        let error = StateDir::open(&scratch.0).unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
    }

    #[test]
    fn another_topic_and_a_damaged_file_are_refused_by_name() {
        let scratch = Scratch::new("other");
        let dir = StateDir::open(&scratch.0).unwrap();
        dir.write(&sample()).unwrap();
        assert!(matches!(dir.read("other"), Err(StateError::OtherTopic { .. })));
        for damage in [
            "",
            "partitions = 12",
            "router_id = \"r\"\nincarnation = 1\ntopic = \"triggers\"\npartitions = 0",
            "router_id = \"\"\nincarnation = 1\ntopic = \"triggers\"\npartitions = 1",
        ] {
            fs::write(scratch.0.join(ROUTER_FILE), damage).unwrap();
            let error = dir.read("triggers").unwrap_err();
            assert!(matches!(error, StateError::Damaged { .. }), "{damage:?}: {error}");
        }
    }
}
