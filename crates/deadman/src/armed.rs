//! The set of armed deadlines: the earliest rules, and nothing but a confirmed renewal moves one later (I4).
//!
//! Choosing the earliest and handing it to the trigger happen under one lock, so that two renewals confirmed at once
//! cannot leave the older choice in force.

use crate::{Subject, Trigger};
use clock::Instant;
use slab::Slab;
use std::{
    collections::BTreeSet,
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A process-wide set of deadlines. Cloning shares it; dropping the last clone disarms nothing (I4).
#[derive(Clone)]
pub struct Deadman(Arc<Shared>);

struct Shared {
    trigger: Arc<dyn Trigger>,
    set: Mutex<Set>,
}

#[derive(Default)]
struct Set {
    deadlines: Slab<Deadline>,
    order: BTreeSet<(Instant, usize)>,
    next_generation: u64,
    /// What the trigger was told last.
    told: Option<(Instant, usize)>,
}

struct Deadline {
    at: Instant,
    generation: u64,
    subject: Subject,
}

/// One armed deadline.
///
/// Has no `Drop`: losing the value leaves the deadline armed. Not `Clone`: one owner moves it.
#[must_use = "an armed deadline ends the process unless its owner confirms or disarms it"]
#[derive(Debug)]
pub struct Armed {
    id: usize,
    generation: u64,
}

/// A deadline could not be armed; the caller must not act as leader.
#[derive(Debug, thiserror::Error)]
pub enum ArmError {
    /// The work to be guarded has no time left. Acquire again.
    #[error("the kill deadline passed before it could be armed")]
    Passed,
    /// Process 1 of a PID namespace ignores its own SIGKILL timer (measured), so the kernel's layer is void there.
    #[error(
        "process 1 of a PID namespace ignores its own kill timer: start it under an init, or accept the thread alone"
    )]
    UnkillableInit,
    /// The system refused the timer or the thread.
    #[error("the kill deadline could not be set")]
    Kernel(#[source] io::Error),
}

impl Deadman {
    /// A set whose earliest deadline goes to `trigger`.
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
    /// [`ArmError`]; nothing is armed then.
    pub fn arm(&self, subject: Subject, at: Instant) -> Result<Armed, ArmError> {
        let mut set = self.lock();
        if self.0.trigger.now() >= at {
            return Err(ArmError::Passed);
        }
        set.next_generation += 1;
        let generation = set.next_generation;
        let id = set.deadlines.insert(Deadline { at, generation, subject });
        set.order.insert((at, id));
        if let Err(cause) = self.tell(&mut set) {
            set.order.remove(&(at, id));
            set.deadlines.remove(id);
            return Err(ArmError::Kernel(cause));
        }
        Ok(Armed { id, generation })
    }

    /// Moves deadlines later: the only way to, and only for a renewal that the storage has confirmed (I3, I4). An
    /// instant that is not later changes nothing. One lock and at most one trigger call for the whole batch.
    pub fn confirm<'armed>(&self, batch: impl IntoIterator<Item = (&'armed Armed, Instant)>) {
        self.shift(batch, |old, new| new > old);
    }

    /// Moves one deadline earlier, for a leadership known to be lost. An instant that is not earlier changes nothing.
    pub fn tighten(&self, armed: &Armed, at: Instant) {
        self.shift([(armed, at)], |old, new| new < old);
    }

    /// Ends a deadline: the caller's word that the work behind it has stopped.
    pub fn disarm(&self, armed: Armed) {
        let mut set = self.lock();
        let Some(at) = set.find(&armed).map(|deadline| deadline.at) else { return };
        set.order.remove(&(at, armed.id));
        set.deadlines.remove(armed.id);
        self.tell_or_stay(&mut set);
    }

    /// How many deadlines are armed.
    pub fn armed(&self) -> usize {
        self.lock().deadlines.len()
    }

    fn shift<'armed>(
        &self,
        batch: impl IntoIterator<Item = (&'armed Armed, Instant)>,
        moves: impl Fn(Instant, Instant) -> bool,
    ) {
        let mut set = self.lock();
        for (armed, new) in batch {
            let Some(deadline) = set.find(armed) else { continue };
            let old = deadline.at;
            if moves(old, new) {
                deadline.at = new;
                set.order.remove(&(old, armed.id));
                set.order.insert((new, armed.id));
            }
        }
        self.tell_or_stay(&mut set);
    }

    /// A trigger that fails keeps the deadline it had, which is no later than the one it should have: moving later or
    /// disarming failed, so the process may end early, never late (I4). Tightening can fail only where arming did.
    fn tell_or_stay(&self, set: &mut Set) {
        drop(self.tell(set));
    }

    fn tell(&self, set: &mut Set) -> io::Result<()> {
        let earliest = set.order.first().copied();
        if earliest == set.told {
            return Ok(());
        }
        let named = earliest.and_then(|(at, id)| Some((at, &set.deadlines.get(id)?.subject)));
        self.0.trigger.set_earliest(named)?;
        set.told = earliest;
        Ok(())
    }

    /// Every step leaves the set consistent, so poison (a panicking trigger) carries no information here.
    fn lock(&self) -> MutexGuard<'_, Set> {
        self.0.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Set {
    /// The generation keeps a value that outlived its deadline from moving the next one at the same place.
    fn find(&mut self, armed: &Armed) -> Option<&mut Deadline> {
        self.deadlines.get_mut(armed.id).filter(|deadline| deadline.generation == armed.generation)
    }
}

impl fmt::Debug for Deadman {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = self.lock();
        out.debug_struct("Deadman")
            .field("armed", &set.deadlines.len())
            .field("earliest", &set.order.first().map(|(at, _)| *at))
            .finish()
    }
}
