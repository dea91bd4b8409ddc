//! The set of armed deadlines: the earliest rules, and nothing but a confirmed renewal moves one later (I4).
//!
//! Choosing the earliest and handing it to the trigger happen under one lock, so that two renewals confirmed
//! at once cannot leave the older choice in force.

mod order;

use crate::{ArmError, Subject, Trigger};
use order::{Order, Place};
use slab::Slab;
use std::{
    fmt, io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use vvm_clock::Instant;

/// A set of deadlines, one for a whole process. Cloning shares it; dropping the last clone disarms nothing
/// (I4).
#[derive(Clone)]
pub struct Deadman(Arc<Shared>);

struct Shared {
    trigger: Arc<dyn Trigger>,
    set: Mutex<Set>,
}

#[derive(Default)]
struct Set {
    deadlines: Slab<Deadline>,
    /// Each deadline has a place here that is true. Those that it had before it moved, and those of deadlines
    /// that have ended, stay until they are the first, or too many.
    order: Order,
    /// What the trigger was told last.
    told: Option<Place>,
}

struct Deadline {
    at: Instant,
    /// A confirmation no longer moves it: the leadership is known to be lost (I4).
    is_final: bool,
    generation: u64,
    subject: Subject,
}

/// One armed deadline.
///
/// Has no `Drop`: losing the value leaves the deadline armed. Not `Clone`: one owner moves it. Means nothing
/// to any other set than the one that made it.
#[must_use = "an armed deadline ends the process unless its owner confirms or disarms it"]
#[derive(Debug)]
pub struct Armed {
    id: usize,
    generation: u64,
}

/// The next generation, of all sets: a value handed to the wrong set finds nothing there, rather than
/// somebody else's deadline.
static NEXT_GENERATION: AtomicU64 = AtomicU64::new(0);

impl Deadman {
    /// A set whose earliest deadline goes to `trigger`, which must be this set's alone: of two sets, the one
    /// that spoke last would overwrite the other's deadline.
    pub fn with_trigger(trigger: Arc<dyn Trigger>) -> Self {
        Self(Arc::new(Shared { trigger, set: Mutex::new(Set::default()) }))
    }

    /// The present on the clock that deadlines are meant on.
    pub fn now(&self) -> Instant {
        self.0.trigger.now()
    }

    /// Arms a deadline. In force when this returns.
    ///
    /// # Errors
    /// [`ArmError::Passed`] and [`ArmError::Kernel`]; nothing is armed then.
    pub fn arm(&self, subject: Subject, at: Instant) -> Result<Armed, ArmError> {
        let mut set = self.lock();
        if self.now() >= at {
            return Err(ArmError::Passed);
        }
        let generation = NEXT_GENERATION.fetch_add(1, Ordering::Relaxed);
        let id = set.deadlines.insert(Deadline { at, is_final: false, generation, subject });
        set.order.insert(Place { at, generation, id });
        if let Err(cause) = self.tell(&mut set) {
            set.deadlines.remove(id);
            return Err(ArmError::Kernel(cause));
        }
        Ok(Armed { id, generation })
    }

    /// Moves deadlines later: the only way to, and only for a renewal that the storage has confirmed (I3,
    /// I4). One lock and at most one trigger call for the whole batch.
    ///
    /// An instant that is not later changes nothing. Neither does any for a deadline that was
    /// [tightened](Self::tighten), which is final, or that has passed: the trigger is acting upon it. `batch`
    /// is iterated under the set's lock and must not call back into the set.
    pub fn confirm<'armed>(&self, batch: impl IntoIterator<Item = (&'armed Armed, Instant)>) {
        let mut set = self.lock();
        let now = self.now();
        for (armed, new) in batch {
            set.shift(armed, new, |old| !old.is_final && now < old.at && old.at < new);
        }
        self.tell_or_stay(&mut set);
    }

    /// Moves one deadline earlier, for a leadership known to be lost, and makes it final: no confirmation
    /// moves it later, only [`disarm`](Self::disarm) ends it (I4). An instant that is not earlier leaves the
    /// deadline where it is.
    pub fn tighten(&self, armed: &Armed, at: Instant) {
        let mut set = self.lock();
        if let Some(deadline) = set.find(armed) {
            deadline.is_final = true;
        }
        set.shift(armed, at, |old| at < old.at);
        self.tell_or_stay(&mut set);
    }

    /// Ends a deadline: the caller's word that the work behind it has stopped.
    pub fn disarm(&self, armed: Armed) {
        let mut set = self.lock();
        if set.find(&armed).is_some() {
            set.deadlines.remove(armed.id);
        }
        self.tell_or_stay(&mut set);
    }

    /// How many deadlines are armed.
    pub fn armed(&self) -> usize {
        self.lock().deadlines.len()
    }

    /// A trigger that fails keeps the deadline it had, and is told again at the next opportunity. When the
    /// new one is later, or none, the process may end early, never late (I4). When it is earlier
    /// (tightening), what stays in force is the deadline of the last confirmed renewal, which is safe by
    /// itself (I3).
    fn tell_or_stay(&self, set: &mut Set) {
        drop(self.tell(set));
    }

    fn tell(&self, set: &mut Set) -> io::Result<()> {
        let earliest = set.earliest();
        if earliest == set.told {
            return Ok(());
        }
        let named = earliest.and_then(|place| Some((place.at, &set.deadlines.get(place.id)?.subject)));
        self.0.trigger.set_earliest(named)?;
        set.told = earliest;
        Ok(())
    }

    /// Poison means that a trigger or a batch has panicked: at worst a deadline is armed that nobody owns, or
    /// one was moved later and the trigger not told. Both end the process early, never late (I4).
    fn lock(&self) -> MutexGuard<'_, Set> {
        self.0.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Set {
    /// The generation keeps a value that outlived its deadline from moving the next one at the same index.
    fn find(&mut self, armed: &Armed) -> Option<&mut Deadline> {
        self.deadlines.get_mut(armed.id).filter(|deadline| deadline.generation == armed.generation)
    }

    fn shift(&mut self, armed: &Armed, new: Instant, moves: impl Fn(&Deadline) -> bool) {
        let Some(deadline) = self.find(armed).filter(|deadline| moves(deadline)) else { return };
        deadline.at = new;
        self.order.insert(Place { at: new, generation: armed.generation, id: armed.id });
    }

    /// The place of the earliest deadline: the first that is true, since every deadline has one that is (I4).
    fn earliest(&mut self) -> Option<Place> {
        self.prune();
        while let Some(first) = self.order.first() {
            let deadline = self.deadlines.get(first.id);
            if deadline.is_some_and(|found| found.generation == first.generation && found.at == first.at) {
                return Some(first);
            }
            self.order.drop_first();
        }
        None
    }

    /// Forgets the places that are no longer true before they are many times the others (I11).
    fn prune(&mut self) {
        const FEW: usize = 64;
        if self.order.len() <= 4 * self.deadlines.len() + FEW {
            return;
        }
        let places = self.deadlines.iter();
        self.order = places
            .map(|(id, deadline)| Place { at: deadline.at, generation: deadline.generation, id })
            .collect();
    }
}

impl fmt::Debug for Deadman {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut set = self.lock();
        out.debug_struct("Deadman")
            .field("armed", &set.deadlines.len())
            .field("earliest", &set.earliest().map(|place| place.at))
            .finish()
    }
}

#[cfg(test)]
mod tests;
