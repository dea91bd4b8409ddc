//! [`Outcome`]: how an instance ended in this term.

use crate::Failure;
use std::{fmt, sync::Arc};

/// How an instance ended in this term.
///
/// An instance whose document exists runs again in the next term, whatever its outcome was.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The run returned `Ok`: the task is done.
    Completed,
    /// The run returned an error.
    Failed(Failure),
    /// The run panicked with this message.
    Panicked(Arc<str>),
    /// The term or the runtime ended before the run did, or before it began.
    Interrupted,
}

impl Outcome {
    /// Returns whether the task is done.
    pub fn is_completed(&self) -> bool {
        matches!(self, Self::Completed)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Completed => out.write_str("completed"),
            Self::Failed(failure) => write!(out, "failed: {failure}"),
            Self::Panicked(message) => write!(out, "panicked: {message}"),
            Self::Interrupted => out.write_str("interrupted"),
        }
    }
}
