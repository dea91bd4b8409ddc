//! The gate before a claim: nobody claims while the name is paused, or while somebody else has the first chance.
//!
//! It stands between the campaign and the storage, and the campaign knows nothing of it: a claim that is not to be made is
//! `NotApplied`, certainly and for ever, and the campaign looks again after a pause, as it would after any other. It costs
//! no call: each scan of the slots looks at the requests, too, and the gate goes by what the last one saw.
//!
//! So it may go by what is a moment old. To the first chance that does not matter much. To a pause it would, and that is
//! why the gate only keeps candidates from taking and releasing slots for nothing; that nobody *works* while the name is
//! paused is kept by [`Gate::may_work`], and the argument stands there.
//!
//! It also tells the neighbours when a record was deleted: there is something for them to claim.
//!
//! Hints never make a claim earlier than the protocol does (I5): the gate only refuses.

use super::{Demand, Lookout};
use crate::neighbours::Neighbours;
use async_trait::async_trait;
use ielections::{Claim, Delete, Entry, Epoch, Holder, Incarnation, Layer, TtlStorage, Vacant, WriteError};
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use vvm_clock::{Clock, Instant};
use vvm_storage::{ElectionKey, SlotNumber, Stage};

/// A storage whose slots are claimed only when nobody asks otherwise.
pub(crate) struct Gate {
    storage: Arc<dyn TtlStorage<ElectionKey>>,
    lookout: Arc<Lookout>,
    neighbours: Neighbours,
    holder: Holder,
    clock: Arc<dyn Clock>,
    courtesy: Mutex<Courtesy>,
}

/// Whom we let go first.
#[derive(Debug, Default)]
struct Courtesy {
    /// The leadership that we gave up, and how long we hold back.
    ceded: Option<(SlotNumber, Epoch, Duration)>,
    /// After which leadership of which slot we hold back, and since when: since we would have claimed it, and not since we
    /// were asked, because a command may take its time to stop.
    since: Option<(SlotNumber, Epoch, Instant)>,
}

/// Why a claim is not made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
enum NotNow {
    #[error("paused by {by}")]
    Paused { by: String },
    #[error("{} the first chance", to.as_ref().map_or("others have".to_owned(), |to| format!("{to} has")))]
    AfterOthers { to: Option<Holder> },
}

impl Gate {
    /// Before `storage`, for the candidate `holder`. Behind it somewhere is `lookout`, which it goes by.
    pub(crate) fn before(
        storage: Arc<dyn TtlStorage<ElectionKey>>,
        lookout: Arc<Lookout>,
        neighbours: Neighbours,
        holder: Holder,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { storage, lookout, neighbours, holder, clock, courtesy: Mutex::default() }
    }

    /// What was seen to be asked of the cluster.
    pub(crate) fn lookout(&self) -> &Lookout {
        &self.lookout
    }

    /// Those who are told what happens here, and by whom we are.
    pub(crate) fn neighbours(&self) -> &Neighbours {
        &self.neighbours
    }

    /// Others go first: until `first_chance` after the first claim that we would make on the slot that we led under this
    /// epoch.
    pub(crate) fn others_first(&self, slot: SlotNumber, epoch: Epoch, first_chance: Duration) {
        self.courtesy().ceded = Some((slot, epoch, first_chance));
    }

