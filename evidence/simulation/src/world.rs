//! [`World`]: true time, the storage, the processes that are alive or at work, and every check. A failed check is noted
//! and ends the run. Most checks stand where the state changes, in [`work`] and [`storage`]. [`World::check`] has those
//! that must hold all the time; it runs between any two steps of tasks.

pub(crate) mod peers;
mod storage;
mod work;

use peers::Peers;
pub(crate) use storage::{LAST_SLOT, Sent};
use work::Work;

use crate::{
    clock::{Inbox, Process, SimClock, Task},
    faults::{Counts, FaultRates},
    records::{Ledger, Records},
};
use fastrand::Rng;
use ielections::{Incarnation, Ttl};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use testing_time::MockClock;
use vvm_clock::{Clock, Instant};

pub(crate) struct World {
    pub(crate) clock: MockClock,
    pub(crate) promises: Promises,
    inbox: Inbox,
    state: Mutex<State>,
}

/// Which assumptions of the design hold in this world. A check of what rests on a broken one is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Promises {
    /// Clocks err by up to 10 %. Without it only the fence is promised (I2), and what concerns one process.
    pub(crate) clocks: bool,
    /// The storage forgets nothing. Without it no driver here promises one leader: only the driver of
    /// PostgreSQL notices a new history. Epochs rise if the wall clocks are right. A leader that
    /// notices is lost, and a candidate that notices gives up.
    pub(crate) storage: bool,
    /// Wall clocks show the date. Otherwise they show anything, which only matters if the storage goes back.
    pub(crate) wall: bool,
}

/// Several claims within a millisecond have epochs ahead of the date.
const CLAIMS_BEFORE: Duration = Duration::from_millis(10);

impl Promises {
    #[cfg(test)]
    pub(crate) const ALL: Self = Self { clocks: true, storage: true, wall: false };

    /// Whether I1 is promised, and what follows from it.
    fn one_leader(self) -> bool {
        self.clocks && self.storage
    }

    /// Whether a claim has a larger epoch than all before it. If the storage has gone back, only a claim that
    /// was sent afterwards, by the date.
    fn rising_epoch(self, sent_at: Instant, went_back_at: Option<Instant>) -> bool {
        self.storage || self.wall && went_back_at.is_none_or(|at| sent_at > at.after(CLAIMS_BEFORE))
    }
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) rng: Rng,
    pub(crate) rates: FaultRates,
    pub(crate) counts: Counts,
    pub(crate) trace: Trace,
    records: Records,
    ledger: Ledger,
    processes: BTreeMap<Process, Alive>,
    /// The processes that may campaign again for a slot that they have led.
    campaigning_again: BTreeSet<Process>,
    pub(crate) peers: Peers,
    claimants: BTreeMap<Incarnation, Process>,
    in_flight: Vec<Incarnation>,
    /// An operator's `vvm pause` has reported success, and `vvm resume` was not sent.
    paused: bool,
    went_back_at: Option<Instant>,
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
    /// Continues a process whose engine had just read its clock, with this result, when it was paused.
    ResumeInPoll(Process, Instant),
    /// The process has shut down cleanly: none of its tasks may be left (I9).
    Ended(Process),
}

struct Alive {
    clock: SimClock,
    deadline: Option<Instant>,
    work: BTreeMap<Incarnation, Work>,
    /// For each leadership, when the latest applied write was sent, on its own clock. The deadline counts from it.
    proven: BTreeMap<Incarnation, (Instant, Ttl)>,
}

impl State {
    fn at_work(&self) -> impl Iterator<Item = (Process, Incarnation, Work)> {
        let alive = self.processes.iter();
        alive.flat_map(|(process, alive)| alive.work.iter().map(|(of, work)| (*process, *of, *work)))
    }
}

impl World {
    pub(crate) fn new(
        clock: MockClock,
        inbox: Inbox,
        rng: Rng,
        rates: FaultRates,
        trace: Trace,
        promises: Promises,
    ) -> Arc<Self> {
        let state = State { rng, rates, trace, ..State::default() };
        Arc::new(Self { clock, promises, inbox, state: Mutex::new(state) })
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

    pub(crate) fn note(&self, line: fmt::Arguments<'_>) {
        let now = self.clock.now();
        self.state().trace.line(now, line);
    }

    pub(crate) fn violated(&self, invariant: &str, what: fmt::Arguments<'_>) {
        self.note(format_args!("VIOLATION of {invariant}: {what}"));
        self.state().violation.get_or_insert_with(|| format!("{invariant}: {what}"));
    }

    pub(crate) fn born(&self, process: Process, clock: SimClock, campaigns_again: bool) {
        let alive = Alive { clock, deadline: None, work: BTreeMap::new(), proven: BTreeMap::new() };
        let mut state = self.state();
        state.processes.insert(process, alive);
        if campaigns_again {
            state.campaigning_again.insert(process);
        }
        drop(state);
        self.note(format_args!("{process} starts"));
    }

    pub(crate) fn died(&self, process: Process, how: &str) {
        let dead = self.state().processes.remove(&process);
        if let Some(dead) = dead {
            let slots: Vec<u32> = dead.work.values().map(|work| work.key).collect();
            match slots.is_empty() {
                true => self.note(format_args!("{process} {how}")),
                false => self.note(format_args!("{process} {how}, at work on slots {slots:?}")),
            }
            self.state().signals.push(Signal::Crash(process));
        }
    }

    pub(crate) fn is_alive(&self, process: Process) -> bool {
        self.state().processes.contains_key(&process)
    }

    pub(crate) fn living(&self) -> Vec<Process> {
        self.state().processes.keys().copied().collect()
    }

    pub(crate) fn clock_of(&self, process: Process) -> Option<SimClock> {
        self.state().processes.get(&process).map(|alive| alive.clock.clone())
    }

    pub(crate) fn check(&self) {
        let unguarded = {
            let state = self.state();
            let mut working = state.processes.iter();
            working
                .find(|(_, alive)| !alive.work.is_empty() && alive.deadline.is_none())
                .map(|(process, _)| *process)
        };
        if let Some(process) = unguarded {
            self.violated("I4", format_args!("{process} is at work and no deadline is armed"));
        }
    }
}

/// What happens, line by line. Equal seeds have equal hashes of it.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    print: bool,
    hash: u64,
    buffer: String,
}

impl Trace {
    pub(crate) fn new(print: bool) -> Self {
        // The offset basis of FNV-1a.
        Self { print, hash: 0xcbf2_9ce4_8422_2325, buffer: String::new() }
    }

    pub(crate) fn line(&mut self, now: Instant, line: fmt::Arguments<'_>) {
        self.buffer.clear();
        let seconds = now.since(Instant::ORIGIN).as_secs_f64();
        // Writing to a string cannot fail.
        let _ = write!(self.buffer, "{seconds:>11.6}  {line}");
        for byte in self.buffer.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if self.print {
            println!("{}", self.buffer);
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}

#[cfg(test)]
mod tests;

impl fmt::Debug for World {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("World")
    }
}
