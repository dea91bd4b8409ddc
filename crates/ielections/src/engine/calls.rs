//! [`Calls`]: the storage calls that have no answer yet.

use super::call::{Call, Reply};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll},
};

/// A place for one call, which is used again. So a call costs no allocation of the engine's own.
type Place<C> = Pin<Box<Option<C>>>;

/// How many unused places are kept.
const UNUSED: usize = 64;

pub(super) struct Calls<C> {
    /// Not polled yet.
    new: VecDeque<Place<C>>,
    pending: FuturesUnordered<Pending<C>>,
    /// A call went to `pending` after the last [`poll_pending`](Self::poll_pending).
    unpolled: bool,
    unused: Vec<Place<C>>,
}

impl<C: Call> Calls<C> {
    pub(super) fn new() -> Self {
        let (new, unused) = (VecDeque::new(), Vec::new());
        Self { new, pending: FuturesUnordered::new(), unpolled: false, unused }
    }

    pub(super) fn push(&mut self, call: C) {
        let mut place = self.unused.pop().unwrap_or_else(|| Box::pin(None));
        place.set(Some(call));
        self.new.push_back(place);
    }

    pub(super) fn len(&self) -> usize {
        self.new.len() + self.pending.len()
    }

    /// Polls new calls once each, until one is answered at once. Returns that answer.
    pub(super) fn poll_new(&mut self, cx: &mut Context<'_>) -> Option<(usize, Reply)> {
        while let Some(mut place) = self.new.pop_front() {
            match poll_place(&mut place, cx) {
                Poll::Ready(answer) => {
                    self.put_back(place);
                    return Some(answer);
                }
                Poll::Pending => {
                    self.pending.push(Pending(Some(place)));
                    self.unpolled = true;
                }
            }
        }
        None
    }

    /// Returns an answer to one of the calls that were pending.
    pub(super) fn poll_pending(&mut self, cx: &mut Context<'_>) -> Option<(usize, Reply)> {
        match self.pending.poll_next_unpin(cx) {
            Poll::Ready(Some((place, answer))) => {
                self.put_back(place);
                Some(answer)
            }
            Poll::Ready(None) | Poll::Pending => {
                self.unpolled = false;
                None
            }
        }
    }

    /// Returns `true` if [`poll_pending`](Self::poll_pending) has to run before the task may sleep: a call
    /// that it has not polled would not wake the task.
    pub(super) fn must_be_polled(&self) -> bool {
        self.unpolled
    }

    fn put_back(&mut self, mut place: Place<C>) {
        place.set(None);
        if self.unused.len() < UNUSED {
            self.unused.push(place);
        }
    }
}

/// A call of which the first poll brought no answer. Returns its place with the answer.
struct Pending<C>(Option<Place<C>>);

impl<C: Call> Future for Pending<C> {
    type Output = (Place<C>, (usize, Reply));

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(mut place) = self.0.take() else { return Poll::Pending };
        match poll_place(&mut place, cx) {
            Poll::Ready(answer) => Poll::Ready((place, answer)),
            Poll::Pending => {
                self.0 = Some(place);
                Poll::Pending
            }
        }
    }
}

/// Polls the call in its place. An empty place stays pending.
fn poll_place<C: Call>(place: &mut Place<C>, cx: &mut Context<'_>) -> Poll<(usize, Reply)> {
    match place.as_mut().as_pin_mut() {
        Some(call) => call.poll(cx),
        None => Poll::Pending,
    }
}
