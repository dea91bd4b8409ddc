//! One line on standard error for each change of state, and nothing that could hold up a renewal.
//!
//! A reader that has stopped reading, a terminal that is paused, or one that stops background writers (`stty tostop`)
//! must not stall a process that has a lease to renew: what can't be written at once is dropped.

use crate::processes::own_group;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    termios::{LocalModes, tcgetattr, tcgetpgrp},
};
use std::{fmt, io::Write as _};

/// Says `line` to whoever watches.
pub(crate) fn announce(line: fmt::Arguments<'_>) {
    write_line(format!("vvm: {line}\n").as_bytes());
}

/// Writes a line that ends in a newline, or drops it.
pub(crate) fn write_line(line: &[u8]) {
    let target = rustix::stdio::stderr();
    let mut fds = [PollFd::new(&target, PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let ready = poll(&mut fds, Some(&at_once)).is_ok() && fds[0].revents().contains(PollFlags::OUT);
    let stops_us = tcgetattr(target).is_ok_and(|modes| modes.local_modes.contains(LocalModes::TOSTOP))
        && tcgetpgrp(target).ok() != own_group();
    if ready && !stops_us {
        // Nobody is left to tell that standard error is gone.
        let _ = std::io::stderr().write_all(line);
    }
}

/// [`announce`] with a format string.
macro_rules! say {
    ($($line:tt)*) => { $crate::announce::announce(format_args!($($line)*)) };
}
pub(crate) use say;
