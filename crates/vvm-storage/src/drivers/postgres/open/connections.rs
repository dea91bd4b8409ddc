//! [`Connections`]: as many as there are requests at once, up to a limit. One request at a time uses one.

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
};
use tokio::sync::Semaphore;
use tokio_postgres_rustls::MakeRustlsConnect;
use vvm_clock::{Clock, SystemClock};

/// How many requests may be under way at once; further ones wait. PostgreSQL has 100 connections for all
/// programs unless it is configured otherwise.
const MOST: usize = 8;

/// How many connections stay open without a request. A candidate that waits needs one.
const IDLE: usize = 2;

/// The connections of one handle.
pub(in super::super) struct Connections {
    address: Address,
    tls: MakeRustlsConnect,
    clock: SystemClock,
    /// Closed with the handle.
    room: Semaphore,
    idle: Mutex<Vec<Session>>,
    /// The host to try first: the last one that worked, or the one after one that did not answer.
    next: AtomicUsize,
}

impl Connections {
    /// Reads the files of TLS. Connects at the first request.
    pub(super) fn new(address: Address) -> Result<Self, OpenError> {
        let (tls, clock) = (address.tls.read()?, SystemClock::start().map_err(OpenError::System)?);
        let (room, idle) = (Semaphore::new(MOST), Mutex::default());
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
        let mut session = self.session().await?;
        let silence = self.clock.sleep(self.address.request_timeout);
        // Dropping the request is its time-out: the session goes with it, and the outcome is unknown (I7).
        let answer = tokio::select! {
            biased;
            answer = session.ask(text) => answer,
            () = silence => {
                return Err(DriverError::Unanswered(format!(
                    "no answer within {}",
                    vvm_clock::Span(self.address.request_timeout)
                )));
            }
        };
        if answer.as_ref().err().is_none_or(DriverError::leaves_connection_usable) {
            let mut idle = self.idle();
            if idle.len() < IDLE && !self.room.is_closed() {
                idle.push(session);
            }
        }
        answer
    }

    /// A connection that is open as far as this side knows.
    async fn session(&self) -> Result<Session, DriverError> {
        loop {
            let Some(mut session) = self.idle().pop() else { break };
            if session.is_open().await {
                return Ok(session);
            }
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
                    return Ok(session);
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
        let idle = std::mem::take(&mut *self.idle());
        for session in idle {
            session.end().await;
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Session>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Connections({})", self.address)
    }
}
