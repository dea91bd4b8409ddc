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
    paused: Vec<Process>,
    next_id: u64,
}

impl Executor {
    /// Polls one ready task, chosen by chance. `None` when there is none, or its process and name.
    pub(crate) fn step(&mut self, rng: &mut Rng) -> Option<(Process, &'static str)> {
        self.take_in();
        let ready = || {
            self.tasks
                .iter()
                .filter(|(_, running)| running.ready && !self.paused.contains(&running.process))
                .map(|(&id, _)| id)
        };
        let count = ready().count();
        if count == 0 {
            return None;
        }
        let id = ready().nth(rng.usize(..count))?;
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
            self.tasks.insert(id, Running { process, name, task, waker, ready: true });
        }
        for id in arrivals.woken {
            // A waker outlives its task.
            if let Some(running) = self.tasks.get_mut(&id) {
                running.ready = true;
            }
        }
    }

    /// SIGKILL: drops every task of the process.
    pub(crate) fn crash(&mut self, process: Process) {
        self.take_in();
        self.tasks.retain(|_, running| running.process != process);
        self.resume(process);
        // Also what the tasks spawned while they were dropped.
        self.inbox.with(|arrivals| arrivals.spawned.retain(|(owner, _, _)| *owner != process));
    }

    /// SIGSTOP.
    pub(crate) fn pause(&mut self, process: Process) {
        self.paused.push(process);
    }

    /// SIGCONT.
    pub(crate) fn resume(&mut self, process: Process) {
        self.paused.retain(|paused| *paused != process);
    }

    /// The names of the tasks that the process has (I9).
    pub(crate) fn tasks_of(&self, process: Process) -> Vec<&'static str> {
        let own = self.tasks.values().filter(|running| running.process == process);
        own.map(|running| running.name).collect()
    }
}
