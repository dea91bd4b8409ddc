//! [`ConnectionPool`]: as many as there are requests at once, up to a limit. Unneeded ones are closed after a while. A
//! candidate has none between looks while the server has few left ([`ConnectionPool::close_idle_if_crowded`]).

use super::{config::Address, errors::DriverError, rows::StatementResults};
use crate::{
    drivers::{
        config::{Host, unreachable},
        connection::{HostRotation, RequestLimiter},
    },
    opening::OpenError,
};
use ielections::Ttl;
use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Wake, Waker},
    time::Duration,
};
use tokio::sync::SemaphorePermit;
use vvm_clock::{Clock as _, Instant, SystemClock};

/// How long a connection stays open that no request needs: of a leader, and of a candidate, which begins with two
/// requests at once and then has one at a time.
const KEPT_UNUSED: Duration = Duration::from_secs(60);

const KEPT_BY_CANDIDATES: Duration = Duration::from_secs(5);

/// The part of a request's time that one host has for connecting, so that a silent host leaves time for another.
const CONNECT_TIME_DIVISOR: u32 = 2;

/// How long an answer of the server counts about how many connections it has left.
const CROWD_KNOWN: Duration = Duration::from_secs(10);

pub(crate) trait Session: Send {
    fn is_open(&mut self) -> impl Future<Output = bool> + Send;

    /// Sends `text` once, as one message, and returns the answer.
    /// Dropped, it may be applied, now or later. The session has to be dropped with it.
    fn ask(&mut self, text: &str) -> impl Future<Output = Result<StatementResults, DriverError>> + Send;

    /// Asks the server whether more than two thirds of its connections are in use.
    fn is_crowded(&mut self) -> impl Future<Output = Result<bool, DriverError>> + Send;

    fn end(self) -> impl Future<Output = ()> + Send;

    fn is_listener(&self) -> bool {
        false
    }
}

pub(crate) trait Server: Send + Sync + Sized + 'static {
    type Session: Session;

    const SOFTWARE: &str;

    /// The option that turns TLS off, and the one that names the servers' authority.
    const TLS_OPTIONS: (&str, &str);

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

    /// Connects to a host and checks that it keeps what it confirms: after a fail-over it may lead to another server.
    fn connect(
        &self,
        host: &Host,
        clock: &SystemClock,
    ) -> impl Future<Output = Result<Self::Session, OpenError>> + Send;
}

pub(crate) struct IdleConnections<T> {
    /// Each with the end of its last request.
    pub(crate) sessions: Vec<(Instant, T)>,
    /// How many connections requests use, those that are being made included.
    lent: usize,
    /// The channels of the connection on which notifications arrive, which a request may use. Empty if there is none.
    pub(crate) channels: BTreeSet<String>,
    pub(crate) waiters: Arc<Waiters>,
    /// Whether the server had few connections left, and when it said so.
    crowd: Option<(Instant, bool)>,
    /// Until when a record is valid that this handle wrote.
    leads_until: Instant,
}

/// The calls that wait for notifications, each by its channel. All are woken at once: one of them reads what arrived
/// for the others, and any of them may have been dropped.
#[derive(Default)]
pub(crate) struct Waiters(Mutex<HashMap<String, Waker>>);

impl Waiters {
    pub(crate) fn add(&self, channel: &str, waker: &Waker) {
        self.lock().insert(channel.to_owned(), waker.clone());
    }

    pub(crate) fn wake_all(&self) {
        let wakers = std::mem::take(&mut *self.lock());
        wakers.into_values().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Waker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Waiters {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }
}

/// A connection that a request uses. Dropped, it is closed, unless it was given back.
pub(crate) struct PooledConnection<'a, S: Server> {
    pub(crate) session: S::Session,
    of: PoolSlot<'a, S>,
}

struct PoolSlot<'a, S: Server> {
    connections: &'a ConnectionPool<S, S::Session>,
    has_listener: bool,
}

