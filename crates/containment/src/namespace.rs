//! A PID namespace for a command: the kernel ends all of it when its process 1 ends, and that one ends with
//! the supervisor.
//!
//! - [`outside`]: the process that makes the namespace, and stays outside of it; a child of the supervisor.
//! - [`init`]: its process 1, a keeper.
//!
//! Why two processes: a process that makes a PID namespace does not enter it, only its children do.

pub(crate) mod init;
pub(crate) mod outside;

use crate::{
    keeper::message::{FromKeeper, ToKeeper},
    launch,
    link::{self, Received},
    namespace_refusal::{Refusal, Step},
};
use rustix::io::Errno;

/// Makes a namespace with nothing in it, and lets it go. Blocks until it is gone.
///
/// # Errors
/// When there is none to be had.
pub(crate) fn try_out() -> Result<(), Refusal> {
    let no_process = |cause: std::io::Error| Refusal::of_system(Step::Process, &cause);
    let (link, far) =
        link::pair::<ToKeeper, FromKeeper>().map_err(|cause| Refusal::of_system(Step::Link, &cause))?;
    let mut outside = launch::command(outside::STAGE, [], far).spawn().map_err(no_process)?;
    // A process that does not hear it has ended, which is heard here.
    let _ = link.send(&ToKeeper::TryOut);
    link.wait();
    let answer = match link.receive() {
        Some(Received::Message(FromKeeper::Ready, _)) => Ok(()),
        Some(Received::Message(FromKeeper::Refused(refusal), _)) => Err(refusal),
        Some(_) | None => Err(Refusal { step: Step::Process, errno: Errno::CHILD }),
    };
    drop(link);
    outside.wait().map_err(no_process)?;
    answer
}
