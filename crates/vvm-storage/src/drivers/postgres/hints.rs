//! Notifications. Those of all channels arrive on one connection, which requests use as well. No task waits for them:
//! while no request uses the connection, the calls that wait for a hint drive it.

use super::{config::Postgres, connection::Session};
use crate::drivers::sql::{connection::ConnectionPool, errors::DriverError};
use std::{
    future::{pending, poll_fn},
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};
use vvm_clock::Clock as _;

/// How long to wait before listening again after a failure. Looks go on meanwhile.
const LISTENING_AGAIN: Duration = Duration::from_secs(1);

impl ConnectionPool<Postgres, Session> {
    /// Notifies a channel, in a transaction of its own: a notification that fails undoes nothing. Does not
    /// wait for the answer, which comes before that of the next request. Opens a connection if none is idle.
    pub(super) async fn announce(&self, channel: &str) {
        if let Ok((_permit, mut lent)) = self.lend().await
            && lent.session.send(&format!("NOTIFY {channel}")).await
        {
            lent.give_back();
        }
    }

    /// Waits for a notification of a channel, or until the connection for them has ended. Never returns behind a
    /// pooler, which gives no connection of one's own. May be dropped and called again at will.
    pub(super) async fn notified(&self, channel: &str) {
        while !self.listens(channel) {
            if self.is_crowded() {
                self.clock().sleep(LISTENING_AGAIN).await;
                continue;
            }
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
        poll_fn(|context| self.poll_notified(channel, context)).await;
    }

    pub(super) fn listens(&self, channel: &str) -> bool {
        self.idle().channels.contains(channel)
    }

    async fn listen(&self, channel: &str) -> Result<bool, DriverError> {
        let (_permit, mut lent) = self.lend_to_listen(channel).await?;
        let is_direct = lent.session.is_direct();
        if is_direct {
            self.in_time(lent.session.listen(channel)).await?;
            lent.listens_to(channel);
        }
        lent.give_back();
        Ok(is_direct)
    }

    fn poll_notified(&self, channel: &str, context: &mut Context<'_>) -> Poll<()> {
        let mut idle = self.idle();
        if !idle.channels.contains(channel) {
            return Poll::Ready(());
        }
        idle.waiters.add(channel, context.waker());
        // A request uses it, and wakes all when it is done.
        let Some(at) = idle.listener() else { return Poll::Pending };
        let all = Waker::from(Arc::clone(&idle.waiters));
        let listener = idle.sessions.get_mut(at).map(|(_, session)| session);
        let notified = listener.map(|session| session.poll_notified(channel, &mut Context::from_waker(&all)));
        if let Some(Poll::Ready(Err(_))) = notified {
            idle.sessions.remove(at);
            idle.channels.clear();
            idle.waiters.wake_all();
        }
        notified.map_or(Poll::Pending, |notified| notified.map(drop))
    }
}
