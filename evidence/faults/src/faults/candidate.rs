//! [`Candidate`]: campaigns, leads for a while, releases or crashes, and begins again.

use super::{
    NAME, SLOTS, TTL,
    events::{Counts, Event},
    leadership_log::LeadershipLog,
    network::{Forged, WriteUnderWay},
};
use async_trait::async_trait;
use ielections::{
    Candidacy, Claim, Delete, Entry, Epoch, Holder, Incarnation, Layer, Leadership, Slot, Swap, Terms,
    TtlStorage, Vacant, WriteError, testing::elections_suite::Process,
};
use std::sync::Arc;
use tokio::sync::watch;
use vvm_clock::{Clock, SystemClock};
use vvm_storage::{ElectionKey, ElectionsTtlStorage, SlotNumber};

/// How leaders behave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pace {
    /// They lead for a few renewals.
    Normal,
    /// They release at once, so that there are many claims.
    Fast,
    /// They release, and end.
    Stopping,
}

pub(super) struct Candidate {
    pub(super) number: usize,
    pub(super) storage: ElectionsTtlStorage,
    /// A storage without proxies, which all candidates share.
    pub(super) direct: ElectionsTtlStorage,
    pub(super) leaderships: Arc<LeadershipLog>,
    pub(super) counts: Arc<Counts>,
    pub(super) clock: SystemClock,
    pub(super) pace: watch::Receiver<Pace>,
    pub(super) rng: fastrand::Rng,
    /// What its proxies do with its writes.
    pub(super) write: Arc<WriteUnderWay>,
}

/// Whether a process has crashed.
#[derive(PartialEq, Eq)]
enum ProcessState {
    Alive,
    Dead,
}

impl Candidate {
    /// Runs until the pace is [`Pace::Stopping`].
    pub(super) async fn run(mut self) {
        while self.pace() != Pace::Stopping {
            let recording_storage = RecordingStorage {
                candidate: self.number,
                storage: self.storage.clone(),
                direct: self.direct.clone(),
                leaderships: Arc::clone(&self.leaderships),
                counts: Arc::clone(&self.counts),
                write: Arc::clone(&self.write),
            };
            let process =
                Process::start(Arc::new(recording_storage).into_storage(), Arc::new(self.clock.clone()));
            while self.pace() != Pace::Stopping && self.lead_once(&process).await == ProcessState::Alive {}
            if process.deadman.armed() == 0 {
                process.elections.cleanup().await;
            } else {
                process.crash();
            }
        }
        TtlStorage::<ElectionKey>::close(&self.storage).await;
    }

    fn pace(&self) -> Pace {
        *self.pace.borrow()
    }

