//! [`Connections`]: as many as there are requests at once, up to a limit. One request at a time uses one.

use super::{
    super::{
        errors::DriverError,
        rows::messages::{ResponseHeader, TxnRequest, TxnResponse},
    },
    Address, OpenError,
    connect::{Target, connect},
    login::Token,
    session::{Path, Session},
};
use crate::drivers::closed::Closed;
use http::HeaderValue;
use prost::Message;
use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;
use vvm_clock::{Clock, SystemClock};

/// How many requests may be under way at once; further ones wait. So many connections stay open: a candidate
/// that waits has one request at a time, and so one connection.
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

/// The connections of one handle.
pub(in super::super) struct Connections {
    address: Address,
    tls: Option<TlsConnector>,
    clock: SystemClock,
    /// Closed with the handle.
    room: Semaphore,
    idle: Mutex<Vec<Session>>,
    /// The member to try first: the last one that worked, or the one after one that did not answer.
    next: AtomicUsize,
    tokens: Vec<Token>,
    history: Mutex<History>,
}

impl Connections {
    /// Reads the files of TLS. Connects at the first request.
    pub(in super::super) fn new(address: Address) -> Result<Self, OpenError> {
        let tls = address.tls.as_ref().map(|tls| tls.read().map_err(OpenError::of_file)).transpose()?;
        let tls = tls.map(|mut tls| {
            tls.alpn_protocols = vec![b"h2".to_vec()];
            TlsConnector::from(Arc::new(tls))
        });
        let tokens = address.hosts.iter().map(|_| Token::default()).collect();
        Ok(Self {
            address,
            tls,
            clock: SystemClock::start().map_err(OpenError::System)?,
            room: Semaphore::new(MOST),
            idle: Mutex::default(),
            next: AtomicUsize::new(0),
            tokens,
            history: Mutex::default(),
        })
    }

    pub(in super::super) fn address(&self) -> &Address {
        &self.address
    }

    /// Sends a transaction once and returns the answer. It fails with `Replaced` if the answer is of another
    /// cluster, or of a revision before one that this handle had been shown when it sent the request.
    ///
    /// # Cancel safety
    /// Dropped, the transaction may be applied, now or later.
    pub(in super::super) async fn transaction(
        &self,
        request: &TxnRequest,
    ) -> Result<TxnResponse, DriverError> {
        let mut before = *self.history();
        let answer: TxnResponse = self.call(TXN, request).await?;
        // A write makes a revision. A read has no condition.
        let wrote = answer.succeeded && !request.compare.is_empty();
        before.revision += i64::from(wrote);
        self.compare(answer.header, before)?;
        Ok(answer)
    }

    /// [`transaction`](Self::transaction) of reads that may be stale: its revision may be an earlier one.
    pub(in super::super) async fn stale(&self, request: &TxnRequest) -> Result<TxnResponse, DriverError> {
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
    pub(in super::super) async fn call<A: Message, B: Message + Default>(
        &self,
        path: Path,
        message: &A,
    ) -> Result<B, DriverError> {
        let Ok(_room) = self.room.acquire().await else { return Err(Closed.into()) };
        let mut lent = self.session().await?;
        let Some(session) = &mut lent.session else { return Err(Closed.into()) };
        let within = self.address.request_timeout;
        let silence = self.clock.sleep(within);
        let call = async {
            let token = self.token(session).await?;
            let answer = session.call(path, token.as_ref(), within, message).await;
            let answer = answer.map_err(DriverError::from);
            if let Err(DriverError::LoginExpired(_)) = &answer {
                self.tokens[session.endpoint].forget(token.as_ref()).await;
            }
            answer
        };
        // Dropping the request is its time-out: the session goes with it, and the outcome is unknown (I7).
        let answer = tokio::select! {
            biased;
            answer = call => answer,
            () = silence => {
                Err(DriverError::Unanswered(format!("no answer within {}", vvm_clock::Span(within))))
            }
        };
        if answer.as_ref().err().is_none_or(DriverError::leaves_connection_usable) {
            lent.give_back();
        }
        answer
    }

    /// What requests on this connection have to show of the login.
    pub(super) async fn token(&self, session: &mut Session) -> Result<Option<HeaderValue>, DriverError> {
        self.tokens[session.endpoint].get(session, &self.address).await
    }

    /// A connection that is open as far as this side knows.
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

    /// A new connection, to the first member that accepts one.
    pub(super) async fn connected(&self) -> Result<Session, DriverError> {
        if self.room.is_closed() {
            return Err(Closed.into());
        }
        let members = self.address.hosts.len();
        let first = self.next.load(Ordering::Relaxed);
        let mut attempts = (first..first + members).peekable();
        while let Some(at) = attempts.next() {
            let (endpoint, after) = (at % members, (at + 1) % members);
            // If this attempt is dropped because its member is silent, the next one begins at another one.
            self.next.store(after, Ordering::Relaxed);
            let target = Target { endpoint, address: &self.address, tls: self.tls.as_ref() };
            match connect(target, &self.clock).await {
                Ok(session) => {
                    self.next.store(endpoint, Ordering::Relaxed);
                    return Ok(session);
                }
                Err(error) if attempts.peek().is_none() => return Err(error.into()),
                Err(error) => tracing::debug!(%error, "member left out"),
            }
        }
        Err(Closed.into())
    }

    /// Ends the connections. A request that runs ends its own.
    pub(in super::super) async fn close(&self) {
        self.room.close();
        let sessions = std::mem::take(&mut *self.idle());
        for session in sessions {
            session.end().await;
        }
    }

    /// Waits.
    pub(in super::super) async fn pause(&self, span: Duration) {
        self.clock.sleep(span).await;
    }

    pub(super) fn clock(&self) -> &SystemClock {
        &self.clock
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
        let after = (silent + 1) % of.address.hosts.len();
        let _is_another_by_now =
            of.next.compare_exchange(silent, after, Ordering::Relaxed, Ordering::Relaxed);
        of.idle().retain(|idle| idle.endpoint != silent);
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Connections({})", self.address)
    }
}
