//! [`RunContext`]: what a run gets, and how it says that it was interrupted.

use crate::StateCell;
use ielections::Standing;
use tokio_util::sync::CancellationToken;

/// What a run gets.
#[derive(Debug)]
#[non_exhaustive]
pub struct RunContext<Doc> {
    /// The instance's state, and the only way to write it.
    pub state: StateCell<Doc>,
    /// Cancelled when the term ends. The leadership is handed back only after all runs have ended, so until
    /// then the document may still be written: a last state that spares the next leader some work.
    ///
    /// [`run_until_cancelled`](CancellationToken::run_until_cancelled) is for waits, with [`Interrupted`] for
    /// what to return: `cx.stop.run_until_cancelled(work).await.ok_or(Interrupted)?`
    pub stop: CancellationToken,
    /// The leadership: its epoch, to fence what is written elsewhere, and [`ensure`](Standing::ensure) for a
    /// step that must not outlive it.
    pub standing: Standing,
}

impl<Doc> RunContext<Doc> {
    pub(crate) fn new(state: StateCell<Doc>, stop: CancellationToken, standing: Standing) -> Self {
        Self { state, stop, standing }
    }
}

/// A run ends early because its term does. Not returning an error then would say that the task is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("interrupted: the term ends")]
pub struct Interrupted;
