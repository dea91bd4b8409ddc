//! [`Trigger`]: acts at the earliest deadline.

use std::{
    fmt::{self, Debug},
    io,
    sync::Arc,
};
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

/// The leadership behind a deadline. Clones share the names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The election's key, for operators.
    pub key: Arc<str>,
    /// The holder, for operators.
    pub holder: Arc<str>,
    /// The epoch of the leadership, its fencing token.
    pub epoch: u64,
}

impl fmt::Display for Subject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "leadership {} of {}, epoch {}", self.key, self.holder, self.epoch)
    }
}

/// The deadline could not be armed. The caller must not act as leader.
#[derive(Debug, thiserror::Error)]
pub enum ArmError {
    /// The deadline has passed. Acquire again.
    #[error("the kill deadline passed before it could be armed")]
    Passed,
    /// The system refused a timer or a thread.
    #[error("the kill deadline could not be set: {0}")]
    Kernel(#[source] io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_names_the_cause_of_the_system() {
        let error = ArmError::Kernel(io::Error::other("too many open files"));
        assert_eq!(error.to_string(), "the kill deadline could not be set: too many open files");
    }
}
