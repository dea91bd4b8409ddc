//! [`Connections`]: as many as there are requests at once, up to a limit, and so many stay open. A candidate
//! that waits has one request at a time, and so one connection.

use super::{
    super::{errors::DriverError, rows::Answer},
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
};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres_rustls::MakeRustlsConnect;
use vvm_clock::{Clock, SystemClock};

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
        let _room = self.room.acquire().await.map_err(|_closed| DriverError::Closed)?;
        let mut lent = self.session().await?;
        let silence = self.clock.sleep(self.address.request_timeout);
        // Dropping the request is its time-out: the session goes with it, and the outcome is unknown (I7).
        let answer = tokio::select! {
            biased;
            answer = lent.session.ask(text) => answer,
            () = silence => {
                return Err(DriverError::Unanswered(format!(
                    "no answer within {}",
                    vvm_clock::Span(self.address.request_timeout)
                )));
            }
        };
        if answer.as_ref().err().is_none_or(DriverError::leaves_connection_usable) {
            lent.give_back();
        }
        answer
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

    /// The one on which notifications arrive comes last.
    fn take_idle(&self) -> Option<Lent<'_>> {
        let mut idle = self.idle();
        let at = idle.sessions.iter().rposition(|session| session.channel().is_none());
        let last = idle.sessions.len().checked_sub(1)?;
        let session = idle.sessions.remove(at.unwrap_or(last));
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

    pub(super) fn clock(&self) -> &SystemClock {
        &self.clock
    }

    /// Waits until a request may begin, and fails once the handle is closed.
    pub(super) async fn room(&self) -> Option<SemaphorePermit<'_>> {
        self.room.acquire().await.ok()
    }
}

impl Lent<'_> {
    /// Keeps the connection for another request, if there is room for it.
    pub(super) fn give_back(self) {
        let Self { session, of } = self;
        let mut idle = of.connections.idle();
        if !of.connections.room.is_closed() {
            idle.sessions.push(session);
        }
        if idle.sessions.len() > usize::from(of.connections.address.connections)
            && let Some(at) = idle.sessions.iter().position(|session| session.channel().is_none())
        {
            idle.sessions.remove(at);
        }
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
