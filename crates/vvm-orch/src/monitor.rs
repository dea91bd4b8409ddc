//! [`Monitor`]: reports the loss of the leadership as the VVM's problem.

use crate::{
    Problem,
    state::State,
    task::{EndedEarly, Joined},
};
use ielections::{Key, Spawn, Standing};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The monitor's task.
#[derive(Debug)]
pub(crate) struct Monitor {
    stop: CancellationToken,
    ended: Joined<()>,
}

impl Monitor {
    pub(crate) const NAME: &str = "vvm leadership monitor";

    pub(crate) fn start<K: Key>(standing: Standing, state: Arc<State<K>>, spawn: &dyn Spawn) -> Self {
        let stop = CancellationToken::new();
        let stopping = stop.clone();
        let ended = Joined::spawn(spawn, Self::NAME, async move {
            let loss = tokio::select! {
                biased;
                loss = standing.lost() => loss,
                () = stopping.cancelled() => return,
            };
            state.report(Problem::Lost(loss));
        });
        Self { stop, ended }
    }

    /// Stops the task, and waits for its end. Call it before the release, which the standing counts as a
    /// loss.
    pub(crate) async fn stop(mut self) -> Result<(), EndedEarly> {
        self.stop.cancel();
        self.ended.join().await
    }
}
