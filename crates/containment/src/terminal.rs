//! The controlling terminal of this process.

use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags, open},
    io::Errno,
};

/// Whether this process has a controlling terminal.
pub(crate) fn has_terminal() -> bool {
    look().is_ok()
}

/// Whether a controlling terminal that was there is gone: it was hung up, or its session leader has ended.
pub fn terminal_is_gone() -> bool {
    // Any other refusal, as for want of descriptors, says nothing about the terminal.
    matches!(look(), Err(Errno::NXIO | Errno::IO))
}

/// Only a process with a controlling terminal can open this name (tty(4)).
fn look() -> Result<OwnedFd, Errno> {
    // A serial line that waits for its carrier must not block this.
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    open("/dev/tty", flags, Mode::empty())
}
