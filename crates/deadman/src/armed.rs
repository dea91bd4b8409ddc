//! [`Deadman`]: a set of deadlines. A [`Trigger`] acts at the earliest, and only a confirmed renewal moves one later
//! (I4). One lock covers the choice of the earliest deadline and the call of the trigger, so that two renewals
//! confirmed at once can't leave an older choice in force.

use slab::Slab;
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    fmt, io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use vvm_clock::Instant;

/// Acts at the earliest deadline. [`SystemTrigger`](crate::SystemTrigger) ends the process, and a recorder in
/// tests records it. A host that informs a guardian process wraps the system's trigger.
pub trait Trigger: fmt::Debug + Send + Sync + 'static {
    /// Replaces the earliest deadline; `None` means that no deadline is armed. Fails if it could not be set: the
    /// previous one must then be in force. The set calls it under its lock, on a change, and at most once for a batch
    /// (I4). It must not call the [`Deadman`].
    fn set_earliest(&self, earliest: Option<(Instant, &Subject)>) -> io::Result<()>;

    /// Returns the current time on the clock of the deadlines.
    fn now(&self) -> Instant;
}

/// The leadership behind a deadline. Clones share the names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The election's key, for operators.
    pub key: Arc<str>,
    /// The holder, for operators.
    pub holder: Arc<str>,
    /// The epoch of the leadership, its fencing token.
    pub epoch: u64,
}

/// The deadline could not be armed. The caller must not act as leader.
#[derive(Debug, thiserror::Error)]
pub enum ArmError {
    /// The deadline has passed. Acquire again.
    #[error("the kill deadline passed before it could be armed")]
    Passed,
    /// The system refused a timer or a thread.
    #[error("the kill deadline could not be set: {0}")]
    Kernel(#[source] io::Error),
}

/// The set of a process's kill deadlines. Clones share it. Dropping the last clone disarms nothing (I4).
#[derive(Clone)]
pub struct Deadman(Arc<SharedSet>);

struct SharedSet {
    trigger: Arc<dyn Trigger>,
    set: Mutex<Set>,
}

#[derive(Default)]
struct Set {
    deadlines: Slab<Deadline>,
    /// Each deadline's place. Outdated ones, of deadlines that moved or ended, stay until they are first or too many.
    order: DeadlineOrder,
    triggered: Option<DeadlineEntry>,
}

struct Deadline {
    at: Instant,
    /// No confirmation moves it, because the leadership is lost (I4).
    is_final: bool,
    generation: u64,
    subject: Subject,
}

/// One armed deadline. Dropping it leaves the deadline armed. Not `Clone`: one owner moves it. Other sets ignore it.
#[must_use = "an armed deadline ends the process unless its owner confirms or disarms it"]
#[derive(Debug)]
pub struct ArmedDeadline {
    id: usize,
    generation: u64,
}

/// The next generation, unique over all sets: a wrong set does not find the deadline of an [`ArmedDeadline`].
static NEXT_GENERATION: AtomicU64 = AtomicU64::new(0);

impl Deadman {
    /// Returns a set that passes its earliest deadline to `trigger`. Another set on this trigger would overwrite it.
    pub fn with_trigger(trigger: Arc<dyn Trigger>) -> Self {
        Self(Arc::new(SharedSet { trigger, set: Mutex::new(Set::default()) }))
    }

    /// Returns the current time on the clock of the deadlines.
    pub fn now(&self) -> Instant {
        self.0.trigger.now()
    }

    /// Arms a deadline. It is in force when this returns, and nothing is armed after an error.
    pub fn arm(&self, subject: Subject, at: Instant) -> Result<ArmedDeadline, ArmError> {
        let mut set = self.lock();
        if self.now() >= at {
            return Err(ArmError::Passed);
        }
        let generation = NEXT_GENERATION.fetch_add(1, Ordering::Relaxed);
        let id = set.deadlines.insert(Deadline { at, is_final: false, generation, subject });
        set.order.insert(DeadlineEntry { at, generation, id });
        if let Err(cause) = self.set_trigger(&mut set) {
            set.deadlines.remove(id);
            return Err(ArmError::Kernel(cause));
        }
        Ok(ArmedDeadline { id, generation })
    }