    async fn lead_once(&mut self, process: &Process<ElectionKey>) -> ProcessState {
        let slots = SlotNumber::all(SLOTS).map(|slot| ElectionKey { cluster: NAME.into(), slot });
        let Ok(holder) = Holder::new(format!("candidate-{}", self.number)) else { return ProcessState::Dead };
        let candidacy = Candidacy { slots: slots.collect(), terms: Terms::new(holder, TTL) };
        self.leaderships.campaigns(self.number);
        let mut pace = self.pace.clone();
        let acquired = tokio::select! {
            biased;
            acquired = process.elections.acquire(candidacy) => acquired,
            _ = pace.wait_for(|pace| *pace == Pace::Stopping) => return ProcessState::Alive,
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
        let (most, crashes) = match self.pace() {
            Pace::Normal => (TTL.get() * 2, 0.25),
            Pace::Fast | Pace::Stopping => (TTL.get() / 20, 0.0),
        };
        let turn = most.mul_f64(self.rng.f64());
        let mut pace = self.pace.clone();
        let loss = tokio::select! {
            biased;
            loss = leadership.lost() => Some(loss),
            _ = pace.wait_for(|pace| *pace == Pace::Stopping) => None,
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
            None => self.rng.f64() < crashes,
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

    /// Sends late writes of a deposed leader: a renewal of its record, and its release. Both must be refused
    /// (I2).
    async fn send_late_writes(&self, key: &ElectionKey, deposed: &Entry) {
        let late = deposed.renewed(deposed.version.next());
        let renewed = match self.direct.compare_and_swap(key, deposed, &late).await {
            Ok(swap) => Some(swap == Swap::Swapped),
            Err(_) => None,
        };
        let released = match self.direct.compare_and_delete(key, deposed.incarnation(), deposed.epoch).await {
            Ok(delete) => Some(delete == Delete::Deleted),
            Err(_) => None,
        };
        for (landed, what) in [(renewed, "renewal"), (released, "release")] {
            match landed {
                Some(true) => {
                    self.leaderships.violates(format!("a late {what} of {} has landed", deposed.epoch))
                }
                Some(false) => self.counts.add(Event::DeposedRefused),
                // The outcome is unknown. If the write was applied, the new leader will lose its record.
                None => {}
            }
        }
    }
}

/// The storage of one candidate. It tells the proxies of each write, and looks at the server after an answer
/// that was forged.
#[derive(Clone, Debug)]
struct RecordingStorage {
    candidate: usize,
    storage: ElectionsTtlStorage,
    direct: ElectionsTtlStorage,
    leaderships: Arc<LeadershipLog>,
    counts: Arc<Counts>,
    write: Arc<WriteUnderWay>,
}

impl RecordingStorage {
    /// Makes a write for a leadership. `stands` is whether a slot shows that it was applied.
    async fn writes<T>(
        &self,
        key: &ElectionKey,
        incarnation: Incarnation,
        stands: impl Fn(&Slot) -> bool,
        write: impl Future<Output = Result<T, WriteError>>,
    ) -> Result<T, WriteError> {
        self.write.begins(incarnation);
        let answer = write.await;
        // A driver may have found out what became of its write by itself.
        let event = match self.write.ends() {
            Some(Forged::Throttled) => Event::Throttled,
            Some(Forged::Unsent) => Event::ForgedUnsent,
            Some(Forged::Answered) => match self.direct.get(key).await {
                Ok(slot) if stands(&slot) => Event::ForgedApplied,
                Ok(_) => Event::ForgedRefused,
                Err(_) => return answer,
            },
            None => return answer,
        };
        self.counts.add(event);
        answer
    }
}

/// Whether a slot shows this record.
fn shows(entry: &Entry) -> impl Fn(&Slot) -> bool {
    |slot| slot.entry().is_some_and(|stands| stands.version == entry.version)
}

#[async_trait]
impl Layer<ElectionKey> for RecordingStorage {
    fn beneath(&self) -> &dyn TtlStorage<ElectionKey> {
        &self.storage
    }

    async fn insert_if_not_exist(
        &self,
        key: &ElectionKey,
        vacant: Vacant,
        entry: &Entry,
    ) -> Result<Claim, WriteError> {
        self.leaderships.claims(self.candidate, entry, None, SystemClock::read());
        let write = self.storage.insert_if_not_exist(key, vacant, entry);
        self.writes(key, entry.incarnation(), shows(entry), write).await
    }

    async fn take_over(
        &self,
        key: &ElectionKey,
        observed: &Entry,
        entry: &Entry,
    ) -> Result<Claim, WriteError> {
        self.leaderships.claims(self.candidate, entry, Some(observed), SystemClock::read());
        let write = self.storage.take_over(key, observed, entry);
        self.writes(key, entry.incarnation(), shows(entry), write).await
    }

    async fn compare_and_swap(
        &self,
        key: &ElectionKey,
        held: &Entry,
        entry: &Entry,
    ) -> Result<Swap, WriteError> {
        self.leaderships.renews(entry);
        let write = self.storage.compare_and_swap(key, held, entry);
        self.writes(key, entry.incarnation(), shows(entry), write).await
    }

    async fn compare_and_delete(
        &self,
        key: &ElectionKey,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError> {
        let is_gone = |slot: &Slot| slot.entry().is_none_or(|stands| stands.incarnation() != incarnation);
        self.writes(key, incarnation, is_gone, self.storage.compare_and_delete(key, incarnation, epoch)).await
    }
}
