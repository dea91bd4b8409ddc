//! [`Connections`]: as many as there are requests at once, up to a limit. A request drives its own; no task does.

use super::{DriverError, Response, config::Cluster, credential::Credential, kubeconfig::Token};
use crate::{
    drivers::{
        config::unreachable,
        connection::{RequestLimiter, Stream, tcp},
        errors::{HandleClosed, described},
        tls::{Pem, Tls},
    },
    opening::OpenError,
};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Method, Request,
    body::Incoming,
    client::conn::http1,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT},
};
use hyper_util::rt::TokioIo;
use std::{
    fmt,
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};
use tokio_rustls::TlsConnector;
use vvm_clock::{DisplayDuration, SystemClock};

/// Requests under way at once; further ones wait.
const MOST: usize = 8;

const CONNECT_TIME_DIVISOR: u32 = 2;

pub(super) const JSON: &str = "application/json";

const API_SERVER: &str = "API server";

pub(super) struct Connections {
    pub(super) cluster: Cluster,
    pub(super) limiter: RequestLimiter,
    connecting: Duration,
    idle: Mutex<Vec<Session>>,
}

impl Connections {
    pub(super) fn new(cluster: Cluster, request_timeout: Duration) -> Result<Self, OpenError> {
        let limiter = RequestLimiter::new(request_timeout, MOST)?;
        Ok(Self {
            cluster,
            limiter,
            connecting: request_timeout / CONNECT_TIME_DIVISOR,
            idle: Mutex::default(),
        })
    }

    pub(super) fn clock(&self) -> &SystemClock {
        &self.limiter.clock
    }

    /// Sends a request once and returns the answer, of media type `kind`.
    /// Dropped, the request may be carried out, now or later. Its connection is closed.
    pub(super) async fn ask(
        &self,
        kind: &'static str,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<Response, DriverError> {
        let _permit = self.limiter.acquire().await?;
        let credential = self.credential().await?;
        let request = self.request(kind, method, path, body, &credential)?;
        let mut session = self.session(credential.own.clone()).await?;
        let mut pending = PendingRequest { of: self, is_answered: false };
        let answer = self.limiter.in_time(session.ask(request)).await;
        let answer = answer.unwrap_or_else(|silence| Err(DriverError::Unanswered(silence)))?;
        pending.is_answered = true;
        if answer.status == 401 {
            self.was_refused(&credential);
        } else {
            let mut idle = self.idle();
            if !self.limiter.is_closed() {
                idle.push(session);
            }
        }
        Ok(answer)
    }

    /// A login plug-in may take longer. Then it goes on, and its answer is that of a later request.
    pub(super) async fn credential(&self) -> Result<Credential, DriverError> {
        let token = &self.cluster.token;
        let silent = |why| OpenError::passing(format!("{token:?} has given no credential yet: {why}"));
        let credential = self.limiter.within(self.connecting, token.get(self.clock())).await;
        Ok(credential.map_err(silent)??)
    }

    /// The certificate of a connection is as old as the connection.
    pub(super) fn was_refused(&self, credential: &Credential) {
        self.cluster.token.was_refused(credential);
        self.idle().clear();
    }

    pub(super) fn request(
        &self,
        kind: &'static str,
        method: Method,
        path: &str,
        body: Option<Bytes>,
        credential: &Credential,
    ) -> Result<Request<Full<Bytes>>, DriverError> {
        let cluster = &self.cluster;
        let refused = |cause: &dyn ToString| DriverError::Refused(cause.to_string());
        let host = cluster.server.split('/').nth(2).unwrap_or_default();
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", cluster.path))
            .header(HOST, host)
            .header(ACCEPT, kind)
            .header(CONTENT_TYPE, JSON)
            .header(USER_AGENT, concat!("vvm/", env!("CARGO_PKG_VERSION")));
        if let Some(token) = &credential.token {
            let bearer = HeaderValue::try_from(format!("Bearer {token}"));
            let mut bearer = bearer.map_err(|_| refused(&"the token has bytes that no token has"))?;
            bearer.set_sensitive(true);
            request = request.header(AUTHORIZATION, bearer);
        }
        request.body(Full::new(body.unwrap_or_default())).map_err(|cause| refused(&cause))
    }