/// Dropped before the answer, it closes idle connections: those to a peer that has vanished cost an attempt each.
struct PendingRequest<'a, S: Server>(Option<&'a ConnectionPool<S, S::Session>>);

pub(crate) struct ConnectionPool<S, T> {
    server: S,
    limiter: RequestLimiter,
    idle: Mutex<IdleConnections<T>>,
    next: HostRotation,
}

impl<S: Server> ConnectionPool<S, S::Session> {
    pub(crate) fn new(server: S) -> Result<Self, OpenError> {
        let limiter =
            RequestLimiter::new(server.address().request_timeout, server.address().connections.into())?;
        let idle = IdleConnections {
            sessions: Vec::new(),
            lent: 0,
            channels: BTreeSet::new(),
            waiters: Arc::default(),
            crowd: None,
            leads_until: Instant::ORIGIN,
        };
        Ok(Self { server, limiter, idle: Mutex::new(idle), next: HostRotation::default() })
    }

    pub(crate) fn server(&self) -> &S {
        &self.server
    }

    pub(crate) fn address(&self) -> &Address {
        self.server.address()
    }

    pub(crate) fn clock(&self) -> &SystemClock {
        &self.limiter.clock
    }

    /// Sends `text` once, as one message, and returns the answer.
    /// Dropped, it may be applied, now or later. Its connection is closed.
    pub(crate) async fn ask(&self, text: &str) -> Result<StatementResults, DriverError> {
        let (_permit, mut lent) = self.lend().await?;
        let answer = self.in_time(lent.session.ask(text)).await;
        lent.give_back_after(answer)
    }

    /// Waits until a request may begin, and returns a connection for it that is open as far as this side knows.
    pub(crate) async fn lend(&self) -> Result<(SemaphorePermit<'_>, PooledConnection<'_, S>), DriverError> {
        let permit = self.limiter.acquire().await?;
        if let Some(lent) = self.idle_session().await {
            return Ok((permit, lent));
        }
        let of = PoolSlot::new(self, &mut self.idle(), false);
        Ok((permit, self.connected(of).await?))
    }

    /// [`lend`](Self::lend) for a call that listens to `channel`. Waits for a connection that a request uses: to listen
    /// takes no second one, and all channels have one listener.
    pub(crate) async fn lend_to_listen(
        &self,
        channel: &str,
    ) -> Result<(SemaphorePermit<'_>, PooledConnection<'_, S>), DriverError> {
        let permit = self.limiter.acquire().await?;
        loop {
            let found = poll_fn(|context| {
                let mut idle = self.idle();
                let has_listener = !idle.channels.is_empty();
                let listener = idle.listener();
                if (has_listener && listener.is_none()) || (idle.sessions.is_empty() && idle.lent > 0) {
                    idle.waiters.add(channel, context.waker());
                    return Poll::Pending;
                }
                let lent = idle.take(self);
                Poll::Ready(lent.ok_or_else(|| PoolSlot::new(self, &mut idle, false)))
            });
            match found.await {
                Ok(mut lent) => {
                    if lent.session.is_open().await {
                        return Ok((permit, lent));
                    }
                }
                Err(of) => return Ok((permit, self.connected(of).await?)),
            }
        }
    }

    async fn connected<'a>(&'a self, of: PoolSlot<'a, S>) -> Result<PooledConnection<'a, S>, DriverError> {
        let hosts = &self.address().hosts;
        let session = self.next.connected(hosts.len(), |at| self.connect(&hosts[at])).await?;
        Ok(PooledConnection { session, of })
    }

    pub(crate) async fn in_time<A>(
        &self,
        request: impl Future<Output = Result<A, DriverError>>,
    ) -> Result<A, DriverError> {
        let mut pending = PendingRequest(Some(self));
        let answer = self.limiter.in_time(request).await;
        if answer.is_ok() {
            pending.0 = None;
        }
        answer.unwrap_or_else(|silence| Err(DriverError::Unanswered(silence)))
    }

