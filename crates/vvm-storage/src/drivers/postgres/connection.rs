//! [`Session`]: one connection, its check, and what is known of its server. The request that uses it drives it.

use super::{
    backend_process::login_process,
    config::{self, Postgres},
    history::{ISOLATION, PROCESS, history, settings, with_time},
    of_server,
    rows::{answer, answer_of_rows},
    statements::Statement,
};
use crate::{
    drivers::{
        config::{Host, exhausted, unreachable},
        connection::tcp,
        errors::described,
        sql::{
            config::Address,
            connection::{self, ConnectionPool, Server, Session as _},
            errors::DriverError,
            history::Lineage,
            rows::{AnswerLimit, StatementResults},
        },
        tls::Tls,
    },
    opening::OpenError,
};
use futures_util::TryStreamExt as _;
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    future::poll_fn,
    io,
    path::Path,
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::net::{TcpStream, UnixStream};
use tokio_postgres::{
    AsyncMessage, Client, Config, Connection, SimpleQueryMessage, Statement as Prepared,
    config::SslMode,
    error::{DbError, Severity, SqlState},
    tls::MakeTlsConnect,
};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_util::either::Either;
use vvm_clock::SystemClock;

impl Server for Postgres {
    type Session = Session;

    const SOFTWARE: &str = "PostgreSQL";
    const TLS_OPTIONS: (&str, &str) = ("sslmode=disable", "sslrootcert");

    fn parse(url: &str) -> Result<Self, String> {
        config::parse(url)
    }

    fn address(&self) -> &Address {
        &self.address
    }

    async fn connect(&self, host: &Host, clock: &SystemClock) -> Result<Session, OpenError> {
        let tls = match &self.own_tls {
            Some(Some(tls)) => tls.clone(),
            Some(None) => off()?,
            None => self.address.tls.as_ref().map_or_else(off, Tls::read)?,
        };
        let mut session = log_in(self, host, tls, clock).await?;
        // Takes the warnings of the login, as of the collation, so that they don't count as those of a request.
        if !session.is_open().await {
            return Err(unreachable(Self::SOFTWARE, host, &"the server closed the connection"));
        }
        let answer = session.ask(CHECK).await.map_err(DriverError::into_open_error)?;
        let (process, has_times) = check(host, &answer)?;
        session.meets(process, has_times).await;
        Ok(session)
    }
}

/// The oldest version with `gen_random_uuid`.
const OLDEST: u64 = 130_000;

/// Returns a configuration that is not used: the type of a connection names TLS, also without it.
fn off() -> Result<ClientConfig, OpenError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|cause| OpenError::refused(format!("the client can't be set up: {cause}")))?;
    Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

type Socket = Either<TcpStream, UnixStream>;

async fn socket(host: &Host, clock: &SystemClock) -> io::Result<Socket> {
    if host.name.starts_with('/') {
        let path = Path::new(&host.name).join(format!(".s.PGSQL.{}", host.port));
        return UnixStream::connect(path).await.map(Either::Right);
    }
    tcp(&host.name, host.port, clock).await.map(Either::Left)
}

async fn log_in(
    server: &Postgres,
    host: &Host,
    tls: ClientConfig,
    clock: &SystemClock,
) -> Result<Session, OpenError> {
    let configuration = configuration(server)?;
    // The library would try a name's addresses one after the other, each without a limit.
    let socket = socket(host, clock).await;
    let socket = socket.map_err(|cause| unreachable(Postgres::SOFTWARE, host, &cause))?;
    let mut tls = MakeRustlsConnect::new(tls);
    let Ok(tls) = MakeTlsConnect::<Socket>::make_tls_connect(&mut tls, &host.name);
    let connected = configuration.connect_raw(socket, tls).await;
    let (client, connection) = connected.map_err(|error| of_connecting(host, &server.address, &error))?;
    Ok(Session::new(client, connection))
}

