//! The controlling terminal of this process.

use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags, open},
    io::Errno,
};

/// Returns whether this process has a controlling terminal.
pub(crate) fn has_terminal() -> bool {
    look().is_ok()
}

/// Returns whether this process has lost its controlling terminal: it was hung up, or its session leader
/// ended.
pub fn terminal_is_gone() -> bool {
    // Other errors, as for want of descriptors, do not concern the terminal.
    matches!(look(), Err(Errno::NXIO | Errno::IO))
}

/// Opens the controlling terminal, which only a process with one can (tty(4)).
fn look() -> Result<OwnedFd, Errno> {
    // Non-blocking, because opening a serial line may wait for its carrier.
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    open("/dev/tty", flags, Mode::empty())
}
