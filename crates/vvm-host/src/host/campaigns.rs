//! The campaign loop: campaign, lead, stop, and campaign again. The first service of each leadership records
//! it, checks for a pause, and writes the history.

use super::{
    ended::{HostOutcome, Next},
    services::{NotReady, Services, StopRequested},
    settings::HostSettings,
};
use crate::{
    history::{HistoryWriter, end_timeout},
    host_storage::HostStorage,
    requests::{Condition, RequestHandler, StopDemand, may_work},
    status::{HostStatus, Role, WhyStopping},
    successor::UdpPeerLink,
};
use async_trait::async_trait;
use ielections::{
    AcquireError, Elections, Env, Incarnation, Terms, Timing, WriteError, env::caught,
    successor::SuccessorTerms,
};
use std::{fmt, future::ready, sync::Arc};
use tokio::sync::SetOnce;
use tokio_util::sync::CancellationToken;
use vvm_clock::Instant;
use vvm_orch::{
    AcquireTimeout, BoxError, Problem, RunningVvm, Service, ServiceContext, Vvm, VvmConfig, Work,
};
use vvm_storage::{Ask, ClusterName, ElectionKey, LateEnd, SlotNumber};

pub(super) struct Campaigns {
    pub(super) settings: HostSettings,
    pub(super) env: Env,
    pub(super) status: Arc<HostStatus>,
    pub(super) stop: CancellationToken,
    pub(super) condition: Condition,
    pub(super) successor: Option<Arc<UdpPeerLink>>,
}

impl HostSettings {
    pub(super) fn cluster(&self) -> ClusterName {
        ClusterName::from(self.name.as_str())
    }
}