fn configuration(server: &Postgres) -> Result<Config, OpenError> {
    let address = &server.address;
    let mut configuration = server.common.clone();
    let ssl_mode = if address.tls.is_some() { SslMode::Require } else { SslMode::Disable };
    configuration.user(&address.user).dbname(&address.database).ssl_mode(ssl_mode);
    if server.own_tls.is_none()
        && let Some(password) = address.password()?
    {
        configuration.password(password);
    }
    Ok(configuration)
}

const CHECK: &str = "SELECT current_setting('server_version_num'), current_setting('server_version'), \
    pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean, \
    current_setting('fsync'), current_setting('synchronous_commit'), pg_backend_pid(), \
    EXISTS (SELECT FROM pg_namespace n JOIN pg_class c ON relnamespace = n.oid JOIN pg_attribute ON attrelid = c.oid \
        WHERE nspname = 'sysvvm' AND relname = 'leader' AND attname = 'written_at')";

/// Returns the server's process, and whether records have the times of their writes. Fails if the server is unfit.
fn check(host: &Host, answer: &StatementResults) -> Result<(u64, bool), OpenError> {
    let unreadable = |damaged| DriverError::Damaged(damaged).into_open_error();
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
    Ok((row.number(5).map_err(unreadable)?, row.is_true(6).map_err(unreadable)?))
}

fn of_connecting(host: &Host, address: &Address, error: &tokio_postgres::Error) -> OpenError {
    let why = described(error);
    if let Some(way_out) = config::way_out(error) {
        return OpenError::refused(format!("no TLS with {host}: {way_out} ({why})"));
    }
    let refused_login = || {
        OpenError::refused(format!(
            "{host} refuses the connection: {why}. The password comes from password_file=PATH, VVM_STORAGE or \
             VVM_STORAGE_PASSWORD"
        ))
    };
    match error.code() {
        Some(code) if *code == SqlState::INVALID_CATALOG_NAME => OpenError::refused(format!(
            "there is no database {}: create it (CREATE DATABASE), then its schema (`vvm init-storage`)",
            address.database
        )),
        Some(code) if *code == SqlState::TOO_MANY_CONNECTIONS => {
            exhausted(host, &why, "max_connections, or the CONNECTION LIMIT of the role or database")
        }
        Some(code) if code.code().starts_with("28") => refused_login(),
        // No right to connect, and a database that takes no connections.
        Some(code) if ["42501", "55000"].contains(&code.code()) => {
            OpenError::refused(format!("{host} refuses the connection: {why}"))
        }
        // The library's message if the server requests a password, and none is given.
        None if why.contains("password missing") => refused_login(),
        // In TLS 1.3 a server refuses a certificate after the handshake, and may close before its alert is read.
        _ if address.tls.as_ref().is_some_and(|tls| tls.own.is_some()) => {
            unreachable(Postgres::SOFTWARE, host, &(why + "; its log tells if it refuses our certificate"))
        }
        _ => unreachable(Postgres::SOFTWARE, host, &why),
    }
}

type Encrypted = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

pub struct Session {
    client: Client,
    connection: Connection<Socket, Encrypted>,
    is_listener: bool,
    /// The channels of notifications that have arrived, and that no call has reported.
    notified: BTreeSet<String>,
    /// The server's process that carries out the requests. `None` behind a pooler.
    process: Option<i32>,
    has_times: bool,
    /// What is known of the server. `None` behind a pooler, and if the server has to be asked.
    known: Option<SessionSettings>,
    prepared: HashMap<String, Prepared>,
}

impl Session {
    pub(super) fn new(client: Client, connection: Connection<Socket, Encrypted>) -> Self {
        Self {
            client,
            connection,
            is_listener: false,
            notified: BTreeSet::new(),
            process: None,
            has_times: false,
            known: None,
            prepared: HashMap::new(),
        }
    }

