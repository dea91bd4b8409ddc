//! [`Session`]: one connection, driven by the request that uses it. No task runs between requests, and
//! nothing is sent twice.

use super::{
    cluster::Cluster,
    errors::{Answer, DriverError, described},
};
use crate::open_error::OpenError;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Request, body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    task::{Context, Poll},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

/// More than any Lease has.
const LONGEST_ANSWER: usize = 4 << 20;

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

type Connection = Pin<Box<http1::Connection<TokioIo<Box<dyn Stream>>, Full<Bytes>>>>;

/// A connection to an API server.
pub(super) struct Session {
    sender: http1::SendRequest<Full<Bytes>>,
    connection: Connection,
}

impl Session {
    /// Connects. Sends no request.
    pub(super) async fn connect(cluster: &Cluster) -> Result<Self, OpenError> {
        let server = &cluster.server;
        let stream = TcpStream::connect((cluster.host.as_str(), cluster.port)).await;
        let stream = stream.map_err(|cause| unreachable(server, &cause.to_string()))?;
        // Each request is one write.
        stream.set_nodelay(true).map_err(|cause| unreachable(server, &cause.to_string()))?;
        let stream: Box<dyn Stream> = match &cluster.tls {
            None => Box::new(stream),
            Some((connector, name)) => {
                let shaken = connector.connect(name.clone(), stream).await;
                Box::new(shaken.map_err(|cause| of_tls(server, &cause))?)
            }
        };
        let shaken = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(|cause| unreachable(server, &described(&cause)))?;
        Ok(Self { sender, connection: Box::pin(connection) })
    }

    /// Whether the server has kept the connection since the last request, so that another may be sent.
    pub(super) async fn is_open(&mut self) -> bool {
        poll_fn(|context| {
            let has_ended = self.drive(context).is_ready();
            Poll::Ready(!has_ended && self.sender.is_ready())
        })
        .await
    }

    /// Sends a request and returns its answer.
    ///
    /// # Cancel safety
    /// Dropped, the request may be carried out, now or later. The session has to be dropped with it.
    pub(super) async fn ask(&mut self, request: Request<Full<Bytes>>) -> Result<Answer, DriverError> {
        let answer = self.begin(request).await?;
        let status = answer.status().as_u16();
        let mut body = pin!(Limited::new(answer.into_body(), LONGEST_ANSWER).collect());
        let body = self.driving(|context| body.as_mut().poll(context)).await;
        match body {
            Ok(body) => Ok(Answer { status, body: body.to_bytes() }),
            Err(cause) => Err(DriverError::Unanswered(described(&*cause))),
        }
    }

    /// Sends a request and returns the head of its answer. The body has to be read by
    /// [`driving`](Self::driving).
    ///
    /// # Cancel safety
    /// As [`ask`](Self::ask).
    pub(super) async fn begin(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<hyper::Response<Incoming>, DriverError> {
        let mut answer = pin!(self.sender.send_request(request));
        let answer = self.driving(|context| answer.as_mut().poll(context)).await;
        answer.map_err(|cause| DriverError::Unanswered(described(&cause)))
    }

    /// Waits for what `poll` waits for, while the connection is driven.
    pub(super) async fn driving<T>(&mut self, mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
        let mut has_ended = false;
        poll_fn(|context| {
            if let Poll::Ready(ready) = poll(context) {
                return Poll::Ready(ready);
            }
            // A future must not be polled after its end. What waits for the connection then fails by itself.
            has_ended = has_ended || self.drive(context).is_ready();
            poll(context)
        })
        .await
    }

    fn drive(&mut self, context: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.connection.as_mut().poll(context)
    }
}

/// The handshake failed: by a certificate, or by the network.
fn of_tls(server: &str, cause: &io::Error) -> OpenError {
    let why = described(cause);
    match cause.get_ref() {
        Some(inner) if inner.is::<tokio_rustls::rustls::Error>() => OpenError::refused(format!(
            "no TLS with {server}: name its authority in the kubeconfig (certificate-authority) ({why})"
        )),
        _ => unreachable(server, &why),
    }
}

pub(super) fn unreachable(server: &str, why: &str) -> OpenError {
    OpenError::passing(format!("no API server answers at {server}: start it, or correct the address ({why})"))
}
