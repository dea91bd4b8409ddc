//! [`Process`]: elections, a recording deadman, and tasks that a crash drops.

use crate::{Elections, EngineSettings, Env, Key, OsEntropy, Spawn, TtlStorage, env::Task};
use std::{
    fmt,
    future::poll_fn,
    sync::{Arc, Mutex, PoisonError, Weak},
    task::Poll,
};
use tokio::runtime::Handle;
use vvm_clock::{Clock, SystemWallClock};
use vvm_deadman::{Deadman, recording::RecordingTrigger};

/// A simulated process. Dropping it is no crash: its leaderships continue until they are handed back.
pub struct Process<K: Key> {
    /// Its elections.
    pub elections: Elections<K>,
    /// Its deadlines.
    pub deadman: Deadman,
    /// Records that its deadline has passed.
    pub trigger: Arc<RecordingTrigger>,
    tasks: Arc<Tasks>,
}

impl<K: Key> Process<K> {
    /// A process on this handle of a storage, on the current tokio runtime.
    pub fn start(storage: Arc<dyn TtlStorage<K>>, clock: Arc<dyn Clock>) -> Self {
        Self::with_settings(storage, clock, EngineSettings::default())
    }

    /// [`Process::start`], with settings.
    pub fn with_settings(
        storage: Arc<dyn TtlStorage<K>>,
        clock: Arc<dyn Clock>,
        settings: EngineSettings,
    ) -> Self {
        let trigger = RecordingTrigger::on(Arc::clone(&clock));
        let deadman = Deadman::with_trigger(Arc::clone(&trigger) as _);
        let tasks = Arc::new(Tasks { runtime: Handle::current(), spawned: Mutex::default() });
        let env = Env {
            clock,
            wall: Arc::new(SystemWallClock),
            deadman: deadman.clone(),
            entropy: Arc::new(OsEntropy::default()),
            spawn: Arc::clone(&tasks) as _,
        };
        Self { elections: Elections::with_settings(storage, env, settings), deadman, trigger, tasks }
    }

    /// Drops every task, as a crash does. No record is released.
    pub fn crash(&self) {
        for task in self.tasks.standing() {
            // Dropped outside the lock of the list, and while it is not polled.
            let task = task.lock().unwrap_or_else(PoisonError::into_inner).take();
            drop(task);
        }
    }

    /// The number of tasks that have not ended (I9).
    pub fn tasks(&self) -> usize {
        let ended = |task: &Slot| task.lock().unwrap_or_else(PoisonError::into_inner).is_none();
        self.tasks.standing().iter().filter(|task| !ended(task)).count()
    }
}

impl<K: Key> fmt::Debug for Process<K> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Process({:?}, {:?})", self.deadman, self.tasks)
    }
}

type Slot = Mutex<Option<Task>>;

/// Runs tasks on a tokio runtime, and can drop them.
struct Tasks {
    runtime: Handle,
    /// Weak: the runtime drops a task that panicked, and all tasks at its shutdown.
    spawned: Mutex<Vec<Weak<Slot>>>,
}

impl Tasks {
    fn standing(&self) -> Vec<Arc<Slot>> {
        let spawned = self.spawned.lock().unwrap_or_else(PoisonError::into_inner);
        spawned.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Spawn for Tasks {
    fn spawn(&self, _name: &'static str, task: Task) {
        let slot = Arc::new(Slot::new(Some(task)));
        self.spawned.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&slot));
        drop(self.runtime.spawn(poll_fn(move |cx| {
            let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(task) = slot.as_mut() else { return Poll::Ready(()) };
            let polled = task.as_mut().poll(cx);
            if polled.is_ready() {
                *slot = None;
            }
            polled
        })));
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} tasks", self.standing().len())
    }
}
