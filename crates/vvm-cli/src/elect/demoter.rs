//! [`Demoter`]: the process that demotes after the death of this one. It runs the on-loss hook, and releases
//! the record if the hook attests by its success that nothing leads here any more.
//!
//! A child and no guardian: a guardian ends all that descends from it, and what a hook has started is not for
//! `vvm` to kill.

use super::to_demoter::ToDemoter;
use crate::args::STAGE_DEMOTE;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use std::{
    env,
    ffi::OsString,
    io, iter,
    os::{fd::OwnedFd, unix::process::CommandExt as _},
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
};
use vvm_containment::OWN_BINARY;

/// A handle of the process. It notices the end of this one by the end of the link.
#[derive(Debug)]
pub(super) struct Demoter {
    /// `None` once it is dismissed.
    child: Mutex<Option<Child>>,
    link: OwnedFd,
}

impl Demoter {
    /// Starts it with `arguments` and the `settings` of this command line.
    ///
    /// # Errors
    /// If the system refuses a process or a descriptor.
    pub(super) fn start(
        arguments: impl Iterator<Item = OsString>,
        (variable, settings): (&str, OsString),
    ) -> io::Result<Self> {
        let (link, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let mut command = Command::new(OWN_BINARY);
        command.args(iter::once(STAGE_DEMOTE.into()).chain(arguments)).env(variable, settings);
        command.arg0(env::args_os().next().unwrap_or_default());
        // A group of its own: the keys of a terminal are for the leader.
        let child = command.process_group(0).stdin(Stdio::from(far)).spawn()?;
        Ok(Self { child: Mutex::new(Some(child)), link })
    }

    /// Sends a message. Never blocks. A demoter that misses one is dismissed: it might release the record
    /// without a demotion: the record then expires by its TTL.
    pub(super) fn tell(&self, message: ToDemoter) {
        if send(&self.link, &message.to_bytes(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_err() {
            self.dismiss();
        }
    }

    /// Ends it: this process demotes by itself from here on, or ends without a demotion.
    pub(super) fn dismiss(&self) {
        let child = self.child.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut child) = child {
            // It may have ended already. A killed process without children ends at once.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
