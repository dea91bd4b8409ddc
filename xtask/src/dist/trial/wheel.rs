//! The wheel, installed by pip into a fresh virtual environment.

use super::{fail_over, transcript::Transcript};
use crate::dist::draft::DistError;
use std::{path::Path, process::Command};

/// # Errors
/// It can't be installed, or what is installed does not work.
pub(super) fn run(transcript: &Transcript, wheel: &Path, scratch: &Path) -> Result<(), DistError> {
    let environment = scratch.join("venv");
    let programs = environment.join("bin");
    transcript.show(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    let options = ["install", "--disable-pip-version-check", "--no-index"];
    transcript.show(Command::new(programs.join("pip")).args(options).arg(wheel))?;
    transcript.show(Command::new(programs.join("pip")).args(["show", "--files", "vvm-cli"]))?;
    transcript.show(Command::new(programs.join("vvm")).arg("--version"))?;
    fail_over::run(transcript, &programs.join("vvm"), scratch)
}
