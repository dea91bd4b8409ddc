//! [`Readable`]: waits in an async runtime for a socket that other code reads.
//!
//! The runtime polls a copy of the descriptor, because `AsyncFd` on a borrowed one would need `unsafe` code.

use std::{
    io,
    os::{fd::AsFd, unix::net::UnixDatagram},
};
use tokio::io::Interest;

/// A socket that other code reads.
#[derive(Debug)]
pub struct Readable(tokio::net::UnixDatagram);

impl Readable {
    /// Watches `socket`, and makes it non-blocking. Must be called in the context of a runtime.
    ///
    /// # Errors
    /// If the process is out of descriptors.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        // The kind of socket does not matter: nothing is read through this handle.
        let copy = UnixDatagram::from(socket.as_fd().try_clone_to_owned()?);
        copy.set_nonblocking(true)?;
        tokio::net::UnixDatagram::from_std(copy).map(Self)
    }

    /// Waits until `look` returns a value.
    ///
    /// # Errors
    /// If the runtime shuts down.
    ///
    /// # Cancel safety
    /// May be dropped at will. No value of `look` is lost, because it is returned without another wait.
    pub async fn find<Found>(&self, mut look: impl FnMut() -> Option<Found>) -> io::Result<Found> {
        let nothing = || io::Error::from(io::ErrorKind::WouldBlock);
        self.0.async_io(Interest::READABLE, || look().ok_or_else(nothing)).await
    }
}
