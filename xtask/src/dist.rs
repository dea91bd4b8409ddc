//! `cargo xtask dist`: builds what a release has, twice if asked for, and tries it.
//!
//! The Debian package, the wheel and the image are written here, and not by cargo-deb, maturin and a Containerfile:
//! these write one archive each of files that are made here anyway.
//!
//! Every file follows from a commit and the toolchain: none has a time, an owner or a folder of this machine.
//! docs/installing.md is the page for users.

mod archives;
mod build;
mod licences;

use crate::{ci::limit, workspace::WorkspaceError};
use archives::{File, sha256, sums};
use build::{Libc, Made, Source, git};
use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use vvm_clock::{Span, SystemClock};

/// Options of `cargo xtask dist`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Link this C library into the programs.
    #[arg(long, value_enum, default_value_t = Libc::Gnu)]
    libc: Libc,
    /// Build again in another folder, and fail if a file differs. Needs a work tree without changes.
    #[arg(long, conflicts_with = "try")]
    reproduce: bool,
    /// Build nothing: make a draft of a release on GitHub, with the files that are there.
    #[arg(long, conflicts_with_all = ["reproduce", "try"])]
    draft: bool,
    /// Build nothing: install from the files that are there, show the first fail-over, and look up names from
    /// an empty root folder. `--try=deb` does one of deb, wheel, image, names.
    #[arg(long = "try", id = "try", value_name = "KIND", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "all")]
    trial: Option<Kind>,
}

/// What is tried.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
enum Kind {
    /// Each of the others.
    All,
    /// The Debian package, in a root folder of its own.
    Deb,
    /// The wheel, in a virtual environment of its own.
    Wheel,
    /// The container image, by podman.
    Image,
    /// Host names, by the static program in a root folder with nothing else.
    Names,
}

/// Returns whether everything could be built, is the same, or works.
pub(crate) fn run(options: &Options) -> bool {
    match carry_out(options) {
        Ok(()) => true,
        Err(error) => {
            eprintln!("dist: {error}");
            false
        }
    }
}

fn carry_out(options: &Options) -> Result<(), DistError> {
    let source = Source::read(options.libc)?;
    if let Some(kind) = options.trial {
        return try_out(&source, kind);
    }
    if options.draft {
        return create_draft(&source, &source.packages());
    }
    if options.reproduce {
        source.must_be_committed()?;
    }
    let made = build::make(&source)?;
    print!("{made}");
    if options.reproduce {
        compare(&source, &made)?;
    }
    Ok(())
}

/// Builds again and compares every file.
///
/// # Errors
/// It does not build, or a file differs.
fn compare(source: &Source, made: &Made) -> Result<(), DistError> {
    let folder = tempfile::Builder::new().prefix("vvm-second-build-").tempdir()?;
    let copy = source.copy_to(folder.path())?;
    let second = build::make(&copy)?;
    let differing = differing(&made.files, &second.files);
    if differing.is_empty() {
        let folders = (source.root.display(), copy.root.display());
        println!("the same {} files from {} and {}", made.files.len(), folders.0, folders.1);
        return Ok(());
    }
    Err(DistError::Differs(differing.join(", ")))
}

/// Returns the files that are not in both, or not the same.
fn differing(first: &[File], second: &[File]) -> Vec<String> {
    let name = |file: &File| format!("{} {}", file.path, sha256(&file.bytes));
    let lacks = |files: &[File], one: &File| !files.iter().any(|other| name(other) == name(one));
    let of_first = first.iter().filter(|file| lacks(second, file));
    let of_second = second.iter().filter(|file| lacks(first, file));
    of_first.chain(of_second).map(name).collect()
}

/// Each with the end of the file that it needs, and the script that tries it.
const TRIALS: [(Kind, &str, &[&str]); 4] = [
    (Kind::Deb, ".deb", &["sh", "xtask/src/dist/try.sh", "deb"]),
    (Kind::Wheel, ".whl", &["sh", "xtask/src/dist/try.sh", "wheel"]),
    (Kind::Image, ".oci.tar", &["sh", "xtask/src/dist/try.sh", "image"]),
    (Kind::Names, ".deb", &["python3", "xtask/src/dist/names.py"]),
];

