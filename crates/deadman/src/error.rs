//! [`ArmError`]: why a deadline could not be armed.

use std::io;

/// The deadline could not be armed. The caller must not act as leader.
#[derive(Debug, thiserror::Error)]
pub enum ArmError {
    /// The deadline has passed. Acquire again.
    #[error("the kill deadline passed before it could be armed")]
    Passed,
    /// Process 1 of a PID namespace ignores its own SIGKILL timer (measured), so a kernel timer is useless.
    #[error(
        "process 1 of a PID namespace ignores its own kill timer: \
         start it under an init, or accept threads alone"
    )]
    UnkillableInit,
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
