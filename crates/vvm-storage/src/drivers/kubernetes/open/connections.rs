//! [`Connections`]: as many as there are requests at once, up to a limit. One request at a time uses one.

use super::{
    super::errors::{Answer, DriverError, Status},
    OpenError,
    cluster::Cluster,
    session::{NoSession, Session},
};
use crate::drivers::{closed::Closed, kubernetes::rows::Lease};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT},
};
use std::{
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::Semaphore;
use vvm_clock::{Clock, Span, SystemClock};

/// How many requests may be under way at once; further ones wait.
const MOST: usize = 8;

/// The part of a request's time that connecting has.
const CONNECTING: u32 = 2;

const JSON: &str = "application/json";

/// The connections of one handle.
pub(in super::super) struct Connections {
    pub(super) cluster: Cluster,
    clock: SystemClock,
    request_timeout: Duration,
    /// Closed with the handle.
    room: Semaphore,
    idle: Mutex<Vec<Session>>,
}

impl Connections {
    /// Connects at the first request.
    pub(super) fn new(cluster: Cluster, request_timeout: Duration) -> Result<Self, OpenError> {
        let clock = SystemClock::start().map_err(OpenError::System)?;
        let (room, idle) = (Semaphore::new(MOST), Mutex::default());
        Ok(Self { cluster, clock, request_timeout, room, idle })
    }

    /// The server, for display.
    pub(in super::super) fn server(&self) -> &str {
        &self.cluster.server
    }

    pub(in super::super) fn namespace(&self) -> &str {
        &self.cluster.namespace
    }

    pub(in super::super) fn credentials(&self) -> &str {
        &self.cluster.credentials
    }

    pub(in super::super) fn clock(&self) -> &SystemClock {
        &self.clock
    }

    pub(super) fn request_timeout(&self) -> Duration {
        self.request_timeout
    }

    /// Reads a Lease: from the quorum, or as the server remembers it.
    pub(in super::super) async fn get(
        &self,
        name: &str,
        may_be_stale: bool,
    ) -> Result<Option<Lease>, DriverError> {
        let options = if may_be_stale { "?resourceVersion=0" } else { "" };
        let answer = self.ask(Method::GET, &format!("{}/{name}{options}", self.leases()), None).await?;
        match answer.status {
            200 => lease(&answer).map(Some),
            404 if Status::of(&answer).is_absent() => Ok(None),
            _ => Err(DriverError::of(&answer)),
        }
    }

    /// Creates a Lease. Returns it as it was written; `None` if there is one already.
    ///
    /// # Cancel safety
    /// As [`ask`](Self::ask).
    pub(in super::super) async fn create(&self, lease: &Lease) -> Result<Option<Lease>, DriverError> {
        let answer = self.ask(Method::POST, &self.leases(), Some(json(lease)?)).await?;
        match answer.status {
            201 => self::lease(&answer).map(Some),
            409 if Status::of(&answer).reason == "AlreadyExists" => Ok(None),
            _ => Err(DriverError::of(&answer)),
        }
    }

    /// Replaces exactly the version of the object that `lease` names. Returns it as it was written; `None` if
    /// there is another version, another object or none.
    ///
    /// # Cancel safety
    /// As [`ask`](Self::ask).
    pub(in super::super) async fn replace(&self, lease: &Lease) -> Result<Option<Lease>, DriverError> {
        let path = format!("{}/{}", self.leases(), lease.name());
        let answer = self.ask(Method::PUT, &path, Some(json(lease)?)).await?;
        let status = Status::of(&answer);
        match answer.status {
            200 => self::lease(&answer).map(Some),
            409 if status.reason == "Conflict" => Ok(None),
            404 if status.is_absent() => Ok(None),
            _ => Err(DriverError::of(&answer)),
        }
    }

    pub(in super::super) fn leases(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.cluster.namespace)
    }

    /// Sends a request once and returns the answer.
    ///
    /// # Cancel safety
    /// Dropped, the request may be carried out, now or later. Its connection is closed.
    pub(in super::super) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<Answer, DriverError> {
        let _room = self.room.acquire().await.map_err(|_closed| DriverError::Closed(Closed))?;
        let request = self.request(method, path, body)?;
        let mut session = self.session().await?;
        let silence = self.clock.sleep(self.request_timeout);
        // Dropping the request is its time-out: the session goes with it, and the outcome is unknown (I7).
        let answer = tokio::select! {
            biased;
            answer = session.ask(request) => answer?,
            () = silence => {
                let why = format!("no answer within {}", Span(self.request_timeout));
                return Err(DriverError::Unanswered(why));
            }
        };
        if answer.status == 401 {
            self.cluster.token.was_refused();
        }
        if !self.room.is_closed() {
            self.idle().push(session);
        }
        Ok(answer)
    }

    pub(super) fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<Request<Full<Bytes>>, DriverError> {
        let cluster = &self.cluster;
        let refused = |cause: &dyn ToString| DriverError::Refused(cause.to_string());
        let host = cluster.server.split_once("://").map_or("", |(_, host)| host);
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", cluster.path))
            .header(HOST, host)
            .header(ACCEPT, JSON)
            .header(CONTENT_TYPE, JSON)
            .header(USER_AGENT, concat!("vvm/", env!("CARGO_PKG_VERSION")));
        if let Some(token) = cluster.token.get(&self.clock)? {
            let bearer = HeaderValue::try_from(format!("Bearer {token}"));
            let mut bearer = bearer.map_err(|_| refused(&"the token has bytes that no token has"))?;
            bearer.set_sensitive(true);
            request = request.header(AUTHORIZATION, bearer);
        }
        request.body(Full::new(body.unwrap_or_default())).map_err(|cause| refused(&cause))
    }

    /// A connection that is open as far as this side knows.
    pub(super) async fn session(&self) -> Result<Session, DriverError> {
        if self.room.is_closed() {
            return Err(DriverError::Closed(Closed));
        }
        loop {
            let Some(mut session) = self.idle().pop() else { break };
            if session.is_open().await {
                return Ok(session);
            }
        }
        let within = self.request_timeout / CONNECTING;
        let server = || self.cluster.server.clone();
        tokio::select! {
            biased;
            connected = Session::connect(&self.cluster) => connected.map_err(|error| match error {
                NoSession::Tls(why) => OpenError::Tls { server: server(), why }.into(),
                NoSession::Unreachable(why) => OpenError::Unreachable { server: server(), why }.into(),
            }),
            () = self.clock.sleep(within) => {
                let why = format!("no connection within {}", Span(within));
                Err(OpenError::Unreachable { server: server(), why }.into())
            }
        }
    }

    /// Ends the connections. A request that runs ends its own.
    pub(in super::super) fn close(&self) {
        self.room.close();
        self.idle().clear();
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
fn lease(answer: &Answer) -> Result<Lease, DriverError> {
    serde_json::from_slice(&answer.body)
        .map_err(|cause| DriverError::Unanswered(format!("its answer is no Lease: {cause}")))
}

impl fmt::Debug for Connections {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Connections({}, {:?})", self.cluster.server, self.cluster.token)
    }
}
