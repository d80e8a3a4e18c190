//! What can be wrong with a configuration. Each problem names the key, what came, what is allowed, and the fix;
//! a [`ConfigError`] carries all that were found, so that a person mends a file in one go.
//! No message ever holds the value of a client property: it may be a secret.

use std::fmt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file cannot be read.
    #[error("cannot be read: {why}; give the path of a TOML file that this user may read")]
    Unreadable {
        /// What the system said.
        why: String,
    },
    /// The text is no TOML.
    #[error("is not TOML: {why}")]
    NotToml {
        /// What the parser said. The text itself is not repeated: it may hold a secret.
        why: String,
    },
    /// No such table or key.
    #[error("`{key}` is not known{}", did_you_mean(.nearest))]
    UnknownKey {
        /// What came, with its table.
        key: String,
        /// What was probably meant.
        nearest: Option<&'static str>,
    },
    /// The value has another type than the key.
    #[error("{key} is {got}, allowed {allowed}; {fix}")]
    WrongType {
        /// The key, with its table.
        key: String,
        /// The type that came.
        got: &'static str,
        /// The type that is allowed.
        allowed: String,
        /// What to do.
        fix: String,
    },
    /// The value is outside of what the key allows.
    #[error("{key} = {got}, allowed {allowed}; {fix}")]
    NotAllowed {
        /// The key, with its table.
        key: String,
        /// The value that came.
        got: String,
        /// What is allowed.
        allowed: String,
        /// What to do.
        fix: String,
    },
    /// Each value is allowed for itself, but they do not go together.
    #[error("{got}: {rule}; {fix}")]
    Conflict {
        /// The rule that is broken, as printed in the reference.
        rule: &'static str,
        /// The keys and values that break it.
        got: String,
        /// What to do.
        fix: String,
    },
    /// A key that is needed here has no value.
    #[error("{key} is not set; {fix}")]
    Missing {
        /// The key, with its table.
        key: &'static str,
        /// What to do.
        fix: &'static str,
    },
    /// A client property that the router sets itself.
    #[error("{table}: `{key}` is not for the config: {why}")]
    RefusedProperty {
        /// The table it stands in.
        table: &'static str,
        /// The property.
        key: String,
        /// Why, and which key of fencepost steers it.
        why: &'static str,
    },
    /// A client property that is not on the list of allowed ones.
    #[error(
        "{table}: `{key}` is not known{}; see the allowed ones in docs/config.md",
        did_you_mean(.nearest)
    )]
    UnknownProperty {
        /// The table it stands in.
        table: &'static str,
        /// The property.
        key: String,
        /// What was probably meant.
        nearest: Option<&'static str>,
    },
    /// A client property whose value is not allowed. The value is not repeated: it may be a secret.
    #[error("{table}: the value of `{key}` is not allowed: {why}, allowed {allowed}")]
    PropertyValue {
        /// The table it stands in.
        table: &'static str,
        /// The property.
        key: String,
        /// What is wrong with the value, without the value.
        why: String,
        /// What is allowed.
        allowed: String,
    },
    /// A `${NAME}` or `file:PATH` of a client property leads nowhere.
    #[error("{table}: `{key}` takes its value from {from}, which {why}; {fix}")]
    Unresolved {
        /// The table it stands in.
        table: &'static str,
        /// The property.
        key: String,
        /// The variable or the file.
        from: String,
        /// What is wrong with it.
        why: String,
        /// What to do.
        fix: &'static str,
    },
}

fn did_you_mean(nearest: &Option<&'static str>) -> String {
    nearest.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

/// Everything that was found wrong with a configuration: at least one problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    file: Option<PathBuf>,
    /// Each problem with its line in the file, where it has one.
    found: Vec<(Option<usize>, Problem)>,
}

impl ConfigError {
    /// # Panics
    /// If nothing was found: an error without a problem is our mistake.
    pub(super) fn new(found: Vec<(Option<usize>, Problem)>) -> ConfigError {
        assert!(!found.is_empty(), "a config error names at least one problem");
        ConfigError { file: None, found }
    }

    /// `Ok` when no problem was found.
    pub(super) fn unless_clean(problems: Vec<Problem>) -> Result<(), ConfigError> {
        if problems.is_empty() {
            return Ok(());
        }
        Err(ConfigError::new(problems.into_iter().map(|problem| (None, problem)).collect()))
    }

    pub(super) fn in_file(mut self, file: &Path) -> ConfigError {
        self.file = Some(file.to_owned());
        self
    }

    /// The problems, in the order of the file.
    pub fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.found.iter().map(|(_, problem)| problem)
    }

    /// The file that was read, if it was one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }
}

impl fmt::Display for ConfigError {
    /// One line a problem: `fencepost.toml:12: engine.shards = 65, allowed 1..=64; …`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (line, problem)) in self.found.iter().enumerate() {
            if index > 0 {
                out.write_str("\n")?;
            }
            match (&self.file, line) {
                (Some(file), Some(line)) => write!(out, "{}:{line}: ", file.display())?,
                (Some(file), None) => write!(out, "{}: ", file.display())?,
                (None, Some(line)) => write!(out, "line {line}: ")?,
                (None, None) => {}
            }
            write!(out, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}
