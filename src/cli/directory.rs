//! A directory that a command is to look into. One that is not there is told apart from one with nothing in it: a name that
//! was mistyped, or a volume that is not mounted, must not pass for "nothing is left".

use super::CliError;
use std::path::Path;

/// Says whether the directory is there. `what` names it as the person did, with its path; `fix` says what to mend.
///
/// # Errors
/// [`CliError::Unavailable`], with both.
pub(super) fn must_be_there(dir: &Path, what: &str, fix: &str) -> Result<(), CliError> {
    match std::fs::metadata(dir) {
        Ok(about) if about.is_dir() => Ok(()),
        Ok(_) => Err(CliError::Unavailable(format!("{what} is no directory; {fix}"))),
        Err(error) => Err(CliError::Unavailable(format!("{what}: {error}; {fix}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Exit;

    #[test]
    fn a_directory_that_is_missing_or_a_file_is_not_available_by_name_and_fix() {
        let dir = std::env::temp_dir().join(format!("fencepost-cli-directory-{}", std::process::id()));
        let ask = |path: &Path| must_be_there(path, &format!("state.dir = {}", path.display()), "mount it");
        let missing = ask(&dir).unwrap_err();
        assert_eq!(missing.exit(), Exit::Unavailable);
        let text = missing.to_string();
        assert!(
            text.starts_with(&format!("state.dir = {}: ", dir.display())) && text.ends_with("; mount it"),
            "{text}"
        );
        std::fs::create_dir_all(&dir).unwrap();
        assert!(ask(&dir).is_ok());
        let file = dir.join("file");
        std::fs::write(&file, "").unwrap();
        let text = ask(&file).unwrap_err().to_string();
        assert!(text.ends_with("is no directory; mount it"), "{text}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
