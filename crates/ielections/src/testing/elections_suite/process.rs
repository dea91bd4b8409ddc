//! What one process has, in a test: elections of its own, a deadman that records, and tasks that end with it.

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

/// A process as far as elections can tell. Dropping it is no crash: what it leads goes on until it is handed
/// back.
pub struct Process<K: Key> {
    /// Its elections.
    pub elections: Elections<K>,
    /// Its deadlines.
    pub deadman: Deadman,
    /// What would end it.
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

    /// Drops every task where it stands, as a crash would. Nothing is released, and nothing answers any more.
    pub fn crash(&self) {
        for task in self.tasks.standing() {
            // Dropped outside the list's lock, and while nobody polls it.
            let task = task.lock().unwrap_or_else(PoisonError::into_inner).take();
            drop(task);
        }
    }

    /// How many of its tasks have not ended (I9).
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

/// Drives tasks on a tokio runtime, and can still reach them there.
struct Tasks {
    runtime: Handle,
    /// Weak: a task that panicked or whose runtime has gone is dropped by the runtime.
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
