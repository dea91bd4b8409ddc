//! The terminal, if there is one: whether the command shares our process group.
//!
//! With a terminal, guardian and command are one job: Ctrl-C and Ctrl-Z reach both, `fg` and `bg` move both, and the
//! command may read standard input. Without one, the command gets a group of its own, and signals go to all of it.

use crate::processes::{own_group, own_session};
use rustix::{
    fs::{Mode, OFlags, open},
    process::{Pid, Signal, getpid, kill_process_group},
};

/// What this process has to do with a terminal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terminal {
    group: Option<Pid>,
    leads_session: bool,
}

impl Terminal {
    /// Looks for the controlling terminal.
    pub(super) fn of_this_process() -> Self {
        // The one name that can be opened exactly by those who have a controlling terminal (tty(4)).
        let terminal = open("/dev/tty", OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty());
        Self {
            group: own_group().filter(|_| terminal.is_ok()),
            leads_session: own_session() == Some(getpid()),
        }
    }

    /// The signals to catch beside those that are passed on.
    pub(super) fn also_caught(self) -> &'static [Signal] {
        if self.group.is_some() && self.leads_session { &[Signal::TSTP] } else { &[] }
    }

    /// Ctrl-Z at a terminal whose session we lead: no shell is there that could continue the job (as in a container that
    /// runs nothing but this program), so that it goes on at once.
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

    /// Whether a signal that the terminal made has reached the command too.
    pub(super) fn reaches_the_command(self) -> bool {
        self.group.is_some()
    }
}