impl Campaigns {
    /// Campaigns until a stop, or until `after` returns [`Next::Stop`]. The first campaign gives up at `give_up_at`,
    /// unless it has to wait for the condition. Dropping it shuts down without waiting.
    pub(super) async fn run(
        &self,
        storage: &Arc<HostStorage>,
        mut services: impl FnMut() -> Services + Send,
        mut after: impl FnMut(&HostOutcome) -> Next + Send,
        give_up_at: Instant,
    ) -> HostOutcome {
        let mut first = match self.settings.acquisition {
            AcquireTimeout::Within(_) => Some(AcquireTimeout::Within(self.env.clock.now().until(give_up_at))),
            AcquireTimeout::Forever | AcquireTimeout::UntilLeaderSeen => None,
        };
        loop {
            if !self.condition.holds() {
                first = None;
                self.status.is_unready();
                tokio::select! {
                    biased;
                    () = self.stop.cancelled() => break,
                    () = self.condition.becomes(true) => {}
                }
            }
            let next = match self.campaign(storage, services(), first.take()).await {
                None if !self.stop.is_cancelled() => continue,
                None => break,
                Some(ended) => match after(&ended) {
                    // Another campaign could lead beside that work (I6).
                    _ if ended.leaves_work() => return ended,
                    Next::CampaignAfter(pause) if pause.is_zero() => Box::pin(ready(())),
                    Next::CampaignAfter(pause) => self.env.clock.sleep(pause),
                    Next::CampaignWhen(condition) => condition,
                    Next::Stop => return ended,
                },
            };
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                () = next => {}
            }
        }
        after(&HostOutcome::Stopped);
        HostOutcome::Stopped
    }

    /// Runs one campaign, and the leadership that it may lead to, until all of it has ended. `None` if an operator
    /// paused the name or requested a step-down, or if the condition holds no more, and the record is released.
    async fn campaign(
        &self,
        storage: &Arc<HostStorage>,
        mut services: Services,
        acquisition: Option<AcquireTimeout>,
    ) -> Option<HostOutcome> {
        let Self { settings, status, .. } = self;
        let cluster = settings.cluster();
        let slots =
            SlotNumber::all(settings.slots).map(|slot| ElectionKey { cluster: cluster.clone(), slot });
        let mut config = VvmConfig::new(slots.collect(), status.candidate.holder.clone(), &self.env);
        // The history is written when the services have stopped.
        config.stop_timeout = settings.stop_timeout.saturating_add(end_timeout(settings.ttl));
        config.left_behind = storage.left_behind();
        config.successor = self.successor.clone().map(|link| {
            link.campaigns();
            SuccessorTerms { period: link.period, link }
        });
        let demand = Arc::new(SetOnce::new());
        let preface = Preface {
            storage: Arc::clone(storage),
            demand: Arc::clone(&demand),
            condition: self.condition.clone(),
            successor: self.successor.clone(),
            stop: self.stop.clone(),
        };
        services.insert(0, Box::new(preface));
        let elections = Elections::new(Arc::clone(storage) as _, self.env.clone());
        status.campaigns();
        let vvm = Vvm::provide(config, elections, services)
            .launch(settings.ttl, acquisition.unwrap_or(settings.acquisition));
        let over = CancellationToken::new();
        let handler = RequestHandler {
            storage,
            over: &over,
            condition: &self.condition,
            ends_if_paused: settings.acquisition == AcquireTimeout::UntilLeaderSeen,
        };
        let handling = async {
            // A panic counts as a failed look: tokio panics without a thread for the look-up of a server's name.
            let asked = loop {
                match caught(handler.run(&vvm)).await {
                    Ok(asked) => break asked,
                    Err(_panic) => {
                        let pause = self.env.clock.sleep(Terms::usual_poll(settings.ttl));
                        let _ = over.run_until_cancelled(pause).await;
                    }
                }
            };
            if let Some(asked) = asked {
                if !matches!(status.role(), Role::Campaigning) {
                    self.log_demand("asked_to_give_up", &asked, "stopping the work: ");
                }
                let _ = demand.set(asked);
            }
        };
        let watching = async {
            if vvm.leading().await.is_ok() {
                status.is_started();
            }
            vvm.problem().await
        };
        let leading = async {
            let problem = tokio::select! {
                biased;
                problem = watching => problem,
                () = self.stop.cancelled() => None,
                _ = demand.wait() => None,
                () = self.condition.becomes(false) => {
                    let _ = demand.set(StopDemand::NotReady);
                    None
                }
            };
            if matches!(&problem, Some(Problem::StartFailed { cause, .. }) if cause.is::<NotReady>()) {
                let _ = demand.set(StopDemand::NotReady);
            }
            over.cancel();
            status.stops(match (&problem, demand.get()) {
                (Some(Problem::Lost(loss)), _) => WhyStopping::Lost(loss.clone()),
                (_, Some(demand)) => WhyStopping::GivenUp(demand.to_string().into()),
                (Some(_), None) => WhyStopping::WorkEnded,
                (None, None) => WhyStopping::Asked,
            });
            if let Some(link) = self.successor.as_ref().filter(|_| problem.is_none()) {
                self.withdraw_first(link, &vvm).await;
            }
            let stopped = vvm.shutdown().await;
            problem.or(stopped.err())
        };
        let recording = caught(self.record_late_ends(storage, &over));
        let (problem, (), _) = tokio::join!(leading, handling, recording);
        #[cfg(feature = "opentelemetry")]
        status.leadership_ended();
        if let Some(left) = vvm.work_left() {
            return Some(HostOutcome::Problem(left));
        }
        // The work did not start: a stop or a demand came first, or a service was not ready.
        let was_never_started = matches!(
            &problem,
            Some(Problem::StartFailed { cause, .. })
                if cause.is::<StopRequested>() || cause.is::<StopDemand>() || cause.is::<NotReady>()
        );
        match (problem, demand.get()) {
            // Nothing was won: the next campaign waits for the condition, and a pause ends one that does not wait.
            (None, Some(StopDemand::NotReady)) if matches!(status.role(), Role::Campaigning) => None,
            (None, Some(demand)) if matches!(status.role(), Role::Campaigning) => {
                let refusal = AcquireError::TimedOut { last_failure: Some(demand.to_string()) };
                Some(HostOutcome::Problem(Problem::NotAcquired(Arc::new(refusal))))
            }
            (problem, Some(demand)) if was_never_started || problem.is_none() => {
                self.log_demand("released", demand, "released: ");
                // A service said so although the condition holds: others come first, and no claim follows at once.
                if was_never_started && matches!(demand, StopDemand::NotReady) && self.condition.holds() {
                    let pause = self.env.clock.sleep(Terms::usual_poll(settings.ttl));
                    let _ = self.stop.run_until_cancelled(pause).await;
                }
                None
            }
            (Some(problem), _) if !was_never_started => Some(HostOutcome::Problem(problem)),
            (Some(_) | None, _) => Some(HostOutcome::Stopped),
        }
    }

    /// Before a planned stop: a leader takes its word to its successor back, or a successor asks its leader to (N4, N7).
    /// Then neither needs the other when it stops. Returns at once if no successor is named.
    ///
    /// A leader whose guardian has died withdraws nothing: it is killed within seconds, and if that comes after the
    /// withdrawal and before the release, the next leader waits for the TTL. The right that it leaves is the one after a
    /// loss of the machine. No two leaders follow from it (I1): until the leader hands back, it renews and pings, so the wait
    /// of P begins anew (N5), and its deadman has both deadlines (N1). It hands back only when no process of the work is
    /// left (I6). A claim after that replaces a record without work, and the release, which compares incarnation and
    /// epoch, leaves the claim alone. The dead guardian enforces no deadline, and its keeper kills the command at once.
    async fn withdraw_first(&self, link: &UdpPeerLink, vvm: &RunningVvm<ElectionKey>) {
        if matches!(self.status.role(), Role::Stopping { why: WhyStopping::GuardianDied, .. }) {
            return;
        }
        let stands_by = matches!(self.status.role(), Role::Campaigning);
        // `vvm run` has no stop time-out of its own here.
        let longest = if stands_by {
            self.settings.stop_timeout.min(VvmConfig::<ElectionKey>::STOP_TIMEOUT)
        } else {
            link.period.get()
        };
        tokio::select! {
            biased;
            // A loss, or the end of the work.
            _ = vvm.problem() => {}
            // It has won meanwhile.
            _ = vvm.leading(), if stands_by => {}
            () = link.ask_to_stop() => {}
            () = self.env.clock.sleep(longest) => {}
        }
    }

    /// Records the ends of leaderships that could not be written, as soon as the storage works: another process may
    /// lead by then. Ends when this campaign is over. A leadership that follows in the same slot writes them first.
    async fn record_late_ends(&self, storage: &HostStorage, over: &CancellationToken) {
        let Self { env, status, .. } = self;
        let ttl = status.candidate.ttl;
        let mut done = Vec::new();
        let next = |done: &[LateEnd]| status.late_ends().into_iter().find(|(_, end)| !done.contains(end));
        while next(&done).is_some() {
            tokio::select! {
                biased;
                () = over.cancelled() => return,
                () = env.clock.sleep(Terms::usual_poll(ttl)) => {}
            }
            // A storage that fails gets no more calls.
            let Some((slot, end)) = next(&done).filter(|_| status.storage_problem().is_none()) else {
                continue;
            };
            let mut random = [0; 16];
            env.entropy.fill(&mut random);
            let incarnation = Incarnation::from_bytes(random);
            let ask = Ask { incarnation, since_unix_epoch: env.wall.since_unix_epoch() };
            let key = ElectionKey { cluster: storage.cluster.clone(), slot };
            let recorded = tokio::select! {
                biased;
                recorded = storage.storage.record_late_end(&key, &end, ask) => recorded,
                // It may have been applied (I7). The next attempt finds it then.
                () = env.clock.sleep(Timing::new(ttl).attempt_timeout()) => continue,
            };
            if matches!(recorded, Ok(()) | Err(WriteError::Fatal(_) | WriteError::Replaced(_))) {
                done.push(end);
            }
        }
    }

    fn log_demand(&self, event: &str, demand: &StopDemand, what: &str) {
        let (name, holder) = (self.settings.name.as_str(), self.status.candidate.holder.as_str());
        let role = self.status.role();
        let leading = role.leadership();
        let (slot, epoch) =
            (leading.map(|leading| leading.slot), leading.map(|leading| leading.standing.epoch().get()));
        let (why, by, to) = demand.fields();
        let slot_shown = slot.map(|slot| format!(" slot {slot}")).unwrap_or_default();
        tracing::info!(
            target: "vvm", event, name, holder, slot, epoch, why, by, to, reason = %demand,
            "{name}{slot_shown}: {what}{demand}"
        );
    }
}

