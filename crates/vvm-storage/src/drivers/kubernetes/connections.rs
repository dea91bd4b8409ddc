//! [`Connections`]: as many as there are requests at once, up to a limit. A [`Watch`] has one of its own.

use super::{
    cluster::Cluster,
    credential::Credential,
    errors::{DriverError, Response, Status},
    kubeconfig::Token,
    rows::{self, Lease},
};
use crate::{
    drivers::{
        address::unreachable,
        connections::{RequestLimiter, Stream, tcp},
        errors::{HandleClosed, described},
        tls::{Pem, Tls},
    },
    opening::OpenError,
};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Method, Request,
    body::{Body as _, Incoming},
    client::conn::http1,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT},
};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
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

const CONNECTING: u32 = 2;

const JSON: &str = "application/json";

/// In the place of objects, their names and what else `kubectl get` shows.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// A row has at most a KiB.
const PAGE: usize = 500;

#[derive(Deserialize)]
struct Table {
    kind: String,
    #[serde(default)]
    metadata: TableMetadata,
    rows: Vec<Row>,
}

#[derive(Deserialize, Default)]
struct TableMetadata {
    #[serde(rename = "continue", default)]
    token: String,
}

#[derive(Deserialize)]
struct Row {
    cells: Vec<serde_json::Value>,
}

const API_SERVER: &str = "API server";

pub(super) struct Connections {
    pub(super) cluster: Cluster,
    room: RequestLimiter,
    connecting: Duration,
    idle: Mutex<Vec<Session>>,
}

impl Connections {
    pub(super) fn new(cluster: Cluster, request_timeout: Duration) -> Result<Self, OpenError> {
        let room = RequestLimiter::new(request_timeout, MOST)
            .map_err(|cause| OpenError::refused(format!("the driver can't be started: {cause}")))?;
        Ok(Self { cluster, room, connecting: request_timeout / CONNECTING, idle: Mutex::default() })
    }

    pub(super) fn clock(&self) -> &SystemClock {
        &self.room.clock
    }

    pub(super) async fn get(&self, name: &str, may_be_stale: bool) -> Result<Option<Lease>, DriverError> {
        let options = if may_be_stale { "?resourceVersion=0" } else { "" };
        let answer = self.ask(Method::GET, &format!("{}/{name}{options}", self.leases()), None).await?;
        match answer.status {
            200 => lease(&answer).map(Some),
            404 if Status::from_response(&answer).is_absent() => Ok(None),
            _ => Err(DriverError::from_response(&answer)),
        }
    }

    /// `None` if there is one already.
    ///
    /// # Cancel safety
    /// As [`ask`](Self::ask).
    pub(super) async fn create(&self, lease: &Lease) -> Result<Option<Lease>, DriverError> {
        let answer = self.ask(Method::POST, &self.leases(), Some(json(lease)?)).await?;
        match answer.status {
            201 => self::lease(&answer).map(Some),
            409 if Status::from_response(&answer).reason == "AlreadyExists" => Ok(None),
            _ => Err(DriverError::from_response(&answer)),
        }
    }

    /// Replaces exactly the version of the object that `lease` names; `None` if it does not stand.
    ///
    /// # Cancel safety
    /// As [`ask`](Self::ask).
    pub(super) async fn replace(&self, lease: &Lease) -> Result<Option<Lease>, DriverError> {
        let path = format!("{}/{}", self.leases(), lease.name());
        let answer = self.ask(Method::PUT, &path, Some(json(lease)?)).await?;
        let status = Status::from_response(&answer);
        match answer.status {
            200 => self::lease(&answer).map(Some),
            409 if status.reason == "Conflict" => Ok(None),
            404 if status.is_absent() => Ok(None),
            _ => Err(DriverError::from_response(&answer)),
        }
    }

