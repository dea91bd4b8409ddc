//! [`Connections`]: as many as there are requests at once, up to a limit. Those that are not needed for a
//! minute are closed: a candidate that waits has one request at a time, and so one connection.
//!
//! Notifications (LISTEN and NOTIFY) arrive on a connection that requests use as well. No task waits for
//! them. While no request uses the connection, the one that waits for a hint drives it; the others find what
//! arrived meanwhile.

use super::{
    address::{self, Address},
    errors::{Answer, DriverError, Statement},
    history::History,
    session::Session,
};
use crate::{
    drivers::{
        address::Host,
        connections::{Next, Room},
        errors::{Closed, described},
    },
    opening::OpenError,
};
use std::{
    fmt,
    future::{pending, poll_fn},
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio_postgres::{
    Config,
    config::{SslMode, TargetSessionAttrs},
    error::SqlState,
};
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
pub(super) struct Connections {
    address: Address,
    tls: MakeRustlsConnect,
    room: Room,
    idle: Mutex<Idle>,
    next: Next,
}

impl Connections {
    /// Reads the files of TLS. Connects at the first request.
    pub(super) fn new(address: Address) -> Result<Self, OpenError> {
        let tls = address.tls.read()?;
        let room = Room::new(address.request_timeout, address.connections.into());
        let room =
            room.map_err(|cause| OpenError::refused(format!("the client can't be set up: {cause}")))?;
        Ok(Self { address, tls, room, idle: Mutex::default(), next: Next::default() })
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// Sends `text` once, as one message, and returns the answer.
    ///
    /// # Cancel safety
    /// Dropped, the transaction may be applied, now or later. Its connection is closed.
    pub(super) async fn ask(&self, text: &str) -> Result<Answer, DriverError> {
        let _room = self.room.enter().await?;
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
    pub(super) async fn execute(
        &self,
        statement: &Statement<'_>,
        history: &History,
        lock_timeout: Duration,
    ) -> Result<Option<Answer>, DriverError> {
        let _room = self.room.enter().await?;
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

    async fn in_time<T>(
        &self,
        request: impl Future<Output = Result<T, DriverError>>,
    ) -> Result<T, DriverError> {
        let answer = self.room.in_time(request).await;
        answer.unwrap_or_else(|silence| Err(DriverError::Unanswered(silence)))
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
        let (hosts, mut refusal) = (&self.address.hosts, None);
        for at in self.next.attempts(hosts.len()) {
            match self.connect(&hosts[at]).await {
                Ok(session) => {
                    self.next.works(at);
                    return Ok(Lent { session, of: Borrower { connections: self, has_listener: false } });
                }
                Err(error) => {
                    tracing::debug!(%error, "host left out");
                    refusal = Some(error);
                }
            }
        }
        Err(refusal.map_or(Closed.into(), DriverError::from))
    }

    /// Ends the connections. A request that runs ends its own.
    pub(super) async fn close(&self) {
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
        &self.room.clock
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
        let now = of.connections.clock().now();
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

/// How long to wait before listening again after a failure. Looks go on meanwhile.
const LISTENING_AGAIN: Duration = Duration::from_secs(1);

impl Connections {
    /// Notifies a channel, in a transaction of its own: a notification that fails undoes nothing. Does not
    /// wait for the answer, which comes before that of the next request. Opens a connection if none is idle.
    pub(super) async fn announce(&self, channel: &str) {
        let Ok(_room) = self.room.enter().await else { return };
        if let Ok(mut lent) = self.session().await
            && lent.session.send(&format!("NOTIFY {channel}")).await
        {
            lent.give_back();
        }
    }

    /// Waits for a notification of a channel, or until the connection for them has ended. Never returns
    /// behind a pooler, which gives no connection of one's own.
    ///
    /// # Cancel safety
    /// May be dropped and called again at will.
    pub(super) async fn notified(&self, channel: &str) {
        while !self.listens(channel) {
            match self.listen(channel).await {
                // What came before the server listened is not told: a look finds it.
                Ok(true) => return,
                Ok(false) => return pending().await,
                Err(DriverError::Closed(_)) => return pending().await,
                Err(error) => {
                    tracing::debug!(%error, "can't listen");
                    self.clock().sleep(LISTENING_AGAIN).await;
                }
            }
        }
        poll_fn(|context| self.poll_notified(context)).await;
    }

    /// Whether a connection gets the notifications of this channel.
    pub(super) fn listens(&self, channel: &str) -> bool {
        let idle = self.idle();
        idle.listener_is_out || idle.sessions.iter().any(|session| session.channel() == Some(channel))
    }

    /// Makes a connection get them; `false` behind a pooler.
    async fn listen(&self, channel: &str) -> Result<bool, DriverError> {
        let _room = self.room.enter().await?;
        let mut lent: Lent<'_> = self.session().await?;
        let is_direct = lent.session.is_direct();
        if is_direct {
            lent.session.listen(channel).await?;
        }
        lent.give_back();
        Ok(is_direct)
    }

    fn poll_notified(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut idle = self.idle();
        let listener = idle.sessions.iter().position(|session| session.channel().is_some());
        let Some(at) = listener else {
            if !idle.listener_is_out {
                return Poll::Ready(());
            }
            idle.waker = Some(context.waker().clone());
            return Poll::Pending;
        };
        let notified = idle.sessions.get_mut(at).map(|session| session.poll_notified(context));
        match notified {
            Some(Poll::Pending) => {
                idle.waker = Some(context.waker().clone());
                Poll::Pending
            }
            Some(Poll::Ready(Err(_))) => {
                idle.sessions.remove(at);
                Poll::Ready(())
            }
            Some(Poll::Ready(Ok(()))) | None => Poll::Ready(()),
        }
    }
}

/// The part of a request's time that one host has for connecting, so that a silent host leaves time for
/// another.
const CONNECTING: u32 = 2;

/// The oldest version with `gen_random_uuid`.
const OLDEST: i64 = 130_000;

impl Connections {
    /// Connects to a host and checks that it keeps what it confirms. Every connection is checked: after a
    /// fail-over it may lead to another server.
    async fn connect(&self, host: &Host) -> Result<Session, OpenError> {
        let Self { address, tls, .. } = self;
        let within = address.request_timeout / CONNECTING;
        let within = address.connect_timeout.map_or(within, |limit| limit.min(within));
        let configuration = configuration(host, address)?;
        let connecting = async {
            let connected = configuration.connect(tls.clone()).await;
            let (client, connection) = connected.map_err(|error| of_connecting(host, address, &error))?;
            let mut session = Session::new(client, connection);
            let answer = session.ask(CHECK).await.map_err(DriverError::of_opening)?;
            session.meets(check(host, &answer)?).await;
            Ok(session)
        };
        let connected = self.room.within(within, connecting).await;
        connected.unwrap_or_else(|silence| Err(unreachable(host, &silence)))
    }
}

fn unreachable(host: &Host, why: &str) -> OpenError {
    OpenError::passing(format!("no PostgreSQL answers at {host}: start it, or correct the address ({why})"))
}

fn configuration(host: &Host, address: &Address) -> Result<Config, OpenError> {
    let mut configuration = Config::new();
    configuration
        .host(&host.name)
        .port(host.port)
        .user(&address.user)
        .dbname(&address.database)
        .application_name(&address.application_name)
        .channel_binding(address.channel_binding)
        // A standby is refused by the check, whatever it would answer here.
        .target_session_attrs(TargetSessionAttrs::Any)
        .ssl_mode(if address.tls.is_on() { SslMode::Require } else { SslMode::Disable });
    if let Some(password) = address::password_for(host, address)? {
        configuration.password(password);
    }
    Ok(configuration)
}

const CHECK: &str = "SELECT current_setting('server_version_num'), current_setting('server_version'), \
    pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean, \
    current_setting('fsync'), current_setting('synchronous_commit'), pg_backend_pid()";

/// Returns the process that answers.
fn check(host: &Host, answer: &Answer) -> Result<i64, OpenError> {
    let unreadable = |damaged| DriverError::Damaged(damaged).of_opening();
    let row = answer.row(0).ok_or_else(|| OpenError::passing(format!("{host} does not describe itself")))?;
    if row.number(0).map_err(unreadable)? < OLDEST {
        let version = row.text(1).map_err(unreadable)?;
        return Err(OpenError::refused(format!(
            "{host} is PostgreSQL {version}: 13 is the oldest version that works"
        )));
    }
    if row.is_true(2).map_err(unreadable)? {
        return Err(OpenError::passing(format!(
            "{host} is a standby or read-only, and no other host of the URL accepts writes"
        )));
    }
    for (column, setting, forgetful) in
        [(3, "fsync", &["off"][..]), (4, "synchronous_commit", &["off", "local"][..])]
    {
        let value = row.text(column).map_err(unreadable)?;
        if forgetful.contains(&value) {
            return Err(OpenError::refused(format!(
                "{host} has {setting} = {value}, so that a crash forgets leaders: set it to on, and reload \
                 or restart"
            )));
        }
    }
    row.number(5).map_err(unreadable)
}

/// Nothing was sent but a login.
fn of_connecting(host: &Host, address: &Address, error: &tokio_postgres::Error) -> OpenError {
    let why = described(error);
    if let Some(way_out) = address::way_out(error) {
        return OpenError::refused(format!("no TLS with {host}: {way_out} ({why})"));
    }
    let refused_login = || {
        OpenError::refused(format!(
            "{host} refuses the connection: {why}. The password comes from password_file=PATH, VVM_STORAGE, \
             VVM_STORAGE_PASSWORD or ~/.pgpass"
        ))
    };
    match error.code() {
        Some(code) if *code == SqlState::INVALID_CATALOG_NAME => OpenError::refused(format!(
            "there is no database {}: create it (CREATE DATABASE), then its schema (`vvm init-storage`)",
            address.database
        )),
        Some(code) if code.code().starts_with("28") => refused_login(),
        // The library's words for a server that wants one.
        None if why.contains("password missing") => refused_login(),
        // In TLS 1.3 a server refuses a certificate after the handshake, and may close the connection before
        // its alert is read.
        _ if address.tls.shows_certificate() => {
            unreachable(host, &(why + "; its log tells if it refuses our certificate"))
        }
        _ => unreachable(host, &why),
    }
}
