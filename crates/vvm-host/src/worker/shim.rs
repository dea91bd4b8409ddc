//! The worker's process before it becomes the command.
//!
//! A binary of its own making rather than code between fork and exec, because what runs there must be `unsafe` and may
//! not even allocate; this may do both, and needs neither.

use crate::{
    cli::{args::WorkerArgs, exit},
    link::message::{FromShim, ToShim},
    stage::{self, TakeUpError, TakenUp},
};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::{
    os::unix::process::CommandExt as _,
    process::{Command, ExitCode},
};

/// Becomes the command, or says why not.
pub(crate) fn main(worker: &WorkerArgs) -> ExitCode {
    match become_command(worker) {
        Ok(status) => status.into(),
        Err(refusal) => refusal.conclude(),
    }
}

fn become_command(worker: &WorkerArgs) -> Result<u8, TakeUpError> {
    // When its parent ends (the host, or process 1 of its namespace), the kernel ends this process, and the command it becomes: execution keeps the setting
    // (PR_SET_PDEATHSIG(2const)) unless the command is set-uid. First of all, so that no moment is without it.
    let tied = set_parent_process_death_signal(Some(Signal::KILL));
    let TakenUp { link, first: ToShim { parent }, descriptors } = stage::take_up::<FromShim, ToShim>()?;
    // A parent that ended before the kernel was asked has left us to somebody else.
    if getppid() != Some(parent) {
        return Err(TakeUpError::Abandoned);
    }
    let input = descriptors.into_iter().next().ok_or(TakeUpError::Abandoned)?;
    let (command, arguments) = worker.command.split_first().ok_or(TakeUpError::NotAStage)?;
    let error = match tied.and_then(|()| rustix::stdio::dup2_stdin(input)) {
        // Returns only when it failed. On success the link closes without a word.
        Ok(()) => Command::new(command).args(arguments).exec(),
        Err(refusal) => refusal.into(),
    };
    let errno = error.raw_os_error().unwrap_or_default();
    // A host that is gone needs no answer.
    let _ = link.say(&FromShim { errno });
    // Whoever started us has the reason, and decides by it; this only says that it did not come to the command.
    Ok(exit::NOT_EXECUTABLE)
}
