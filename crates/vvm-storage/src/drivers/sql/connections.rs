//! [`Connections`]: as many as there are requests at once, up to a limit. Those that are not needed for a minute are closed: a
//! candidate that waits has one request at a time, and so one connection. No task runs between requests.

use super::{address::Address, answer::Answer, errors::DriverError};
use crate::{
    drivers::{
        address::{Host, unreachable},
        connections::{Next, Room},
        errors::Closed,
    },
    opening::OpenError,
};
use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    task::Waker,
    time::Duration,
};
use tokio::sync::SemaphorePermit;
use vvm_clock::{Clock as _, Instant, SystemClock};

/// How long a connection stays open that no request needs.
const KEPT_UNUSED: Duration = Duration::from_secs(60);

/// The part of a request's time that one host has for connecting, so that a silent host leaves time for another.
const CONNECTING: u32 = 2;

/// A connection. It is closed when it is dropped.
pub(crate) trait Session: Send {
    /// Whether the server has kept the connection since the last request.
    fn is_open(&mut self) -> impl Future<Output = bool> + Send;

    /// Sends `text` once, as one message, and returns the answer.
    ///
    /// # Cancel safety
    /// Dropped, it may be applied, now or later. The session has to be dropped with it.
    fn ask(&mut self, text: &str) -> impl Future<Output = Result<Answer, DriverError>> + Send;

    /// Takes leave of the server.
    fn end(self) -> impl Future<Output = ()> + Send;

    /// The channel whose notifications arrive on it.
    fn channel(&self) -> Option<&str> {
        None
    }
}

/// A kind of server, with the address of one.
pub(crate) trait Server: Send + Sync + Sized + 'static {
    type Session: Session;

    /// As messages name it.
    const SOFTWARE: &str;

    /// The option that turns TLS off, and the one that names the servers' authority.
    const TLS_OPTIONS: (&str, &str);

    /// The servers that `url` names, or how to write it.
    fn parse(url: &str) -> Result<Self, String>;

    fn at(url: &str) -> Result<Self, OpenError> {
        Self::parse(url).map_err(|why| OpenError::of_url(url, why))
    }

    fn address(&self) -> &Address;

    /// A warning if logins and answers would cross a network without TLS.
    fn unencrypted(&self) -> Option<String> {
        let (off, authority) = Self::TLS_OPTIONS;
        let is_exposed = self.address().tls.is_none() && !self.address().is_loopback();
        is_exposed.then(|| {
            format!(
                "{off}: machines between here and the server can read the login and forge answers. Remove it, \
                 and name the servers' authority with {authority}=PATH"
            )
        })
    }

    /// Connects to a host and checks that it keeps what it confirms. Every connection is checked: after a fail-over it
    /// may lead to another server.
    fn connect(&self, host: &Host) -> impl Future<Output = Result<Self::Session, OpenError>> + Send;
}

/// The connections without a request.
pub(crate) struct Idle<T> {
    /// Each with the end of its last request.
    pub(crate) sessions: Vec<(Instant, T)>,
    /// Whether a request uses the connection on which notifications arrive.
    pub(crate) listener_is_out: bool,
    /// Of the one that waits for notifications.
    pub(crate) waker: Option<Waker>,
}

/// A connection that a request uses. Dropped, it is closed, unless it was given back.
pub(crate) struct Lent<'a, S: Server> {
    pub(crate) session: S::Session,
    of: Borrower<'a, S>,
}

/// Tells when a connection is back, or was closed.
struct Borrower<'a, S: Server> {
    connections: &'a Connections<S, S::Session>,
    has_listener: bool,
}

/// The connections of one handle.
pub(crate) struct Connections<S, T> {
    server: S,
    room: Room,
    idle: Mutex<Idle<T>>,
    next: Next,
}

impl<S: Server> Connections<S, S::Session> {
    /// Connects at the first request.
    pub(crate) fn new(server: S) -> Result<Self, OpenError> {
        let room = Room::new(server.address().request_timeout, server.address().connections.into());
        let room =
            room.map_err(|cause| OpenError::refused(format!("the client can't be set up: {cause}")))?;
        let idle = Idle { sessions: Vec::new(), listener_is_out: false, waker: None };
        Ok(Self { server, room, idle: Mutex::new(idle), next: Next::default() })
    }

    pub(crate) fn server(&self) -> &S {
        &self.server
    }

    pub(crate) fn address(&self) -> &Address {
        self.server.address()
    }

    pub(crate) fn clock(&self) -> &SystemClock {
        &self.room.clock
    }

