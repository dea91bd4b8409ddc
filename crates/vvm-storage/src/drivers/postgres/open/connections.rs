//! [`Connections`]: as many as there are requests at once, up to a limit. Those that are not needed for a
//! minute are closed: a candidate that waits has one request at a time, and so one connection.

use super::{
    super::{
        errors::DriverError,
        rows::{Answer, History, Statement},
    },
    Address, OpenError,
    connect::{Target, connect},
    session::Session,
};
use std::{
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::Waker,
    time::Duration,
};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres_rustls::MakeRustlsConnect;
use vvm_clock::{Clock, SystemClock};

/// How long a connection stays open that no request needs.
const KEPT_UNUSED: Duration = Duration::from_secs(60);

/// The connections without a request.
#[derive(Default)]
pub(super) struct Idle {
    pub(super) sessions: Vec<Session>,
    /// Whether a request uses the connection on which notifications arrive.
    pub(super) listener_is_out: bool,
    /// Of the one that waits for notifications.
    pub(super) waker: Option<Waker>,
}

/// A connection that a request uses. Dropped, it is closed, unless it was given back.
pub(super) struct Lent<'a> {
    pub(super) session: Session,
    of: Borrower<'a>,
}

/// Tells when a connection is back, or was closed.
struct Borrower<'a> {
    connections: &'a Connections,
    has_listener: bool,
}

/// The connections of one handle.
pub(in super::super) struct Connections {
    address: Address,
    tls: MakeRustlsConnect,
    clock: SystemClock,
    /// Closed with the handle.
    room: Semaphore,
    idle: Mutex<Idle>,
    /// The host to try first: the last one that worked, or the one after one that did not answer.
    next: AtomicUsize,
}

impl Connections {
    /// Reads the files of TLS. Connects at the first request.
    pub(super) fn new(address: Address) -> Result<Self, OpenError> {
        let (tls, clock) = (address.tls.read()?, SystemClock::start().map_err(OpenError::System)?);
        let (room, idle) = (Semaphore::new(address.connections.into()), Mutex::default());
        Ok(Self { address, tls, clock, room, idle, next: AtomicUsize::new(0) })
    }

    pub(in super::super) fn address(&self) -> &Address {
        &self.address
    }

    /// Sends `text` once, as one message, and returns the answer.
    ///
    /// # Cancel safety
    /// Dropped, the transaction may be applied, now or later. Its connection is closed.
    pub(in super::super) async fn ask(&self, text: &str) -> Result<Answer, DriverError> {
        let _room = self.room().await.ok_or(DriverError::Closed)?;
        let mut lent = self.session().await?;
        let answer = self.in_time(lent.session.ask(text)).await;
        lent.give_back_after(answer)
    }

    /// Sends one prepared statement once, and returns the answer. `None`, and nothing is sent, unless the
    /// connection is known to have this history and a lock timeout as short as this one: the statement need
    /// not establish that.
    ///
    /// # Cancel safety
    /// As [`ask`](Self::ask).
    pub(in super::super) async fn execute(
        &self,
        statement: &Statement<'_>,
        history: &History,
        lock_timeout: Duration,
    ) -> Result<Option<Answer>, DriverError> {
        let _room = self.room().await.ok_or(DriverError::Closed)?;
        let mut lent = self.session().await?;
        let session = &mut lent.session;
        let answer = self.in_time(async {
            match session.is_known(history, lock_timeout).await? {
                true => session.execute(statement).await.map(Some),
                false => Ok(None),
            }
        });
        let answer = answer.await;
        lent.give_back_after(answer)
    }

    /// Dropping the request is its time-out: the session goes with it, and the outcome is unknown (I7).
    async fn in_time<T>(
        &self,
        request: impl Future<Output = Result<T, DriverError>>,
    ) -> Result<T, DriverError> {
        let silence = self.clock.sleep(self.address.request_timeout);
        tokio::select! {
            biased;
            answer = request => answer,
            () = silence => {
                let why = format!("no answer within {}", vvm_clock::Span(self.address.request_timeout));
                Err(DriverError::Unanswered(why))
            }
        }
    }

