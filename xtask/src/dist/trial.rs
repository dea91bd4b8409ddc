//! `cargo xtask dist --try`: installs from each file as a user would, and prints what a user would see.
//!
//! What lives here: which trials there are. Each ends with a fail-over, and takes less than a minute.

mod deb;
mod fail_over;
mod image;
mod names;
mod transcript;
mod wheel;

use super::{draft::DistError, source::Source};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};
use transcript::Transcript;
use vvm_clock::{Span, SystemClock};

/// What is tried.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(super) enum Kind {
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

/// The time in which a user has installed the program and seen it fail over.
const LIMIT: Duration = Duration::from_secs(60);

type Trial = fn(&Transcript, &Path, &Path) -> Result<(), DistError>;

/// Each with the end of the file that it needs.
const TRIALS: [(Kind, &str, Trial); 4] = [
    (Kind::Deb, ".deb", deb::run),
    (Kind::Wheel, ".whl", wheel::run),
    (Kind::Image, ".oci.tar", image::run),
    (Kind::Names, ".deb", names::run),
];

/// Tries the files in `folder`.
///
/// # Errors
/// A file is missing or does not work.
pub(super) fn run(source: &Source, folder: &Path, kind: Kind) -> Result<(), DistError> {
    for (_, ending, trial) in TRIALS.iter().filter(|(one, ..)| [*one, Kind::All].contains(&kind)) {
        let file = find(folder, ending)?;
        let scratch = tempfile::Builder::new().prefix("vvm-try-").tempdir()?;
        let transcript = Transcript::new(&[(&source.root, "."), (scratch.path(), "/tmp/try")]);
        transcript.title(&file.file_name().unwrap_or_default().to_string_lossy());
        let start = SystemClock::read();
        trial(&transcript, &file, scratch.path())?;
        let took = SystemClock::read().since(start);
        transcript.remark(&format!("{}", Span(took)));
        if took > LIMIT {
            return Err(DistError::Unexpected(format!("it took longer than {}", Span(LIMIT))));
        }
    }
    Ok(())
}

/// Returns the file with this end.
fn find(folder: &Path, ending: &str) -> Result<PathBuf, DistError> {
    let missing = || DistError::Missing(format!("target/packages/*/*{ending}"));
    let mut entries = fs::read_dir(folder).map_err(|_| missing())?.filter_map(Result::ok);
    let found = entries.find(|entry| entry.file_name().to_string_lossy().ends_with(ending));
    found.map(|entry| entry.path()).ok_or_else(missing)
}
