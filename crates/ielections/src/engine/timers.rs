//! The engine's one timer queue: the earliest wake-up of every actor, and one sleep of the clock for all of
//! them.

use futures_util::stream::{FuturesUnordered, StreamExt};
use std::{
    collections::BTreeSet,
    sync::Arc,
    task::{Context, Poll},
};
use vvm_clock::{Clock, Instant, Sleep};

/// Wake-ups by instant. Each actor has at most one; it keeps the instant itself, to be able to move it.
pub(super) struct Timers {
    clock: Arc<dyn Clock>,
    queue: BTreeSet<(Instant, usize)>,
    /// At most one. In a set, which polls it again only when it has woken this task: each poll reads the
    /// clock.
    sleep: FuturesUnordered<Sleep>,
    /// [`Instant::NEVER`] without a sleep.
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

    /// An actor whose wake-up is due.
    pub(super) fn due(&mut self, now: Instant) -> Option<usize> {
        let (at, actor) = *self.queue.first()?;
        if at > now {
            return None;
        }
        self.queue.pop_first();
        Some(actor)
    }

    /// Ready when something may be due. A sleep for an instant earlier than the queue's is kept, also when
    /// the queue is empty: waking once for nothing is cheaper than a new sleep for every renewal, or for
    /// every leadership.
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
