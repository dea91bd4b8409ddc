//! Operators' requests to candidates and leaders: `vvm pause` and `vvm step-down`. [`RequestHandler`] handles them. A
//! candidate reads requests with each scan. A leader does not scan, so it reads them as often as a standby looks. A
//! wake-up or a hint makes either look at once. [`may_work`] keeps work from starting in a pause.

use crate::host_storage::HostStorage;
use ielections::{Holder, Terms, Timing, WriteError, env::caught};
use std::future::pending;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use vvm_orch::{RunningVvm, VvmLeadership};
use vvm_storage::{ElectionKey, OperatorRequests, Pause, Stage, StageChange, StepDown};

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum StopDemand {
    #[error("paused by {}", .0.by())]
    Paused(Pause),
    #[error("could not read whether the name is paused: {0}")]
    PauseUnseen(String),
    #[error("asked to step down{}", to.as_ref().map(|to| format!(" in favour of {to}")).unwrap_or_default())]
    SteppingDown { to: Option<Holder> },
    #[error("not ready to lead")]
    NotReady,
}

impl StopDemand {
    pub(crate) fn fields(&self) -> (&'static str, Option<&str>, Option<&str>) {
        match self {
            Self::Paused(pause) => ("paused", Some(pause.author()), None),
            Self::PauseUnseen(_) => ("pause_unseen", None, None),
            Self::SteppingDown { to } => ("stepping_down", None, to.as_ref().map(Holder::as_str)),
            Self::NotReady => ("not_ready", None, None),
        }
    }
}

/// Decides whether work may start under a leadership that was just acquired. **No work runs from the moment `vvm pause`
/// reports success until `vvm resume`.** `vvm pause` writes the pause. Then it reads every slot, linearizably, until it
/// has seen each of them vacant once. Take a leadership of one of these slots. Its claim is applied either before that
/// read or after it.
///
/// - Before: the read finds the slot vacant, so the leadership is over. It ended by its own release, before
///   which its work had stopped (I6), or by a take-over, before which its process was dead (I1). The
///   leadership that took over ended in the same way.
/// - After: the claim comes after the pause was written. The read here is sent after the claim was confirmed
///   and is linearizable, so it finds the pause, which stands until an operator resumes. No work starts.
///
/// A record that `vvm pause` has seen unchanged for its TTL counts as vacant: its leader is dead by then, as for a
/// take-over (I1). Reads again while the storage fails, for as long as an acquisition counts as fresh.
pub(crate) async fn may_work(storage: &HostStorage) -> Result<(), StopDemand> {
    let (clock, ttl) = (&storage.status.clock, storage.status.candidate.ttl);
    let (give_up_at, retry_pause) =
        (clock.now().after(ttl.get() / 4), Timing::new(ttl).retry_pause().min(Terms::POLL));
    let mut cause = "it does not answer".to_owned();
    loop {
        let pause = tokio::select! {
            biased;
            pause = caught(storage.storage.standing_pause(&storage.cluster)) => pause,
            () = clock.sleep_until(give_up_at) => return Err(StopDemand::PauseUnseen(cause)),
        };
        match pause {
            Ok(Ok(None)) => return Ok(()),
            Ok(Ok(Some(pause))) => return Err(StopDemand::Paused(pause)),
            Ok(Err(error)) => cause = error.to_string(),
            Err(panic) => cause = panic.to_string(),
        }
        if clock.now() >= give_up_at {
            return Err(StopDemand::PauseUnseen(cause));
        }
        clock.sleep_until(clock.now().after(retry_pause).min(give_up_at)).await;
    }
}

/// When a host may campaign. By default, always.
#[derive(Clone, Debug, Default)]
pub(crate) struct Condition(Option<watch::Receiver<bool>>);

impl Condition {
    pub(crate) fn new(holds: watch::Receiver<bool>) -> Self {
        Self(Some(holds))
    }

    pub(crate) fn holds(&self) -> bool {
        self.0.as_ref().is_none_or(|holds| *holds.borrow())
    }

    /// Waits until it holds, or holds no more. Never returns if it can't change any more.
    pub(crate) async fn becomes(&self, wanted: bool) {
        let changed = match &self.0 {
            Some(holds) => holds.clone().wait_for(|holds| *holds == wanted).await.is_ok(),
            None => wanted,
        };
        if !changed {
            pending::<()>().await;
        }
    }
}

pub(crate) struct RequestHandler<'campaign> {
    pub(crate) storage: &'campaign HostStorage,
    /// Cancelled when the campaign ends: requests are ignored from then on.
    pub(crate) over: &'campaign CancellationToken,
    pub(crate) condition: &'campaign Condition,
    pub(crate) ends_if_paused: bool,
}