/// The time in which a user has installed the program and seen it fail over.
const LIMIT: Duration = Duration::from_secs(60);

/// The time after which a trial that says nothing has hung.
const SILENCE: Duration = Duration::from_secs(30);

/// Tries the files that were made.
///
/// # Errors
/// A file is missing or does not work.
fn try_out(source: &Source, kind: Kind) -> Result<(), DistError> {
    limit::heed_interrupts()?;
    for (_, ending, script) in TRIALS.iter().filter(|(one, ..)| [*one, Kind::All].contains(&kind)) {
        let missing = || DistError::Missing(format!("target/packages/*/*{ending}"));
        let entries = fs::read_dir(source.packages()).map_err(|_| missing())?;
        let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let file = paths.find(|path| path.to_string_lossy().ends_with(ending)).ok_or_else(missing)?;
        let mut command = Command::new(script[0]);
        command.args(&script[1..]).arg(&file).arg(source.root.join("packaging/Containerfile"));
        println!("\n== {}\n", line(&command));
        let start = SystemClock::read();
        let ended = limit::watch(command.current_dir(&source.root), SILENCE, |said| {
            println!("{said}");
            true
        });
        let status = ended.map_err(|cause| DistError::Start { program: line(&command), cause })?;
        let took = SystemClock::read().since(start);
        println!("# {}", Span(took));
        if !status.success() {
            let (command, status, said) = (line(&command), status.to_string(), "see above".into());
            return Err(DistError::Failed { command, status, said });
        }
        if took > LIMIT {
            return Err(DistError::Unexpected(format!("it took longer than {}", Span(LIMIT))));
        }
    }
    Ok(())
}

/// Why a release can't be built, differs, or does not work.
#[derive(Debug, thiserror::Error)]
enum DistError {
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
fn read(path: &Path) -> Result<Vec<u8>, DistError> {
    fs::read(path).map_err(|cause| DistError::File { path: path.into(), cause })
}

/// Writes a file, and its folder if need be.
///
/// # Errors
/// That it can't be written, with its path.
fn write(path: &Path, bytes: &[u8]) -> Result<(), DistError> {
    let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
    folder.and_then(|()| fs::write(path, bytes)).map_err(|cause| DistError::File { path: path.into(), cause })
}

/// Runs a command to its end and returns its output.
///
/// # Errors
/// That it could not be started or failed, with what it said.
fn output(command: &mut Command) -> Result<Vec<u8>, DistError> {
    let ended = command.output().map_err(|cause| DistError::Start { program: line(command), cause })?;
    if ended.status.success() {
        return Ok(ended.stdout);
    }
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    Err(DistError::Failed { command: line(command), status: ended.status.to_string(), said })
}

/// Returns a command as a person would write it.
fn line(command: &Command) -> String {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    words.map(|word| quoted(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=,@%+?".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) { word.to_owned() } else { format!("'{word}'") }
}

const SUMS: &str = "SHA256SUMS";

/// # Errors
/// The commit has no tag of its version, no target was built, or `gh` fails.
fn create_draft(source: &Source, packages: &Path) -> Result<(), DistError> {
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
    fn file_that_differs_or_is_missing_is_named() {
        let files = |last: &str| vec![File::new("a", "same"), File::new("b", last)];
        assert_eq!(differing(&files("1"), &files("1")), [""; 0]);
        assert_eq!(differing(&files("1"), &files("2")).len(), 2);
        assert_eq!(differing(&files("1")[..1], &files("1")).len(), 1);
    }

    #[test]
    fn only_the_tag_of_this_version_is_released() {
        assert!(is_tagged("latest\nv0.1.0\n", "v0.1.0"));
        assert!(!is_tagged("v0.1.01\n", "v0.1.0"));
        assert!(!is_tagged("", "v0.1.0"));
    }
}
