//! A directory for one run of a command: made for it alone, entered by this user only, removed when the run ends.

use crate::cli::CliError;
use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Names that are tried: one may be left by a process that was killed and had our number.
const TRIES: u32 = 100;
/// How often removal is tried: the router may be making a file meanwhile.
const REMOVALS: u32 = 20;

/// See the [module](self).
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new, empty one below the system's directory for such, named after the command.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn make(command: &str) -> Result<Scratch, CliError> {
        let parent = std::env::temp_dir();
        let mut number = 0;
        loop {
            let path = parent.join(format!("fencepost-{command}-{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Scratch(path)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists && number < TRIES => number += 1,
                Err(error) => {
                    return Err(CliError::Unavailable(format!(
                        "{} cannot be made for what the {command} spills: {error}; point TMPDIR to a directory that this \
                         user may write",
                        path.display()
                    )));
                }
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Removes it when called, for an end that drops nothing.
    pub fn remover(&self) -> impl Fn() + Send + 'static {
        let path = self.0.clone();
        move || remove(&path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

fn remove(path: &Path) {
    let mut last = None;
    for _ in 0..REMOVALS {
        match fs::remove_dir_all(path) {
            Ok(()) => return,
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            Err(error) => last = Some(error),
        }
    }
    if let Some(error) = last {
        tell!("{} stays behind: {error}", path.display());
    }
}
