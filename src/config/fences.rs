//! The list of known fences (`validate.fences`): a text file with one fence id a line.
//!
//! An id stands exactly as it is submitted: nothing is trimmed but the end of the line (`\n` or `\r\n`). Empty lines are
//! passed over, an id that is there twice counts once. A list that names no fence is refused: every trigger would be
//! unknown. Read at start, and where its user asks for it; asking costs one hash and one compare, and allocates nothing.

use crate::trigger::rules::ID_BYTES;
use foldhash::fast::RandomState;
use hashbrown::HashSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The most bytes of a list; a million ids of 256 bytes fit.
pub const FENCES_BYTES_MAX: u64 = 256 << 20;

/// The fences that there are.
#[derive(Clone, Debug)]
pub struct KnownFences(HashSet<Box<[u8]>, RandomState>);

/// Why a list of fences cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FencesError {
    /// The file cannot be read.
    #[error("validate.fences: {path:?} cannot be read: {why}; give the path of a text file that this user may read")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        why: std::io::Error,
    },
    /// The file is too long.
    #[error("validate.fences: {path:?} has more than {FENCES_BYTES_MAX} bytes; give a list of one fence id a line")]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// A line is no fence id.
    #[error("validate.fences: {path:?}, line {line}: {what}; a fence id is UTF-8 text of {} to {} bytes", ID_BYTES.start(), ID_BYTES.end())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// No fence is named.
    #[error(
        "validate.fences: {path:?} names no fence, so every trigger would be refused; give one fence id a line, or leave the key out"
    )]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

impl KnownFences {
    /// Reads a list.
    ///
    /// # Errors
    /// The file cannot be read or is too long, a line is no fence id, or there is none.
    pub fn read(path: &Path) -> Result<KnownFences, FencesError> {
        let unreadable = |why| FencesError::Unreadable { path: path.to_owned(), why };
        let file = std::fs::File::open(path).map_err(unreadable)?;
        let mut bytes = Vec::new();
        file.take(FENCES_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > FENCES_BYTES_MAX {
            return Err(FencesError::TooLong { path: path.to_owned() });
        }
        let fences = KnownFences::from_bytes(&bytes).map_err(|(line, what)| FencesError::Line {
            path: path.to_owned(),
            line,
            what,
        })?;
        if fences.is_empty() {
            return Err(FencesError::Empty { path: path.to_owned() });
        }
        Ok(fences)
    }

    /// From the text of a list; or the line that is no fence id, and why.
    fn from_bytes(bytes: &[u8]) -> Result<KnownFences, (usize, String)> {
        // An editor may have put its mark in front of the first id.
        let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
        let mut fences = HashSet::with_hasher(RandomState::default());
        for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
            let id = line.strip_suffix(b"\r").unwrap_or(line);
            if id.is_empty() {
                continue;
            }
            if id.len() > *ID_BYTES.end() {
                return Err((index + 1, format!("it has {} bytes", id.len())));
            }
            if std::str::from_utf8(id).is_err() {
                return Err((index + 1, "it is not UTF-8".to_owned()));
            }
            if !fences.contains(id) {
                fences.insert(id.into());
            }
        }
        fences.shrink_to_fit();
        Ok(KnownFences(fences))
    }

    /// Whether the list names this fence.
    #[must_use]
    pub fn contains(&self, fence_id: &[u8]) -> bool {
        self.0.contains(fence_id)
    }

    /// How many different fences there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What the list takes, for the memory sum: the table and the ids, without what the allocator adds.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.0.allocation_size() + self.0.iter().map(|id| id.len()).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &[u8]) -> KnownFences {
        KnownFences::from_bytes(text).expect("it is a list")
    }

    #[test]
    fn ids_are_exact() {
        let fences = named(b"zone-1\r\n\n zone 2 \nzone-1\r\n\r\nlast \xC3\xA9");
        assert_eq!(fences.len(), 3);
        for there in ["zone-1", " zone 2 ", "last \u{e9}"] {
            assert!(fences.contains(there.as_bytes()), "{there}");
        }
        for not_there in ["zone-1\r", "zone 2", "Zone-1", "zone-", "", "last e"] {
            assert!(!fences.contains(not_there.as_bytes()), "{not_there:?}");
        }
        assert!(fences.memory_bytes() > "zone-1 zone 2 last e".len());
        assert!(named(b"\xEF\xBB\xBFfirst\n").contains(b"first"));
    }

    #[test]
    fn a_line_that_is_no_id_is_named() {
        let longest = "f".repeat(256);
        assert!(named(longest.as_bytes()).contains(longest.as_bytes()));
        let refused = |text: &[u8]| KnownFences::from_bytes(text).expect_err("it is no list");
        assert_eq!(refused(format!("a\n\n{longest}f\n").as_bytes()), (3, "it has 257 bytes".to_owned()));
        assert_eq!(refused(b"a\n\xFF\n"), (2, "it is not UTF-8".to_owned()));
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named_with_the_fix() {
        let folder = std::env::temp_dir().join(format!("fencepost-fences-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for the test");
        let path = folder.join("fences.txt");
        let said = || KnownFences::read(&path).expect_err("it cannot be used").to_string();
        assert!(said().contains("cannot be read") && said().contains("fences.txt"), "{}", said());
        std::fs::write(&path, "\n\r\n").expect("a file for the test");
        assert!(said().contains("names no fence"), "{}", said());
        std::fs::write(&path, [b"ok\n".as_slice(), &[b'x'; 300]].concat()).expect("a file for the test");
        assert!(said().contains("line 2: it has 300 bytes; a fence id is UTF-8 text of 1 to 256 bytes"), "{}", said());
        std::fs::write(&path, "a\nb\n").expect("a file for the test");
        assert_eq!(KnownFences::read(&path).expect("it is a list").len(), 2);
        std::fs::remove_dir_all(&folder).expect("the folder was made here");
    }
}
