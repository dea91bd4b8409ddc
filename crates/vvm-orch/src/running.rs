//! [`RunningVvm`]: the handle to a launched VVM.

use crate::{Leading, NotLeading, Problem, state::State};
use ielections::{Elections, Key};
use std::{
    fmt,
    sync::{Arc, Weak},
};

/// A launched VVM. Clones share it.
///
/// Dropping the last clone shuts the VVM down as [`shutdown`](Self::shutdown) does, but does not wait for it.
#[must_use = "dropping the last handle shuts the VVM down"]
pub struct RunningVvm<K: Key> {
    handle: Arc<Handle<K>>,
}

struct Handle<K: Key> {
    state: Arc<State<K>>,
    /// Weak, so that they end with the VVM even if a handle is kept (I9).
    elections: Weak<Elections<K>>,
}

impl<K: Key> RunningVvm<K> {
    pub(crate) fn new(state: Arc<State<K>>, elections: Weak<Elections<K>>) -> Self {
        Self { handle: Arc::new(Handle { state, elections }) }
    }

    /// Waits until the VVM leads and all its services are ready.
    ///
    /// # Errors
    /// [`NotLeading`] if the VVM had a problem or was shut down, also after it has led.
    ///
    /// # Cancel safety
    /// It may be dropped and called again. Several callers may wait at once.
    pub async fn leading(&self) -> Result<Leading<K>, NotLeading> {
        self.state().leading().await
    }

    /// Waits for the first problem (I8). Returns `None` if the VVM shuts down without one.
    ///
    /// After a problem the VVM shuts itself down, and [`shutdown`](Self::shutdown) waits for the end.
    ///
    /// # Cancel safety
    /// It may be dropped and called again. Several callers may wait at once.
    pub async fn problem(&self) -> Option<Problem> {
        self.state().problem_or_done().await.cloned()
    }

    /// Returns the first problem so far.
    pub fn first_problem(&self) -> Option<Problem> {
        self.state().problem().cloned()
    }

    /// Makes a campaigning VVM look at its slots as soon as it may ([`Elections::look_now`]): a hint that the
    /// storage has changed. Does nothing in other states.
    pub fn look_now(&self) {
        if let Some(elections) = self.handle.elections.upgrade() {
            elections.look_now();
        }
    }

    /// Shuts the VVM down, and waits for the end. In order: withdraw the campaign, stop the services in the
    /// reverse order of their start, release the record, close the elections.
    ///
    /// [`VvmConfig::stop_timeout`](crate::VvmConfig) limits the services' part. If one does not stop in time,
    /// the others have until the kill deadline. The elections limit their own calls to the storage. Several
    /// calls, also at once, return the same result.
    ///
    /// # Errors
    /// The VVM's first problem, from its launch to the end of its shutdown.
    ///
    /// # Cancel safety
    /// Dropping the future stops the wait, but not the shutdown.
    pub async fn shutdown(&self) -> Result<(), Problem> {
        self.state().stop();
        self.state().stopped().await;
        self.first_problem().map_or(Ok(()), Err)
    }

    fn state(&self) -> &State<K> {
        &self.handle.state
    }
}

impl<K: Key> Drop for Handle<K> {
    fn drop(&mut self) {
        self.state.stop();
    }
}

impl<K: Key> Clone for RunningVvm<K> {
    fn clone(&self) -> Self {
        Self { handle: Arc::clone(&self.handle) }
    }
}

impl<K: Key> fmt::Debug for RunningVvm<K> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state().fmt(out)
    }
}
