//! The worker as a service of the orchestrator: started while leading, and stopped, to the last process,
//! before the record is released (I6).

use super::{
    guardian_silent::GuardianSilent,
    surroundings::{Course, Surroundings},
    tenure::Tenure,
};
use crate::{
    announce::say_to_people,
    notes::{Leading, ToGuardian},
    worker::environment::Leadership,
};
use async_trait::async_trait;
use ielections::{Standing, Ttl};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use vvm_host::StopRequested;
use vvm_orch::{BoxError, Service, ServiceContext, Work};
use vvm_storage::ElectionKey;

/// Starts the worker.
#[derive(Debug)]
pub(super) struct WorkerService {
    pub(super) surroundings: Arc<Surroundings>,
    pub(super) course: Arc<Course>,
}

#[async_trait]
impl Service<ElectionKey> for WorkerService {
    fn name(&self) -> &str {
        "worker"
    }

    async fn start(self: Box<Self>, cx: ServiceContext<ElectionKey>) -> Result<Work, BoxError> {
        let Self { surroundings, course } = *self;
        let leadership = surroundings.leadership(&cx.slot, &cx.standing);
        let tenure = Tenure::new(Arc::clone(&surroundings), Arc::clone(&course), leadership.clone(), &cx);
        // First of all, so that no signal is lost that comes while the worker starts.
        let controls = tenure.controls();
        surroundings.guardian_in_force(surroundings.run.ttl, &cx.stop).await?;
        surroundings.announce(course.leadership.get_or_init(|| leadership));
        let supervision = tenure.start(controls).await?;
        Ok(Box::pin(tenure.run(supervision)))
    }
}

impl Surroundings {
    /// Waits until the guardian's own timer stands at our deadline, or at a later one of ours. Without it, no
    /// process would end what the worker leaves behind if both of us were stopped.
    async fn guardian_in_force(&self, ttl: Ttl, stop: &CancellationToken) -> Result<(), BoxError> {
        let deadline = *self.deadline.borrow();
        let mut in_force = self.control.in_force.subscribe();
        tokio::select! {
            biased;
            // The sender lives as long as we do.
            _ = in_force.wait_for(|at| at.is_some() && *at >= deadline) => Ok(()),
            () = stop.cancelled() => Err(StopRequested.into()),
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
        let leading = Leading { slot: *slot, epoch: *epoch, incarnation: *incarnation };
        // Only for its last words; without, they are shorter.
        self.guardian.note(ToGuardian::Leading(leading).into());
    }
}