    /// One page of the names of all Leases that have our label, after the one that `token` continues, and the token of
    /// the next page. A table has no documents: a list of Leases would have all of them.
    pub(super) async fn names(&self, token: &str) -> Result<(Vec<String>, String), DriverError> {
        let token = if token.is_empty() { String::new() } else { format!("&continue={token}") };
        let path =
            format!("{}?labelSelector={}&includeObject=None&limit={PAGE}{token}", self.leases(), rows::NAME);
        let answer = self.ask_for(TABLE, Method::GET, &path, None).await?;
        if answer.status != 200 {
            return Err(DriverError::from_response(&answer));
        }
        let wrong =
            |cause: &dyn fmt::Display| DriverError::Unanswered(format!("its answer is no table: {cause}"));
        let Table { kind, metadata, rows } =
            serde_json::from_slice(&answer.body).map_err(|cause| wrong(&cause))?;
        if kind != "Table" {
            return Err(wrong(&kind));
        }
        let names = rows.into_iter().filter_map(|row| Some(row.cells.first()?.as_str()?.to_owned()));
        Ok((names.collect(), metadata.token))
    }

    pub(super) fn leases(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.cluster.namespace)
    }

    /// Sends a request once and returns the answer.
    ///
    /// # Cancel safety
    /// Dropped, the request may be carried out, now or later. Its connection is closed.
    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<Response, DriverError> {
        self.ask_for(JSON, method, path, body).await
    }

    async fn ask_for(
        &self,
        kind: &'static str,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<Response, DriverError> {
        let _room = self.room.acquire().await?;
        let credential = self.credential().await?;
        let request = self.request(kind, method, path, body, &credential)?;
        let mut session = self.session(credential.own.clone()).await?;
        let answer = self.room.in_time(session.ask(request)).await;
        let answer = answer.unwrap_or_else(|silence| Err(DriverError::Unanswered(silence)))?;
        if answer.status == 401 {
            // The certificate of a connection is as old as the connection.
            self.cluster.token.was_refused(&credential);
            self.idle().clear();
        } else if !self.room.is_closed() {
            self.idle().push(session);
        }
        Ok(answer)
    }

    /// A login plug-in may take longer. Then it goes on, and its answer is that of a later request.
    async fn credential(&self) -> Result<Credential, DriverError> {
        let token = &self.cluster.token;
        let silent = |why| OpenError::passing(format!("{token:?} has given no credential yet: {why}"));
        let credential = self.room.within(self.connecting, token.get(self.clock())).await;
        Ok(credential.map_err(silent)??)
    }

    fn request(
        &self,
        kind: &'static str,
        method: Method,
        path: &str,
        body: Option<Bytes>,
        credential: &Credential,
    ) -> Result<Request<Full<Bytes>>, DriverError> {
        let cluster = &self.cluster;
        let refused = |cause: &dyn ToString| DriverError::Refused(cause.to_string());
        let host = cluster.server.split_once("://").map_or("", |(_, host)| host);
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

    /// A connection with this certificate.
    async fn session(&self, own: Option<(Pem, Pem)>) -> Result<Session, DriverError> {
        if self.room.is_closed() {
            return Err(DriverError::Closed(HandleClosed));
        }
        loop {
            let Some(mut session) = self.idle().pop() else { break };
            if session.own == own && session.is_open().await {
                return Ok(session);
            }
        }
        let within = self.connecting;
        match self.room.within(within, Session::connect(&self.cluster, own)).await {
            Ok(connected) => Ok(connected?),
            Err(_silence) => {
                let why = format!("no connection within {}", DisplayDuration(within));
                Err(unreachable(API_SERVER, &self.cluster.server, &why).into())
            }
        }
    }

    /// A request that runs ends its own connection.
    pub(super) async fn close(&self) {
        self.room.close();
        self.idle().clear();
        if let Token::Plugin(plugin) = &self.cluster.token {
            plugin.close().await;
        }
    }

    /// Each change is one insertion or removal, so a panic elsewhere leaves the list whole.
    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Session>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn json(lease: &Lease) -> Result<Bytes, DriverError> {
    let json = serde_json::to_vec(lease).map_err(|cause| DriverError::Refused(cause.to_string()))?;
    Ok(json.into())
}

/// (I7) A write whose answer can't be read is unknown.
fn lease(answer: &Response) -> Result<Lease, DriverError> {
    serde_json::from_slice(&answer.body)
        .map_err(|cause| DriverError::Unanswered(format!("its answer is no Lease: {cause}")))
}

impl fmt::Debug for Connections {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Connections({}, {:?})", self.cluster.server, self.cluster.token)
    }
}

