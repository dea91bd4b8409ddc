//! Which process of the server answered the login.

use std::{
    future::{Ready, ready},
    io,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf, duplex,
};
use tokio_postgres::{
    CancelToken,
    tls::{ChannelBinding, TlsConnect, TlsStream},
};

/// The process that answered the login (BackendKeyData). The client library keeps it to itself, and shows it in the
/// bytes of a request to cancel alone. So such a request is written here, to memory: nothing is sent, and nothing is
/// cancelled. A library that shows the number makes this function, and the types that it needs, superfluous. A pooler
/// answers a login by itself, with the number of a process that is not the server's.
pub(super) async fn login_process(token: CancelToken) -> Option<i32> {
    let (mut ours, theirs) = duplex(64);
    // "Yes" to the request for TLS, if there is one.
    ours.write_all(b"S").await.ok()?;
    token.cancel_query_raw(theirs, Unencrypted).await.ok()?;
    let mut written = Vec::new();
    ours.read_to_end(&mut written).await.ok()?;
    // The request ends with the process and a secret.
    let process = written.len().checked_sub(8).and_then(|at| written.get(at..at + 4))?;
    Some(i32::from_be_bytes(process.try_into().ok()?))
}

struct Unencrypted;

impl TlsConnect<DuplexStream> for Unencrypted {
    type Stream = InMemory;
    type Error = io::Error;
    type Future = Ready<io::Result<InMemory>>;

    fn connect(self, stream: DuplexStream) -> Self::Future {
        ready(Ok(InMemory(stream)))
    }
}

struct InMemory(DuplexStream);

impl AsyncRead for InMemory {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for InMemory {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

impl TlsStream for InMemory {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}
