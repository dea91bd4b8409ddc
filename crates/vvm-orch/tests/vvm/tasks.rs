//! Shared by the tests of this crate and of `primary-only`: tasks that are counted, and a journal of what they did.

use ielections::{Spawn, env::Task};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};
use tokio::sync::Notify;

#[derive(Clone, Debug, Default)]
pub(crate) struct CountingSpawn {
    alive: Arc<Mutex<BTreeMap<&'static str, usize>>>,
    change: Change,
}

impl CountingSpawn {
    pub(crate) fn alive(&self) -> BTreeMap<&'static str, usize> {
        self.alive.lock().unwrap().clone()
    }

    /// Waits until no task is left (I9).
    pub(crate) async fn all_end(&self) {
        self.only_these_are_left(&[]).await;
    }

    pub(crate) async fn only_these_are_left(&self, tasks: &[(&'static str, usize)]) {
        self.change.until(|| self.alive() == tasks.iter().copied().collect()).await;
    }
}

impl Spawn for CountingSpawn {
    fn spawn(&self, name: &'static str, task: Task) {
        *self.alive.lock().unwrap().entry(name).or_default() += 1;
        let counted = Counted { name, tasks: self.clone() };
        drop(tokio::spawn(async move {
            // The task is dropped first, also by its runtime: all that it signals precedes the change of the count.
            let (_counted, task) = (counted, task);
            task.await;
        }));
    }
}

struct Counted {
    name: &'static str,
    tasks: CountingSpawn,
}

impl Drop for Counted {
    fn drop(&mut self) {
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

    pub(crate) async fn shows(&self, line: &str, times: usize) {
        self.change.until(|| self.count(line) >= times).await;
    }
}