    pub(super) async fn session(&self, own: Option<(Pem, Pem)>) -> Result<Session, DriverError> {
        if self.limiter.is_closed() {
            return Err(DriverError::Closed(HandleClosed));
        }
        loop {
            let Some(mut session) = self.idle().pop() else { break };
            if session.own == own && session.is_open().await {
                return Ok(session);
            }
        }
        let within = self.connecting;
        match self.limiter.within(within, Session::connect(&self.cluster, own, self.clock())).await {
            Ok(connected) => Ok(connected?),
            Err(_silence) => {
                let why = format!("no connection within {}", DisplayDuration(within));
                Err(unreachable(API_SERVER, &self.cluster.server, &why).into())
            }
        }
    }

    pub(super) async fn close(&self) {
        self.limiter.close();
        self.idle().clear();
        if let Token::Plugin(plugin) = &self.cluster.token {
            plugin.close().await;
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Session>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Dropped before the answer, it ends idle connections: those to a peer that has vanished cost an attempt each.
struct PendingRequest<'a> {
    of: &'a Connections,
    is_answered: bool,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.of.idle().clear();
        }
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Connections({}, {:?})", self.cluster.server, self.cluster.token)
    }
}

const LONGEST_ANSWER: usize = 4 << 20;

type Connection = Pin<Box<http1::Connection<TokioIo<Box<dyn Stream>>, Full<Bytes>>>>;

pub(super) struct Session {
    sender: http1::SendRequest<Full<Bytes>>,
    connection: Connection,
    own: Option<(Pem, Pem)>,
}

impl Session {
    async fn connect(
        cluster: &Cluster,
        own: Option<(Pem, Pem)>,
        clock: &SystemClock,
    ) -> Result<Self, OpenError> {
        let server = &cluster.server;
        let tls = cluster.tls.as_ref().map(|(tls, name)| {
            let tls = Tls { own: own.clone().or_else(|| tls.own.clone()), ..tls.clone() };
            Ok::<_, OpenError>((TlsConnector::from(Arc::new(tls.read()?)), name))
        });
        let tls = tls.transpose()?;
        let stream = tcp(&cluster.host, cluster.port, clock).await;
        let stream = stream.map_err(|cause| unreachable(API_SERVER, server, &cause))?;
        let stream: Box<dyn Stream> = match tls {
            None => Box::new(stream),
            Some((connector, name)) => {
                let shaken = connector.connect(name.clone(), stream).await;
                Box::new(shaken.map_err(|cause| of_tls(server, &cause))?)
            }
        };
        let shaken = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) =
            shaken.map_err(|cause| unreachable(API_SERVER, server, &described(&cause)))?;
        Ok(Self { sender, connection: Box::pin(connection), own })
    }

    /// Whether the server has kept the connection since the last request, so that another may be sent.
    pub(super) async fn is_open(&mut self) -> bool {
        poll_fn(|context| {
            let has_ended = self.drive(context).is_ready();
            Poll::Ready(!has_ended && self.sender.is_ready())
        })
        .await
    }

    /// Dropped, the request may be carried out, now or later. The session has to be dropped with it.
    pub(super) async fn ask(&mut self, request: Request<Full<Bytes>>) -> Result<Response, DriverError> {
        let answer = self.begin(request).await?;
        let status = answer.status().as_u16();
        let mut body = pin!(Limited::new(answer.into_body(), LONGEST_ANSWER).collect());
        let body = self.driving(|context| body.as_mut().poll(context)).await;
        match body {
            Ok(body) => Ok(Response { status, body: body.to_bytes() }),
            Err(cause) => Err(DriverError::Unanswered(described(&*cause))),
        }
    }

    /// Returns the head of the answer. [`driving`](Self::driving) reads the body. Cancel safety: as [`ask`](Self::ask).
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
        _ => unreachable(API_SERVER, &server, &why),
    }
}