    /// An idle connection that is open as far as this side knows.
    pub(super) async fn idle_session(&self) -> Option<Lent<'_>> {
        loop {
            let mut lent = self.take_idle()?;
            if lent.session.is_open().await {
                return Some(lent);
            }
        }
    }

    /// The one on which notifications arrive, which stays open, else the last one given back. So those that
    /// are not needed stay unused.
    fn take_idle(&self) -> Option<Lent<'_>> {
        let mut idle = self.idle();
        let listener = idle.sessions.iter().position(|session| session.channel().is_some());
        let last = idle.sessions.len().checked_sub(1)?;
        let session = idle.sessions.remove(listener.unwrap_or(last));
        let has_listener = session.channel().is_some();
        idle.listener_is_out |= has_listener;
        Some(Lent { session, of: Borrower { connections: self, has_listener } })
    }

    /// A connection that is open as far as this side knows.
    pub(super) async fn session(&self) -> Result<Lent<'_>, DriverError> {
        if let Some(lent) = self.idle_session().await {
            return Ok(lent);
        }
        let hosts = &self.address.hosts;
        let first = self.next.load(Ordering::Relaxed);
        let mut attempts = (first..first + hosts.len()).peekable();
        while let Some(at) = attempts.next() {
            // If this attempt is dropped because its host is silent, the next one begins at another host.
            self.next.store((at + 1) % hosts.len(), Ordering::Relaxed);
            let target = Target { host: &hosts[at % hosts.len()], address: &self.address, tls: &self.tls };
            match connect(target, &self.clock).await {
                Ok(session) => {
                    self.next.store(at % hosts.len(), Ordering::Relaxed);
                    return Ok(Lent { session, of: Borrower { connections: self, has_listener: false } });
                }
                Err(error) if attempts.peek().is_none() => return Err(error.into()),
                Err(error) => tracing::debug!(%error, "host left out"),
            }
        }
        Err(DriverError::Closed)
    }

    /// Ends the connections. A request that runs ends its own.
    pub(in super::super) async fn close(&self) {
        self.room.close();
        let sessions = std::mem::take(&mut self.idle().sessions);
        for session in sessions {
            session.end().await;
        }
    }

    pub(super) fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in super::super) fn clock(&self) -> &SystemClock {
        &self.clock
    }

    /// Waits until a request may begin, and fails once the handle is closed.
    pub(super) async fn room(&self) -> Option<SemaphorePermit<'_>> {
        self.room.acquire().await.ok()
    }
}

impl Lent<'_> {
    /// Keeps the connection unless the answer tells that it can't be used.
    fn give_back_after<T>(self, answer: Result<T, DriverError>) -> Result<T, DriverError> {
        if answer.as_ref().err().is_none_or(DriverError::leaves_connection_usable) {
            self.give_back();
        }
        answer
    }

    /// Keeps the connection for another request. Closes those that were not needed for a while.
    pub(super) fn give_back(self) {
        let Self { mut session, of } = self;
        let now = of.connections.clock.now();
        session.used_at = now;
        let mut idle = of.connections.idle();
        if !of.connections.room.is_closed() {
            idle.sessions.push(session);
        }
        idle.sessions
            .retain(|session| session.channel().is_some() || now.since(session.used_at) < KEPT_UNUSED);
    }
}

impl Drop for Borrower<'_> {
    fn drop(&mut self) {
        let mut idle = self.connections.idle();
        idle.listener_is_out &= !self.has_listener;
        // The one that waits for notifications has the connection again, or learns that it has ended.
        if let Some(waker) = idle.waker.take() {
            waker.wake();
        }
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Connections({})", self.address)
    }
}