/// More than any Lease has.
const LONGEST_LINE: usize = 4 << 20;

pub(in crate::drivers) struct Watch {
    session: Session,
    body: Incoming,
    /// What has arrived of the next line.
    part: Vec<u8>,
}

#[derive(Deserialize, Debug)]
pub(super) struct WatchEvent {
    /// `ADDED`, also of what was there at the beginning; `MODIFIED`, `DELETED`, `ERROR`.
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) object: Lease,
}

impl Connections {
    /// Watches the Leases with a label.
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing open.
    pub(super) async fn watch(&self, label: &str) -> Result<Watch, DriverError> {
        let path = format!("{}?watch=1&labelSelector={}%3D{label}", self.leases(), rows::NAME);
        let credential = self.credential().await?;
        let request = self.request(JSON, Method::GET, &path, None, &credential)?;
        let mut session = self.session(credential.own).await?;
        let answer = self.room.in_time(session.begin(request)).await;
        let answer = answer.unwrap_or_else(|silence| Err(DriverError::Unanswered(silence)))?;
        let status = answer.status().as_u16();
        let mut watch = Watch { session, body: answer.into_body(), part: Vec::new() };
        if status == 200 {
            return Ok(watch);
        }
        // The words of a refusal are one line.
        let body = watch.line().await.unwrap_or_default().into();
        Err(DriverError::from_response(&Response { status, body }))
    }
}

impl Watch {
    /// Waits for the next change. `None` if the stream has ended, or can't be read.
    ///
    /// # Cancel safety
    /// May be dropped and called again at will.
    pub(super) async fn next(&mut self) -> Option<WatchEvent> {
        serde_json::from_slice(&self.line().await?).ok()
    }

    async fn line(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = self.part.iter().position(|byte| *byte == b'\n') {
                let rest = self.part.split_off(end + 1);
                return Some(std::mem::replace(&mut self.part, rest));
            }
            let Self { session, body, part } = self;
            let frame = session.driving(|context| Pin::new(&mut *body).poll_frame(context)).await;
            match frame {
                Some(Ok(frame)) if part.len() < LONGEST_LINE => {
                    part.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
                }
                _ => return None,
            }
        }
    }
}

/// More than any Lease has.
const LONGEST_ANSWER: usize = 4 << 20;

type Connection = Pin<Box<http1::Connection<TokioIo<Box<dyn Stream>>, Full<Bytes>>>>;

pub(super) struct Session {
    sender: http1::SendRequest<Full<Bytes>>,
    connection: Connection,
    own: Option<(Pem, Pem)>,
}

impl Session {
    /// Reads the files of TLS anew, so that certificates can be replaced.
    async fn connect(cluster: &Cluster, own: Option<(Pem, Pem)>) -> Result<Self, OpenError> {
        let server = &cluster.server;
        let tls = cluster.tls.as_ref().map(|(tls, name)| {
            let tls = Tls { own: own.clone().or_else(|| tls.own.clone()), ..tls.clone() };
            Ok::<_, OpenError>((TlsConnector::from(Arc::new(tls.read()?)), name))
        });
        let tls = tls.transpose()?;
        let stream = tcp(&cluster.host, cluster.port).await;
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

    /// Sends a request and returns its answer.
    ///
    /// # Cancel safety
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

    /// Returns the head of the answer. [`driving`](Self::driving) reads the body.
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
        _ => unreachable(API_SERVER, &server, &why),
    }
}
