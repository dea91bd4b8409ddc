//! [`Trigger`]: acts at the earliest deadline.

use crate::Subject;
use std::{fmt::Debug, io};
use vvm_clock::Instant;

/// Acts at the earliest deadline. [`SystemTrigger`](crate::SystemTrigger) ends the process, and a recorder in
/// tests records it. A host that informs a guardian process wraps the system's trigger.
pub trait Trigger: Debug + Send + Sync + 'static {
    /// Replaces the earliest deadline; `None` means that no deadline is armed.
    ///
    /// The set calls it under its lock, on a change, and at most once for a batch (I4). It must not call the
    /// [`Deadman`](crate::Deadman).
    ///
    /// # Errors
    /// Fails if the deadline could not be set. The previous one must then be in force.
    fn set_earliest(&self, earliest: Option<(Instant, &Subject)>) -> io::Result<()>;

    /// Returns the current time on the clock of the deadlines.
    fn now(&self) -> Instant;
}
