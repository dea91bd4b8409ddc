//! The worker as a service of the orchestrator: started while leading, and stopped, to the last process, before the
//! record is released (I6).

use super::{
    cession::Reason,
    surroundings::{Course, Surroundings, Worked},
    tenure::Tenure,
};
use crate::{
    announce::say_to_people,
    history::{Keeper, PATIENCE, PATIENCE_SHARE},
    link::message::ToGuardian,
    requests::Gate,
    worker::environment::Leadership,
};
use async_trait::async_trait;
use ielections::{Standing, Timing, Ttl};
use std::{pin::pin, sync::Arc};
use tokio_util::sync::CancellationToken;
use vvm_orch::{BoxError, Service, ServiceContext, Work};
use vvm_storage::ElectionKey;

/// Starts the worker.
#[derive(Debug)]
pub(super) struct WorkerService {
    pub(super) surroundings: Arc<Surroundings>,
    pub(super) course: Arc<Course>,
    pub(super) gate: Arc<Gate>,
}

/// The guardian did not answer, so a worker would not be contained.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the guardian does not answer (stopped by Ctrl-Z?), so that the command would not be contained")]
pub(super) struct GuardianSilent;

/// The worker was not started, because it was to be stopped already.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("told to stop before the command was started")]
pub(super) struct ToldToStop;

#[async_trait]
impl Service<ElectionKey> for WorkerService {
    fn name(&self) -> &str {
        "worker"
    }

    async fn start(self: Box<Self>, cx: ServiceContext<ElectionKey>) -> Result<Work, BoxError> {
        let Self { surroundings, course, gate } = *self;
        let run = &surroundings.run;
        let leadership = surroundings.leadership(&cx.slot, &cx.standing);
        let tenure = Tenure::new(Arc::clone(&surroundings), Arc::clone(&course), leadership.clone(), &cx);
        // First of all, so that no signal is lost that comes while the worker starts.
        let orders = tenure.orders();
        surroundings.situation.starts(cx.slot.slot.get().get(), cx.standing.clone());
        surroundings.guardian_in_force(run.ttl, &cx.stop).await?;
        surroundings.may_work(&gate, &course, &cx.stop).await?;
        surroundings.announce(course.leadership.get_or_init(|| leadership));
        let supervision = tenure.start(orders).await?;
        let keeper = Keeper::under(&cx.standing, surroundings.holder.as_str());
        let work = tenure.run(supervision);
        Ok(Box::pin(remembered(surroundings, course, keeper, work)))
    }
}

/// Does the work, and notes its start and its end, neither of which anything waits for, but for a moment at the end.
async fn remembered(
    surroundings: Arc<Surroundings>,
    course: Arc<Course>,
    keeper: Keeper,
    work: impl Future<Output = Result<(), BoxError>>,
) -> Result<(), BoxError> {
    let mut work = pin!(work);
    let ended = tokio::select! {
        biased;
        ended = &mut work => ended,
        () = keeper.started() => work.await,
    };
    let how = match (course.cession.reason(), course.worked.get()) {
        _ if surroundings.control.guardian_died.is_cancelled() => "the guardian died".to_owned(),
        (Some(reason), _) => reason.to_string(),
        (None, Some(Worked { last, .. })) => last
            .ended
            .map_or_else(|| "the command was stopped".to_owned(), |ended| format!("the command {ended}")),
        (None, None) => "the command could not be started again".to_owned(),
    };
    let patience = PATIENCE.min(surroundings.run.ttl.get() / PATIENCE_SHARE);
    keeper.ended(&how, &surroundings.clock, patience).await;
    ended
}

impl Surroundings {
    /// Makes sure that the name is not paused, after the slot was acquired and before anything is started under it.
    async fn may_work(
        &self,
        gate: &Gate,
        course: &Course,
        stop: &CancellationToken,
    ) -> Result<(), ToldToStop> {
        // As long as an acquisition counts as fresh.
        let ttl = self.run.ttl;
        let (patience, pause) = (ttl.get() / 4, Timing::of(ttl).retry_pause());
        tokio::select! {
            biased;
            () = stop.cancelled() => Err(ToldToStop),
            answer = gate.may_work(patience, pause) => answer.map_err(|demand| {
                course.cession.ask(Reason::Demanded(demand));
                ToldToStop
            }),
        }
    }

    /// Waits until the guardian's own timer stands at our deadline, or at a later one of ours. Without, nobody would
    /// end what the worker leaves behind if both of us were stopped.
    async fn guardian_in_force(&self, ttl: Ttl, stop: &CancellationToken) -> Result<(), BoxError> {
        let deadline = *self.deadline.borrow();
        let mut in_force = self.control.in_force.subscribe();
        tokio::select! {
            biased;
            // The sender lives as long as we do.
            _ = in_force.wait_for(|at| at.is_some() && *at >= deadline) => Ok(()),
            () = stop.cancelled() => Err(ToldToStop.into()),
            // As long as an acquisition counts as fresh.
            () = self.clock.sleep(ttl.get() / 4) => Err(GuardianSilent.into()),
        }
    }

    fn leadership(&self, slot: &ElectionKey, standing: &Standing) -> Leadership {
        Leadership {
            name: self.run.name.clone(),
            slot: slot.slot.get().get(),
            epoch: standing.epoch(),
            holder: self.holder.clone(),
            incarnation: standing.incarnation(),
        }
    }

    fn announce(&self, leadership: &Leadership) {
        let Leadership { name, slot, epoch, holder, incarnation } = leadership;
        say_to_people!("{name} slot {slot}: leading, epoch {epoch}, as {holder}");
        let leading = ToGuardian::Leading { slot: *slot, epoch: *epoch, incarnation: *incarnation };
        // Only for its last words; without, they are shorter.
        let _ = self.guardian.say(&leading);
    }
}
