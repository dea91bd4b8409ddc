//! [`Connections`]: as many as there are requests at once, up to a limit. A watch has one of its own.

use super::{
    address::Address,
    errors::{CallError, DriverError},
    messages::{
        AuthenticateRequest, AuthenticateResponse, ResponseHeader, TxnRequest, TxnResponse,
        WatchCreateRequest, WatchRequest, WatchResponse,
    },
    session::{Path, Session, Streaming, described},
};
use crate::{
    drivers::{
        address::{Host, PASSWORD, missing_password, password, unreachable},
        connections::{Next, Room, Stream, tcp},
        errors::Closed,
        tls::{self, Tls},
    },
    opening::OpenError,
};
use http::HeaderValue;
use prost::Message;
use rustls::pki_types::ServerName;
use std::{
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio_rustls::TlsConnector;
use vvm_clock::SystemClock;

/// Requests under way at once; further ones wait.
const MOST: usize = 32;

const TXN: Path = "/etcdserverpb.KV/Txn";

/// A connection that a request uses. Dropped, it is closed, and the next request tries another member: this
/// one did not answer. Given back, it is kept.
struct Lent<'a> {
    /// `Some` until it is given back.
    session: Option<Session>,
    of: &'a Connections,
}

/// What the cluster has shown of itself. It never goes back.
#[derive(Clone, Copy, Default)]
struct History {
    cluster: Option<u64>,
    revision: i64,
}

pub(super) struct Connections {
    address: Address,
    room: Room,
    idle: Mutex<Vec<Session>>,
    next: Next,
    tokens: Vec<Token>,
    history: Mutex<History>,
}

impl Connections {
    pub(super) fn new(address: Address) -> Result<Self, OpenError> {
        let tokens = address.hosts.iter().map(|_| Token::default()).collect();
        let room = Room::new(address.request_timeout, MOST)
            .map_err(|cause| OpenError::refused(format!("the client can't be set up: {cause}")))?;
        let (idle, next, history) = (Mutex::default(), Next::default(), Mutex::default());
        Ok(Self { address, room, idle, next, tokens, history })
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// Sends a transaction once and returns the answer. It fails with `Replaced` if the answer is of another
    /// cluster, or of a revision before one that this handle had been shown when it sent the request.
    ///
    /// # Cancel safety
    /// Dropped, the transaction may be applied, now or later.
    pub(super) async fn transaction(&self, request: &TxnRequest) -> Result<TxnResponse, DriverError> {
        let mut before = *self.history();
        let answer: TxnResponse = self.call(TXN, request).await?;
        // A write makes a revision. A read has no condition.
        let wrote = answer.succeeded && !request.compare.is_empty();
        before.revision += i64::from(wrote);
        self.compare(answer.header, before)?;
        Ok(answer)
    }

    /// [`transaction`](Self::transaction) of reads that may be stale: its revision may be an earlier one.
    pub(super) async fn stale(&self, request: &TxnRequest) -> Result<TxnResponse, DriverError> {
        let before = History { revision: 0, ..*self.history() };
        let answer: TxnResponse = self.call(TXN, request).await?;
        self.compare(answer.header, before)?;
        Ok(answer)
    }

    /// Notes what an answer shows. Linearizable answers to requests that follow each other never go back, so
    /// an earlier revision is that of a cluster that was restored from a backup.
    fn compare(&self, header: Option<ResponseHeader>, before: History) -> Result<(), DriverError> {
        let header = header.unwrap_or_default();
        if before.cluster.is_some_and(|cluster| cluster != header.cluster_id) {
            return Err(DriverError::Replaced("another etcd cluster answers"));
        }
        if header.revision < before.revision {
            return Err(DriverError::Replaced("etcd has gone back to an earlier revision"));
        }
        let mut history = self.history();
        history.cluster = Some(header.cluster_id);
        history.revision = history.revision.max(header.revision);
        Ok(())
    }

    /// Sends a request once and returns the answer. Another member is only tried before the request is sent.
    ///
    /// # Cancel safety
    /// Dropped, the request may be applied, now or later.
    pub(super) async fn call<A: Message, B: Message + Default>(
        &self,
        path: Path,
        message: &A,
    ) -> Result<B, DriverError> {
        let _room = self.room.enter().await?;
        let mut lent = self.session().await?;
        let Some(session) = &mut lent.session else { return Err(Closed.into()) };
        let within = self.address.request_timeout;
        let call = async {
            let token = self.token(session).await?;
            let answer = session.call(path, token.as_ref(), within, message).await;
            let answer = answer.map_err(DriverError::from);
            if let Err(DriverError::LoginExpired(_)) = &answer {
                self.tokens[session.endpoint].forget(token.as_ref()).await;
            }
            answer
        };
        let answer = self.room.in_time(call).await;
        let answer = answer.unwrap_or_else(|silence| Err(DriverError::Unanswered(silence)));
        if answer.as_ref().err().is_none_or(DriverError::leaves_connection_usable) {
            lent.give_back();
        }
        answer
    }

    pub(super) async fn token(&self, session: &mut Session) -> Result<Option<HeaderValue>, DriverError> {
        self.tokens[session.endpoint].get(session, &self.address).await
    }

    async fn session(&self) -> Result<Lent<'_>, DriverError> {
        loop {
            let Some(mut session) = self.idle().pop() else { break };
            if session.is_open().await {
                return Ok(Lent { session: Some(session), of: self });
            }
        }
        let session = self.connected().await?;
        Ok(Lent { session: Some(session), of: self })
    }

