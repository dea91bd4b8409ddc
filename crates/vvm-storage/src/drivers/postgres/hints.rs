//! Requests that PostgreSQL alone has: statements that are prepared, and notifications.
//!
//! Notifications (LISTEN and NOTIFY) arrive on a connection that requests use as well. No task waits for
//! them. While no request uses the connection, the one that waits for a hint drives it; the others find what
//! arrived meanwhile.

use super::{address::Postgres, session::Session, statement::Statement};
use crate::drivers::sql::{
    answer::Answer,
    connections::{Connections, Session as _},
    errors::DriverError,
    history::History,
};
use std::{
    future::{pending, poll_fn},
    task::{Context, Poll},
    time::Duration,
};
use vvm_clock::Clock as _;

/// How long to wait before listening again after a failure. Looks go on meanwhile.
const LISTENING_AGAIN: Duration = Duration::from_secs(1);

impl Connections<Postgres, Session> {
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
        let (_room, mut lent) = self.lend().await?;
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

    /// Notifies a channel, in a transaction of its own: a notification that fails undoes nothing. Does not
    /// wait for the answer, which comes before that of the next request. Opens a connection if none is idle.
    pub(super) async fn announce(&self, channel: &str) {
        if let Ok((_room, mut lent)) = self.lend().await
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
        idle.listener_is_out || idle.sessions.iter().any(|(_, session)| session.channel() == Some(channel))
    }

    /// Makes a connection get them; `false` behind a pooler.
    async fn listen(&self, channel: &str) -> Result<bool, DriverError> {
        let (_room, mut lent) = self.lend().await?;
        let is_direct = lent.session.is_direct();
        if is_direct {
            lent.session.listen(channel).await?;
        }
        lent.give_back();
        Ok(is_direct)
    }

    fn poll_notified(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut idle = self.idle();
        let Some(at) = idle.listener() else {
            if !idle.listener_is_out {
                return Poll::Ready(());
            }
            idle.waker = Some(context.waker().clone());
            return Poll::Pending;
        };
        let notified = idle.sessions.get_mut(at).map(|(_, session)| session.poll_notified(context));
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
