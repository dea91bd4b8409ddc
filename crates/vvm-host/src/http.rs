//! The HTTP server of a host: status, metrics and probes.
//!
//! It is one future with all connections in it: no task or thread to join, and nothing is left when it is
//! dropped. It waits only for its own sockets, so it delays no renewal.

mod answers;
mod metrics;
mod services;

pub(crate) use answers::Answers;

use futures_util::{
    StreamExt as _,
    future::{AbortHandle, Abortable},
    stream::FuturesUnordered,
};
use http_body_util::Full;
use hyper::{Request, Response, body::Bytes, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use std::{collections::BTreeMap, convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::net::{TcpListener, TcpStream};
use vvm_clock::Clock;

/// How many connections are open at once. A host may have as few as 64 descriptors, and its storage needs
/// some.
const CONNECTIONS: usize = 16;

/// How long a connection may take for its one request and the answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The longest head of a request: the least that hyper allows.
const HEAD_BYTES: usize = 8 * 1024;

/// The pause after the system refused a connection, mostly for want of descriptors. Avoids a busy loop.
const PAUSE: Duration = Duration::from_millis(100);

/// A listening server, which does not answer yet.
#[derive(Debug)]
pub(crate) struct HttpServer {
    listener: TcpListener,
    pub(crate) address: SocketAddr,
}

/// The server can't listen at an address.
#[derive(Debug, thiserror::Error)]
#[error("can't listen at {address} ({}){}", .cause.kind(), self.way_out())]
pub struct CantListen {
    address: SocketAddr,
    cause: io::Error,
}

impl HttpServer {
    /// Listens at `address`; port 0 is any free one. Must be called in the context of a runtime.
    ///
    /// # Errors
    /// If the address is taken, is not of this machine, or is not permitted to this user.
    pub(crate) fn bind(address: SocketAddr) -> Result<Self, CantListen> {
        let listen = || {
            let listener = std::net::TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let listener = TcpListener::from_std(listener)?;
            let address = listener.local_addr()?;
            Ok(Self { listener, address })
        };
        listen().map_err(|cause| CantListen { address, cause })
    }

    /// Answers requests. A new connection closes the oldest one if there are too many, so that clients that
    /// send slowly or not at all can't keep a probe waiting.
    ///
    /// # Cancel safety
    /// Dropping the future closes all connections and the listener.
    pub(crate) async fn serve(self, answers: &Answers, clock: &Arc<dyn Clock>) -> Infallible {
        let mut connections = FuturesUnordered::new();
        let mut open = BTreeMap::new();
        for number in 0_u64.. {
            let stream = loop {
                tokio::select! {
                    // Connections first: a request that has arrived is answered before its connection is
                    // closed.
                    biased;
                    Some(closed) = connections.next() => drop(open.remove(&closed)),
                    accepted = self.listener.accept() => match accepted {
                        Ok((stream, _)) => break stream,
                        Err(_) => clock.sleep(PAUSE).await,
                    },
                }
            };
            if open.len() >= CONNECTIONS
                && let Some((_, oldest)) = open.pop_first()
            {
                AbortHandle::abort(&oldest);
            }
            let (handle, registration) = AbortHandle::new_pair();
            open.insert(number, handle);
            let connection = Abortable::new(connection(stream, answers, clock), registration);
            connections.push(async move {
                // Aborted or not.
                let _ = connection.await;
                number
            });
        }
        unreachable!("a server does not accept 2^64 connections")
    }
}

/// Serves one request. Its errors concern the client alone.
async fn connection(stream: TcpStream, answers: &Answers, clock: &Arc<dyn Clock>) {
    let answer =
        service_fn(async |request: Request<Incoming>| -> Result<Response<Full<Bytes>>, Infallible> {
            Ok(answers.to(request.method(), request.uri().path()))
        });
    let mut server = http1::Builder::new();
    // One request each, so that no idle connection takes a place.
    server.keep_alive(false).max_buf_size(HEAD_BYTES).header_read_timeout(None);
    tokio::select! {
        biased;
        _ = server.serve_connection(TokioIo::new(stream), answer) => {}
        () = clock.sleep(TIMEOUT) => {}
    }
}

impl CantListen {
    fn way_out(&self) -> &'static str {
        match self.cause.kind() {
            io::ErrorKind::AddrInUse => {
                ": give each candidate on one machine a port of its own, or port 0 for any that is free"
            }
            io::ErrorKind::AddrNotAvailable => {
                ": name an address of this machine, or 0.0.0.0 for all of them"
            }
            io::ErrorKind::PermissionDenied => ": ports below 1024 are root's: choose another one",
            _ => "",
        }
    }
}

#[cfg(test)]
mod tests;
