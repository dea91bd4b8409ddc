//! Shared by the tests of this crate and of `primary-only`: a runtime whose clock moves only when all tasks are idle,
//! so that every run of a test is the same; tasks that are counted; and a journal of what they did.

use ielections::{Entropy, Spawn, env::Task};
use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use testing_time::MockClock;
use tokio::sync::Notify;
use vvm_clock::Clock as _;

/// Runs a test on one thread. Time passes only while all tasks wait; then calls `on_advance`.
pub(crate) fn run_on(
    clock: MockClock,
    on_advance: impl Fn() + Send + Sync + 'static,
    test: impl Future<Output = ()>,
) {
    let limit = clock.now().after(Duration::from_secs(3600));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .on_thread_park(move || {
            let next = clock.advance_to_next();
            assert!(next.is_some_and(|now| now < limit), "the test waits for an event that never happens");
            on_advance();
        })
        .build()
        .unwrap();
    runtime.block_on(test);
}

/// Counts the tasks that have not ended, by name.
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

    /// Waits until exactly these numbers of tasks are left.
    pub(crate) async fn only_these_are_left(&self, tasks: &[(&'static str, usize)]) {
        self.change.until(|| self.alive() == tasks.iter().copied().collect()).await;
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

/// Deterministic random numbers.
#[derive(Debug)]
pub(crate) struct Seeded(AtomicU64);

impl Seeded {
    /// Returns numbers that depend only on `name`.
    pub(crate) fn of(name: &str) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(name.bytes().map(u64::from).sum())))
    }
}

impl Entropy for Seeded {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            // The increment and the mixing of splitmix64.
            let seed = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
            let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            chunk.copy_from_slice(&(mixed ^ (mixed >> 27)).to_le_bytes()[..chunk.len()]);
        }
    }
}
