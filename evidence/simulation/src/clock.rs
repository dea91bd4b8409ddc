//! [`SimClock`]: the clock of one simulated machine. Its rate changes, and it may jump forward or stop. The plan is
//! drawn when the machine starts, so that the end of each sleep is known at once.

use crate::faults::FAULTS_END;
use fastrand::Rng;
use std::{
    collections::BTreeMap,
    fmt,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Wake, Waker},
    time::Duration,
};
use testing_time::MockClock;
use vvm_clock::{Clock, Instant, Sleep};

#[derive(Clone, Debug)]
pub(crate) struct SimClock {
    beneath: MockClock,
    plan: Arc<[Segment]>,
    /// The next reading, if the process was stopped after it had read its clock; zero if it was not.
    held: Arc<AtomicU64>,
}

/// A span of true time in which the clock has one rate. It ends where the next one begins.
#[derive(Clone, Copy, Debug)]
struct Segment {
    from: Instant,
    shows: Instant,
    /// Nanoseconds for a million of true time.
    rate: u64,
}

const MILLION: u64 = 1_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Drift {
    /// It errs by up to 10 %, as I1 assumes, and the error changes.
    Within,
    /// It also stops, jumps forward, and runs at half or double the rate, until the last fault.
    Beyond,
}

impl SimClock {
    pub(crate) fn draw(beneath: &MockClock, drift: Drift, rng: &mut Rng) -> Self {
        let mut plan =
            vec![Segment { from: beneath.now(), shows: Instant::from_nanos(rng.u64(1..1 << 50)), rate: 0 }];
        loop {
            let is_broken = drift == Drift::Beyond && rng.u32(..3) > 0;
            let last = plan.len() - 1;
            plan[last].rate = match rng.u32(..3) {
                0 if is_broken => 0,
                1 if is_broken => [MILLION / 2, 2 * MILLION][rng.usize(..2)],
                _ => rng.u64(900_000..=1_100_000),
            };
            let stops = plan[last].rate == 0;
            let lasts = Duration::from_millis(rng.u64(100..if stops { 20_000 } else { 200_000 }));
            let from = plan[last].from.after(lasts);
            let jump = if is_broken && rng.bool() { rng.u64(..30_000) } else { 0 };
            let shows = shown_at(&plan, from).after(Duration::from_millis(jump));
            if from >= FAULTS_END {
                // From the last fault on, no clock is broken.
                let rate = rng.u64(900_000..=1_100_000);
                let (from, shows) = match plan[last].from < FAULTS_END {
                    true => (FAULTS_END, shown_at(&plan, FAULTS_END)),
                    false => (plan[last].from, plan[last].shows),
                };
                plan.retain(|segment| segment.from < from);
                plan.push(Segment { from, shows, rate });
                let held = Arc::new(AtomicU64::new(0));
                return Self { beneath: beneath.clone(), plan: plan.into(), held };
            }
            plan.push(Segment { from, shows, rate: 0 });
        }
    }

    pub(crate) fn peek(&self) -> Instant {
        shown_at(&self.plan, self.beneath.now())
    }

    /// Makes `reading` the result of the next reading: the process read its clock, was stopped, and continues now.
    pub(crate) fn hold(&self, reading: Instant) {
        self.held.store(reading.as_nanos(), Ordering::Relaxed);
    }

    /// Ends what [`hold`](Self::hold) began, if the process has not read its clock since.
    pub(crate) fn let_go(&self) {
        self.held.store(0, Ordering::Relaxed);
    }

    /// Returns the first instant of true time at which this clock shows `reading`.
    fn when(&self, reading: Instant) -> Instant {
        if reading == Instant::NEVER {
            return Instant::NEVER;
        }
        for (index, segment) in self.plan.iter().enumerate() {
            let wait = reading.as_nanos().saturating_sub(segment.shows.as_nanos());
            let wait = match segment.rate {
                _ if wait == 0 => 0,
                0 => u64::MAX,
                rate => u64::try_from((u128::from(wait) * u128::from(MILLION)).div_ceil(u128::from(rate)))
                    .unwrap_or(u64::MAX),
            };
            let at = Instant::from_nanos(segment.from.as_nanos().saturating_add(wait));
            if self.plan.get(index + 1).is_none_or(|next| at < next.from) {
                return at;
            }
        }
        Instant::NEVER
    }
}

fn shown_at(plan: &[Segment], at: Instant) -> Instant {
    let Some(segment) = plan.iter().rev().find(|segment| segment.from <= at).or(plan.first()) else {
        return at;
    };
    let passed = u128::from(at.as_nanos().saturating_sub(segment.from.as_nanos()));
    let passed = passed * u128::from(segment.rate) / u128::from(MILLION);
    let shown = segment.shows.as_nanos().saturating_add(u64::try_from(passed).unwrap_or(u64::MAX));
    Instant::from_nanos(shown)
}

impl Clock for SimClock {
    fn now(&self) -> Instant {
        match self.held.swap(0, Ordering::Relaxed) {
            0 => self.peek(),
            held => Instant::from_nanos(held),
        }
    }

    fn sleep_until(&self, deadline: Instant) -> Sleep {
        self.beneath.sleep_until(self.when(deadline))
    }
}

/// A process of the simulated world; a new one for each restart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Process(pub(crate) u32);

impl Process {
    /// The world itself: never paused, never crashed.
    pub(crate) const WORLD: Self = Self(0);
    pub(crate) const OPERATOR: Self = Self(1);
}

