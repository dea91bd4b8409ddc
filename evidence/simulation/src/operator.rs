//! An operator who pauses and resumes the name, as `vvm pause` does: writes the pause, and then reads until
//! each slot was seen vacant once. `requests::may_work` of `vvm-host` says what that guarantees.

use crate::{
    clock::Process,
    faults::FAULTS_END,
    process::{NAME, slots, storage_of},
    world::World,
};
use fastrand::Rng;
use ielections::{Holder, Incarnation, Slot, TtlStorage as _};
use std::{num::NonZeroU32, sync::Arc, time::Duration};
use vvm_clock::Clock as _;
use vvm_storage::{Ask, ClusterName, ElectionsTtlStorage, Pause};

/// How long the operator waits for an answer, and for the leaders to stop.
const ANSWER: Duration = Duration::from_secs(10);
const LEADERS: Duration = Duration::from_secs(60);

/// When the last late write lands after the last fault.
const LATEST: Duration = Duration::from_secs(45);

struct Operator {
    world: Arc<World>,
    storage: ElectionsTtlStorage,
    cluster: ClusterName,
    rng: Rng,
}

/// Pauses and resumes until the last fault.
pub(crate) async fn operate(world: Arc<World>, process: Process, count: NonZeroU32, rng: Rng) {
    let storage = storage_of(&world, process);
    let mut operator = Operator { world, storage, cluster: ClusterName::from(NAME), rng };
    while operator.world.clock.now() < FAULTS_END {
        operator.waits(60).await;
        let Some(pause) = operator.pauses().await else { continue };
        if operator.sees_no_leader(count).await {
            operator.world.pause_succeeds();
            operator.waits(30).await;
        }
        operator.world.resumes();
        operator.resumes(&pause).await;
    }
    // A storage that goes back may apply a late pause again, that was over.
    operator.world.clock.sleep_until(FAULTS_END.after(LATEST)).await;
    if let Ok(Some(pause)) = operator.storage.standing_pause(&operator.cluster).await {
        operator.resumes(&pause).await;
    }
}

impl Operator {
    async fn waits(&mut self, most: u64) {
        self.world.clock.sleep(Duration::from_secs(most).mul_f64(self.rng.f64())).await;
    }

    async fn answered<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            answer = call => Some(answer),
            () = self.world.clock.sleep(ANSWER) => None,
        }
    }

    async fn pauses(&mut self) -> Option<Pause> {
        let mut bytes = [0; 16];
        self.rng.fill(&mut bytes);
        let ask = Ask { incarnation: Incarnation::from_bytes(bytes), since_unix_epoch: Duration::ZERO };
        let by = Holder::new("operator").ok()?;
        loop {
            match self.answered(self.storage.pause(&self.cluster, &by, ask)).await {
                Some(Ok((pause, _))) => return Some(pause),
                _ => self.waits(1).await,
            }
        }
    }

    async fn sees_no_leader(&mut self, count: NonZeroU32) -> bool {
        let give_up_at = self.world.clock.now().after(LEADERS).min(FAULTS_END);
        let mut left = slots(count);
        while self.world.clock.now() < give_up_at {
            let Some(key) = left.last() else { return true };
            match self.answered(self.storage.get(key)).await {
                Some(Ok(Slot::Vacant(_))) => drop(left.pop()),
                _ => self.waits(1).await,
            }
        }
        false
    }

    async fn resumes(&mut self, pause: &Pause) {
        while !matches!(self.answered(self.storage.resume(&self.cluster, pause)).await, Some(Ok(_))) {
            self.waits(1).await;
        }
    }
}
