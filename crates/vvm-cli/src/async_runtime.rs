//! The runtime of whoever asks a storage: one thread, and room for what it opens made sure of first.

use std::{io, os::fd::OwnedFd};
use tokio::runtime::{Builder, Runtime};

/// What a runtime opens as it starts: what it polls by, what wakes it, and, where a database's client brings
/// signals with it, two sockets for them and a copy of one.
const OPENED_AT_ONCE: usize = 8;

/// # Errors
/// When the system refuses a descriptor. Tokio itself reports that for the first ones only, and panics at the
/// sockets.
pub(crate) fn start() -> io::Result<Runtime> {
    let room: Result<Vec<OwnedFd>, _> =
        (0..OPENED_AT_ONCE).map(|_| rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 0)).collect();
    drop(room?);
    Builder::new_current_thread().enable_all().build()
}
