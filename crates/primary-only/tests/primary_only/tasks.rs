//! A spawner that counts its tasks (I9), and conditions to wait for.

use ielections::{Spawn, env::Task};
use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};
use tokio::sync::Notify;

/// Counts the tasks that have not ended, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct CountingSpawn {
    alive: Arc<Mutex<BTreeMap<&'static str, usize>>>,
    change: Change,
}

impl CountingSpawn {
    /// Returns the number of runners.
    pub(crate) fn runners(&self) -> usize {
        self.alive.lock().unwrap().get("primary-only runner").copied().unwrap_or_default()
    }

    /// Waits until no task is left.
    pub(crate) async fn all_end(&self) {
        self.change.until(|| self.alive.lock().unwrap().is_empty()).await;
    }
}

impl Spawn for CountingSpawn {
    fn spawn(&self, name: &'static str, task: Task) {
        *self.alive.lock().unwrap().entry(name).or_default() += 1;
        drop(tokio::spawn(Counted { name, tasks: self.clone(), task: Some(task) }));
    }
}

struct Counted {
    name: &'static str,
    tasks: CountingSpawn,
    task: Option<Task>,
}

impl Future for Counted {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.task.as_mut().map_or(Poll::Ready(()), |task| task.as_mut().poll(cx))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // The task drops first, so that everything it signals precedes the change of the count.
        drop(self.task.take());
        {
            let mut alive = self.tasks.alive.lock().unwrap();
            let count = alive.entry(self.name).or_default();
            *count -= 1;
            if *count == 0 {
                alive.remove(self.name);
            }
        }
        self.tasks.change.happened();
    }
}

/// Wakes tasks that wait for a condition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Change(Arc<Notify>);

impl Change {
    pub(crate) fn happened(&self) {
        self.0.notify_waiters();
    }

    pub(crate) async fn until(&self, condition: impl Fn() -> bool) {
        loop {
            let change = self.0.notified();
            if condition() {
                return;
            }
            change.await;
        }
    }
}

/// Events in order. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journal {
    lines: Arc<Mutex<Vec<String>>>,
    change: Change,
}

impl Journal {
    pub(crate) fn write(&self, line: impl Into<String>) {
        self.lines.lock().unwrap().push(line.into());
        self.change.happened();
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, line: &str) -> usize {
        self.lines.lock().unwrap().iter().filter(|written| *written == line).count()
    }

    /// Waits until the line was written this number of times.
    pub(crate) async fn shows(&self, line: &str, times: usize) {
        self.change.until(|| self.count(line) >= times).await;
    }
}
