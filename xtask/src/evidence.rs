//! Commands that show what the README claims: each runs a package under `evidence/`, in release.
//!
//! What lives here: which command runs which package. What they measure and what they ask for stands there.

use crate::workspace::{Workspace, cargo};
use std::ffi::OsString;

/// Runs `package` with `arguments`; whether it held.
pub(crate) fn run(package: &str, arguments: &[OsString]) -> bool {
    let root = match Workspace::read() {
        Ok(workspace) => workspace.root,
        Err(error) => {
            eprintln!("{package}: {error}");
            return false;
        }
    };
    let status = cargo()
        .args(["run", "--quiet", "--release", "--locked", "--package", package, "--"])
        .args(arguments)
        .current_dir(root)
        .status();
    match status {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("{package}: cargo could not be started: {error}");
            false
        }
    }
}
