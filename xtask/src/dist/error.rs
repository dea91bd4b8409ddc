//! Why nothing can be given to others.

use crate::workspace::WorkspaceError;
use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

/// Why a release can't be built, differs, or does not work.
#[derive(Debug, thiserror::Error)]
pub(super) enum DistError {
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    #[error("{}: {cause}", path.display())]
    File { path: PathBuf, cause: io::Error },
    #[error("`{program}` could not be started: {cause}")]
    Start { program: String, cause: io::Error },
    #[error("`{command}` failed ({status}):\n{said}")]
    Failed { command: String, status: String, said: String },
    #[error("an archive could not be written: {0}")]
    Archive(#[from] io::Error),
    #[error("a wheel could not be written: {0}")]
    Zip(#[from] zip::result::ZipError),
    #[error("`cargo metadata` answered something that is not understood: {0}")]
    Answer(#[from] serde_json::Error),
    #[error("machines are x86_64 and aarch64, and this one is {0}")]
    Machine(String),
    #[error("the work tree has changes, which a build from the commit lacks: commit them first\n{0}")]
    Changed(String),
    #[error("two builds differ in {0}")]
    Differs(String),
    #[error("`{0}` is not there: run `cargo xtask dist` first")]
    Missing(String),
    #[error("{0}")]
    Unexpected(String),
}

/// Reads a file.
///
/// # Errors
/// That it can't be read, with its path.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, DistError> {
    fs::read(path).map_err(|cause| DistError::File { path: path.into(), cause })
}

/// Writes a file, and its folder if need be.
///
/// # Errors
/// That it can't be written, with its path.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), DistError> {
    let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
    folder.and_then(|()| fs::write(path, bytes)).map_err(|cause| DistError::File { path: path.into(), cause })
}

/// Runs a command to its end and returns its output.
///
/// # Errors
/// That it could not be started or failed, with what it said.
pub(super) fn output(command: &mut Command) -> Result<Vec<u8>, DistError> {
    let ended = command.output().map_err(|cause| DistError::Start { program: line(command), cause })?;
    if ended.status.success() {
        return Ok(ended.stdout);
    }
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    Err(DistError::Failed { command: line(command), status: ended.status.to_string(), said })
}

/// Returns a command as a person would write it.
pub(super) fn line(command: &Command) -> String {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    words.map(|word| quoted(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=,@%+?".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) { word.to_owned() } else { format!("'{word}'") }
}
