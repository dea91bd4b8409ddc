//! The service and its task: a state machine with the state [`Progress`].

use crate::{plan::Plan, progress::Progress, step::step};
use async_trait::async_trait;
use primary_only::{BoxError, Interrupted, RunContext, Service, Task};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use vvm_clock::Clock;

/// The service: copies of folders, each with a name.
#[derive(Debug)]
pub struct Copies {
    /// The number of bytes that a step copies.
    pub piece: usize,
    /// The pause after each step, which limits the load.
    pub pause: Duration,
    /// Times the pauses.
    pub clock: Arc<dyn Clock>,
}

/// One copy.
#[derive(Debug)]
pub struct Copy {
    piece: usize,
    pause: Duration,
    clock: Arc<dyn Clock>,
    shown: Mutex<Progress>,
}

/// The folder has changed since the copy began.
#[derive(Debug, thiserror::Error)]
#[error("{} has changed since the copy began: put it back, or begin another copy", .0.display())]
pub struct PlanChanged(std::path::PathBuf);

#[async_trait]
impl Service for Copies {
    type Id = String;
    type Doc = Progress;
    type Task = Copy;

    const NAME: &'static str = "copies";

    fn build(&self, _name: &String, progress: &Progress) -> Result<Copy, BoxError> {
        let (piece, pause, clock) = (self.piece, self.pause, Arc::clone(&self.clock));
        Ok(Copy { piece, pause, clock, shown: Mutex::new(progress.clone()) })
    }
}

impl Copy {
    /// Returns the progress.
    pub fn progress(&self) -> Progress {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn show(&self, progress: Progress) {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = progress;
    }
}

#[async_trait]
impl Task for Copy {
    type Doc = Progress;

    /// Keeps the document when the copy is done, so that the next leader finds nothing left to do.
    async fn run(&self, mut cx: RunContext<Progress>) -> Result<(), BoxError> {
        cx.state.insert().await?;
        let from = cx.state.doc().from.clone();
        // `block_in_place` starts no task, so nothing outlives the run.
        let plan = tokio::task::block_in_place(|| Plan::of(&from))?;
        if plan.digest() != cx.state.doc().plan {
            return Err(PlanChanged(from).into());
        }
        while !cx.state.doc().is_done(&plan) {
            if cx.stop.is_cancelled() {
                return Err(Interrupted.into());
            }
            let next = tokio::task::block_in_place(|| step(&plan, cx.state.doc(), self.piece))?;
            cx.state.update(next.clone()).await?;
            self.show(next);
            cx.stop.run_until_cancelled(self.clock.sleep(self.pause)).await.ok_or(Interrupted)?;
        }
        Ok(())
    }

    fn same_request(&self, asked: &Progress) -> bool {
        let progress = self.progress();
        progress.from == asked.from && progress.to == asked.to
    }

    fn report(&self) -> serde_json::Value {
        let progress = self.progress();
        serde_json::json!({ "files": progress.files, "bytes": progress.bytes, "steps": progress.steps })
    }
}
