//! Why a deadline could not be armed.

use std::io;

/// A deadline could not be armed; the caller must not act as leader.
#[derive(Debug, thiserror::Error)]
pub enum ArmError {
    /// The work to be guarded has no time left. Acquire again.
    #[error("the kill deadline passed before it could be armed")]
    Passed,
    /// Process 1 of a PID namespace ignores its own SIGKILL timer (measured), so the kernel's layer is void
    /// there.
    #[error(
        "process 1 of a PID namespace ignores its own kill timer: start it under an init, or accept threads alone"
    )]
    UnkillableInit,
    /// The system refused the timer or the thread.
    #[error("the kill deadline could not be set: {0}")]
    Kernel(#[source] io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_the_system_says_what_it_lacks() {
        let refusal = ArmError::Kernel(io::Error::other("too many open files"));
        assert_eq!(refusal.to_string(), "the kill deadline could not be set: too many open files");
    }
}