    /// Notes whether the process that answers requests is the one that answered the login: then there is no pooler.
    pub(super) async fn meets(&mut self, process: u64, has_times: bool) {
        self.has_times = has_times;
        let answered = login_process(self.client.cancel_token()).await;
        self.process = answered.filter(|answered| u64::try_from(*answered) == Ok(process));
    }

    pub(super) fn is_direct(&self) -> bool {
        self.process.is_some()
    }

    /// Requests the notifications of a channel. Cancel safety: as [`ask`](Self::ask).
    pub(super) async fn listen(&mut self, channel: &str) -> Result<(), DriverError> {
        self.ask(&format!("LISTEN {channel}")).await?;
        self.is_listener = true;
        Ok(())
    }

    /// Ready once a notification of `channel` has arrived, or with the cause once the connection has ended.
    pub(super) fn poll_notified(
        &mut self,
        channel: &str,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), String>> {
        let Self { connection, notified, .. } = self;
        match drive(connection, context, notified, |_notice| {}) {
            Poll::Ready(cause) => Poll::Ready(Err(cause)),
            Poll::Pending if notified.remove(channel) => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Sends a prepared statement, a transaction of its own. Returns the answer. Cancel safety: as [`ask`](Self::ask).
    pub(super) async fn execute(
        &mut self,
        statement: &Statement<'_>,
    ) -> Result<StatementResults, DriverError> {
        let Self { client, connection, notified, prepared, process, has_times, .. } = self;
        let known = match prepared.get(statement.text()) {
            Some(known) => known,
            None => {
                // Number 0 never matches: no process has it.
                let text = with_time(statement.text(), *has_times);
                let text = text.replace(PROCESS, &process.unwrap_or(0).to_string());
                let known = answered(connection, notified, client.prepare(&text)).await?;
                prepared.entry(statement.text().to_owned()).or_insert(known)
            }
        };
        let answer = async {
            let mut rows = pin!(client.query_raw(known, statement.values()).await?);
            let (mut shown, mut limit) = (Vec::new(), AnswerLimit::new());
            while let Some(row) = rows.try_next().await? {
                if let Err(error) = limit.count(row.raw_size_bytes()) {
                    return Ok(Err(error));
                }
                shown.push(row);
            }
            answer_of_rows(shown, rows.rows_affected().unwrap_or_default()).map(Ok)
        };
        answered(connection, notified, answer).await?
    }

    /// Sends as much of `text` as the connection takes at once. Reads no answer. Returns whether it is still open.
    pub(super) async fn send(&mut self, text: &str) -> bool {
        let Self { client, connection, notified, .. } = self;
        let mut answer = pin!(client.simple_query(text));
        poll_fn(|context| {
            // As in `ask`; the client library drops the answer to a request that is gone.
            let _not_awaited = answer.as_mut().poll(context);
            Poll::Ready(drive(connection, context, notified, |_notice| {}).is_pending())
        })
        .await
    }
}

impl ConnectionPool<Postgres, Session> {
    /// Sends one prepared statement once, and returns the answer. `None`, and nothing is sent, unless the connection is
    /// known to have this history and a lock timeout as short as this one. Cancel safety: as [`ask`](Self::ask).
    pub(super) async fn execute(
        &self,
        statement: &Statement<'_>,
        history: &Lineage,
        lock_timeout: Duration,
    ) -> Result<Option<StatementResults>, DriverError> {
        let (_permit, mut lent) = self.lend().await?;
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
}

impl connection::Session for Session {
    async fn is_open(&mut self) -> bool {
        let Self { connection, notified, .. } = self;
        poll_fn(|context| Poll::Ready(!drive(connection, context, notified, |_notice| {}).is_ready())).await
    }

    async fn ask(&mut self, text: &str) -> Result<StatementResults, DriverError> {
        let Self { client, connection, notified, has_times, .. } = self;
        let text = with_time(text, *has_times);
        let messages = async {
            let mut messages = pin!(client.simple_query_raw(&text).await?);
            let (mut all, mut limit) = (Vec::new(), AnswerLimit::new());
            while let Some(message) = messages.try_next().await? {
                if let SimpleQueryMessage::Row(row) = &message {
                    let bytes = (0..row.len()).filter_map(|column| row.get(column)).map(str::len).sum();
                    if let Err(error) = limit.count(bytes) {
                        return Ok(Err(error));
                    }
                }
                all.push(message);
            }
            Ok(Ok(all))
        };
        answered(connection, notified, messages).await?.map(answer)
    }

    /// `false` behind a pooler: a connection to it takes none of the server while it waits.
    async fn is_crowded(&mut self) -> Result<bool, DriverError> {
        if !self.is_direct() {
            return Ok(false);
        }
        let text =
            "SELECT 3 * count(datid) > 2 * current_setting('max_connections')::integer FROM pg_stat_activity";
        let answer = self.ask(text).await?;
        Ok(answer.row(0).map_or(Ok(false), |row| row.is_true(0))?)
    }

    async fn end(self) {
        let Self { client, mut connection, mut notified, .. } = self;
        drop(client);
        // Once: it sends the message, and does not wait for the server.
        let farewell =
            poll_fn(|context| Poll::Ready(drive(&mut connection, context, &mut notified, |_notice| {})));
        let _gone = farewell.await;
    }

    fn is_listener(&self) -> bool {
        self.is_listener
    }
}

/// The server's routines that warn at each new id, before the commit, while ids run out. Any other warning may be that
/// of a cancelled wait: other servers may word it in another way.
const OF_IDS: [&str; 2] = ["GetNewTransactionId", "GetNewMultiXactId"];

/// Waits for the answer to a request of the client library, and drives the connection. The first poll queues it.
pub(super) async fn answered<T>(
    connection: &mut Connection<Socket, Encrypted>,
    notified: &mut BTreeSet<String>,
    answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, DriverError> {
    let (mut warning, mut broken) = (None, None);
    let mut answer = pin!(answer);
    let answer = poll_fn(|context| {
        if let Poll::Ready(answer) = answer.as_mut().poll(context) {
            return Poll::Ready(Some(answer));
        }
        if broken.is_some() {
            return Poll::Ready(None);
        }
        let driven = drive(connection, context, notified, |notice| {
            let is_of_ids = notice.routine().is_some_and(|routine| OF_IDS.contains(&routine));
            if notice.parsed_severity() == Some(Severity::Warning) && !is_of_ids {
                warning = Some(format!("{} ({})", notice.message(), notice.code().code()));
            }
        });
        if let Poll::Ready(cause) = driven {
            broken = Some(cause);
        }
        match answer.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending if broken.is_some() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await;
    match (answer, warning) {
        // A cancelled wait for a standby is answered with success, and this warning.
        (Some(Ok(_)), Some(warning)) => Err(DriverError::NotReplicated(warning)),
        (Some(Ok(answer)), None) => Ok(answer),
        (Some(Err(error)), _) => Err(match error.as_db_error() {
            Some(refusal) => of_server(refusal),
            None => DriverError::Unanswered(broken.unwrap_or_else(|| described(&error))),
        }),
        (None, _) => Err(DriverError::Unanswered(broken.unwrap_or_default())),
    }
}

/// Moves messages in both directions. Ready with the cause once the connection has ended: then don't drive it again.
fn drive(
    connection: &mut Connection<Socket, Encrypted>,
    context: &mut Context<'_>,
    notified: &mut BTreeSet<String>,
    mut on_notice: impl FnMut(DbError),
) -> Poll<String> {
    loop {
        match connection.poll_message(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Ok(AsyncMessage::Notice(notice)))) => on_notice(notice),
            Poll::Ready(Some(Ok(AsyncMessage::Notification(told)))) => {
                // Few: those that this connection listens to.
                notified.insert(told.channel().to_owned());
            }
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(Some(Err(error))) => return Poll::Ready(described(&error)),
            Poll::Ready(None) => return Poll::Ready("the server closed the connection".to_owned()),
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Session")
    }
}

#[derive(Debug)]
pub(super) struct SessionSettings {
    /// `None`: no candidate has adopted the one that the server has.
    history: Option<Lineage>,
    lock_timeout: Duration,
}

impl Session {
    /// Returns whether this connection is known to go to a server with this history, whose commits wait for disk and
    /// synchronous standbys, and whose waits for a lock end after `lock_timeout`. Asks the server if that is not known.
    /// Never behind a pooler, which may change the server between transactions. Cancel safety: as [`ask`](Self::ask).
    pub(super) async fn is_known(
        &mut self,
        history: &Lineage,
        lock_timeout: Duration,
    ) -> Result<bool, DriverError> {
        if !self.is_direct() {
            return Ok(false);
        }
        let known = match self.known.take() {
            Some(known) if known.lock_timeout <= lock_timeout => known,
            _ => self.learn(lock_timeout).await?,
        };
        let is_same = known.history.as_ref().is_some_and(|known| known.is_same(history));
        // Another history is asked for again: a candidate may adopt it meanwhile.
        self.known = is_same.then_some(known);
        Ok(is_same)
    }

    async fn learn(&mut self, lock_timeout: Duration) -> Result<SessionSettings, DriverError> {
        // Each statement finds rows by their keys, whatever the values are. The server would plan `pk = ANY ($1)` anew
        // for each execution, which takes longer than the execution.
        let plans = "SET SESSION plan_cache_mode = force_generic_plan";
        let text = format!(
            "SET SESSION CHARACTERISTICS AS {ISOLATION}; {}; {plans}; {}",
            settings("SESSION", lock_timeout),
            history()
        );
        let answer = self.ask(&text).await?;
        Ok(SessionSettings { history: Lineage::shown(answer.row_from_end(0))?.adopted, lock_timeout })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    fn message(kind: &str, body: &str) -> Vec<u8> {
        let length = body.len() as u32 + 4;
        [kind.as_bytes(), &length.to_be_bytes(), body.as_bytes()].concat()
    }

    #[tokio::test]
    async fn warning_that_ids_run_out_is_not_taken_for_a_cancelled_wait() {
        for (routine, is_unknown) in [
            ("GetNewTransactionId", false),
            ("GetNewMultiXactId", false),
            ("SyncRepWaitForLSN", true),
            ("WaitForQuorum", true),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("postgres://user@{}/database", listener.local_addr().unwrap());
            let warning = format!("SWARNING\0VWARNING\0C01000\0Mwarned\0R{routine}\0\0");
            let written = [message("N", &warning), message("C", "UPDATE 1\0"), message("Z", "I")];
            let logged_in = [message("R", "\0\0\0\0"), message("Z", "I")];
            let answering = async {
                let (mut client, _) = listener.accept().await.unwrap();
                for answer in [logged_in.concat(), written.concat()] {
                    assert_ne!(client.read(&mut [0; 1024]).await.unwrap(), 0);
                    client.write_all(&answer).await.unwrap();
                }
            };
            let asking = async {
                let postgres = Postgres::parse(&url).unwrap();
                let (host, clock) = (&postgres.address.hosts[0], SystemClock::start().unwrap());
                let session = log_in(&postgres, host, off().unwrap(), &clock).await;
                session.unwrap().ask("UPDATE").await
            };
            let (answer, ()) = tokio::join!(asking, answering);
            assert_eq!(answer.is_ok(), !is_unknown, "{routine}: {answer:?}");
            let is_not_replicated = matches!(answer, Err(DriverError::NotReplicated(_)));
            assert_eq!(is_not_replicated, is_unknown, "{routine}: {answer:?}");
        }
    }
}
