//! [`Actor`]: one campaign, lease or release, as data. What an event does to each kind is in `campaigning`,
//! `leading` and `releasing`.

use super::{call::Reply, command::Answer};
use crate::{
    ReleaseOutcome, Standing,
    protocol::{Campaign, Lease, Release},
};
use futures_util::future::AbortHandle;
use std::sync::Arc;
use tokio::sync::oneshot;
use vvm_clock::Instant;
use vvm_deadman::Armed;

pub(super) struct Actor<K> {
    pub(super) wake_at: Instant,
    /// Its instant in the timer queue, which is updated at the end of a round.
    pub(super) queued_for: Instant,
    /// It waits for its turn to call the storage.
    pub(super) queued: bool,
    /// A call of this actor has no answer yet, or the answer is not delivered yet.
    pub(super) calling: bool,
    pub(super) kind: Kind<K>,
}

pub(super) enum Kind<K> {
    Campaigning(Box<Campaigning<K>>),
    Leading(Box<Leading<K>>),
    Releasing(Box<Releasing<K>>),
    /// Between two kinds, within one step.
    Changing,
}

/// One candidate.
pub(super) struct Campaigning<K> {
    pub(super) ticket: u64,
    pub(super) campaign: Campaign,
    pub(super) slots: Arc<[K]>,
    pub(super) holder: Arc<str>,
    pub(super) reply: Option<oneshot::Sender<Answer<K>>>,
    /// Ends the last read, if it is still in flight.
    pub(super) reading: Option<AbortHandle>,
}

/// One held lease.
pub(super) struct Leading<K> {
    pub(super) key: K,
    pub(super) lease: Lease,
    pub(super) standing: Standing,
    /// Disarmed only by handing back (I4). If it is dropped, the deadline stays armed for good.
    pub(super) armed: Armed,
    /// The storage showed that the record is not ours: there is none to delete.
    pub(super) gone: bool,
    /// The leadership was handed back and waits for the answer of the renewal in flight.
    pub(super) handing_back: Option<oneshot::Sender<ReleaseOutcome>>,
    pub(super) dropped: bool,
}

/// One record being deleted.
pub(super) struct Releasing<K> {
    pub(super) key: K,
    pub(super) release: Release,
    /// `None` for a record that a campaign left behind: no caller waits for the outcome.
    pub(super) reply: Option<oneshot::Sender<ReleaseOutcome>>,
}

/// What happened to an actor.
pub(super) enum Event {
    /// The instant of its wake-up has come.
    Woken,
    /// It is its turn to call the storage.
    MaySend,
    /// Its call was answered.
    Answered(Reply),
}

/// In which queue an actor waits for its turn to call the storage.
#[derive(Clone, Copy)]
pub(super) enum Turn {
    Renewal,
    Other,
}

impl<K> Actor<K> {
    /// Notes what the event ends: the wake-up or the call.
    pub(super) fn received(&mut self, event: &Event) {
        match event {
            Event::Woken => (self.wake_at, self.queued_for) = (Instant::NEVER, Instant::NEVER),
            Event::MaySend => {}
            Event::Answered(_) => self.calling = false,
        }
    }
}

impl<K> Leading<K> {
    /// Whether it was handed back or dropped.
    pub(super) fn is_ending(&self) -> bool {
        self.dropped || self.handing_back.is_some()
    }
}
