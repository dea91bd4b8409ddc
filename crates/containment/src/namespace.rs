//! A PID namespace for a command. The kernel kills everything in it when its process 1 ends.
//!
//! The process that makes it ([`outside`]) is a child of the supervisor and can't enter it; only its children
//! can. Process 1 is a keeper ([`init`]) and ends with the supervisor.

pub(crate) mod init;
pub(crate) mod outside;

use crate::{
    keeper::message::{FromKeeper, ToKeeper},
    launch,
    link::{self, Received},
    namespace_refusal::{Refusal, Step},
};
use rustix::io::Errno;

/// Makes an empty namespace and drops it. Blocks until it is gone.
///
/// # Errors
/// If the system refuses it.
pub(crate) fn try_out() -> Result<(), Refusal> {
    let no_process = |cause: std::io::Error| Refusal::of_system(Step::Process, &cause);
    let (link, far) =
        link::pair::<ToKeeper, FromKeeper>().map_err(|cause| Refusal::of_system(Step::Link, &cause))?;
    let mut outside = launch::command(outside::STAGE, [], far).spawn().map_err(no_process)?;
    // If the process has ended, the link shows it.
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