    /// Sends `text` once, as one message, and returns the answer.
    ///
    /// # Cancel safety
    /// Dropped, it may be applied, now or later. Its connection is closed.
    pub(crate) async fn ask(&self, text: &str) -> Result<Answer, DriverError> {
        let (_room, mut lent) = self.lend().await?;
        let answer = self.in_time(lent.session.ask(text)).await;
        lent.give_back_after(answer)
    }

    /// Waits until a request may begin, and returns a connection for it that is open as far as this side knows.
    pub(crate) async fn lend(&self) -> Result<(SemaphorePermit<'_>, Lent<'_, S>), DriverError> {
        let room = self.room.enter().await?;
        if let Some(lent) = self.idle_session().await {
            return Ok((room, lent));
        }
        let (hosts, mut refusal) = (&self.address().hosts, None);
        for at in self.next.attempts(hosts.len()) {
            match self.connect(&hosts[at]).await {
                Ok(session) => {
                    self.next.works(at);
                    let of = Borrower { connections: self, has_listener: false };
                    return Ok((room, Lent { session, of }));
                }
                Err(error) => {
                    tracing::debug!(%error, "host left out");
                    refusal = Some(error);
                }
            }
        }
        Err(refusal.map_or(Closed.into(), DriverError::from))
    }

    pub(crate) async fn in_time<A>(
        &self,
        request: impl Future<Output = Result<A, DriverError>>,
    ) -> Result<A, DriverError> {
        let answer = self.room.in_time(request).await;
        answer.unwrap_or_else(|silence| Err(DriverError::Unanswered(silence)))
    }

    /// An idle connection that is open as far as this side knows.
    async fn idle_session(&self) -> Option<Lent<'_, S>> {
        loop {
            let mut lent = self.take_idle()?;
            if lent.session.is_open().await {
                return Some(lent);
            }
        }
    }

    /// The one on which notifications arrive, which stays open, else the last one given back. So those that
    /// are not needed stay unused.
    fn take_idle(&self) -> Option<Lent<'_, S>> {
        let mut idle = self.idle();
        let listener = idle.listener();
        let last = idle.sessions.len().checked_sub(1)?;
        let (_, session) = idle.sessions.remove(listener.unwrap_or(last));
        let has_listener = session.channel().is_some();
        idle.listener_is_out |= has_listener;
        Some(Lent { session, of: Borrower { connections: self, has_listener } })
    }

    async fn connect(&self, host: &Host) -> Result<S::Session, OpenError> {
        let within = self.address().request_timeout / CONNECTING;
        let connected = self.room.within(within, self.server.connect(host)).await;
        connected.unwrap_or_else(|silence| Err(unreachable(S::SOFTWARE, host, &silence)))
    }

    /// Drops the connections that no request uses, so that the next ones are checked again.
    pub(crate) fn drop_idle(&self) {
        self.idle().sessions.clear();
    }

    /// Ends the connections. A request that runs ends its own.
    pub(crate) async fn close(&self) {
        self.room.close();
        let sessions = std::mem::take(&mut self.idle().sessions);
        for (_, session) in sessions {
            session.end().await;
        }
    }
}

impl<S, T> Connections<S, T> {
    pub(crate) fn idle(&self) -> MutexGuard<'_, Idle<T>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Session> Idle<T> {
    /// The place of the connection on which notifications arrive.
    pub(crate) fn listener(&self) -> Option<usize> {
        self.sessions.iter().position(|(_, session)| session.channel().is_some())
    }
}

impl<S: Server> Lent<'_, S> {
    /// Keeps the connection unless the request failed: its end then ends a transaction that failed in the middle.
    pub(crate) fn give_back_after<A>(self, answer: Result<A, DriverError>) -> Result<A, DriverError> {
        if answer.is_ok() {
            self.give_back();
        }
        answer
    }

    /// Keeps the connection for another request. Closes those that were not needed for a while.
    pub(crate) fn give_back(self) {
        let Self { session, of } = self;
        let now = of.connections.clock().now();
        let mut idle = of.connections.idle();
        if !of.connections.room.is_closed() {
            idle.sessions.push((now, session));
        }
        idle.sessions
            .retain(|(used_at, session)| session.channel().is_some() || now.since(*used_at) < KEPT_UNUSED);
    }
}

impl<S: Server> Drop for Borrower<'_, S> {
    fn drop(&mut self) {
        let mut idle = self.connections.idle();
        idle.listener_is_out &= !self.has_listener;
        // The one that waits for notifications has the connection again, or learns that it has ended.
        if let Some(waker) = idle.waker.take() {
            waker.wake();
        }
    }
}

impl<S: Server> fmt::Debug for Connections<S, S::Session> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Connections({})", self.address())
    }
}
