//! [`World`]: true time, the records, the processes that are alive or at work, and every check.
//!
//! A failed check is noted and ends the run. Most checks stand where the state changes. [`World::check`] has
//! those that must hold all the time; it runs between any two steps of tasks.

use crate::{
    executor::{Inbox, Process, Task},
    faults::{Counts, Fate, FaultRates},
    records::{Record, Records},
    trace::Trace,
    write::{Outcome, Write},
};
use fastrand::Rng;
use ielections::{Epoch, Incarnation, Slot, Ttl};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use testing_time::MockClock;
use vvm_clock::{Clock, Instant};

pub(crate) struct World {
    /// True time.
    pub(crate) clock: MockClock,
    inbox: Inbox,
    state: Mutex<State>,
}

pub(crate) struct State {
    pub(crate) rng: Rng,
    pub(crate) rates: FaultRates,
    pub(crate) counts: Counts,
    pub(crate) trace: Trace,
    records: Records,
    processes: BTreeMap<Process, Alive>,
    /// The process of each incarnation that was claimed with.
    claimants: BTreeMap<Incarnation, Process>,
    /// The incarnations of the renewals in flight.
    renewals: Vec<Incarnation>,
    /// For the executor.
    pub(crate) signals: Vec<Signal>,
    pub(crate) violation: Option<String>,
}

/// A change of a process that the executor makes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Signal {
    Crash(Process),
    Pause(Process),
    Resume(Process),
    /// The process has shut down cleanly: none of its tasks may be left (I9).
    Ended(Process),
}

/// A living process.
struct Alive {
    clock: Arc<dyn Clock>,
    /// The deadline of its deadman, on its own clock.
    deadline: Option<Instant>,
    work: Option<Work>,
    /// For each slot, when the latest applied write was sent, on its own clock. The deadline counts from it.
    proven: BTreeMap<u32, (Instant, Ttl)>,
}

#[derive(Clone, Copy, Debug)]
struct Work {
    key: u32,
    epoch: Epoch,
    incarnation: Incarnation,
}

/// When a write was sent, and by which process.
pub(crate) struct Sent {
    process: Process,
    at: Instant,
    /// On the sender's clock.
    at_sender: Option<Instant>,
}

impl World {
    pub(crate) fn new(
        clock: MockClock,
        inbox: Inbox,
        rng: Rng,
        rates: FaultRates,
        trace: Trace,
    ) -> Arc<Self> {
        let state = State {
            rng,
            rates,
            counts: Counts::default(),
            trace,
            records: Records::default(),
            processes: BTreeMap::new(),
            claimants: BTreeMap::new(),
            renewals: Vec::new(),
            signals: Vec::new(),
            violation: None,
        };
        Arc::new(Self { clock, inbox, state: Mutex::new(state) })
    }

    /// Sets whether the storage proves how old a record is.
    pub(crate) fn prove_ages(&self, proves: bool) {
        self.state().records.proves_age = proves;
    }

