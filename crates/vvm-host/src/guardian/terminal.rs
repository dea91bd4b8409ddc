//! The terminal, if there is one: whether the worker shares our process group.
//!
//! With a terminal, guardian and worker are one job: Ctrl-C and Ctrl-Z reach both, `fg` and `bg` move both, and the
//! worker may read standard input. Without one, the worker gets a group of its own, and signals go to all of it.

use rustix::{
    fs::{Mode, OFlags, open},
    process::{Pid, getpgrp},
};

/// What this process has to do with a terminal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terminal {
    group: Option<Pid>,
}

impl Terminal {
    /// Looks for the controlling terminal.
    pub(super) fn of_this_process() -> Self {
        // The one name that can be opened exactly by those who have a controlling terminal (tty(4)).
        let terminal = open("/dev/tty", OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty());
        Self { group: terminal.is_ok().then(getpgrp) }
    }

    /// The group for the worker to share.
    pub(super) fn group(self) -> Option<Pid> {
        self.group
    }

    /// Whether a signal that the terminal made has reached the worker too.
    pub(super) fn reaches_the_worker(self) -> bool {
        self.group.is_some()
    }
}
