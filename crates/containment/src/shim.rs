//! The shim: the command's process before it executes the command.
//!
//! It is a separate program start, because code between fork and exec would be `unsafe` and could not
//! allocate.

use crate::{
    launch::{self, Accepted, StageError},
    link::{Frame, Message, frame},
    words,
};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use std::{ffi::OsString, os::unix::process::CommandExt as _, process::Command};

/// The name of the stage.
pub(crate) const STAGE: &str = "stage-worker";

/// The status that a shell reports for a command that can't be executed.
const NOT_EXECUTABLE: u8 = 126;

/// From the parent to the shim. It carries the command's standard input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ToShim {
    /// The process that must be the shim's parent.
    pub(crate) parent: Pid,
}

/// From the shim to its parent: the `errno` with which execution failed. On success the link closes without a
/// message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FromShim {
    pub(crate) errno: i32,
}

/// Executes the command, or reports why it can't.
pub(crate) fn main(arguments: &[OsString]) -> Result<u8, StageError> {
    // When its parent ends, the kernel kills this process. The setting survives `exec`, so it also protects
    // the command (PR_SET_PDEATHSIG(2const)), unless the command is set-uid.
    let tied = set_parent_process_death_signal(Some(Signal::KILL));
    let Accepted { link, first: ToShim { parent }, descriptors } = launch::accept::<FromShim, ToShim>()?;
    // If the parent ended before that call, this process has another parent now.
    if getppid() != Some(parent) {
        return Err(StageError::Abandoned);
    }
    let input = descriptors.into_iter().next().ok_or(StageError::Abandoned)?;
    let mut words = arguments.iter();
    let (true, Some(program)) = (words.next().is_some_and(|dashes| dashes == launch::DASHES), words.next())
    else {
        return Err(StageError::NotAStage);
    };
    let error = match tied.and_then(|()| rustix::stdio::dup2_stdin(input)) {
        // Returns only on failure.
        Ok(()) => Command::new(program).args(words).exec(),
        Err(refusal) => refusal.into(),
    };
    let errno = error.raw_os_error().unwrap_or_default();
    // A parent that is gone needs no answer.
    let _ = link.send(&FromShim { errno });
    Ok(NOT_EXECUTABLE)
}

impl Message for ToShim {
    fn to_frame(&self) -> Frame {
        frame(32, [words::pid_word(self.parent)])
    }

    fn from_frame(frame: &Frame) -> Option<Self> {
        (frame.kind == 32).then_some(())?;
        Some(Self { parent: words::pid(frame.words[0])? })
    }
}

impl Message for FromShim {
    fn to_frame(&self) -> Frame {
        frame(33, [u64::from(self.errno.unsigned_abs())])
    }

    fn from_frame(frame: &Frame) -> Option<Self> {
        (frame.kind == 33).then_some(())?;
        Some(Self { errno: i32::try_from(frame.words[0]).ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_survives_its_frame() {
        let to_shim = ToShim { parent: rustix::process::getpid() };
        assert_eq!(ToShim::from_frame(&to_shim.to_frame()), Some(to_shim));
        assert_eq!(FromShim::from_frame(&FromShim { errno: 2 }.to_frame()), Some(FromShim { errno: 2 }));
        assert_eq!(FromShim::from_frame(&to_shim.to_frame()), None);
    }
}