    pub(super) async fn connected(&self) -> Result<Session, DriverError> {
        if self.room.is_closed() {
            return Err(Closed.into());
        }
        let mut refusal = None;
        for endpoint in self.next.attempts(self.address.hosts.len()) {
            match self.connect(endpoint).await {
                Ok(session) => {
                    self.next.works(endpoint);
                    return Ok(session);
                }
                Err(error) => {
                    tracing::debug!(%error, "member left out");
                    refusal = Some(error);
                }
            }
        }
        Err(refusal.map_or(Closed.into(), DriverError::from))
    }

    /// A request that runs ends its own connection.
    pub(super) async fn close(&self) {
        self.room.close();
        let sessions = std::mem::take(&mut *self.idle());
        for session in sessions {
            session.end().await;
        }
    }

    pub(super) fn clock(&self) -> &SystemClock {
        &self.room.clock
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Session>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lent<'_> {
    /// Keeps the connection for another request.
    fn give_back(mut self) {
        if let Some(session) = self.session.take() {
            let mut idle = self.of.idle();
            if !self.of.room.is_closed() {
                idle.push(session);
            }
        }
    }
}

impl Drop for Lent<'_> {
    /// A member that is cut off from the others accepts connections and answers nothing.
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        let (silent, of) = (session.endpoint, self.of);
        of.next.is_silent(silent, of.address.hosts.len());
        of.idle().retain(|idle| idle.endpoint != silent);
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Connections({})", self.address)
    }
}

const WATCH: Path = "/etcdserverpb.Watch/Watch";

#[derive(Debug)]
pub(in crate::drivers) struct Watch {
    session: Session,
    call: Streaming,
}

impl Connections {
    /// Has a member watch these ranges, and returns once it does.
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing open.
    pub(super) async fn watch(&self, ranges: Vec<WatchCreateRequest>) -> Result<Watch, DriverError> {
        let mut session = self.connected().await?;
        let beginning = async {
            let token = self.token(&mut session).await?;
            let requests: Vec<_> =
                ranges.into_iter().map(|create| WatchRequest { create: Some(create) }).collect();
            let mut call = session.stream(WATCH, token.as_ref(), &requests).await?;
            let mut created = 0;
            while created < requests.len() {
                let answer: WatchResponse = session.next(&mut call).await?;
                if answer.canceled {
                    return Err(DriverError::Refused(format!("a watch: {}", answer.cancel_reason)));
                }
                created += usize::from(answer.created);
            }
            Ok(call)
        };
        let call = self.room.in_time(beginning).await;
        let call = call.unwrap_or_else(|silence| Err(DriverError::NotBegun(silence)))?;
        Ok(Watch { session, call })
    }
}

impl Watch {
    /// Waits for the next changes. After an error the watch has ended.
    ///
    /// # Cancel safety
    /// May be dropped and called again at will.
    pub(super) async fn next(&mut self) -> Result<WatchResponse, DriverError> {
        Ok(self.session.next(&mut self.call).await?)
    }
}

const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";

/// The token of one member: members forget the tokens that they are not shown, each by itself. While one
/// request logs in, the others wait: a login is costly for the member.
#[derive(Default)]
struct Token(tokio::sync::Mutex<Option<HeaderValue>>);

impl Token {
    /// Logs in if there is no token.
    ///
    /// # Cancel safety
    /// Dropped, the session has to be dropped with it.
    pub(super) async fn get(
        &self,
        session: &mut Session,
        address: &Address,
    ) -> Result<Option<HeaderValue>, DriverError> {
        let Some(user) = &address.user else { return Ok(None) };
        let mut token = self.0.lock().await;
        if token.is_none() {
            *token = Some(log_in(session, address, user).await?);
        }
        Ok(token.clone())
    }

