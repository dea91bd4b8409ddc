//! The worker as a service of the orchestrator: started while leading, and stopped, to the last process, before the
//! record is released (I6).

use super::surroundings::{Course, Surroundings};
use crate::{
    announce::say,
    link::message::ToGuardian,
    situation::WhyStopping,
    worker::{
        environment::Leadership,
        spawn::{self, Order},
        supervise::{Orders, Patience, Supervision},
    },
};
use async_trait::async_trait;
use ielections::{Standing, Ttl};
use std::{pin::pin, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;
use vvm_orch::{BoxError, Service, ServiceContext, Work};
use vvm_storage::ElectionKey;

/// Starts the worker.
#[derive(Debug)]
pub(super) struct WorkerService {
    pub(super) surroundings: Arc<Surroundings>,
    pub(super) course: Arc<Course>,
}

/// The guardian did not answer, so a worker would not be contained.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the guardian does not answer (stopped by Ctrl-Z?), so that the command would not be contained")]
pub(super) struct GuardianSilent;

/// The worker was not started, because it was to be stopped already.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("told to stop before the command was started")]
struct ToldToStop;

/// How long before the kill deadline waiting ends, and killing begins: a tree of fifty processes takes 10 ms to kill and
/// reap on an idle machine; the rest is for a busy one, and for handing back.
const KILLING: Duration = Duration::from_millis(200);

/// Of a short TTL, this part: a third of what services have to stop in after a loss (0.15).
const KILLING_SHARE: u32 = 20;

/// How long one signal to many processes may take to reach us by way of the guardian, on a busy machine. Only a worker
/// that somebody else has killed by TERM or INT is kept waiting for it.
const ON_ITS_WAY: Duration = Duration::from_millis(500);

#[async_trait]
impl Service<ElectionKey> for WorkerService {
    fn name(&self) -> &str {
        "worker"
    }

    async fn start(self: Box<Self>, cx: ServiceContext<ElectionKey>) -> Result<Work, BoxError> {
        let Self { surroundings, course } = *self;
        let run = &surroundings.run;
        // First of all, so that no signal is lost that comes while the worker starts.
        let orders = surroundings.orders(cx.stop.clone());
        let situation = Arc::clone(&surroundings.situation);
        situation.starts(cx.slot.slot.get().get(), cx.standing.clone());
        surroundings.guardian_in_force(run.ttl, &cx.stop).await?;
        let leadership = course.leadership.get_or_init(|| surroundings.leadership(&cx.slot, &cx.standing));
        surroundings.announce(leadership);

        let credentials = vvm_storage::url::credentials(&run.storage);
        let order = Order {
            command: &run.command,
            leadership,
            withheld: if run.keep_credentials { &[] } else { credentials },
            input: &surroundings.input,
            group: surroundings.terminal_group,
            containment: &surroundings.containment,
        };
        let mut starting = spawn::start(&order)?;
        let patience =
            Patience { stop_timeout: run.stop_timeout, killing: KILLING.min(run.ttl.get() / KILLING_SHARE) };
        let executed = tokio::select! {
            biased;
            executed = starting.executed() => executed,
            // Stopping is the same, whether or not it has become the command by now.
            () = cx.stop.cancelled() => Ok(()),
        };
        let clock = Arc::clone(&surroundings.clock);
        let containment = surroundings.containment.clone();
        let supervision = Supervision::new(starting.hold, containment, clock, patience, orders);
        if let Err(refusal) = executed {
            supervision.kill_at_once().run().await;
            return Err(refusal.into());
        }
        situation.works();
        Ok(Box::pin(async move {
            let mut supervising = pin!(supervision.run());
            let mut supervised = tokio::select! {
                biased;
                supervised = &mut supervising => supervised,
                () = cx.stop.cancelled() => {
                    situation.stops_by(&cx.standing, WhyStopping::Asked);
                    supervising.await
                }
            };
            situation.stops_by(&cx.standing, WhyStopping::WorkEnded);
            if let Some(signal) = supervised.stopped_unasked()
                && surroundings.is_asked_to_stop_soon().await
            {
                supervised.told.push(signal);
            }
            // Set once: a course has one worker.
            let _ = course.supervised.set(supervised);
            Ok(())
        }))
    }
}

impl Surroundings {
    fn orders(&self, stop: CancellationToken) -> Orders {
        Orders {
            signals: self.control.signals.subscribe(),
            stop,
            kill: self.control.kill.clone(),
            deadline: self.deadline.clone(),
            children: Arc::clone(&self.control.children),
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

    /// Whether a request to stop has come, or comes so soon that it is the one that the worker has died of.
    async fn is_asked_to_stop_soon(&self) -> bool {
        tokio::select! {
            biased;
            () = self.control.stop.cancelled() => true,
            () = self.clock.sleep(ON_ITS_WAY) => false,
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
        say!("{name} slot {slot}: leading, epoch {epoch}, as {holder}");
        let leading = ToGuardian::Leading { slot: *slot, epoch: *epoch, incarnation: *incarnation };
        // Only for its last words; without, they are shorter.
        let _ = self.guardian.say(&leading);
    }
}