    /// Whether whoever has just acquired a slot may start to work, or what for it has to give it up.
    ///
    /// **Nobody works from the moment at which `vvm pause` says so until `vvm resume`.** `vvm pause` writes the pause, and
    /// then looks at every slot, linearizably, until it has seen each of them vacant once. Take a leadership of one of
    /// them. Its claim is applied either before that look, or after.
    ///
    /// - Before: the look finds the slot vacant, so the leadership is over by then, by its own release, before which its
    ///   work has stopped (I6), or by a take-over, before which its process was dead (I1), and what took over is over in
    ///   the same way.
    /// - After: then the claim comes after the pause was written. This read is sent after the claim was confirmed, and it
    ///   is linearizable, so it finds the pause, which stands until somebody resumes. No work begins.
    ///
    /// A record that `vvm pause` has seen unchanged for its TTL counts as vacant: by then its leader is dead, which is what
    /// a take-over relies on, too (I1).
    ///
    /// # Cancel safety
    /// May be dropped at will.
    pub(crate) async fn may_work(&self, patience: Duration, pause: Duration) -> Result<(), Demand> {
        let give_up_at = self.clock.now().after(patience);
        let mut cause = "it does not answer".to_owned();
        loop {
            let looked = tokio::select! {
                biased;
                looked = self.lookout.storage.standing_pause(&self.lookout.cluster) => looked,
                () = self.clock.sleep_until(give_up_at) => return Err(Demand::PauseUnseen { cause }),
            };
            match looked {
                Ok(None) => return Ok(()),
                Ok(Some(pause)) => return Err(Demand::Paused { by: pause.by().to_owned() }),
                Err(refusal) => cause = refusal.to_string(),
            }
            if self.clock.now() >= give_up_at {
                return Err(Demand::PauseUnseen { cause });
            }
            self.clock.sleep_until(self.clock.now().after(pause).min(give_up_at)).await;
        }
    }

    fn courtesy(&self) -> std::sync::MutexGuard<'_, Courtesy> {
        self.courtesy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a claim on the slot, after its leadership under `last`, may be made now.
    fn pass(&self, slot: SlotNumber, last: Option<Epoch>) -> Result<(), WriteError> {
        let seen = self.lookout.seen();
        let seen = seen.borrow();
        if let Some(pause) = &seen.pause {
            return Err(WriteError::NotApplied(NotNow::Paused { by: pause.by().to_owned() }.into()));
        }
        let Some(last) = last else { return Ok(()) };
        let mut courtesy = self.courtesy();
        let ceded = courtesy.ceded.filter(|(of, epoch, _)| (*of, *epoch) == (slot, last));
        let request = seen.step_down.as_ref().filter(|request| {
            let is_on = matches!(request.stage, Stage::Accepted | Stage::Begun);
            is_on
                && request.is_about(slot, Some(last))
                && request.to.as_ref().is_some_and(|to| *to != self.holder)
        });
        let to = request.and_then(|request| request.to.clone());
        let Some(first_chance) = ceded.map(|ceded| ceded.2).or(request.map(|request| request.first_chance()))
        else {
            return Ok(());
        };
        let now = self.clock.now();
        let since = courtesy.since.filter(|(of, epoch, _)| (*of, *epoch) == (slot, last));
        let (_, _, since) = *courtesy.since.insert(since.unwrap_or((slot, last, now)));
        if now < since.after(first_chance) {
            return Err(WriteError::NotApplied(NotNow::AfterOthers { to }.into()));
        }
        Ok(())
    }
}

#[async_trait]
impl Layer<ElectionKey> for Gate {
    fn beneath(&self) -> &dyn TtlStorage<ElectionKey> {
        &*self.storage
    }

    async fn insert_if_not_exist(
        &self,
        key: &ElectionKey,
        vacant: Vacant,
        entry: &Entry,
    ) -> Result<Claim, WriteError> {
        self.pass(key.slot, vacant.last_epoch)?;
        self.storage.insert_if_not_exist(key, vacant, entry).await
    }

    async fn take_over(
        &self,
        key: &ElectionKey,
        observed: &Entry,
        entry: &Entry,
    ) -> Result<Claim, WriteError> {
        self.pass(key.slot, Some(observed.epoch))?;
        self.storage.take_over(key, observed, entry).await
    }

    async fn compare_and_delete(
        &self,
        key: &ElectionKey,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError> {
        let outcome = self.storage.compare_and_delete(key, incarnation, epoch).await;
        if let Ok(Delete::Deleted) = &outcome {
            self.neighbours.tell();
        }
        outcome
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Gate({:?})", self.storage)
    }
}

#[cfg(test)]
mod tests;
