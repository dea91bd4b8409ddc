//! A PID namespace for a worker: the kernel ends all of it, whatever it forks, when its process 1 ends, and that one ends
//! with the host.
//!
//! - [`outside`]: the process that makes the namespace, and stays outside of it; a child of the host.
//! - [`init`]: its process 1; parent of the worker.
//! - [`refusal`]: why there is no namespace to be had.
//!
//! What does not live here: the host's end of it (`worker::apart`).
//!
//! Why two processes: who makes a PID namespace does not enter it, only what it starts then does; and the host, which has
//! threads, can't make one.

pub(crate) mod init;
pub(crate) mod outside;
pub(crate) mod refusal;

use crate::{
    link::{
        self, Heard,
        message::namespace::{FromInit, ToInit},
    },
    stage,
};
use refusal::{Refusal, Step};
use rustix::io::Errno;

/// Makes a namespace with nothing in it, and lets it go. Blocks until it is gone.
///
/// # Errors
/// When there is none to be had.
pub(crate) fn try_out() -> Result<(), Refusal> {
    let no_process = |cause: std::io::Error| Refusal::of_system(Step::Process, &cause);
    let (link, far) =
        link::pair::<ToInit, FromInit>().map_err(|cause| Refusal::of_system(Step::Link, &cause))?;
    let mut outside = stage::command(stage::NAMESPACE, [], far).spawn().map_err(no_process)?;
    // Whoever does not hear it has ended, which is heard here.
    let _ = link.say(&ToInit::TryOut);
    link.wait();
    let answer = match link.hear() {
        Some(Heard::Message(FromInit::Ready, _)) => Ok(()),
        Some(Heard::Message(FromInit::Refused(refusal), _)) => Err(refusal),
        Some(Heard::Message(FromInit::Ended(_) | FromInit::AideEnded(..), _) | Heard::End) | None => {
            Err(Refusal { step: Step::Process, errno: Errno::CHILD })
        }
    };
    drop(link);
    outside.wait().map_err(no_process)?;
    answer
}
