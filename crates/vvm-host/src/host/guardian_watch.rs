//! If the guardian dies, everything goes: one thread waits for that and for nothing else.
//!
//! A thread of its own, because the main one may hang in a storage call just then; and not a parent-death signal, because
//! the kernel would end only this process, and what its worker left behind would live on without either of us.

use crate::containment::{Containment, end_all};
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    io::Errno,
    process::{Signal, getpid, kill_process},
};
use std::{
    io,
    os::fd::OwnedFd,
    sync::Arc,
    thread::{self, JoinHandle},
};

/// The watch, until it is ended.
#[derive(Debug)]
pub(super) struct GuardianWatch {
    guardian: Arc<OwnedFd>,
    enough: Arc<OwnedFd>,
    thread: JoinHandle<()>,
}

impl GuardianWatch {
    /// Watches the process that `guardian` describes; when it is gone, kills every descendant and then this process.
    ///
    /// # Errors
    /// When the process is out of descriptors or threads.
    pub(super) fn start(guardian: OwnedFd, containment: Containment) -> io::Result<Self> {
        let guardian = Arc::new(guardian);
        let enough = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let thread = thread::Builder::new().name("guardian-watch".into()).spawn({
            let (guardian, enough) = (Arc::clone(&guardian), Arc::clone(&enough));
            move || watch(&guardian, &enough, &containment)
        })?;
        Ok(Self { guardian, enough, thread })
    }

    /// Ends the watch: nothing is left that would have to go with the guardian. Returns what describes it.
    pub(super) fn end(self) -> Arc<OwnedFd> {
        // An eventfd takes a one unless it stands at 2^64 - 2 (eventfd(2)), and this is the only one it ever gets.
        let _ = rustix::io::write(&*self.enough, &1_u64.to_ne_bytes());
        // A watch that panicked has nothing left to watch either.
        let _ = self.thread.join();
        self.guardian
    }
}

fn watch(guardian: &OwnedFd, enough: &OwnedFd, containment: &Containment) {
    let mut fds = [PollFd::new(guardian, PollFlags::IN), PollFd::new(enough, PollFlags::IN)];
    while poll(&mut fds, None) == Err(Errno::INTR) {}
    if fds[0].revents().is_empty() {
        return;
    }
    end_all(containment, drop);
    containment.dissolve();
    // Not `exit`: handlers and destructors could wait for whatever hangs. Ends this process, and with it this thread.
    let _ = kill_process(getpid(), Signal::KILL);
}