    /// Moves deadlines later. Call it only for renewals that the storage has confirmed (I3, I4). A batch
    /// takes one lock and calls the trigger at most once.
    ///
    /// It ignores an instant that is not later, and every instant for a deadline that has passed or was
    /// [tightened](Self::tighten). `batch` is iterated under the lock, and must not call the set.
    pub fn confirm<'armed>(&self, batch: impl IntoIterator<Item = (&'armed ArmedDeadline, Instant)>) {
        let mut set = self.lock();
        let now = self.now();
        for (armed, new) in batch {
            set.shift(armed, new, |old| !old.is_final && now < old.at && old.at < new);
        }
        self.try_set_trigger(&mut set);
    }

    /// Moves a deadline earlier, because its leadership is lost, and makes it final: no confirmation moves
    /// it, and only [`disarm`](Self::disarm) ends it (I4). An instant that is not earlier does not move it.
    pub fn tighten(&self, armed: &ArmedDeadline, at: Instant) {
        let mut set = self.lock();
        if let Some(deadline) = set.find(armed) {
            deadline.is_final = true;
        }
        set.shift(armed, at, |old| at < old.at);
        self.try_set_trigger(&mut set);
    }

    /// Ends a deadline. Call it only after the work under the leadership has stopped.
    pub fn disarm(&self, armed: ArmedDeadline) {
        let mut set = self.lock();
        if set.find(&armed).is_some() {
            set.deadlines.remove(armed.id);
        }
        self.try_set_trigger(&mut set);
    }

    /// Returns the number of armed deadlines.
    pub fn armed(&self) -> usize {
        self.lock().deadlines.len()
    }

    /// Ignores a failure: the trigger keeps its deadline, and the next call tries again. If the new deadline
    /// is later or none, the process may end early, never late (I4). If it is earlier, the deadline of the
    /// last confirmed renewal stays in force, which is safe (I3).
    fn try_set_trigger(&self, set: &mut Set) {
        drop(self.set_trigger(set));
    }

    fn set_trigger(&self, set: &mut Set) -> io::Result<()> {
        let earliest = set.earliest();
        if earliest == set.triggered {
            return Ok(());
        }
        let named = earliest.and_then(|place| Some((place.at, &set.deadlines.get(place.id)?.subject)));
        self.0.trigger.set_earliest(named)?;
        set.triggered = earliest;
        Ok(())
    }

    /// Ignores poison: after a panic of a trigger or a batch, a deadline may lack an owner, or the trigger
    /// may have an earlier deadline than the set. Both end the process early, never late (I4).
    fn lock(&self) -> MutexGuard<'_, Set> {
        self.0.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Set {
    /// The generation protects the next deadline at the same index from an outdated value.
    fn find(&mut self, armed: &ArmedDeadline) -> Option<&mut Deadline> {
        self.deadlines.get_mut(armed.id).filter(|deadline| deadline.generation == armed.generation)
    }

    fn shift(&mut self, armed: &ArmedDeadline, new: Instant, moves: impl Fn(&Deadline) -> bool) {
        let Some(deadline) = self.find(armed).filter(|deadline| moves(deadline)) else { return };
        deadline.at = new;
        self.order.insert(DeadlineEntry { at: new, generation: armed.generation, id: armed.id });
    }

    /// Returns the place of the earliest deadline: the first one that is not outdated (I4).
    fn earliest(&mut self) -> Option<DeadlineEntry> {
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

    /// Removes outdated places before they are many times the current ones (I11).
    fn prune(&mut self) {
        const FEW: usize = 64;
        if self.order.len() <= 4 * self.deadlines.len() + FEW {
            return;
        }
        let places = self.deadlines.iter();
        self.order = places
            .map(|(id, deadline)| DeadlineEntry { at: deadline.at, generation: deadline.generation, id })
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

/// A deadline's place in the order. Deadlines of one instant are ordered by generation. The generation also
/// distinguishes a deadline from a later one at the same index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct DeadlineEntry {
    at: Instant,
    generation: u64,
    id: usize,
}

/// Places of deadlines, the earliest first. A renewal costs constant time if all TTLs are equal (I11). A deadline that
/// moves gets a second place. The set recognises the outdated one when it is the first.
#[derive(Default)]
struct DeadlineOrder {
    /// Places that came in ascending order, as those of renewals with one TTL do. With 100,000 places, cache
    /// misses dominate the cost of a heap, and a queue has none.
    in_order: VecDeque<DeadlineEntry>,
    /// Places that came before the last one of `in_order`.
    others: BinaryHeap<Reverse<DeadlineEntry>>,
}

impl DeadlineOrder {
    fn insert(&mut self, place: DeadlineEntry) {
        if self.in_order.back().is_none_or(|last| *last < place) {
            self.in_order.push_back(place);
        } else {
            self.others.push(Reverse(place));
        }
    }

    fn first(&self) -> Option<DeadlineEntry> {
        let other = self.others.peek().map(|Reverse(place)| *place);
        self.in_order.front().copied().into_iter().chain(other).min()
    }

    fn drop_first(&mut self) {
        if self.first() == self.in_order.front().copied() {
            self.in_order.pop_front();
        } else {
            self.others.pop();
        }
    }

    fn len(&self) -> usize {
        self.in_order.len() + self.others.len()
    }
}

impl FromIterator<DeadlineEntry> for DeadlineOrder {
    fn from_iter<Places: IntoIterator<Item = DeadlineEntry>>(places: Places) -> Self {
        let mut sorted: Vec<DeadlineEntry> = places.into_iter().collect();
        sorted.sort_unstable();
        Self { in_order: sorted.into(), others: BinaryHeap::new() }
    }
}

#[cfg(test)]
mod tests;
