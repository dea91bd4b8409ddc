//! `cargo xtask dist --draft`: makes a draft of the release on GitHub, with the files of all targets. A
//! person reads and publishes it.
//!
//! Only the release workflow runs this, with the files that it collected.

use super::{
    DistError,
    archives::{File, sums},
    build::{Source, git},
    output, read, write,
};
use std::{
    fs,
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
