//! The seam towards what acts at the earliest deadline.

use crate::Subject;
use std::{fmt::Debug, io};
use vvm_clock::Instant;

/// Acts when the earliest deadline comes: the system's pair ends the process; a recorder in a test notes it.
///
/// A host that must tell somebody else of the deadline (a guardian process) wraps the system's trigger in its
/// own.
pub trait Trigger: Debug + Send + Sync + 'static {
    /// The earliest deadline changed. Replaces the one before; `None` means that nothing is armed.
    ///
    /// Called under the set's lock, at most once per batch and only on a change, so that choosing the
    /// earliest and setting the timer are one step (I4). Must not call back into the
    /// [`Deadman`](crate::Deadman).
    ///
    /// # Errors
    /// When the deadline could not be set. Whatever was set before must then still be in force.
    fn set_earliest(&self, earliest: Option<(Instant, &Subject)>) -> io::Result<()>;

    /// The present, on the clock that the deadlines are meant on.
    fn now(&self) -> Instant;
}
