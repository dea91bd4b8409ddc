//! [`Candidate`]: campaigns, leads for a while, releases or crashes, and begins again.

use super::{
    NAME, SLOTS, TTL,
    event::{Counts, Event},
    leadership_log::LeadershipLog,
};
use async_trait::async_trait;
use ielections::{
    Candidacy, Entry, Holder, Leadership, Terms, WriteError, testing::elections_suite::Process,
};
use std::sync::Arc;
use tokio::sync::watch;
use vvm_clock::{Clock, SystemClock};
use vvm_storage::{
    ElectionKey, ElectionsTtlStorage, Partition, SlotNumber, Step, StepOutcome, SysVvmStorage, testing::Layer,
};

pub(super) struct Candidate {
    pub(super) number: usize,
    pub(super) storage: Arc<dyn SysVvmStorage>,
    /// A storage for late writes, which all candidates share.
    pub(super) direct: Arc<dyn SysVvmStorage>,
    pub(super) leaderships: Arc<LeadershipLog>,
    pub(super) counts: Arc<Counts>,
    pub(super) clock: SystemClock,
    pub(super) stops: watch::Receiver<bool>,
    pub(super) rng: fastrand::Rng,
}

#[derive(PartialEq, Eq)]
enum ProcessState {
    Alive,
    Dead,
}

impl Candidate {
    pub(super) async fn run(mut self) {
        while !self.stops() {
            let recording_storage = RecordingStorage {
                candidate: self.number,
                storage: Arc::clone(&self.storage),
                leaderships: Arc::clone(&self.leaderships),
            };
            let storage = ElectionsTtlStorage::new(Arc::new(recording_storage).into_storage());
            let process = Process::start(Arc::new(storage), Arc::new(self.clock.clone()));
            while !self.stops() && self.lead_once(&process).await == ProcessState::Alive {}
            if process.deadman.armed() == 0 {
                process.elections.cleanup().await;
            } else {
                process.crash();
            }
        }
        self.storage.close().await;
    }

    fn stops(&self) -> bool {
        *self.stops.borrow()
    }

    async fn lead_once(&mut self, process: &Process<ElectionKey>) -> ProcessState {
        let slots = SlotNumber::all(SLOTS).map(|slot| ElectionKey { cluster: NAME.into(), slot });
        let Ok(holder) = Holder::new(format!("candidate-{}", self.number)) else { return ProcessState::Dead };
        let candidacy = Candidacy { slots: slots.collect(), terms: Terms::new(holder, TTL) };
        self.leaderships.campaigns(self.number);
        let mut stops = self.stops.clone();
        let acquired = tokio::select! {
            biased;
            acquired = process.elections.acquire(candidacy) => acquired,
            _ = stops.wait_for(|stops| *stops) => return ProcessState::Alive,
        };
        match acquired {
            Ok((key, leadership)) => self.leads(process, &key, leadership).await,
            Err(error) => {
                self.leaderships.violates(format!("candidate {} gave up: {error}", self.number));
                ProcessState::Dead
            }
        }
    }

    async fn leads(
        &mut self,
        process: &Process<ElectionKey>,
        key: &ElectionKey,
        leadership: Leadership,
    ) -> ProcessState {
        let incarnation = leadership.incarnation();
        let before = self.leaderships.begins(self.number, key, &leadership, process, self.clock.now());
        if let Some(before) = before {
            self.send_late_writes(key, &before).await;
        }
        // A few renewals.
        let turn = (TTL.get() * 2).mul_f64(self.rng.f64());
        let mut stops = self.stops.clone();
        let loss = tokio::select! {
            biased;
            loss = leadership.lost() => Some(loss),
            _ = stops.wait_for(|stops| *stops) => None,
            () = self.clock.sleep(turn) => None,
        };
        let crashes = match &loss {
            // Some work does not stop, and ends with its process at the deadline.
            Some(loss) => {
                if self.leaderships.loses(incarnation, loss, leadership.standing().kill_at()) {
                    self.counts.add(Event::LostByDeletion);
                }
                let lingers = self.rng.f64() < 0.3;
                if lingers && let Some((deadline, _)) = process.trigger.earliest() {
                    self.clock.sleep_until(deadline).await;
                }
                lingers
            }
            None => !self.stops() && self.rng.f64() < 0.25,
        };
        // A process past its deadline is dead.
        let crashes = crashes || process.trigger.check() || !process.trigger.fired().is_empty();
        self.leaderships.ends(incarnation, self.clock.now());
        if crashes {
            self.counts.add(Event::LeaderCrashed);
            process.crash();
            drop(leadership);
            return ProcessState::Dead;
        }
        leadership.release().await;
        ProcessState::Alive
    }

    /// Sends late writes of a deposed leader: a renewal of its record, and its release. Both must be refused (I2).
    async fn send_late_writes(&self, key: &ElectionKey, deposed: &Entry) {
        let late = deposed.renewed(deposed.version.next());
        let late = [
            ("renewal", Step::renew(deposed, &late)),
            ("release", Step::release(deposed.incarnation(), deposed.epoch)),
        ];
        for (what, step) in late {
            match self.direct.commit(key.partition(), step).await {
                Ok(StepOutcome::Applied) => {
                    self.leaderships.violates(format!("a late {what} of {} has landed", deposed.epoch))
                }
                Ok(StepOutcome::Refused(_)) => self.counts.add(Event::DeposedRefused),
                // The outcome is unknown. If the write was applied, the new leader will lose its record.
                Err(_) => {}
            }
        }
    }
}

/// The storage of one candidate, which logs its claims and renewals.
#[derive(Debug)]
struct RecordingStorage {
    candidate: usize,
    storage: Arc<dyn SysVvmStorage>,
    leaderships: Arc<LeadershipLog>,
}

#[async_trait]
impl Layer for RecordingStorage {
    fn beneath(&self) -> &dyn SysVvmStorage {
        &*self.storage
    }

    async fn commit(&self, at: Partition, step: Step) -> Result<StepOutcome, WriteError> {
        match &step {
            Step::Claim { from, to } => {
                self.leaderships.claims(self.candidate, to, from.entry(), SystemClock::read());
            }
            Step::Renew { to, .. } => self.leaderships.renews(to),
            Step::Release { .. } | Step::Batch { .. } | Step::Settle { .. } => {}
        }
        self.storage.commit(at, step).await
    }
}