    pub(crate) fn spawn(&self, process: Process, name: &'static str, task: Task) {
        self.inbox.spawn(process, name, task);
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.state().counts);
    }

    /// Writes a line of the trace, with the true time before it.
    pub(crate) fn note(&self, line: fmt::Arguments<'_>) {
        let now = self.clock.now();
        self.state().trace.line(now, line);
    }

    fn violated(&self, invariant: &str, what: fmt::Arguments<'_>) {
        self.note(format_args!("VIOLATION of {invariant}: {what}"));
        self.state().violation.get_or_insert_with(|| format!("{invariant}: {what}"));
    }

    pub(crate) fn born(&self, process: Process, clock: Arc<dyn Clock>) {
        let alive = Alive { clock, deadline: None, work: None, proven: BTreeMap::new() };
        self.state().processes.insert(process, alive);
        self.note(format_args!("{process} starts"));
    }

    /// Ends the process and its work at once.
    pub(crate) fn died(&self, process: Process, how: &str) {
        let dead = self.state().processes.remove(&process);
        if let Some(dead) = dead {
            let leading = dead.work.map(|work| format!(", at work on slot {}", work.key)).unwrap_or_default();
            self.note(format_args!("{process} {how}{leading}"));
            self.state().signals.push(Signal::Crash(process));
        }
    }

    pub(crate) fn is_alive(&self, process: Process) -> bool {
        self.state().processes.contains_key(&process)
    }

    pub(crate) fn is_working(&self, process: Process) -> bool {
        self.state().processes.get(&process).is_some_and(|alive| alive.work.is_some())
    }

    /// How many processes are at work.
    pub(crate) fn working(&self) -> usize {
        self.state().processes.values().filter(|alive| alive.work.is_some()).count()
    }

    /// Services of `process` begin to work as leader.
    pub(crate) fn work_begins(&self, process: Process, key: u32, epoch: Epoch, incarnation: Incarnation) {
        self.note(format_args!("{process} works on slot {key}, epoch {epoch}"));
        self.count(|counts| counts.starts += 1);
        let others: Vec<Process> = {
            let state = self.state();
            let works_on_it = |alive: &Alive| alive.work.is_some_and(|work| work.key == key);
            let others =
                state.processes.iter().filter(|(other, alive)| **other != process && works_on_it(alive));
            others.map(|(other, _)| *other).collect()
        };
        if let Some(other) = others.first() {
            self.violated("I1", format_args!("{process} begins work on slot {key} while {other} is at work"));
        }
        let mut state = self.state();
        let rising = state.records.work_begins(key, epoch);
        if let Some(alive) = state.processes.get_mut(&process) {
            alive.work = Some(Work { key, epoch, incarnation });
        }
        drop(state);
        if !rising {
            self.violated(
                "rising epochs",
                format_args!("work on slot {key} begins at {epoch}, not a larger one"),
            );
        }
    }

    /// Services of `process` have stopped.
    pub(crate) fn work_ends(&self, process: Process) {
        if let Some(alive) = self.state().processes.get_mut(&process) {
            alive.work = None;
        }
        self.note(format_args!("{process} stops working"));
    }

    /// Notes the deadline of the deadman of `process`. Its bound is I3.
    pub(crate) fn deadline_set(&self, process: Process, deadline: Option<Instant>) {
        let mut state = self.state();
        let Some(alive) = state.processes.get_mut(&process) else { return };
        let bound = alive.proven.values().map(|(sent_at, ttl)| sent_at.after(ttl.get() * 4 / 5)).max();
        alive.deadline = deadline;
        drop(state);
        if let Some(deadline) = deadline
            && bound.is_none_or(|bound| deadline > bound)
        {
            self.violated(
                "I3",
                format_args!(
                    "the deadline of {process} is {deadline:?}; writes that applied allow {bound:?}"
                ),
            );
        }
    }

    pub(crate) fn deadline(&self, process: Process) -> Option<Instant> {
        self.state().processes.get(&process)?.deadline
    }

    pub(crate) fn draw_write(&self) -> (Fate, Duration, Duration) {
        let mut state = self.state();
        let State { rng, rates, .. } = &mut *state;
        let mut chance = rng.u32(..1000);
        let mut within = |share: u32| {
            let hit = chance < share;
            chance = chance.saturating_sub(share);
            hit
        };
        // No further call of `within` after a hit.
        let (fate, delayed) = if within(rates.not_applied) {
            (Fate::NotApplied, false)
        } else if within(rates.request_lost) {
            (Fate::RequestLost, false)
        } else if within(rates.answer_lost) {
            (Fate::AnswerLost, false)
        } else if within(rates.unknown) {
            (Fate::Unknown { applied: rng.bool() }, rng.bool())
        } else {
            (Fate::Answered, within(rates.delayed))
        };
        let usual = |rng: &mut Rng| rates.latency.mul_f64(rng.f64());
        let there = if delayed { Duration::from_secs(40).mul_f64(rng.f64()) } else { usual(rng) };
        (fate, there, usual(rng))
    }

    pub(crate) fn sent(&self, process: Process, write: &Write) -> Sent {
        let at_sender = self.state().processes.get(&process).map(|alive| alive.clock.now());
        let at = self.clock.now();
        self.note(format_args!("{process} sends {write:?}"));
        match write {
            Write::Insert(_, _, entry) | Write::TakeOver(_, _, entry) => {
                self.state().claimants.insert(entry.incarnation(), process);
            }
            Write::Delete(_, incarnation, _) if self.state().renewals.contains(incarnation) => {
                self.violated("I6", format_args!("{process} releases while its renewal is in flight"));
            }
            Write::Swap(..) | Write::Delete(..) => {}
        }
        Sent { process, at, at_sender }
    }

    /// A call to renew `incarnation` is in flight until [`Self::renewal_ends`].
    pub(crate) fn renewal_begins(&self, incarnation: Incarnation) {
        self.state().renewals.push(incarnation);
    }

    pub(crate) fn renewal_ends(&self, incarnation: Incarnation) {
        let mut state = self.state();
        if let Some(place) = state.renewals.iter().position(|other| *other == incarnation) {
            state.renewals.swap_remove(place);
        }
    }

    /// A leadership of `process` was lost to the record of `winner`.
    pub(crate) fn lost_to(&self, process: Process, winner: Incarnation) {
        let is_own = self.state().claimants.get(&winner) == Some(&process);
        if is_own {
            self.violated("I7", format_args!("{process} has lost its leadership to its own write"));
        }
    }

    /// Applies a write now, and checks its effect on the other processes.
    pub(crate) fn apply(&self, sent: &Sent, write: &Write) -> Outcome {
        let now = self.clock.now();
        let mut state = self.state();
        let replaced = state.records.record(write.key()).cloned();
        let refused = state.records.apply(now, sent.at, write);
        let alive = state.processes.contains_key(&sent.process);
        if refused.is_some() {
            return refused;
        }
        if !alive {
            state.counts.landed_dead += 1;
        }
        match write {
            Write::Insert(key, _, entry) | Write::TakeOver(key, _, entry) | Write::Swap(key, _, entry) => {
                if now > sent.at.after(entry.ttl.get()) {
                    state.counts.late += 1;
                }
                let proven = sent.at_sender.map(|at_sender| (at_sender, entry.ttl));
                if let (Some(proven), Some(alive)) = (proven, state.processes.get_mut(&sent.process)) {
                    let best = alive.proven.entry(*key).or_insert(proven);
                    *best = if best.0 > proven.0 { *best } else { proven };
                }
            }
            Write::Delete(..) => state.counts.releases += 1,
        }
        if matches!(write, Write::TakeOver(..)) {
            state.counts.takeovers += 1;
        }
        drop(state);
        self.note(format_args!("applied for {}: {write:?}", sent.process));
        self.check_applied(now, sent.process, write, replaced.as_ref());
        None
    }

    fn check_applied(&self, now: Instant, writer: Process, write: &Write, replaced: Option<&Record>) {
        match (write, replaced) {
            (Write::TakeOver(key, ..), Some(Record { entry, sent_at })) => {
                let is_own = self.state().claimants.get(&entry.incarnation()) == Some(&writer);
                if is_own {
                    self.violated("I7", format_args!("{writer} takes slot {key} over from itself"));
                }
                let ttl = entry.ttl;
                // After this time the TTL has passed on the fastest clock that I1 allows.
                let least = ttl.get().mul_f64(1.0 / 1.1);
                let stood = now.since(*sent_at);
                if stood + Duration::from_micros(1) < least {
                    self.violated("I5", format_args!("slot {key} taken over after {stood:?}, TTL {ttl}"));
                }
            }
            (Write::Delete(_, incarnation, epoch), _) => {
                let at_work = {
                    let state = self.state();
                    let of_it = |work: Work| work.incarnation == *incarnation && work.epoch == *epoch;
                    let mut working = state.processes.iter();
                    working.find(|(_, alive)| alive.work.is_some_and(of_it)).map(|(process, _)| *process)
                };
                if let Some(process) = at_work {
                    self.violated("I6", format_args!("the record of {process} is released while it works"));
                }
            }
            _ => {}
        }
        if !self.state().records.epoch_rose() {
            self.violated("rising epochs", format_args!("{write:?} does not raise the epoch"));
        }
    }

    /// A linearizable read.
    pub(crate) fn read(&self, key: u32) -> Slot {
        let now = self.clock.now();
        self.state().records.slot(key, now)
    }

    /// A read that may be stale.
    pub(crate) fn read_stale(&self, key: u32) -> Slot {
        let now = self.clock.now();
        let mut state = self.state();
        let State { rng, rates, records, counts, .. } = &mut *state;
        if rng.u32(..1000) < rates.stale
            && let Some(past) = records.past(key, rng.f64())
        {
            counts.stale += 1;
            return past;
        }
        records.slot(key, now)
    }

    /// Checks what must hold between any two steps.
    pub(crate) fn check(&self) {
        let unguarded = {
            let state = self.state();
            let mut working = state.processes.iter();
            working
                .find(|(_, alive)| alive.work.is_some() && alive.deadline.is_none())
                .map(|(process, _)| *process)
        };
        if let Some(process) = unguarded {
            self.violated("I4", format_args!("{process} is at work and no deadline is armed"));
        }
    }
}

#[cfg(test)]
mod tests;

impl fmt::Debug for World {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("World")
    }
}
