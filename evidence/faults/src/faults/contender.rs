//! One contender: campaigns, leads for a while, hands back or crashes, and begins anew.

use super::{
    SLOTS, TTL,
    happened::{Counts, Happened},
    ledger::Ledger,
    witness::Witness,
};
use ielections::{
    Candidacy, Delete, Entry, Holder, Layer as _, Leadership, Swap, Terms, TtlStorage,
    testing::elections_suite::Process,
};
use std::sync::Arc;
use tokio::sync::watch;
use vvm_clock::{Clock, SystemClock};
use vvm_storage::{ElectionKey, ElectionsTtlStorage, SlotNumber};

/// How leaders behave at present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Manner {
    /// They lead for a few renewals.
    Patient,
    /// They hand on at once, so that there are many claims.
    Hasty,
    /// They hand back, and campaign no more.
    Leaving,
}

pub(super) struct Contender {
    pub(super) number: usize,
    pub(super) storage: ElectionsTtlStorage,
    /// A connection past the proxies, which all contenders share.
    pub(super) direct: ElectionsTtlStorage,
    pub(super) ledger: Arc<Ledger>,
    pub(super) counts: Arc<Counts>,
    pub(super) clock: SystemClock,
    pub(super) manner: watch::Receiver<Manner>,
    pub(super) dice: fastrand::Rng,
}

/// What became of a process.
#[derive(PartialEq, Eq)]
enum Fate {
    Alive,
    Dead,
}

impl Contender {
    /// Until it is told to leave.
    pub(super) async fn live(mut self) {
        while self.manner() != Manner::Leaving {
            let witness = Witness {
                contender: self.number,
                storage: self.storage.clone(),
                ledger: Arc::clone(&self.ledger),
            };
            let process = Process::start(Arc::new(witness).into_storage(), Arc::new(self.clock.clone()));
            while self.manner() != Manner::Leaving && self.takes_a_turn(&process).await == Fate::Alive {}
            if process.deadman.armed() == 0 {
                process.elections.cleanup().await;
            } else {
                process.crash();
            }
        }
        TtlStorage::<ElectionKey>::close(&self.storage).await;
    }

    fn manner(&self) -> Manner {
        *self.manner.borrow()
    }

    async fn takes_a_turn(&mut self, process: &Process<ElectionKey>) -> Fate {
        let slots = SlotNumber::all(SLOTS).map(|slot| ElectionKey { cluster: "faults".into(), slot });
        let Ok(holder) = Holder::new(format!("contender-{}", self.number)) else { return Fate::Dead };
        let candidacy = Candidacy { slots: slots.collect(), terms: Terms::new(holder, TTL) };
        self.ledger.campaigns(self.number);
        let mut manner = self.manner.clone();
        let acquired = tokio::select! {
            biased;
            acquired = process.elections.acquire(candidacy) => acquired,
            _ = manner.wait_for(|manner| *manner == Manner::Leaving) => return Fate::Alive,
        };
        match acquired {
            Ok((key, leadership)) => self.leads(process, &key, leadership).await,
            Err(error) => {
                self.ledger.violates(format!("contender {} gave up: {error}", self.number));
                Fate::Dead
            }
        }
    }

    async fn leads(
        &mut self,
        process: &Process<ElectionKey>,
        key: &ElectionKey,
        leadership: Leadership,
    ) -> Fate {
        let incarnation = leadership.incarnation();
        let before = self.ledger.begins(self.number, key, &leadership, process, self.clock.now());
        if let Some(before) = before {
            self.plays_ghost(key, &before).await;
        }
        let (most, crashes) = match self.manner() {
            Manner::Patient => (TTL.get() * 2, 0.25),
            Manner::Hasty | Manner::Leaving => (TTL.get() / 20, 0.0),
        };
        let turn = most.mul_f64(self.dice.f64());
        let mut manner = self.manner.clone();
        let loss = tokio::select! {
            biased;
            loss = leadership.lost() => Some(loss),
            _ = manner.wait_for(|manner| *manner == Manner::Leaving) => None,
            () = self.clock.sleep(turn) => None,
        };
        let crashes = match &loss {
            // Work that does not stop, and is dead with its process at the deadline.
            Some(loss) => {
                self.ledger.loses(incarnation, loss, leadership.standing().kill_at());
                let lingers = self.dice.f64() < 0.3;
                if lingers && let Some((deadline, _)) = process.trigger.earliest() {
                    self.clock.sleep_until(deadline).await;
                }
                lingers
            }
            None => self.dice.f64() < crashes,
        };
        // A process past its deadline is dead, whatever it was about to do.
        let crashes = crashes || process.trigger.check() || !process.trigger.fired().is_empty();
        self.ledger.ends(incarnation, self.clock.now());
        if crashes {
            self.counts.add(Happened::LeaderCrashed);
            process.crash();
            drop(leadership);
            return Fate::Dead;
        }
        leadership.release().await;
        Fate::Alive
    }

    /// Sends once more what a deposed leader may have under way: a renewal of its record, and its release.
    /// (I2)
    async fn plays_ghost(&self, key: &ElectionKey, deposed: &Entry) {
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
                Some(true) => self.ledger.violates(format!("a late {what} of {} has landed", deposed.epoch)),
                Some(false) => self.counts.add(Happened::DeposedRefused),
                // A storage with a fault says nothing; if it had landed, the new leader would hear of it.
                None => {}
            }
        }
    }
}
