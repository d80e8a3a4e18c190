//! Where a replay goes on: one small file, replaced as a whole, with the positions of each pair of topics and each filter.
//!
//! It is written after the broker's acks only. What was acknowledged and not yet written when the process died is found in
//! the topic by the next run. One replay at a time: a second one on the same file is refused.

use crate::cli::CliError;
use crate::replay::Positions;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The file.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    #[serde(default)]
    replay: Vec<Entry>,
}

/// How far one kind of replay has come.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(flatten)]
    whose: Whose,
    /// The next offset of each partition, whose number is a text since TOML has no other keys.
    next: BTreeMap<String, i64>,
}

/// What a position is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Whose {
    /// The cluster's own id; empty if it has none.
    pub(super) cluster: String,
    pub(super) dead_letters: String,
    pub(super) topic: String,
    pub(super) filter: String,
}

/// The file, held.
#[derive(Debug)]
pub(super) struct ResumeFile {
    path: PathBuf,
    whose: Whose,
    content: Content,
    _lock: Option<File>,
}

impl ResumeFile {
    /// Opens it; it need not be there. `to_write`: locks it, and makes its directory.
    ///
    /// # Errors
    /// It cannot be read, is no such file, or another replay holds it.
    pub(super) fn open(path: &Path, whose: Whose, to_write: bool) -> Result<ResumeFile, CliError> {
        let unavailable = |what: &str, error: io::Error| {
            CliError::Unavailable(format!("the resume file {}: {what}: {error}", path.display()))
        };
        let lock = if to_write { Some(lock(path, &unavailable)?) } else { None };
        let content = match fs::read_to_string(path) {
            Ok(text) => toml::from_str(&text).map_err(|error| {
                let why = error.message().to_owned();
                CliError::Usage(format!(
                    "the resume file {} is damaged ({why}); remove it to begin anew: what the topic holds already is not \
                     published again",
                    path.display()
                ))
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Content::default(),
            Err(error) => return Err(unavailable("reading", error)),
        };
        Ok(ResumeFile { path: path.to_owned(), whose, content, _lock: lock })
    }

    /// Where each partition goes on; those that are not here begin at their beginning.
    pub(super) fn positions(&self) -> BTreeMap<u32, i64> {
        let entry = self.content.replay.iter().find(|entry| entry.whose == self.whose);
        let next = entry.into_iter().flat_map(|entry| &entry.next);
        next.filter_map(|(partition, next)| Some((partition.parse().ok()?, *next))).collect()
    }

    /// Writes the positions, durably. Those of other topics and filters stay.
    ///
    /// # Errors
    /// What the disk says; the old file is then still there, whole.
    pub(super) fn save(&mut self, positions: &Positions) -> Result<(), CliError> {
        let next: BTreeMap<String, i64> =
            positions.resume().map(|(partition, next)| (partition.to_string(), next)).collect();
        match self.content.replay.iter_mut().find(|entry| entry.whose == self.whose) {
            Some(entry) => entry.next.extend(next),
            None => self.content.replay.push(Entry { whose: self.whose.clone(), next }),
        }
        let text = toml::to_string(&self.content).expect("texts and numbers are TOML");
        self.replace(text.as_bytes()).map_err(|error| {
            CliError::Unavailable(format!("the resume file {}: writing: {error}", self.path.display()))
        })
    }

    fn replace(&self, content: &[u8]) -> io::Result<()> {
        let aside = beside(&self.path, ".new");
        let mut file = File::create(&aside)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&aside, &self.path)?;
        File::open(folder(&self.path))?.sync_all()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

fn lock(path: &Path, unavailable: &dyn Fn(&str, io::Error) -> CliError) -> Result<File, CliError> {
    fs::create_dir_all(folder(path)).map_err(|error| unavailable("making its directory", error))?;
    let opened = OpenOptions::new().write(true).create(true).truncate(false).open(beside(path, ".lock"));
    let lock = opened.map_err(|error| unavailable("locking", error))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(CliError::Unavailable(format!(
            "the resume file {} is in use by another replay: wait for its end, or stop it",
            path.display()
        ))),
        Err(TryLockError::Error(error)) => Err(unavailable("locking", error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Exit;

    fn whose(filter: &str) -> Whose {
        Whose { cluster: "c".into(), dead_letters: "t.dlq".into(), topic: "t".into(), filter: filter.into() }
    }

    #[test]
    fn positions_are_kept_for_each_filter_and_a_second_replay_is_refused() {
        let folder = std::env::temp_dir().join(format!("fencepost-resume-{}", std::process::id()));
        let path = folder.join("below").join("resume.toml");
        let mut all = ResumeFile::open(&path, whose(""), true).unwrap();
        assert_eq!(all.positions(), BTreeMap::new());
        let mut positions = Positions::default();
        positions.begin(3, 10);
        positions.read(3, 10, true);
        positions.read(0, 4, false);
        all.save(&positions).unwrap();
        assert_eq!(all.positions(), BTreeMap::from([(0, 5), (3, 10)]));
        let second = ResumeFile::open(&path, whose("reason=\"shed\""), true).unwrap_err();
        assert!(second.to_string().contains("in use") && second.exit() == Exit::Unavailable, "{second}");
        // A dry run only reads.
        assert_eq!(ResumeFile::open(&path, whose(""), false).unwrap().positions().len(), 2);
        drop(all);
        let mut shed = ResumeFile::open(&path, whose("reason=\"shed\""), true).unwrap();
        assert_eq!(shed.positions(), BTreeMap::new());
        shed.save(&positions).unwrap();
        drop(shed);
        assert_eq!(ResumeFile::open(&path, whose(""), true).unwrap().positions().len(), 2);
        std::fs::write(&path, "replay = 5\n").unwrap();
        let damaged = ResumeFile::open(&path, whose(""), true).unwrap_err();
        assert!(damaged.to_string().contains("is damaged") && damaged.exit() == Exit::Usage, "{damaged}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
