//! [`Supervisor`]: what a supervisor gets from its guardian, and the link to it.

use crate::{
    established::Containment,
    guard::message::{Note, ToGuardian, ToSupervisor},
    launch::{self, Accepted, StageError},
    link::{Link, Received},
    processes::ForeignProcFs,
};
use rustix::process::Pid;
use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

/// What a supervisor needs to start commands. Its guardian passes it on.
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
    /// The containment that the guardian has established.
    pub containment: Containment,
}

/// Why this process can't be a supervisor.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// A guardian did not start this process, or has ended.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// There is no `/proc` to find processes in.
    #[error(transparent)]
    ProcFs(#[from] ForeignProcFs),
}

impl Supervisor {
    /// Accepts the link from the guardian. Standard input is empty afterwards. Names the process after its
    /// program and stage. Must be called in `main`, while the process has a single thread.
    ///
    /// # Errors
    /// If a guardian did not start this process, or the system refuses.
    pub fn accept() -> Result<Self, AcceptError> {
        let Accepted { link, first, descriptors } = launch::accept::<ToGuardian, ToSupervisor>()?;
        let mut descriptors = descriptors.into_iter();
        let (ToSupervisor::Begin { terminal_group, level }, Some(input), Some(guardian_process)) =
            (first, descriptors.next(), descriptors.next())
        else {
            return Err(StageError::NotAStage.into());
        };
        let containment = Containment::from_guardian(level, descriptors.next())?;
        let guardian = Guardian(Arc::new(link));
        let guardian_process = Arc::new(guardian_process);
        Ok(Self { guardian, guardian_process, input, terminal_group, containment })
    }
}

/// The link to the guardian.
#[derive(Clone, Debug)]
pub struct Guardian(Arc<Link<ToGuardian, ToSupervisor>>);

impl Guardian {
    /// Sends a note to the guardian's caller. Never blocks. The note is lost if the guardian has not read its
    /// messages for long, or is gone.
    pub fn note(&self, note: Note) {
        let _ = self.0.send(&ToGuardian::Note(note));
    }

    /// Tells the guardian that this process has nothing left to do and ends now. If a thread of it hangs in
    /// the kernel, the guardian leaves it behind after a few seconds, unless a kill deadline is armed (I6).
    pub fn finished(&self) {
        let _ = self.0.send(&ToGuardian::Finished);
    }

    /// Tells the guardian the earliest kill deadline, as [`note`](Self::note) does.
    pub(crate) fn deadline(&self, deadline: Option<vvm_clock::Instant>) {
        let _ = self.0.send(&ToGuardian::Deadline(deadline));
    }

    /// Returns the guardian's next message, if there is one. Never blocks.
    pub fn receive(&self) -> Option<Received<ToSupervisor>> {
        self.0.receive()
    }
}

/// Readable once the guardian has sent a message, or is gone.
impl AsFd for Guardian {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
