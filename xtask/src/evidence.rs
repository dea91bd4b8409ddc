//! Commands that show what the README claims: each runs a package under `evidence/`, in release where time is
//! measured.
//!
//! What lives here: which command runs which package. What they measure and what they ask for stands there.

pub(crate) mod smoke;

use crate::workspace::{Workspace, cargo};
use std::ffi::OsString;

/// How a package is built.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Profile {
    /// Optimised.
    Release,
    /// As it is given to others, which takes longer: for figures.
    Dist,
}

impl Profile {
    fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Dist => "dist",
        }
    }
}

/// Builds the programs of `package`, for evidence that starts them.
pub(crate) fn build(profile: Profile, package: &str) -> bool {
    let build = ["build", "--quiet", "--profile", profile.name(), "--locked", "--package", package];
    succeeds(package, &build, &[])
}

/// The same, with features, of which there may be none.
pub(crate) fn build_with_features(profile: Profile, package: &str, features: &str) -> bool {
    let build = ["build", "--quiet", "--profile", profile.name(), "--locked", "--package", package];
    succeeds(package, &[&build[..], &["--features", features]].concat(), &[])
}

/// Runs `package` with `arguments`; whether it held.
pub(crate) fn run(profile: Profile, package: &str, arguments: &[OsString]) -> bool {
    let run = ["run", "--quiet", "--profile", profile.name(), "--locked", "--package", package, "--"];
    succeeds(package, &run, arguments)
}

/// The same, with features, of which there may be none.
pub(crate) fn run_with_features(
    profile: Profile,
    package: &str,
    features: &str,
    arguments: &[OsString],
) -> bool {
    let run = ["run", "--quiet", "--profile", profile.name(), "--locked", "--package", package];
    let run = [&run[..], &["--features", features, "--"]].concat();
    succeeds(package, &run, arguments)
}

/// Runs `package` as it is built by default, not optimised: where servers take the time, the build would take
/// more of it.
pub(crate) fn run_plain(package: &str, arguments: &[OsString]) -> bool {
    succeeds(package, &["run", "--quiet", "--locked", "--package", package, "--"], arguments)
}

fn succeeds(package: &str, command: &[&str], arguments: &[OsString]) -> bool {
    let root = match Workspace::read() {
        Ok(workspace) => workspace.root,
        Err(error) => {
            eprintln!("{package}: {error}");
            return false;
        }
    };
    match cargo().args(command).args(arguments).current_dir(root).status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("{package}: cargo could not be started: {error}");
            false
        }
    }
}
