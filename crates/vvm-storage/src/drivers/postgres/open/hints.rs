//! Notifications (LISTEN and NOTIFY), on a connection that requests use as well.
//!
//! No task waits for them. While no request uses the connection, the one that waits for a hint drives it; the
//! others find what arrived meanwhile.

use super::{Connections, connections::Lent};
use crate::drivers::postgres::errors::DriverError;
use std::{
    future::{pending, poll_fn},
    task::{Context, Poll},
    time::Duration,
};
use vvm_clock::Clock as _;

/// How long to wait before listening again after a failure. Looks go on meanwhile.
const LISTENING_AGAIN: Duration = Duration::from_secs(1);

impl Connections {
    /// Notifies a channel, in a transaction of its own: a notification that fails undoes nothing. Does not
    /// wait for the answer, which comes before that of the next request. Opens a connection if none is idle.
    pub(in super::super) async fn announce(&self, channel: &str) {
        let Some(_room) = self.room().await else { return };
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
    pub(in super::super) async fn notified(&self, channel: &str) {
        while !self.listens(channel) {
            match self.listen(channel).await {
                // What came before the server listened is not told: a look finds it.
                Ok(true) => return,
                Ok(false) => return pending().await,
                Err(DriverError::Closed) => return pending().await,
                Err(error) => {
                    tracing::debug!(%error, "can't listen");
                    self.clock().sleep(LISTENING_AGAIN).await;
                }
            }
        }
        poll_fn(|context| self.poll_notified(context)).await;
    }

    /// Whether a connection gets the notifications of this channel.
    pub(in super::super) fn listens(&self, channel: &str) -> bool {
        let idle = self.idle();
        idle.listener_is_out || idle.sessions.iter().any(|session| session.channel() == Some(channel))
    }

    /// Makes a connection get them; `false` behind a pooler.
    async fn listen(&self, channel: &str) -> Result<bool, DriverError> {
        let Some(_room) = self.room().await else { return Err(DriverError::Closed) };
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
