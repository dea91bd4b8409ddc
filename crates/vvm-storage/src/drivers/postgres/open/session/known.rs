//! What is known of a connection's server, so that statements need not establish it again: its history, and
//! the settings of the connection.

use super::Session;
use crate::drivers::postgres::{
    errors::DriverError,
    rows::{self, History},
};
use std::time::Duration;

/// See [`Compared::Witness`](rows::Compared::Witness).
#[derive(Debug)]
pub(super) struct Known {
    /// `None`: no candidate has adopted the one that the server has.
    history: Option<History>,
    /// Waits for a lock end after it.
    lock_timeout: Duration,
}

impl Session {
    /// Whether this connection goes to a server that has this history, its commits wait for disk and
    /// synchronous standbys, and its waits for a lock end after `lock_timeout` at the latest. Asks the server
    /// if it is not known yet. Never behind a pooler, which may change the server between two transactions.
    ///
    /// # Cancel safety
    /// As [`ask`](Self::ask).
    pub(in super::super) async fn is_known(
        &mut self,
        history: &History,
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

    async fn learn(&mut self, lock_timeout: Duration) -> Result<Known, DriverError> {
        let text = format!("{}; {}", rows::settings("SESSION", lock_timeout), rows::history());
        let answer = self.ask(&text).await?;
        Ok(Known { history: History::shown(answer.row(rows::SETTINGS))?.adopted, lock_timeout })
    }
}
