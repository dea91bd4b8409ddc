//! Heeding what operators ask: a standby that is named accepts, a leader that is asked to give up does.
//!
//! A standby sees requests with each scan of the slots, through the gate. A leader scans nothing, so it looks by itself, as
//! often as a standby would. Whoever is told by a neighbour looks at once.

use super::{Demand, Gate};
use crate::{announce::say_to_people, situation::Candidate};
use ielections::{Terms, Timing, WriteError};
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;
use vvm_clock::Clock;
use vvm_orch::{Leading, RunningVvm};
use vvm_storage::{Advanced, ElectionKey, Requests, SlotNumber, Stage, StepDown};

/// Whoever heeds.
pub(crate) struct Heeding<'campaign> {
    pub(crate) candidate: &'campaign Candidate,
    pub(crate) clock: &'campaign Arc<dyn Clock>,
    pub(crate) gate: &'campaign Gate,
    /// The campaign is ending: nothing is to be heeded any more.
    pub(crate) over: &'campaign CancellationToken,
}

impl Heeding<'_> {
    /// Heeds requests until the campaign is over, or until there is a reason to give its leadership up, which is for the
    /// caller to do: returns the slot and the reason. A write that is under way then is answered, or runs out of time.
    ///
    /// # Cancel safety
    /// Dropped, a request may or may not have been moved on.
    pub(crate) async fn run(self, vvm: &RunningVvm<ElectionKey>) -> Option<(SlotNumber, Demand)> {
        let leading = self.stand_by(vvm).await?;
        let demand = self.lead(&leading).await?;
        Some((leading.slot.slot, demand))
    }

    /// Until this process leads. `None` if it is to stop before that.
    async fn stand_by(&self, vvm: &RunningVvm<ElectionKey>) -> Option<Leading<ElectionKey>> {
        let mut seen = self.gate.lookout().seen();
        let mut said: Option<String> = None;
        loop {
            let requests = seen.borrow_and_update().clone();
            self.say_pause(&requests, &mut said);
            if let Some(request) = requests.step_down.filter(|request| self.is_named(request)) {
                // What came of it shows with the next scan.
                if let Some(Ok(Advanced::Done(_))) = self.advance(&request, Stage::Accepted).await {
                    self.gate.neighbours().tell();
                }
            }
            tokio::select! {
                biased;
                () = self.over.cancelled() => return None,
                leading = vvm.leading() => return leading.ok(),
                // The gate lives as long as we do.
                _ = seen.changed() => {}
                () = self.gate.neighbours().told() => vvm.look_now(),
            }
        }
    }

    /// Once when it begins and once when it is over.
    fn say_pause(&self, requests: &Requests, said: &mut Option<String>) {
        let (name, holder) = (self.candidate.name.as_str(), self.candidate.holder.as_str());
        let by = requests.pause.as_ref().map(|pause| pause.by().to_owned());
        match &by {
            Some(by) if said.as_ref() != Some(by) => {
                say_to_people!("{name}: paused by {by}; waiting until it is resumed");
                tracing::info!(target: "vvm", event = "paused", name, holder, by = by.as_str());
            }
            None if said.is_some() => {
                say_to_people!("{name}: resumed");
                tracing::info!(target: "vvm", event = "resumed", name, holder);
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
                () = self.gate.neighbours().told() => {}
                () = self.clock.sleep(pause) => {}
            }
            let looked = tokio::select! {
                biased;
                () = self.over.cancelled() => return None,
                looked = self.gate.lookout().look() => looked,
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
        self.gate.others_first(slot, epoch, request.first_chance());
        Some(Demand::SteppingDown { to: request.to })
    }

    /// Moves a request on. `None` when there was no answer for as long as an attempt of an election may take: then the write
    /// is dropped, as one that may have been applied or not (I7), and the next look tells.
    async fn advance(&self, request: &StepDown, stage: Stage) -> Option<Result<Advanced, WriteError>> {
        let lookout = self.gate.lookout();
        let limit: Duration = Timing::of(self.candidate.ttl).attempt_timeout();
        tokio::select! {
            biased;
            outcome = lookout.storage.advance_step_down(&lookout.cluster, request, stage) => Some(outcome),
            () = self.clock.sleep(limit) => None,
        }
    }
}
