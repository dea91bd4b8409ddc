//! Candidates of measurements: `vvm run` with a command that holds a lock, on a storage in a folder.

use harness::{Level, Program, Running, Trial};
use servers::owned::GUARD;
use std::{env, io, path::PathBuf, process};

/// Why there is no program to measure.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramError {
    #[error("the path of this program is unknown: {0}")]
    Path(#[from] io::Error),
    #[error("{} is missing; build it with `cargo build --profile dist -p vvm-cli`", .0.display())]
    NotBuilt(PathBuf),
}

/// Each command holds the lock for as long as it, or what it leaves behind, lives.
const SCRIPT: &str = "exec 9>>\"$0\"; flock -n 9 && echo alone || echo beside another; exec sleep 1000";

/// The TTL of all.
const TTL: [&str; 2] = ["--ttl", "20s"];

/// Returns the `vvm` beside this program, to be run at `level`.
pub(crate) fn program(level: Level) -> Result<Program, ProgramError> {
    let vvm = env::current_exe()?.with_file_name("vvm");
    if !vvm.exists() {
        return Err(ProgramError::NotBuilt(vvm));
    }
    Ok(Program::new(vvm.display().to_string().leak(), level))
}

/// Starts a candidate through the command `before`, with `options`. It dies with this process. Its command
/// prints `alone` if no other holds the lock.
pub(crate) fn start(trial: &Trial, before: &[&str], options: &[&str]) -> Result<Running, io::Error> {
    let (own, id) = (env::current_exe()?.display().to_string(), process::id().to_string());
    let lock = trial.folder().join("lock").display().to_string();
    let run = trial.run(["sh", "-c", SCRIPT, &lock]).with(TTL).with(options.iter().copied());
    Ok(run.through([&[&own, GUARD, &id], before].concat()).start())
}
