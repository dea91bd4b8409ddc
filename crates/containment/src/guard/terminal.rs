//! The terminal, if there is one: whether the command shares our process group, and which signals come from
//! it.
//!
//! With a terminal, guardian and command are one job: Ctrl-C and Ctrl-Z reach both, `fg` and `bg` move both,
//! and the command may read standard input. Without one, the command gets a group of its own, and signals go
//! to all of it.

use crate::{
    processes::{own_group, own_session},
    signals::{Caught, SignalSource},
    terminal::has_terminal,
};
use rustix::process::{Pid, Signal, getpid, kill_process_group};

/// What this process has to do with a terminal.
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

    /// The signals to catch beside those that are passed on.
    pub(super) fn also_caught(self) -> &'static [Signal] {
        if self.group.is_some() && self.session == Some(getpid()) { &[Signal::TSTP] } else { &[] }
    }

    /// Ctrl-Z at a terminal whose session we lead: no shell is there that could continue the job (as in a
    /// container that runs nothing but this program), so that it goes on at once.
    pub(super) fn undo_stop(self) {
        if let Some(group) = self.group {
            // Every process in it besides this one was stopped by the same keystroke.
            let _ = kill_process_group(group, Signal::CONT);
        }
    }

    /// The group for the command to share.
    pub(super) fn group(self) -> Option<Pid> {
        self.group
    }

    /// Where a signal came from.
    pub(super) fn source_of(self, caught: Caught) -> SignalSource {
        match caught {
            Caught { from_kernel: true, .. } if self.group.is_some() => SignalSource::Terminal,
            // The terminal of a group that this PID namespace has no number for.
            Caught { from_kernel: true, signal: Signal::HUP, .. } => SignalSource::Terminal,
            // The kernel forgets the sender of a signal to a group that has members in a lower PID namespace.
            Caught { sender, .. } if self.group.is_some() && (sender.is_none() || sender == self.session) => {
                SignalSource::Shell
            }
            Caught { .. } => SignalSource::Process,
        }
    }
}
