//! [`RunContext`]: the arguments of a run.

use crate::StateCell;
use ielections::Standing;
use tokio_util::sync::CancellationToken;

/// The arguments of [`Task::run`](crate::Task::run).
#[derive(Debug)]
#[non_exhaustive]
pub struct RunContext<Doc> {
    /// The instance's state, and the only way to write it.
    pub state: StateCell<Doc>,
    /// Cancelled when the term ends.
    ///
    /// The leadership is released only after all runs have ended. Until then a run may still write its
    /// document, so that the next leader repeats less work. To stop waiting:
    /// `cx.stop.run_until_cancelled(work).await.ok_or(Interrupted)?`
    pub stop: CancellationToken,
    /// The leadership. Its epoch fences writes to other systems, and [`ensure`](Standing::ensure) checks that
    /// a step fits into the time left.
    pub standing: Standing,
}

impl<Doc> RunContext<Doc> {
    pub(crate) fn new(state: StateCell<Doc>, stop: CancellationToken, standing: Standing) -> Self {
        Self { state, stop, standing }
    }
}

/// The error of a run that ends early because its term ends. `Ok` would mean that the task is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("interrupted: the term ends")]
pub struct Interrupted;