    async fn idle_session(&self) -> Option<PooledConnection<'_, S>> {
        loop {
            let mut lent = self.idle().take(self)?;
            if lent.session.is_open().await {
                return Some(lent);
            }
        }
    }

    async fn connect(&self, host: &Host) -> Result<S::Session, OpenError> {
        let within = self.address().request_timeout / CONNECT_TIME_DIVISOR;
        let connected = self.limiter.within(within, self.server.connect(host, self.clock())).await;
        connected.unwrap_or_else(|silence| Err(unreachable(S::SOFTWARE, host, &silence)))
    }

    /// Notes that a record is valid for so long that this handle has just written: its connections stay open.
    pub(crate) fn leads_for(&self, ttl: Ttl) {
        let until = self.clock().now().after(ttl.get());
        let mut idle = self.idle();
        idle.leads_until = idle.leads_until.max(until);
    }

    /// Closes the idle connections of a candidate if the server has few left: it then connects for each look. So
    /// candidates, however many wait, leave a third of the connections to other programs, and the server can bear those
    /// for notifications. Asks it every [`CROWD_KNOWN`]. Dropped, it closes a connection.
    pub(crate) async fn close_idle_if_crowded(&self) {
        let now = self.clock().now();
        let known = match &*self.idle() {
            idle if now < idle.leads_until => return,
            idle => idle.crowd.filter(|(said_at, _)| now.since(*said_at) < CROWD_KNOWN),
        };
        let is_crowded = match known {
            Some((_, is_crowded)) => is_crowded,
            None => {
                let Ok(_permit) = self.limiter.acquire().await else { return };
                let Some(mut lent) = self.idle_session().await else { return };
                let Ok(is_crowded) = self.in_time(lent.session.is_crowded()).await else { return };
                lent.give_back();
                self.idle().crowd = Some((now, is_crowded));
                is_crowded
            }
        };
        if is_crowded {
            self.end_idle().await;
        }
    }

    /// Whether candidates do without a connection between their looks, as far as is known.
    pub(crate) fn is_crowded(&self) -> bool {
        let idle = self.idle();
        idle.crowd.is_some_and(|(_, is_crowded)| is_crowded) && self.clock().now() >= idle.leads_until
    }

    /// The next connection is to be to another host than the last one, if the URL has several.
    pub(crate) fn leave_host(&self) {
        self.next.advance(self.address().hosts.len());
        self.drop_idle();
    }

    /// Drops the connections that no request uses, so that the next ones are checked again.
    pub(crate) fn drop_idle(&self) {
        drop(self.take_all_idle());
    }

    async fn end_idle(&self) {
        for (_, session) in self.take_all_idle() {
            session.end().await;
        }
    }

    fn take_all_idle(&self) -> Vec<(Instant, S::Session)> {
        let mut idle = self.idle();
        if idle.listener().is_some() {
            idle.channels.clear();
        }
        idle.waiters.wake_all();
        std::mem::take(&mut idle.sessions)
    }

    /// A request that runs ends its own connection.
    pub(crate) async fn close(&self) {
        self.limiter.close();
        self.end_idle().await;
    }
}

impl<S, T> ConnectionPool<S, T> {
    pub(crate) fn idle(&self) -> MutexGuard<'_, IdleConnections<T>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Session> IdleConnections<T> {
    pub(crate) fn listener(&self) -> Option<usize> {
        self.sessions.iter().position(|(_, session)| session.is_listener())
    }

    /// The one for notifications, which stays open, else the last one given back: unneeded ones stay unused.
    fn take<'a, S: Server<Session = T>>(
        &mut self,
        of: &'a ConnectionPool<S, T>,
    ) -> Option<PooledConnection<'a, S>> {
        let last = self.sessions.len().checked_sub(1)?;
        let (_, session) = self.sessions.remove(self.listener().unwrap_or(last));
        let has_listener = session.is_listener();
        Some(PooledConnection { session, of: PoolSlot::new(of, self, has_listener) })
    }
}

