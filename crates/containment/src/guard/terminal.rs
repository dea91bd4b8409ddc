//! [`Terminal`]: whether the command shares the guardian's process group.
//!
//! With a terminal, guardian and command are one job: Ctrl-C and Ctrl-Z reach both, `fg` and `bg` move both,
//! and the command may read standard input. Otherwise the command has a group of its own.

use crate::{
    processes::{own_group, own_session},
    signals::{Caught, SignalSource},
    terminal::has_terminal,
};
use rustix::process::{Pid, Signal, getpid, kill_process_group};

/// The controlling terminal of this process, if it has one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terminal {
    group: Option<Pid>,
    session: Option<Pid>,
}

impl Terminal {
    /// Looks for the controlling terminal.
    pub(super) fn of_this_process() -> Self {
        Self { group: own_group().filter(|_| has_terminal()), session: own_session() }
    }

    /// Returns the signals to catch in addition to those that are forwarded.
    pub(super) fn also_caught(self) -> &'static [Signal] {
        if self.group.is_some() && self.session == Some(getpid()) { &[Signal::TSTP] } else { &[] }
    }

    /// Undoes a Ctrl-Z at a terminal whose session this process leads, as in a container that runs only this
    /// program: there is no shell that could continue the job.
    pub(super) fn undo_stop(self) {
        if let Some(group) = self.group {
            // The same key has stopped every other process of the group.
            let _ = kill_process_group(group, Signal::CONT);
        }
    }

    /// Returns the group for the command to share.
    pub(super) fn group(self) -> Option<Pid> {
        self.group
    }

    /// Returns where a signal came from.
    pub(super) fn source_of(self, caught: Caught) -> SignalSource {
        match caught {
            Caught { from_kernel: true, .. } if self.group.is_some() => SignalSource::Terminal,
            // The terminal of a group that this PID namespace has no number for.
            Caught { from_kernel: true, signal: Signal::HUP, .. } => SignalSource::Terminal,
            // The kernel drops the sender of a signal to a group with members in a lower PID namespace.
            Caught { sender, .. } if self.group.is_some() && (sender.is_none() || sender == self.session) => {
                SignalSource::Shell
            }
            Caught { .. } => SignalSource::Process,
        }
    }
}
