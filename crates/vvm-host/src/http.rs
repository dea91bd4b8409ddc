//! How a host stands, over HTTP: for probes, routers, metrics, and people.
//!
//! What lives here: the server. It is one future that runs beside the host's others, with every connection in
//! it: no task and no thread that anybody would have to join, and nothing left when it is dropped. Nothing it
//! does waits for anything but its own sockets, so that a renewal has nothing to wait for. What does not live
//! here: what is answered (`answers`), and where that comes from (`situation`).

mod answers;
mod metrics;

pub(crate) use answers::{Answers, Extra};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use http_body_util::Full;
use hyper::{Request, Response, body::Bytes, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{convert::Infallible, fmt, io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::net::{TcpListener, TcpStream};
use vvm_clock::Clock;

/// How many connections there are at once; more wait for the kernel to hand them over. A host may have as few
/// as 64 descriptors, and its storage needs some.
const CONNECTIONS: usize = 16;

/// How long a request's head may take to come.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a connection may take for its one request and the answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How much of a request's head there may be: the least that hyper allows for.
const HEAD_BYTES: usize = 8 * 1024;

/// After the system has refused a connection (out of descriptors, as a rule), so that asking again is no busy
/// loop.
const PAUSE: Duration = Duration::from_millis(100);

/// Listens, and does not answer yet.
#[derive(Debug)]
pub(crate) struct HttpServer {
    listener: TcpListener,
    address: SocketAddr,
}

/// The address can't be listened on.
#[derive(Debug)]
pub struct CantListen {
    address: SocketAddr,
    cause: io::Error,
}

impl HttpServer {
    /// Listens at `address`; port 0 for any that is free. Must be called in the context of a runtime.
    ///
    /// # Errors
    /// When somebody else listens there, or when it is not this machine's or this user's to listen at.
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

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers, as long as it is polled.
    ///
    /// # Cancel safety
    /// Dropping the future closes every connection, and the door.
    pub(crate) async fn serve(self, answers: &Answers, clock: &Arc<dyn Clock>) -> Infallible {
        let mut connections = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                Some(()) = connections.next() => {}
                accepted = self.listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                    Ok((stream, _)) => connections.push(connection(stream, answers, clock)),
                    Err(_) => clock.sleep(PAUSE).await,
                },
            }
        }
    }
}

/// One request and its answer. What goes wrong with it is the client's affair.
async fn connection(stream: TcpStream, answers: &Answers, clock: &Arc<dyn Clock>) {
    let answer =
        service_fn(async |request: Request<Incoming>| -> Result<Response<Full<Bytes>>, Infallible> {
            Ok(answers.to(request.method(), request.uri().path()))
        });
    let mut server = http1::Builder::new();
    // One request each: nobody holds a connection that others wait for.
    server
        .keep_alive(false)
        .max_buf_size(HEAD_BYTES)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT);
    tokio::select! {
        biased;
        _ = server.serve_connection(TokioIo::new(stream), answer) => {}
        () = clock.sleep(TIMEOUT) => {}
    }
}

impl fmt::Display for CantListen {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, cause } = self;
        let way_out = match cause.kind() {
            io::ErrorKind::AddrInUse => {
                ": give each candidate on one machine a port of its own, or port 0 for any that is free"
            }
            io::ErrorKind::AddrNotAvailable => {
                ": name an address of this machine, or 0.0.0.0 for all of them"
            }
            io::ErrorKind::PermissionDenied => ": ports below 1024 are root's: choose another one",
            _ => "",
        };
        write!(out, "can't listen at {address} ({}){way_out}", cause.kind())
    }
}

impl std::error::Error for CantListen {}

#[cfg(test)]
mod tests;