impl<'a, S: Server> PoolSlot<'a, S> {
    fn new(
        connections: &'a ConnectionPool<S, S::Session>,
        idle: &mut IdleConnections<S::Session>,
        has_listener: bool,
    ) -> Self {
        idle.lent += 1;
        Self { connections, has_listener }
    }
}

impl<S: Server> PooledConnection<'_, S> {
    /// Notifications of the channel arrive on it from now on.
    pub(crate) fn listens_to(&mut self, channel: &str) {
        self.of.has_listener = true;
        self.of.connections.idle().channels.insert(channel.to_owned());
    }

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
        if !of.connections.limiter.is_closed() {
            idle.sessions.push((now, session));
        }
        let kept = if now < idle.leads_until { KEPT_UNUSED } else { KEPT_BY_CANDIDATES };
        idle.sessions.retain(|(used_at, session)| session.is_listener() || now.since(*used_at) < kept);
    }
}

impl<S: Server> Drop for PoolSlot<'_, S> {
    fn drop(&mut self) {
        let mut idle = self.connections.idle();
        idle.lent -= 1;
        if self.has_listener && idle.listener().is_none() {
            idle.channels.clear();
        }
        // Those that wait for notifications have the connection again, or learn that it has ended.
        idle.waiters.wake_all();
    }
}

impl<S: Server> Drop for PendingRequest<'_, S> {
    fn drop(&mut self) {
        if let Some(connections) = self.0 {
            connections.drop_idle();
        }
    }
}

impl<S: Server> fmt::Debug for ConnectionPool<S, S::Session> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Connections({})", self.address())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use std::{
        future::pending,
        sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    };

    struct Vanishing {
        address: Address,
        connected: AtomicUsize,
        is_silent: Arc<AtomicBool>,
    }

    struct ToVanishing(Arc<AtomicBool>);

    impl Session for ToVanishing {
        async fn is_open(&mut self) -> bool {
            true
        }

        async fn ask(&mut self, _: &str) -> Result<StatementResults, DriverError> {
            if self.0.load(Relaxed) { pending().await } else { Ok(StatementResults::default()) }
        }

        async fn is_crowded(&mut self) -> Result<bool, DriverError> {
            Ok(false)
        }

        async fn end(self) {}
    }

    impl Server for Vanishing {
        type Session = ToVanishing;

        const SOFTWARE: &str = "a server";
        const TLS_OPTIONS: (&str, &str) = ("tls=off", "tls_ca");

        fn parse(url: &str) -> Result<Self, String> {
            let (address, _) = Address::parse(url, ["sql", "sql"], 1)?;
            Ok(Self { address, connected: AtomicUsize::new(0), is_silent: Arc::default() })
        }

        fn address(&self) -> &Address {
            &self.address
        }

        async fn connect(&self, _: &Host, _: &SystemClock) -> Result<ToVanishing, OpenError> {
            self.connected.fetch_add(1, Relaxed);
            Ok(ToVanishing(Arc::clone(&self.is_silent)))
        }
    }

    #[tokio::test]
    async fn request_after_one_without_an_answer_takes_no_connection_from_before() {
        let pool = ConnectionPool::new(Vanishing::parse("sql://me@a/b").unwrap()).unwrap();
        let lent = tokio::join!(pool.lend(), pool.lend(), pool.lend());
        for lent in [lent.0, lent.1, lent.2] {
            lent.unwrap().1.give_back();
        }
        assert!(pool.ask("").await.is_ok());
        assert_eq!((pool.server.connected.load(Relaxed), pool.idle().sessions.len()), (3, 3));
        pool.server.is_silent.store(true, Relaxed);
        assert!(pool.ask("").now_or_never().is_none());
        pool.server.is_silent.store(false, Relaxed);
        assert!(pool.ask("").await.is_ok());
        assert_eq!((pool.server.connected.load(Relaxed), pool.idle().sessions.len()), (4, 1));
    }
}
