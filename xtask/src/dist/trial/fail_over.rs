//! The first fail-over: two candidates on one machine, and the leader's process is killed.

use super::transcript::Transcript;
use crate::dist::draft::DistError;
use std::{path::Path, process::Command};

/// Runs it with the program at `vvm`, with its files in `folder`.
///
/// # Errors
/// The second candidate does not take over.
pub(super) fn run(transcript: &Transcript, vvm: &Path, folder: &Path) -> Result<(), DistError> {
    let storage = format!("sqlite:{}/payroll.db", folder.display());
    let candidate = |holder: &str| {
        let mut command = Command::new(vvm);
        command.args(["run", "--storage", &storage, "--name", "payroll", "--ttl", "5s", "--holder", holder]);
        command.args(["--", "sh", "-c", "echo I lead with epoch $VVM_LEADER_EPOCH; exec sleep 1d"]);
        command
    };
    let mut first = transcript.start(&mut candidate("first"), folder.join("first.log"))?;
    first.wait_for("I lead with epoch")?;
    let mut second = transcript.start(&mut candidate("second"), folder.join("second.log"))?;
    second.wait_for("waiting for leadership")?;
    transcript.show(Command::new("kill").args(["-s", "KILL", &first.id().to_string()]))?;
    second.wait_for("I lead with epoch")?;
    let status = ["status", "--storage", &storage, "--name", "payroll"];
    transcript.show(Command::new(vvm).args(status))?;
    transcript.show(Command::new("kill").arg(second.id().to_string()))?;
    second.ended()?;
    Ok(())
}
