//! [`HookError`]: why a hook failed.

use std::{io, process::ExitStatus, time::Duration};
use vvm_clock::Span;

/// A hook that failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum HookError {
    #[error("could not be started: {0}")]
    System(io::ErrorKind),
    #[error("ended with {0}")]
    Failed(ExitStatus),
    #[error("took longer than --hook-timeout {} and was killed", Span(*.0))]
    TooLong(Duration),
    #[error("was killed because the leadership ended")]
    Overtaken,
}