impl RequestHandler<'_> {
    /// Handles requests until the campaign is over, or until the leader has to give its leadership up.
    /// Returns the reason for that; the caller stops the work.
    pub(crate) async fn run(&self, vvm: &RunningVvm<ElectionKey>) -> Option<StopDemand> {
        let leading = match self.stand_by(vvm).await {
            Ok(leading) => leading?,
            Err(paused) => return Some(paused),
        };
        self.lead(&leading).await
    }

    async fn stand_by(
        &self,
        vvm: &RunningVvm<ElectionKey>,
    ) -> Result<Option<VvmLeadership<ElectionKey>>, StopDemand> {
        let mut seen = self.storage.requests();
        let mut logged = None;
        loop {
            let requests = seen.borrow_and_update().clone();
            if let Some(pause) = requests.pause.as_ref().filter(|_| self.ends_if_paused) {
                return Err(StopDemand::Paused(pause.clone()));
            }
            self.log_pause(&requests, &mut logged);
            let mut has_failed = false;
            if let Some(request) = requests.step_down.filter(|request| self.can_accept(request)) {
                match self.advance(&request, Stage::Accepted).await {
                    Some(Ok(StageChange::Done(_))) => self.storage.wakeups.wake(),
                    Some(Ok(StageChange::Overtaken(_))) => {}
                    // If it was not applied, the next scan shows the same request, which is no change.
                    Some(Err(_)) | None => has_failed = true,
                }
            }
            tokio::select! {
                biased;
                () = self.over.cancelled() => return Ok(None),
                leading = vvm.leading() => return Ok(leading.ok()),
                // The storage lives as long as this borrow.
                _ = seen.changed() => {}
                () = self.storage.woken() => vvm.look_now(),
                () = self.storage.status.clock.sleep(Terms::usual_poll(self.storage.status.candidate.ttl)),
                    if has_failed => {}
            }
        }
    }

    fn log_pause(&self, requests: &OperatorRequests, logged: &mut Option<Pause>) {
        let (name, holder) =
            (self.storage.status.candidate.name.as_str(), self.storage.status.candidate.holder.as_str());
        match &requests.pause {
            Some(pause) if logged.as_ref() != Some(pause) => {
                let (by, reason, shown) = (pause.author(), pause.reason(), pause.by());
                tracing::info!(
                    target: "vvm", event = "paused", name, holder, by, reason,
                    "{name}: paused by {shown}; waiting until it is resumed"
                );
            }
            None if logged.is_some() => {
                tracing::info!(target: "vvm", event = "resumed", name, holder, "{name}: resumed");
            }
            Some(_) | None => {}
        }
        logged.clone_from(&requests.pause);
    }

    fn can_accept(&self, request: &StepDown) -> bool {
        request.stage == Stage::Asked
            && self.condition.holds()
            && request.slot.get() <= self.storage.status.candidate.slots
            && request.to.as_ref().is_none_or(|to| *to == self.storage.status.candidate.holder)
    }

    async fn lead(&self, leading: &VvmLeadership<ElectionKey>) -> Option<StopDemand> {
        let ttl = self.storage.status.candidate.ttl;
        let often = Terms::usual_poll(ttl);
        let seldom = Timing::new(ttl).soonest_renewal().min(Terms::LONGEST_QUIET).max(often);
        let limit = Timing::new(ttl).attempt_timeout();
        let mut pause = often;
        loop {
            tokio::select! {
                biased;
                () = self.over.cancelled() => return None,
                () = self.storage.woken() => {}
                () = self.storage.status.clock.sleep(pause) => {}
            }
            pause = often;
            let looked = tokio::select! {
                biased;
                () = self.over.cancelled() => return None,
                looked = self.storage.look_at_requests() => looked,
                () = self.storage.status.clock.sleep(limit) => continue,
            };
            // A storage that fails shows in the renewals.
            let Ok((requests, expired)) = looked else { continue };
            let (slot, epoch) = (leading.slot.slot, leading.standing.epoch());
            if let Some(request) = expired.filter(|request| request.is_about(slot, Some(epoch))) {
                // Its command was killed. The write compares the version, so it withdraws no other request,
                // and none that has begun. If it fails, the next look repeats it.
                let _outcome = self.advance(&request, Stage::Withdrawn).await;
            }
            let is_asked =
                requests.step_down.as_ref().is_some_and(|request| request.is_about(slot, Some(epoch)));
            if let Some(demand) = self.demand(leading, requests).await {
                return Some(demand);
            }
            // A request would be announced. One that stands may have had no answer (I7).
            if !is_asked && self.storage.storage.listens(&self.storage.cluster) {
                pause = seldom;
            }
        }
    }

    async fn demand(
        &self,
        leading: &VvmLeadership<ElectionKey>,
        requests: OperatorRequests,
    ) -> Option<StopDemand> {
        if let Some(pause) = requests.pause {
            return Some(StopDemand::Paused(pause));
        }
        let (slot, epoch) = (leading.slot.slot, leading.standing.epoch());
        let request = requests.step_down.filter(|request| request.is_about(slot, Some(epoch)))?;
        match request.stage {
            // Without a standby the work would stop for nothing.
            Stage::Asked | Stage::Withdrawn => return None,
            // The operator may withdraw it up to here. This write decides: one of the two fails.
            Stage::Accepted => match self.advance(&request, Stage::Begun).await {
                Some(Ok(StageChange::Done(_))) => {}
                // The next look shows the stage that was stored.
                Some(Ok(StageChange::Overtaken(_)) | Err(_)) | None => return None,
            },
            // This host advanced it, and the answer was lost: the request names this leadership.
            Stage::Begun => {}
        }
        self.storage.let_others_first(slot, epoch, request.first_chance());
        Some(StopDemand::SteppingDown { to: request.to })
    }

    /// Advances a request. `None` if there is no answer within the time of an election's attempt or of the campaign:
    /// the write may have been applied (I7), which the next look shows.
    async fn advance(&self, request: &StepDown, stage: Stage) -> Option<Result<StageChange, WriteError>> {
        let HostStorage { storage, cluster, .. } = self.storage;
        let limit = Timing::new(self.storage.status.candidate.ttl).attempt_timeout();
        tokio::select! {
            biased;
            outcome = storage.advance_step_down(cluster, request, stage) => Some(outcome),
            () = self.over.cancelled() => None,
            () = self.storage.status.clock.sleep(limit) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        local_wakeups::LocalWakeups,
        status::{
            Call,
            tests::{Scene, host_storage, in_steps, key, record},
        },
    };
    use async_trait::async_trait;
    use ielections::{Incarnation, Ttl, TtlStorage as _, Vacant};
    use std::{pin::pin, sync::Arc, time::Duration};
    use vvm_clock::Clock as _;
    use vvm_storage::{
        Ask, ElectionsTtlStorage, Partition, SysVvmHints, SysVvmStorage,
        testing::{Layer, Outage},
    };

    const STEP: Duration = Duration::from_millis(100);

    /// Says that it announces requests, and announces none.
    #[derive(Debug)]
    struct LosesHints(Arc<dyn SysVvmStorage>);

    impl Layer for LosesHints {
        fn beneath(&self) -> &dyn SysVvmStorage {
            &*self.0
        }

        fn hints(&self) -> Option<&dyn SysVvmHints> {
            Some(self)
        }
    }

    #[async_trait]
    impl SysVvmHints for LosesHints {
        async fn announce(&self, _topic: &Partition) {}

        async fn hinted(&self, _topic: &Partition) {
            pending().await
        }

        fn listens(&self, _topic: &Partition) -> bool {
            true
        }
    }

    #[tokio::test]
    async fn leader_that_hears_of_requests_reads_with_each_renewal_and_each_second_when_in_doubt() {
        let scene = Scene::of("a");
        let leadership = in_steps(&scene.clock, STEP, scene.acquire()).await;
        let (slot, standing) = (key(), leadership.standing().clone());
        let leading = VvmLeadership { slot: slot.clone(), standing };
        let storage = Arc::new(LosesHints(Arc::clone(&scene.faulty).into_storage())).into_storage();
        let storage = Arc::new(ElectionsTtlStorage::new(storage));
        let status = Arc::clone(&scene.status);
        let host = HostStorage::new(storage, LocalWakeups::disabled(), status, CancellationToken::new());
        let (over, condition) = (CancellationToken::new(), Condition::default());
        let handler =
            RequestHandler { storage: &host, over: &over, condition: &condition, ends_if_paused: false };
        let mut lead = pin!(handler.lead(&leading));
        let mut reads_within = async |seconds| {
            let reads = scene.status.telemetry.calls(Call::Read);
            let (before, until) = (reads.get(), scene.clock.now().after(Duration::from_secs(seconds)));
            let span = async {
                tokio::select! {
                    biased;
                    demand = &mut lead => panic!("{demand:?}"),
                    () = scene.clock.sleep_until(until) => {}
                }
            };
            in_steps(&scene.clock, STEP, span).await;
            reads.get() - before
        };

        let reads = reads_within(60).await;
        assert!((11..=14).contains(&reads), "{reads}: a renewal is due every 4.7 to 5 s");
        let ask = Ask { incarnation: Incarnation::from_bytes([3; 16]), since_unix_epoch: Duration::ZERO };
        let epoch = leading.standing.epoch();
        scene.other.ask_step_down(&slot, epoch, None, Ttl::DEFAULT, ask).await.unwrap();
        let until_seen = reads_within(5).await;
        assert!(until_seen >= 1);
        let reads = reads_within(10).await;
        assert!((9..=10).contains(&reads), "{reads} while a request stands");
        scene.faulty.set_outage(Some(Outage::Away));
        let reads = reads_within(10).await;
        // Renewals without an answer are read back, too.
        assert!(reads >= 9, "{reads} in an outage");
        scene.faulty.set_outage(Some(Outage::Silent));
        reads_within(5).await;
        scene.faulty.set_outage(None);
        let (by, ask) =
            (Holder::new("alice").unwrap(), Ask { incarnation: Incarnation::from_bytes([4; 16]), ..ask });
        scene.other.pause(&slot.cluster, &by, ask).await.unwrap();
        let demand = in_steps(&scene.clock, STEP, lead).await;
        assert!(matches!(demand, Some(StopDemand::Paused(_))), "{demand:?}");
    }

    /// Shows I7.
    #[tokio::test]
    async fn others_have_the_first_chance_although_the_begin_of_a_step_down_had_no_answer() {
        let scene = Scene::of("a");
        let leadership = in_steps(&scene.clock, STEP, scene.acquire()).await;
        let slot = key();
        let leading = VvmLeadership { slot: slot.clone(), standing: leadership.standing().clone() };
        let last_epoch = Some(leading.standing.epoch());
        let (first_chance, since_unix_epoch) = (Ttl::new(Duration::from_secs(3)).unwrap(), Duration::ZERO);
        let ask = Ask { incarnation: Incarnation::from_bytes([3; 16]), since_unix_epoch };
        let asked = scene.other.ask_step_down(&slot, leading.standing.epoch(), None, first_chance, ask);
        let mut stands = asked.await.unwrap();
        for stage in [Stage::Accepted, Stage::Begun] {
            let StageChange::Done(request) = &stands else { panic!("{stands:?}") };
            stands = scene.other.advance_step_down(&slot.cluster, request, stage).await.unwrap();
        }
        let host = host_storage(&scene.faulty, &scene.status);
        let (over, condition) = (CancellationToken::new(), Condition::default());
        let handler =
            RequestHandler { storage: &host, over: &over, condition: &condition, ends_if_paused: false };
        let (requests, _) = host.look_at_requests().await.unwrap();
        let demand = handler.demand(&leading, requests).await;
        assert_eq!(demand, Some(StopDemand::SteppingDown { to: None }));
        in_steps(&scene.clock, STEP, leadership.release()).await;
        let claim = host.insert_if_not_exist(&slot, Vacant { last_epoch }, &record(2)).await;
        assert!(matches!(claim, Err(WriteError::NotApplied(_))), "{claim:?}");
    }

    #[tokio::test]
    async fn leader_that_looked_before_the_operator_withdrew_leads_on() {
        let scene = Scene::of("a");
        let leadership = in_steps(&scene.clock, STEP, scene.acquire()).await;
        let slot = key();
        let leading = VvmLeadership { slot: slot.clone(), standing: leadership.standing().clone() };
        let ask = Ask { incarnation: Incarnation::from_bytes([3; 16]), since_unix_epoch: Duration::ZERO };
        let epoch = leading.standing.epoch();
        let mut stands = scene.other.ask_step_down(&slot, epoch, None, Ttl::DEFAULT, ask).await.unwrap();
        let host = host_storage(&scene.faulty, &scene.status);
        let (over, condition) = (CancellationToken::new(), Condition::new(watch::channel(false).1));
        let handler =
            RequestHandler { storage: &host, over: &over, condition: &condition, ends_if_paused: false };
        let mut seen = OperatorRequests::default();
        for stage in [Stage::Accepted, Stage::Withdrawn] {
            let StageChange::Done(request) = &stands else { panic!("{stands:?}") };
            assert!(!handler.can_accept(request), "it is not ready to lead");
            stands = scene.other.advance_step_down(&slot.cluster, request, stage).await.unwrap();
            if stage == Stage::Accepted {
                seen = host.look_at_requests().await.unwrap().0;
            }
        }
        assert_eq!(handler.demand(&leading, seen).await, None);
        in_steps(&scene.clock, STEP, leadership.release()).await;
    }
}