impl fmt::Debug for Campaigns {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Campaigns").field("settings", &self.settings).finish_non_exhaustive()
    }
}

struct Preface {
    storage: Arc<HostStorage>,
    demand: Arc<SetOnce<StopDemand>>,
    condition: Condition,
    successor: Option<Arc<UdpPeerLink>>,
    /// Of the host. It may stop a successor that then wins, while it waits for its leader's word.
    stop: CancellationToken,
}

#[async_trait]
impl Service<ElectionKey> for Preface {
    fn name(&self) -> &str {
        "preface"
    }

    async fn start(self: Box<Self>, cx: ServiceContext<ElectionKey>) -> Result<Work, BoxError> {
        let Self { storage, demand, condition, successor, stop } = *self;
        if stop.is_cancelled() {
            return Err(StopRequested.into());
        }
        let status = Arc::clone(&storage.status);
        let ttl = status.candidate.ttl;
        status.starts(cx.slot.slot.get().get(), cx.standing.clone());
        storage.leads(&cx.slot, &cx.standing, ttl);
        let succeeded_after = successor.as_ref().and_then(|link| link.leads(&cx.standing, ttl));
        tokio::select! {
            biased;
            () = cx.stop.cancelled() => return Err(StopRequested.into()),
            () = stop.cancelled() => return Err(StopRequested.into()),
            answer = may_work(&storage) => {
                if let Err(refused) = answer {
                    let _ = demand.set(refused.clone());
                    return Err(refused.into());
                }
            }
        }
        // The claim may have been on its way when the condition changed. No other service has started yet.
        if !condition.holds() {
            let _ = demand.set(StopDemand::NotReady);
            return Err(StopDemand::NotReady.into());
        }
        let history = {
            let holder = status.candidate.holder.as_str();
            let at = (&storage.storage, &cx.slot);
            HistoryWriter::new(at, &cx.standing, holder, &status.clock, &status.unwritten_ends)
                .after_loss(succeeded_after)
        };
        Ok(Box::pin(async move {
            let publishing = async {
                if let (Some(link), Some(documents)) = (&successor, cx.standing.documents()) {
                    match link.keep_published(&cx.standing, &documents).await {}
                }
            };
            // The other services do not wait for these writes.
            tokio::select! {
                biased;
                () = cx.stop.cancelled() => {}
                () = async {
                    tokio::join!(publishing, history.write_start());
                    cx.stop.cancelled().await;
                } => {}
            }
            // Every other service has stopped. After the release the fence would refuse this write.
            status.stops_if_lost(&cx.standing);
            let how = status.how_work_ended();
            history.write_end(&how, end_timeout(ttl)).await;
            Ok(())
        }))
    }
}

#[cfg(test)]
mod tests;
