//! Waiting, in an async runtime, for a socket that is read elsewhere.
//!
//! A copy of the socket's descriptor is what the runtime polls: `AsyncFd` would take the descriptor itself,
//! but only with `unsafe`, since it trusts any descriptor it is given.

use std::{
    io,
    os::{fd::AsFd, unix::net::UnixDatagram},
};
use tokio::io::Interest;

/// A socket that is read elsewhere.
#[derive(Debug)]
pub struct Readable(tokio::net::UnixDatagram);

impl Readable {
    /// Must be called in the context of a runtime. The socket becomes non-blocking.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        // Whatever kind of socket it is: nothing is read through this handle.
        let copy = UnixDatagram::from(socket.as_fd().try_clone_to_owned()?);
        copy.set_nonblocking(true)?;
        tokio::net::UnixDatagram::from_std(copy).map(Self)
    }

    /// Waits until `look` finds something.
    ///
    /// # Errors
    /// When the runtime is shutting down.
    ///
    /// # Cancel safety
    /// May be dropped at will: what `look` finds is returned at once.
    pub async fn find<Found>(&self, mut look: impl FnMut() -> Option<Found>) -> io::Result<Found> {
        let nothing = || io::Error::from(io::ErrorKind::WouldBlock);
        self.0.async_io(Interest::READABLE, || look().ok_or_else(nothing)).await
    }
}
