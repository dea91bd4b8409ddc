//! [`Session`]: one connection, driven by the request that uses it. No task runs between requests.

use super::super::{
    errors::{DriverError, described},
    rows::Answer,
};
use std::{
    fmt,
    future::poll_fn,
    pin::pin,
    task::{Context, Poll},
};
use tokio_postgres::{
    AsyncMessage, Client, Connection, Socket,
    error::{DbError, Severity},
    tls::MakeTlsConnect,
};
use tokio_postgres_rustls::MakeRustlsConnect;

type TlsStream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

/// A connection to a server.
pub(super) struct Session {
    client: Client,
    connection: Connection<Socket, TlsStream>,
}

impl Session {
    pub(super) fn new(client: Client, connection: Connection<Socket, TlsStream>) -> Self {
        Self { client, connection }
    }

    /// Whether the server has kept the connection since the last request.
    pub(super) async fn is_open(&mut self) -> bool {
        poll_fn(|context| Poll::Ready(!drive(&mut self.connection, context, |_notice| {}).is_ready())).await
    }

    /// Sends `text` as one message and returns the answer.
    ///
    /// # Cancel safety
    /// Dropped, the transaction may be applied, now or later. The session has to be dropped with it.
    pub(super) async fn ask(&mut self, text: &str) -> Result<Answer, DriverError> {
        let Self { client, connection } = self;
        let (mut warning, mut broken) = (None, None);
        let mut answer = pin!(client.simple_query(text));
        let answer = poll_fn(|context| {
            // The first poll queues the message that the connection then sends.
            if let Poll::Ready(answer) = answer.as_mut().poll(context) {
                return Poll::Ready(Some(answer));
            }
            if broken.is_some() {
                return Poll::Ready(None);
            }
            let driven = drive(connection, context, |notice| {
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
            (Some(Ok(messages)), None) => Ok(Answer::of(messages)),
            (Some(Err(error)), _) if error.as_db_error().is_some() => Err(DriverError::of(&error)),
            (Some(Err(error)), _) => {
                Err(DriverError::Unanswered(broken.unwrap_or_else(|| described(&error))))
            }
            (None, _) => Err(DriverError::Unanswered(broken.unwrap_or_default())),
        }
    }

    /// Takes leave of the server.
    pub(super) async fn end(self) {
        let Self { client, mut connection } = self;
        drop(client);
        // Once: it sends the message, and does not wait for the server.
        let _gone = poll_fn(|context| Poll::Ready(drive(&mut connection, context, |_notice| {}))).await;
    }
}

/// Moves messages in both directions. Ready with the cause once the connection has ended; it must not be
/// driven again then.
fn drive(
    connection: &mut Connection<Socket, TlsStream>,
    context: &mut Context<'_>,
    mut on_notice: impl FnMut(DbError),
) -> Poll<String> {
    loop {
        match connection.poll_message(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Ok(AsyncMessage::Notice(notice)))) => on_notice(notice),
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
