//! [`Turns`]: the services run under one leadership at a time, and under each at most once.

use crate::Deposed;
use ielections::{Incarnation, Standing};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A term did not begin, or ended by itself. None of its instances runs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LeadError {
    /// Another process leads, or may. Shut down, and campaign again.
    #[error(transparent)]
    Deposed(#[from] Deposed),
    /// The storage of this election has no fenced documents.
    #[error("the storage of this election has no fenced documents: choose another driver")]
    NoDocuments,
    /// The services run under another leadership. A process that leads several slots at once needs a registry
    /// for each.
    #[error("the services run under another leadership already")]
    Leading,
    /// The services ran under this leadership before.
    #[error("the services ran under this leadership before")]
    SameTerm,
}

#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    leading: bool,
    last: Option<Incarnation>,
}

/// The right to run the services, until it is dropped.
pub(crate) struct Turn<'turns>(&'turns Turns);

impl Turns {
    pub(crate) fn take(&self, standing: &Standing) -> Result<Turn<'_>, LeadError> {
        let mut state = self.state();
        if state.leading {
            return Err(LeadError::Leading);
        }
        let incarnation = standing.incarnation();
        if state.last == Some(incarnation) {
            return Err(LeadError::SameTerm);
        }
        *state = State { leading: true, last: Some(incarnation) };
        Ok(Turn(self))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.state().leading = false;
    }
}
