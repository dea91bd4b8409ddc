//! `cargo xtask dist --draft`: makes a draft of the release on GitHub, with the files of all targets. A
//! person reads and publishes it.
//!
//! Only the release workflow runs this, with the files that it collected.

use super::{
    source::{Source, git},
    tarball::{File, sums},
};
use crate::workspace::WorkspaceError;
use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

const SUMS: &str = "SHA256SUMS";

/// # Errors
/// The commit has no tag of its version, no target was built, or `gh` fails.
pub(super) fn create(source: &Source, packages: &Path) -> Result<(), DistError> {
    let tag = format!("v{}", source.version);
    let tags = output(git(&source.root).args(["tag", "--points-at", "HEAD"]))?;
    let tags = String::from_utf8_lossy(&tags);
    if !is_tagged(&tags, &tag) {
        let found = if tags.is_empty() { "no tag" } else { tags.trim() };
        return Err(DistError::Unexpected(format!("the commit must have the tag {tag}, and has {found}")));
    }
    let mut paths = Vec::new();
    for folder in entries(packages)? {
        paths.extend(entries(&folder)?.into_iter().filter(|path| !path.ends_with(SUMS)));
    }
    let mut files = Vec::new();
    for path in &paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        files.push(File::new(name, read(path)?));
    }
    if files.is_empty() {
        return Err(DistError::Missing(packages.display().to_string()));
    }
    let all = packages.join(SUMS);
    write(&all, sums(&files).as_bytes())?;
    let mut command = Command::new("gh");
    command.args(["release", "create", &tag, "--draft", "--verify-tag", "--title", &tag]);
    command.args(["--notes-file", "CHANGELOG.md"]).args(&paths).arg(&all);
    output(command.current_dir(&source.root))?;
    Ok(())
}

fn is_tagged(tags: &str, wanted: &str) -> bool {
    tags.lines().any(|tag| tag == wanted)
}

/// Returns what is in a folder, sorted; nothing for a file.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, DistError> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let failed = |cause| DistError::File { path: folder.into(), cause };
    let entries = fs::read_dir(folder).map_err(failed)?;
    let mut paths =
        entries.map(|entry| Ok(entry.map_err(failed)?.path())).collect::<Result<Vec<_>, DistError>>()?;
    paths.sort();
    Ok(paths)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_tag_of_this_version_is_released() {
        assert!(is_tagged("latest\nv0.1.0\n", "v0.1.0"));
        assert!(!is_tagged("v0.1.01\n", "v0.1.0"));
        assert!(!is_tagged("", "v0.1.0"));
    }
}
