//! [`Timers`]: the wake-ups of all actors, and one sleep of the clock for all of them.

use futures_util::stream::{FuturesUnordered, StreamExt};
use std::{
    collections::BTreeSet,
    sync::Arc,
    task::{Context, Poll},
};
use vvm_clock::{Clock, Instant, Sleep};

/// Wake-ups by instant. Each actor has at most one, and keeps its instant so that it can be moved.
pub(super) struct Timers {
    clock: Arc<dyn Clock>,
    queue: BTreeSet<(Instant, usize)>,
    /// At most one. In a set, which polls it only after it has woken this task: each poll reads the clock.
    sleep: FuturesUnordered<Sleep>,
    /// [`Instant::NEVER`] if there is no sleep.
    sleeps_until: Instant,
}

impl Timers {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, queue: BTreeSet::new(), sleep: FuturesUnordered::new(), sleeps_until: Instant::NEVER }
    }

    /// Moves `actor`'s wake-up; [`Instant::NEVER`] means none, before and after.
    pub(super) fn shift(&mut self, actor: usize, from: Instant, to: Instant) {
        if from != Instant::NEVER {
            self.queue.remove(&(from, actor));
        }
        if to != Instant::NEVER {
            self.queue.insert((to, actor));
        }
    }

    /// Removes and returns an actor whose wake-up is due.
    pub(super) fn due(&mut self, now: Instant) -> Option<usize> {
        let (at, actor) = *self.queue.first()?;
        if at > now {
            return None;
        }
        self.queue.pop_first();
        Some(actor)
    }

    /// Ready when a wake-up may be due. A sleep that ends before the first wake-up is kept: one unnecessary
    /// wake-up is cheaper than a new sleep for every renewal.
    pub(super) fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let earliest = self.queue.first().map_or(Instant::NEVER, |&(at, _)| at);
        if earliest < self.sleeps_until {
            self.sleep.clear();
            self.sleep.push(self.clock.sleep_until(earliest));
            self.sleeps_until = earliest;
        }
        if let Poll::Ready(Some(())) = self.sleep.poll_next_unpin(cx) {
            self.sleeps_until = Instant::NEVER;
            return Poll::Ready(());
        }
        Poll::Pending
    }
}