    /// Forgets a token that the member does not accept any more. A request that it has answered so is not
    /// sent again.
    pub(super) async fn forget(&self, used: Option<&HeaderValue>) {
        let mut token = self.0.lock().await;
        if token.as_ref() == used {
            *token = None;
        }
    }
}

/// The password is read anew, so that it can be changed.
async fn log_in(session: &mut Session, address: &Address, user: &str) -> Result<HeaderValue, DriverError> {
    let password = password(address.password_file.as_deref(), None)?;
    let password = password.ok_or_else(missing_password)?;
    let request = AuthenticateRequest { name: user.to_owned(), password };
    let answer = session.call(AUTHENTICATE, None, address.request_timeout, &request).await;
    let AuthenticateResponse { token } = answer.map_err(|error| match error {
        CallError::Status { code: 3 | 9, message } => OpenError::refused(format!(
            "etcd refuses the login of `{user}`: {message}. Correct the user, or {PASSWORD} or \
                 password_file"
        )),
        // Nothing but the login was sent.
        CallError::Status { message: why, .. } | CallError::NotSent(why) | CallError::Broken(why) => {
            OpenError::passing(format!("the login was not answered: {why}"))
        }
    })?;
    let mut token = HeaderValue::try_from(token)
        .map_err(|_| OpenError::passing("the login was answered with a token that is no header"))?;
    token.set_sensitive(true);
    Ok(token)
}

impl Connections {
    /// Takes a part of a request's time, so that a silent member leaves time for the others.
    async fn connect(&self, endpoint: usize) -> Result<Session, OpenError> {
        let Address { hosts, request_timeout, .. } = &self.address;
        // There are a few members, and this is one of them.
        let parts = u32::try_from(hosts.len() + 1).unwrap_or(u32::MAX);
        let host = &hosts[endpoint];
        let started = start(endpoint, host, self.address.tls.as_ref());
        let started = self.room.within(*request_timeout / parts, started).await;
        started.unwrap_or_else(|silence| Err(unreachable(ETCD, host, &silence)))
    }
}

const ETCD: &str = "etcd";

async fn start(endpoint: usize, host: &Host, tls: Option<&Tls>) -> Result<Session, OpenError> {
    let tls = tls.map(connector).transpose()?;
    let stream = tcp(&host.name, host.port).await.map_err(|cause| unreachable(ETCD, host, &cause))?;
    let (stream, scheme): (Box<dyn Stream>, _) = match tls {
        None => (Box::new(stream), "http"),
        Some(tls) => {
            let name = ServerName::try_from(host.name.clone());
            let name = name.map_err(|cause| unreachable(ETCD, host, &cause))?;
            let stream = tls.connect(name, stream).await.map_err(|cause| of_stream(host, &cause))?;
            (Box::new(stream), "https")
        }
    };
    let started = Session::start(stream, endpoint, format!("{scheme}://{host}")).await;
    started.map_err(|error| match error.get_io() {
        // In TLS 1.3 a server refuses a certificate after the handshake.
        Some(cause) => of_stream(host, cause),
        None => OpenError::refused(format!(
            "what answers at {host} does not speak etcd's protocol: name the port for clients (2379); if it \
             requires TLS, add tls_ca=PATH, and if it does without, remove the options of TLS ({})",
            described(&error)
        )),
    })
}

/// The files are read anew, so that certificates can be replaced.
fn connector(tls: &Tls) -> Result<TlsConnector, OpenError> {
    let mut tls = tls.read()?;
    tls.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsConnector::from(Arc::new(tls)))
}

/// Nothing was sent but a greeting.
fn of_stream(host: &Host, cause: &io::Error) -> OpenError {
    let why = cause.to_string();
    let error = cause.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()).cloned();
    match error.or_else(|| alert(&why)) {
        Some(error) => {
            let way_out = tls::way_out(&error);
            OpenError::refused(format!("no TLS with {host}: {way_out} ({why})"))
        }
        None if cause.kind() == io::ErrorKind::ConnectionRefused => unreachable(ETCD, host, &why),
        // A server that expects TLS, or a certificate, may close the connection without a word.
        None => unreachable(
            ETCD,
            host,
            &(why + "; if it requires TLS, add tls_ca=PATH, and if a certificate, tls_certificate=PATH"),
        ),
    }
}

/// The alert of a member that refused our certificate after the handshake. HTTP/2 has kept its text alone.
fn alert(why: &str) -> Option<rustls::Error> {
    use rustls::AlertDescription as Alert;
    let text = why.strip_prefix("received fatal alert: ")?;
    let known = [Alert::CertificateRequired, Alert::CertificateExpired];
    let known = known.into_iter().find(|alert| text == format!("{alert:?}"));
    Some(rustls::Error::AlertReceived(known.unwrap_or(Alert::BadCertificate)))
}
