//! [`RequestHandler`]: answers what operators ask of a candidate and of a leader.
//!
//! A candidate sees requests with each scan of the slots. A leader scans nothing, so it reads them as often
//! as a standby would. A wake-up makes either look at once.

use super::Demand;
use crate::{host_storage::HostStorage, status::Candidate};
use ielections::{Terms, Timing, WriteError};
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;
use vvm_clock::Clock;
use vvm_orch::{Leading, RunningVvm};
use vvm_storage::{Advanced, ElectionKey, Requests, Stage, StepDown};

/// Handles the requests of one campaign.
pub(crate) struct RequestHandler<'campaign> {
    pub(crate) candidate: &'campaign Candidate,
    pub(crate) clock: &'campaign Arc<dyn Clock>,
    pub(crate) storage: &'campaign HostStorage,
    /// Cancelled when the campaign ends: requests are ignored from then on.
    pub(crate) over: &'campaign CancellationToken,
}

impl RequestHandler<'_> {
    /// Handles requests until the campaign is over, or until the leader has to give its leadership up: then
    /// returns the reason, and the caller stops the work. A write that is in flight then is answered, or runs
    /// out of time.
    ///
    /// # Cancel safety
    /// Dropped, a request may or may not have been moved on.
    pub(crate) async fn run(self, vvm: &RunningVvm<ElectionKey>) -> Option<Demand> {
        let leading = self.stand_by(vvm).await?;
        self.lead(&leading).await
    }

    /// Until this process leads. `None` if it is to stop before that.
    async fn stand_by(&self, vvm: &RunningVvm<ElectionKey>) -> Option<Leading<ElectionKey>> {
        let mut seen = self.storage.requests();
        let mut said: Option<String> = None;
        loop {
            let requests = seen.borrow_and_update().clone();
            self.say_pause(&requests, &mut said);
            if let Some(request) = requests.step_down.filter(|request| self.is_named(request)) {
                // What came of it shows with the next scan.
                if let Some(Ok(Advanced::Done(_))) = self.advance(&request, Stage::Accepted).await {
                    self.storage.wakeups().tell();
                }
            }
            tokio::select! {
                biased;
                () = self.over.cancelled() => return None,
                leading = vvm.leading() => return leading.ok(),
                // The storage lives as long as this borrow.
                _ = seen.changed() => {}
                () = self.storage.wakeups().told() => vvm.look_now(),
            }
        }
    }

    /// Once when it begins and once when it is over.
    fn say_pause(&self, requests: &Requests, said: &mut Option<String>) {
        let (name, holder) = (self.candidate.name.as_str(), self.candidate.holder.as_str());
        let by = requests.pause.as_ref().map(|pause| pause.by().to_owned());
        match &by {
            Some(by) if said.as_ref() != Some(by) => {
                tracing::info!(
                    target: "vvm", event = "paused", name, holder, by = by.as_str(),
                    "{name}: paused by {by}; waiting until it is resumed"
                );
            }
            None if said.is_some() => {
                tracing::info!(target: "vvm", event = "resumed", name, holder, "{name}: resumed");
            }
            Some(_) | None => {}
        }
        *said = by;
    }

    fn is_named(&self, request: &StepDown) -> bool {
        request.stage == Stage::Asked
            && request.slot.get() <= self.candidate.slots
            && request.to.as_ref() == Some(&self.candidate.holder)
    }

    /// Until there is a reason to give the leadership up.
    async fn lead(&self, leading: &Leading<ElectionKey>) -> Option<Demand> {
        let pause = Terms::usual_poll(self.candidate.ttl);
        loop {
            tokio::select! {
                biased;
                () = self.over.cancelled() => return None,
                () = self.storage.wakeups().told() => {}
                () = self.clock.sleep(pause) => {}
            }
            let looked = tokio::select! {
                biased;
                () = self.over.cancelled() => return None,
                looked = self.storage.look_at_requests() => looked,
            };
            // A storage in trouble shows in the renewals.
            let Ok(requests) = looked else { continue };
            if let Some(demand) = self.demand(leading, requests).await {
                return Some(demand);
            }
        }
    }

    /// Why this leadership is to be given up, if it is.
    async fn demand(&self, leading: &Leading<ElectionKey>, requests: Requests) -> Option<Demand> {
        if let Some(pause) = requests.pause {
            return Some(Demand::Paused { by: pause.by().to_owned() });
        }
        let (slot, epoch) = (leading.slot.slot, leading.standing.epoch());
        let request = requests.step_down.filter(|request| request.is_about(slot, Some(epoch)))?;
        match request.stage {
            Stage::Asked if request.to.is_some() => return None,
            // The other side may withdraw it up to here, and then learns for sure that nothing happens.
            Stage::Asked | Stage::Accepted => match self.advance(&request, Stage::Begun).await {
                Some(Ok(Advanced::Done(_))) => {}
                // The next look shows what stands.
                Some(Ok(Advanced::Overtaken(_)) | Err(_)) | None => return None,
            },
            // By us, whose leadership it names, although the answer was lost.
            Stage::Begun => {}
            Stage::Withdrawn => return None,
        }
        self.storage.let_others_first(&leading.slot, epoch, request.first_chance());
        Some(Demand::SteppingDown { to: request.to })
    }

    /// Moves a request on. `None` when there was no answer for as long as an attempt of an election may take:
    /// then the write is dropped, as one that may have been applied or not (I7), and the next look tells.
    async fn advance(&self, request: &StepDown, stage: Stage) -> Option<Result<Advanced, WriteError>> {
        let limit: Duration = Timing::of(self.candidate.ttl).attempt_timeout();
        tokio::select! {
            biased;
            outcome = self.storage.advance_step_down(request, stage) => Some(outcome),
            () = self.clock.sleep(limit) => None,
        }
    }
}
