//! The world that the processes share: true time, the records, who is alive and at work; and every check.
//!
//! A check that fails is noted and ends the run. Checks stand where the state they speak of changes, and
//! [`World::check`] is called between any two steps of any task for those that must hold all the time.

use crate::{
    executor::{Inbox, Process, Task},
    faults::{Counts, Weather},
    records::Records,
    storage::{Fate, Outcome, Write},
    trace::Trace,
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
    pub(crate) weather: Weather,
    pub(crate) counts: Counts,
    pub(crate) trace: Trace,
    records: Records,
    processes: BTreeMap<Process, Alive>,
    /// What the processes' tasks ask of the executor.
    pub(crate) orders: Vec<Order>,
    pub(crate) violation: Option<String>,
}

/// What only the executor can do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    Crash(Process),
    Pause(Process),
    Resume(Process),
    /// The process says that it has shut down cleanly: none of its tasks may be left (I9).
    Ended(Process),
}

/// A living process.
struct Alive {
    clock: Arc<dyn Clock>,
    /// What its deadman is set to, on its own clock.
    deadline: Option<Instant>,
    work: Option<Work>,
    /// For each slot, the last instant (own clock) from which the deadline may count: the send of an applied
    /// write.
    proven: BTreeMap<u32, (Instant, Ttl)>,
}

#[derive(Clone, Copy, Debug)]
struct Work {
    key: u32,
    epoch: Epoch,
    incarnation: Incarnation,
}

/// A write as it was when it was sent.
pub(crate) struct Sent {
    process: Process,
    at: Instant,
    /// On the sender's clock.
    at_sender: Option<Instant>,
}

impl World {
    pub(crate) fn new(clock: MockClock, inbox: Inbox, rng: Rng, weather: Weather, trace: Trace) -> Arc<Self> {
        let state = State {
            rng,
            weather,
            counts: Counts::default(),
            trace,
            records: Records::default(),
            processes: BTreeMap::new(),
            orders: Vec::new(),
            violation: None,
        };
        Arc::new(Self { clock, inbox, state: Mutex::new(state) })
    }

    /// Whether the storage proves how old a record is.
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

    /// A line of the trace, with the true time before it.
    pub(crate) fn note(&self, line: fmt::Arguments<'_>) {
        let now = self.clock.now();
        self.state().trace.line(now, line);
    }

    fn violated(&self, invariant: &str, what: fmt::Arguments<'_>) {
        self.note(format_args!("VIOLATION of {invariant}: {what}"));
        self.state().violation.get_or_insert_with(|| format!("{invariant}: {what}"));
    }

    // Processes

    pub(crate) fn born(&self, process: Process, clock: Arc<dyn Clock>) {
        let alive = Alive { clock, deadline: None, work: None, proven: BTreeMap::new() };
        self.state().processes.insert(process, alive);
        self.note(format_args!("{process} starts"));
    }

    /// The process is no more: whatever it was doing, it stopped here.
    pub(crate) fn died(&self, process: Process, how: &str) {
        let dead = self.state().processes.remove(&process);
        if let Some(dead) = dead {
            let leading = dead.work.map(|work| format!(", at work on slot {}", work.key)).unwrap_or_default();
            self.note(format_args!("{process} {how}{leading}"));
            self.state().orders.push(Order::Crash(process));
        }
    }

    pub(crate) fn is_alive(&self, process: Process) -> bool {
        self.state().processes.contains_key(&process)
    }

    pub(crate) fn is_working(&self, process: Process) -> bool {
        self.state().processes.get(&process).is_some_and(|alive| alive.work.is_some())
    }

    /// How many slots somebody is at work on.
    pub(crate) fn working(&self) -> usize {
        self.state().processes.values().filter(|alive| alive.work.is_some()).count()
    }

    // Work

    /// Services of `process` begin to act as leader.
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

    // Deadman

    /// The deadman of `process` was set. The bound is I3; that only a confirmed renewal moves it later is I4.
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

    // The storage's side

    pub(crate) fn draw_write(&self) -> (Fate, Duration, Duration) {
        let mut state = self.state();
        let State { rng, weather, .. } = &mut *state;
        let mut chance = rng.u32(..1000);
        let mut within = |share: u32| {
            let hit = chance < share;
            chance = chance.saturating_sub(share);
            hit
        };
        // `within` must not be asked again after a hit.
        let (fate, delayed) = if within(weather.not_applied) {
            (Fate::NotApplied, false)
        } else if within(weather.request_lost) {
            (Fate::RequestLost, false)
        } else if within(weather.answer_lost) {
            (Fate::AnswerLost, false)
        } else if within(weather.unknown) {
            (Fate::Unknown { applied: rng.bool() }, rng.bool())
        } else {
            (Fate::Answered, within(weather.delayed))
        };
        let usual = |rng: &mut Rng| weather.latency.mul_f64(rng.f64());
        let there = if delayed { Duration::from_secs(40).mul_f64(rng.f64()) } else { usual(rng) };
        (fate, there, usual(rng))
    }

    pub(crate) fn sent(&self, process: Process, write: &Write) -> Sent {
        let at_sender = self.state().processes.get(&process).map(|alive| alive.clock.now());
        let at = self.clock.now();
        self.note(format_args!("{process} sends {write:?}"));
        Sent { process, at, at_sender }
    }

    /// Applies a write at this moment, and checks what it does to the others.
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
        self.check_applied(now, write, replaced.map(|record| (record.entry.ttl, record.sent_at)));
        None
    }

    fn check_applied(&self, now: Instant, write: &Write, replaced: Option<(Ttl, Instant)>) {
        match (write, replaced) {
            (Write::TakeOver(key, ..), Some((ttl, sent_at))) => {
                // On the fastest clock that I1 allows, the TTL has passed after this.
                let least = ttl.get().mul_f64(1.0 / 1.1);
                let stood = now.since(sent_at);
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

    /// A linearizable look.
    pub(crate) fn look(&self, key: u32) -> Slot {
        let now = self.clock.now();
        self.state().records.slot(key, now)
    }

    /// A look that may be stale.
    pub(crate) fn glance(&self, key: u32) -> Slot {
        let now = self.clock.now();
        let mut state = self.state();
        let State { rng, weather, records, counts, .. } = &mut *state;
        if rng.u32(..1000) < weather.stale
            && let Some(past) = records.past(key, rng.f64())
        {
            counts.stale += 1;
            return past;
        }
        records.slot(key, now)
    }

    /// What must hold between any two steps.
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

impl Write {
    pub(crate) fn key(&self) -> u32 {
        match self {
            Self::Insert(key, ..) | Self::TakeOver(key, ..) | Self::Swap(key, ..) | Self::Delete(key, ..) => {
                *key
            }
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
