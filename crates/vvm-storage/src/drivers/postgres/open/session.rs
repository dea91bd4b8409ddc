//! [`Session`]: one connection, driven by the request that uses it. No task runs between requests.

mod known;

use super::super::{
    errors::{DriverError, described},
    rows::{Answer, PROCESS, Statement},
};
use futures_util::TryStreamExt as _;
use known::Known;
use std::{
    collections::HashMap,
    fmt,
    future::poll_fn,
    pin::pin,
    task::{Context, Poll},
};
use tokio_postgres::{
    AsyncMessage, Client, Connection, Socket, Statement as Prepared,
    error::{DbError, Severity},
    tls::MakeTlsConnect,
};
use tokio_postgres_rustls::MakeRustlsConnect;
use vvm_clock::Instant;

type TlsStream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

/// A connection to a server.
pub(super) struct Session {
    client: Client,
    connection: Connection<Socket, TlsStream>,
    /// The channel whose notifications the server sends on it.
    channel: Option<String>,
    /// Whether a notification has arrived of which nothing was told.
    is_notified: bool,
    /// The process of the server that carries out its requests, unless there is a pooler between.
    process: Option<i32>,
    /// When the last request ended.
    pub(super) used_at: Instant,
    /// What is known of the server, on a connection that goes to the server itself.
    known: Option<Known>,
    /// By their text.
    prepared: HashMap<String, Prepared>,
}

impl Session {
    pub(super) fn new(client: Client, connection: Connection<Socket, TlsStream>) -> Self {
        Self {
            client,
            connection,
            channel: None,
            is_notified: false,
            process: None,
            used_at: Instant::ORIGIN,
            known: None,
            prepared: HashMap::new(),
        }
    }

    /// Whether the server has kept the connection since the last request.
    pub(super) async fn is_open(&mut self) -> bool {
        let Self { connection, is_notified, .. } = self;
        poll_fn(|context| Poll::Ready(!drive(connection, context, is_notified, |_notice| {}).is_ready()))
            .await
    }

    /// Notes whether the server's own process answered the login: this one, which carries out requests.
    pub(super) async fn meets(&mut self, process: i64) {
        let answered = super::direct::process(self.client.cancel_token()).await;
        self.process = answered.filter(|answered| i64::from(*answered) == process);
    }

    /// Whether it goes to the server itself, and not to a pooler.
    pub(super) fn is_direct(&self) -> bool {
        self.process.is_some()
    }

    /// Requests the notifications of a channel.
    ///
    /// # Cancel safety
    /// As [`ask`](Self::ask).
    pub(super) async fn listen(&mut self, channel: &str) -> Result<(), DriverError> {
        self.ask(&format!("LISTEN {channel}")).await?;
        self.channel = Some(channel.to_owned());
        Ok(())
    }

    pub(super) fn channel(&self) -> Option<&str> {
        self.channel.as_deref()
    }

    /// Ready once a notification has arrived, or with the cause once the connection has ended.
    pub(super) fn poll_notified(&mut self, context: &mut Context<'_>) -> Poll<Result<(), String>> {
        let Self { connection, is_notified, .. } = self;
        let driven = drive(connection, context, is_notified, |_notice| {});
        match driven {
            _ if std::mem::take(is_notified) => Poll::Ready(Ok(())),
            Poll::Ready(cause) => Poll::Ready(Err(cause)),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Sends `text` as one message and returns the answer.
    ///
    /// # Cancel safety
    /// Dropped, the transaction may be applied, now or later. The session has to be dropped with it.
    pub(super) async fn ask(&mut self, text: &str) -> Result<Answer, DriverError> {
        let Self { client, connection, is_notified, .. } = self;
        answered(connection, is_notified, client.simple_query(text)).await.map(Answer::of)
    }

    /// Sends a statement by itself, prepared, and returns the answer. A transaction of its own.
    ///
    /// # Cancel safety
    /// As [`ask`](Self::ask).
    pub(super) async fn execute(&mut self, statement: &Statement<'_>) -> Result<Answer, DriverError> {
        let Self { client, connection, is_notified, prepared, process, .. } = self;
        let known = match prepared.get(statement.text()) {
            Some(known) => known,
            None => {
                // No process has number 0.
                let text = statement.text().replace(PROCESS, &process.unwrap_or(0).to_string());
                let known = answered(connection, is_notified, client.prepare(&text)).await?;
                prepared.entry(statement.text().to_owned()).or_insert(known)
            }
        };
        let answer = async {
            let mut rows = pin!(client.query_raw(known, statement.values()).await?);
            let mut shown = Vec::new();
            while let Some(row) = rows.try_next().await? {
                shown.push(row);
            }
            Answer::of_rows(shown, rows.rows_affected().unwrap_or_default())
        };
        answered(connection, is_notified, answer).await
    }

    /// Sends `text` as far as the connection takes it at once, and does not read the answer. Whether the
    /// connection is still open.
    pub(super) async fn send(&mut self, text: &str) -> bool {
        let Self { client, connection, is_notified, .. } = self;
        let mut answer = pin!(client.simple_query(text));
        poll_fn(|context| {
            // As in `ask`; the client library drops the answer to a request that is gone.
            let _not_awaited = answer.as_mut().poll(context);
            Poll::Ready(drive(connection, context, is_notified, |_notice| {}).is_pending())
        })
        .await
    }

    /// Takes leave of the server.
    pub(super) async fn end(self) {
        let Self { client, mut connection, mut is_notified, .. } = self;
        drop(client);
        // Once: it sends the message, and does not wait for the server.
        let farewell =
            poll_fn(|context| Poll::Ready(drive(&mut connection, context, &mut is_notified, |_notice| {})));
        let _gone = farewell.await;
    }
}

/// The answer to a request that the client library has, whose first poll queues its message. Drives the
/// connection until it is there.
async fn answered<T>(
    connection: &mut Connection<Socket, TlsStream>,
    is_notified: &mut bool,
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
        let driven = drive(connection, context, is_notified, |notice| {
            if notice.parsed_severity() == Some(Severity::Warning) {
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
        (Some(Err(error)), _) if error.as_db_error().is_some() => Err(DriverError::of(&error)),
        (Some(Err(error)), _) => Err(DriverError::Unanswered(broken.unwrap_or_else(|| described(&error)))),
        (None, _) => Err(DriverError::Unanswered(broken.unwrap_or_default())),
    }
}

/// Moves messages in both directions. Ready with the cause once the connection has ended; it must not be
/// driven again then.
fn drive(
    connection: &mut Connection<Socket, TlsStream>,
    context: &mut Context<'_>,
    is_notified: &mut bool,
    mut on_notice: impl FnMut(DbError),
) -> Poll<String> {
    loop {
        match connection.poll_message(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Ok(AsyncMessage::Notice(notice)))) => on_notice(notice),
            Poll::Ready(Some(Ok(AsyncMessage::Notification(_)))) => *is_notified = true,
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
