//! [`RunningVvm`]: what a host holds of a VVM that was launched.

use crate::{Leading, NotLeading, Problem, state::State};
use ielections::{Elections, Key};
use std::{
    fmt,
    sync::{Arc, Weak},
};

/// A VVM that was launched. Cloning shares it.
///
/// Dropping the last clone shuts the VVM down, as [`shutdown`](Self::shutdown) does, without waiting: nobody
/// could stop it otherwise.
#[must_use = "dropping the last handle shuts the VVM down"]
pub struct RunningVvm<K: Key> {
    handle: Arc<Handle<K>>,
}

struct Handle<K: Key> {
    state: Arc<State<K>>,
    /// Weak: they end with the VVM, however long a handle is kept (I9).
    elections: Weak<Elections<K>>,
}

impl<K: Key> RunningVvm<K> {
    pub(crate) fn new(state: Arc<State<K>>, elections: Weak<Elections<K>>) -> Self {
        Self { handle: Arc::new(Handle { state, elections }) }
    }

    /// Resolves when a slot is led and all services are up.
    ///
    /// # Errors
    /// [`NotLeading`], when that won't happen any more: there was a problem, or the VVM was shut down. Also
    /// once it has led and is stopping.
    ///
    /// # Cancel safety
    /// May be dropped and asked again at will; any number may wait.
    pub async fn leading(&self) -> Result<Leading<K>, NotLeading> {
        self.state().leading().await
    }

    /// Resolves on the first problem (I8), or with `None` once the VVM has shut down without one. By then the
    /// VVM is shutting itself down already; [`shutdown`](Self::shutdown) waits for the end of that.
    ///
    /// # Cancel safety
    /// May be dropped and asked again at will; any number may wait.
    pub async fn problem(&self) -> Option<Problem> {
        self.state().problem_or_done().await.cloned()
    }

    /// The first problem so far. Never waits.
    pub fn first_problem(&self) -> Option<Problem> {
        self.state().problem().cloned()
    }

    /// A hint that something may have changed in the storage: a VVM that campaigns looks at its slots again
    /// as soon as it may ([`Elections::look_now`]), any other one does nothing. Never blocks.
    pub fn look_now(&self) {
        if let Some(elections) = self.handle.elections.upgrade() {
            elections.look_now();
        }
    }

    /// Shuts the VVM down, whatever it is doing, and returns when all has stopped: the campaign withdrawn,
    /// the services joined in the reverse order of their start, the record handed back, the elections closed.
    /// May be called any number of times, also at once; all calls return the same.
    ///
    /// How long that takes is bounded: by [`VvmConfig::stop_timeout`](crate::VvmConfig) for the services
    /// (after one that won't stop, by the kill deadline for the others), and by the attempts of the elections
    /// for the storage.
    ///
    /// # Errors
    /// The first problem that the VVM had, from its launch to the end of its shutdown.
    ///
    /// # Cancel safety
    /// Dropping the future stops the waiting, not the shutting down.
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
