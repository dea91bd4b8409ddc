//! A deterministic executor: one thread, and the next task chosen by the seed among those that are ready.
//!
//! Tasks belong to a process, which can be paused (its tasks are not polled) and crashed (they are dropped).
//! A random choice tries interleavings that a fair queue never produces.

use fastrand::Rng;
use std::{
    collections::BTreeMap,
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Wake, Waker},
};

/// A process of the simulated world; a new one for each restart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Process(pub(crate) u32);

impl Process {
    /// The world itself: never paused, never crashed.
    pub(crate) const WORLD: Self = Self(0);
    /// An operator's commands.
    pub(crate) const OPERATOR: Self = Self(1);

    /// The release by the guardian of this process: the first, or a repeated one.
    pub(crate) fn release(self, repeated: bool) -> Self {
        Self(self.0 + RELEASES * (1 + u32::from(repeated)))
    }

    /// The process whose guardian this release is of, if it is one.
    pub(crate) fn host(self) -> Option<Self> {
        (self.0 > RELEASES).then_some(Self(self.0 % RELEASES))
    }
}

/// Above the processes of any world.
const RELEASES: u32 = 1_000_000;

impl fmt::Display for Process {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host() {
            Some(host) => write!(out, "release of {host}"),
            None => write!(out, "p{}", self.0),
        }
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
    /// Adds a task of `process`.
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

    /// SIGKILL: drops every task of the process.
    pub(crate) fn crash(&mut self, process: Process) {
        self.take_in();
        self.tasks.retain(|_, running| running.process != process);
        self.paused.remove(&process);
        self.ready.retain(|id| self.tasks.contains_key(id));
        // Also what the tasks spawned while they were dropped.
        self.inbox.with(|arrivals| arrivals.spawned.retain(|(owner, _, _)| *owner != process));
    }

    /// SIGSTOP.
    pub(crate) fn pause(&mut self, process: Process) {
        self.take_in();
        let parked = self.paused.entry(process).or_default();
        let is_of = |id: &u64| self.tasks.get(id).is_some_and(|running| running.process == process);
        parked.extend(self.ready.extract_if(.., |id| is_of(id)));
    }

    /// SIGCONT.
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