impl fmt::Display for Process {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "p{}", self.0)
    }
}

pub(crate) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Tasks that were spawned or woken, shared with wakers. Unordered: the executor chooses.
#[derive(Clone, Default)]
pub(crate) struct Inbox(Arc<Mutex<Arrivals>>);

#[derive(Default)]
struct Arrivals {
    spawned: Vec<(Process, &'static str, Task)>,
    woken: Vec<u64>,
}

impl Inbox {
    pub(crate) fn spawn(&self, process: Process, name: &'static str, task: Task) {
        self.with(|arrivals| arrivals.spawned.push((process, name, task)));
    }

    fn with<T>(&self, change: impl FnOnce(&mut Arrivals) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Inbox")
    }
}

struct TaskWaker {
    id: u64,
    inbox: Inbox,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.inbox.with(|arrivals| arrivals.woken.push(self.id));
    }
}

struct Running {
    process: Process,
    name: &'static str,
    task: Task,
    waker: Waker,
    ready: bool,
}

#[derive(Default)]
pub(crate) struct Executor {
    pub(crate) inbox: Inbox,
    tasks: BTreeMap<u64, Running>,
    /// The tasks that are ready, except those of paused processes.
    ready: Vec<u64>,
    /// For each paused process, its tasks that are ready.
    paused: BTreeMap<Process, Vec<u64>>,
    next_id: u64,
}

impl Executor {
    /// Polls one ready task, chosen by chance. `None` if there is none, or its process and name.
    pub(crate) fn step(&mut self, rng: &mut Rng) -> Option<(Process, &'static str)> {
        self.take_in();
        if self.ready.is_empty() {
            return None;
        }
        let id = self.ready.swap_remove(rng.usize(..self.ready.len()));
        self.poll(id)
    }

    /// Polls the task of this name first, ready or not: a task must expect a poll at any time.
    pub(crate) fn poll_first(&mut self, process: Process, name: &str) {
        self.take_in();
        let mut found = self.tasks.iter();
        let found = found.find(|(_, running)| running.process == process && running.name == name);
        if let Some((&id, _)) = found {
            self.ready.retain(|ready| *ready != id);
            self.poll(id);
        }
    }

    fn poll(&mut self, id: u64) -> Option<(Process, &'static str)> {
        let running = self.tasks.get_mut(&id)?;
        let what = (running.process, running.name);
        running.ready = false;
        let waker = running.waker.clone();
        if running.task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            self.tasks.remove(&id);
        }
        Some(what)
    }

    fn take_in(&mut self) {
        let arrivals = self.inbox.with(std::mem::take);
        for (process, name, task) in arrivals.spawned {
            self.next_id += 1;
            let id = self.next_id;
            let waker = Arc::new(TaskWaker { id, inbox: self.inbox.clone() }).into();
            self.tasks.insert(id, Running { process, name, task, waker, ready: false });
            self.wake(id);
        }
        arrivals.woken.into_iter().for_each(|id| self.wake(id));
    }

    fn wake(&mut self, id: u64) {
        // A waker outlives its task.
        if let Some(running) = self.tasks.get_mut(&id)
            && !std::mem::replace(&mut running.ready, true)
        {
            self.paused.get_mut(&running.process).unwrap_or(&mut self.ready).push(id);
        }
    }

    pub(crate) fn crash(&mut self, process: Process) {
        self.take_in();
        self.tasks.retain(|_, running| running.process != process);
        self.paused.remove(&process);
        self.ready.retain(|id| self.tasks.contains_key(id));
        // Also what the tasks spawned while they were dropped.
        self.inbox.with(|arrivals| arrivals.spawned.retain(|(owner, _, _)| *owner != process));
    }

    pub(crate) fn pause(&mut self, process: Process) {
        self.take_in();
        let parked = self.paused.entry(process).or_default();
        let is_of = |id: &u64| self.tasks.get(id).is_some_and(|running| running.process == process);
        parked.extend(self.ready.extract_if(.., |id| is_of(id)));
    }

    pub(crate) fn resume(&mut self, process: Process) {
        self.take_in();
        self.ready.extend(self.paused.remove(&process).unwrap_or_default());
    }

    /// The names of the tasks that the process has (I9).
    pub(crate) fn tasks_of(&self, process: Process) -> Vec<&'static str> {
        let own = self.tasks.values().filter(|running| running.process == process);
        own.map(|running| running.name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_ends_at_the_first_instant_that_shows_its_deadline() {
        for seed in 0..200 {
            let mut rng = Rng::with_seed(seed);
            let beneath = MockClock::starting_at(Instant::from_nanos(1));
            let clock = SimClock::draw(&beneath, Drift::Beyond, &mut rng);
            let (mut last, began) = (clock.peek(), clock.peek());
            for _ in 0..50 {
                let reading = began.after(Duration::from_nanos(rng.u64(..400_000_000_000)));
                let at = clock.when(reading);
                assert!(shown_at(&clock.plan, at) >= reading, "seed {seed}: early");
                if at > Instant::from_nanos(1) {
                    let before = at.before(Duration::from_nanos(1));
                    assert!(shown_at(&clock.plan, before) < reading, "seed {seed}: late");
                }
                beneath.advance(Duration::from_secs(8));
                assert!(clock.peek() >= last, "seed {seed}: a clock never goes back");
                last = clock.peek();
            }
        }
    }
}
