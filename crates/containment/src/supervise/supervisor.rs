//! The supervisor's end of what its guardian gives it.

use crate::{
    established::Containment,
    guard::message::{Note, ToGuardian, ToSupervisor},
    launch::{self, StageError, TakenUp},
    link::{Heard, Link},
    processes::ForeignProcFs,
};
use rustix::process::Pid;
use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

/// What a supervisor needs to start commands, from the guardian that has started it.
#[derive(Debug)]
pub struct Supervisor {
    /// The link to the guardian.
    pub guardian: Guardian,
    /// A descriptor of the guardian's process, readable once it has ended.
    pub guardian_process: Arc<OwnedFd>,
    /// The command's standard input.
    pub input: OwnedFd,
    /// The process group for the command to share with the guardian; none without a terminal.
    pub terminal_group: Option<Pid>,
    /// What the guardian has established.
    pub containment: Containment,
}

/// No supervisor.
#[derive(Debug, thiserror::Error)]
pub enum TakeUpError {
    /// No guardian has started this process, or it has ended.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// There is no `/proc` to find processes by.
    #[error(transparent)]
    ProcFs(#[from] ForeignProcFs),
}

impl Supervisor {
    /// Takes up what the guardian has given this process. Standard input is empty afterwards.
    /// Must be called in `main`, while the process has a single thread.
    ///
    /// # Errors
    /// When no guardian has started this process, or the system refuses.
    pub fn take_up() -> Result<Self, TakeUpError> {
        let TakenUp { link, first, descriptors } = launch::take_up::<ToGuardian, ToSupervisor>()?;
        let mut descriptors = descriptors.into_iter();
        let (ToSupervisor::Begin { terminal_group, level }, Some(input), Some(guardian_process)) =
            (first, descriptors.next(), descriptors.next())
        else {
            return Err(StageError::NotAStage.into());
        };
        let containment = Containment::taken_over(level, descriptors.next())?;
        let guardian = Guardian(Arc::new(link));
        let guardian_process = Arc::new(guardian_process);
        Ok(Self { guardian, guardian_process, input, terminal_group, containment })
    }
}

/// The link to the guardian.
#[derive(Clone, Debug)]
pub struct Guardian(Arc<Link<ToGuardian, ToSupervisor>>);

impl Guardian {
    /// Tells the guardian's caller something. Never blocks. A guardian that has not listened for long, or is
    /// gone, hears nothing of it.
    pub fn note(&self, note: Note) {
        let _ = self.0.say(&ToGuardian::Note(note));
    }

    /// Tells the guardian the earliest kill deadline, as [`note`](Self::note) does.
    pub(crate) fn deadline(&self, deadline: Option<vvm_clock::Instant>) {
        let _ = self.0.say(&ToGuardian::Deadline(deadline));
    }

    /// What the guardian has said, if anything. Never blocks.
    pub fn hear(&self) -> Option<Heard<ToSupervisor>> {
        self.0.hear()
    }
}

/// Readable once the guardian has said something, or is gone.
impl AsFd for Guardian {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
