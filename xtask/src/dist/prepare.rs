//! `--prepare`: installs what a build for musl needs, on a machine of CI.

use super::{
    error::{DistError, output},
    source::Source,
};
use std::process::Command;

/// # Errors
/// rustup or apt-get fails.
pub(super) fn prepare(source: &Source) -> Result<(), DistError> {
    if !source.target.has_glibc {
        output(Command::new("rustup").args(["target", "add", &source.target.triple]))?;
        output(Command::new("sudo").args(["apt-get", "install", "--yes", "musl-tools"]))?;
    }
    Ok(())
}
