//! [`Calls`]: whose turn it is to call the storage, and the calls that have no answer yet.

use crate::{
    AcquireError, Candidacy, Claim, Delete, Entry, Epoch, Incarnation, Key, Leadership, ReadError,
    ReleaseOutcome, Slot, Swap, TtlStorage, Vacant, WriteError,
    bounded::{Limit, NoAnswer, bounded},
    documents::RenewalTurn,
    leadership::LeaseEnd,
    protocol::{LeaseEvent, ScanAnswer},
    successor::{PeerMessage, SuccessorTerms},
};
use futures_util::{
    future::BoxFuture,
    stream::{FuturesUnordered, StreamExt},
};
use std::{
    collections::{BTreeSet, VecDeque},
    iter,
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::sync::{mpsc::UnboundedSender, oneshot};
use vvm_clock::{Clock, Instant, Sleep};

/// A call to the storage. Its output is the number of the actor that made it, and the answer.
type Call = BoxFuture<'static, (usize, Reply)>;

/// How many calls may be in flight (I11): enough for 20,000 renewals a second at 10 ms each, few enough for a database.
const MAX_IN_FLIGHT: usize = 256;

/// How many may be in flight when one that is no renewal begins, so that none of those takes a place of renewals.
const MAX_BEFORE_OTHERS: usize = 192;

#[derive(Clone, Copy)]
pub(super) enum CallPriority {
    Renewal,
    Other,
}

#[derive(Default)]
pub(super) struct Calls {
    renewals: VecDeque<usize>,
    others: VecDeque<usize>,
    new: VecDeque<Call>,
    pending: FuturesUnordered<Call>,
    /// A call went to `pending` after the last [`poll_pending`](Self::poll_pending).
    unpolled: bool,
}

impl Calls {
    pub(super) fn queue(&mut self, actor: usize, turn: CallPriority) {
        match turn {
            CallPriority::Renewal => self.renewals.push_back(actor),
            CallPriority::Other => self.others.push_back(actor),
        }
    }

    /// Returns the actor that may call next, renewals first. `None` at the limit. Skips actors that no longer wait.
    pub(super) fn next_turn(&mut self, mut waits: impl FnMut(usize) -> bool) -> Option<usize> {
        if self.len() >= MAX_IN_FLIGHT {
            return None;
        }
        let may_others = self.len() < MAX_BEFORE_OTHERS;
        let mut queued = iter::from_fn(|| {
            let renewal = self.renewals.pop_front();
            renewal.or_else(|| if may_others { self.others.pop_front() } else { None })
        });
        queued.find(|&actor| waits(actor))
    }

    pub(super) fn push(&mut self, call: Call) {
        self.new.push_back(call);
    }

    pub(super) fn len(&self) -> usize {
        self.new.len() + self.pending.len()
    }

    /// Polls new calls once each, until one is answered at once. Returns that answer.
    pub(super) fn poll_new(&mut self, cx: &mut Context<'_>) -> Option<(usize, Reply)> {
        while let Some(mut call) = self.new.pop_front() {
            match call.as_mut().poll(cx) {
                Poll::Ready(answer) => return Some(answer),
                Poll::Pending => {
                    self.pending.push(call);
                    self.unpolled = true;
                }
            }
        }
        None
    }

    pub(super) fn poll_pending(&mut self, cx: &mut Context<'_>) -> Option<(usize, Reply)> {
        match self.pending.poll_next_unpin(cx) {
            Poll::Ready(Some(answer)) => Some(answer),
            Poll::Ready(None) | Poll::Pending => {
                self.unpolled = false;
                None
            }
        }
    }

    /// Whether [`poll_pending`](Self::poll_pending) has to run before the task sleeps: other calls do not wake it.
    pub(super) fn must_be_polled(&self) -> bool {
        self.unpolled
    }
}

pub(super) enum StorageCall<K> {
    Get(K),
    Scan(Arc<[K]>),
    ClaimVacant(K, Vacant, Entry),
    ClaimExpired(K, Entry, Entry),
    Renew(K, Entry, Entry, Option<RenewalTurn>),
    Release(K, Incarnation, Epoch),
}

impl<K> StorageCall<K> {
    pub(super) fn is_read(&self) -> bool {
        matches!(self, Self::Get(_) | Self::Scan(_))
    }

    /// Returns the reply that stands for a missing answer (I7).
    fn unanswered(&self) -> fn(NoAnswer) -> Reply {
        match self {
            Self::Get(_) => |why| Reply::Read(Err(ReadError::Unavailable(why.into()))),
            Self::Scan(_) => |why| {
                let outcome = Err(ReadError::Unavailable(why.into()));
                Reply::Scanned(ScanAnswer { seen: Vec::new(), outcome, hints_follow: false })
            },
            Self::ClaimVacant(..) | Self::ClaimExpired(..) => {
                |why| Reply::Claimed(Err(WriteError::Unknown(why.into())))
            }
            Self::Renew(..) => |why| Reply::Swapped(Err(WriteError::Unknown(why.into()))),
            Self::Release(..) => |why| Reply::Deleted(Err(WriteError::Unknown(why.into()))),
        }
    }
}

pub(super) enum Reply {
    Read(Result<Slot, ReadError>),
    Scanned(ScanAnswer),
    Claimed(Result<Claim, WriteError>),
    Swapped(Result<Swap, WriteError>),
    Deleted(Result<Delete, WriteError>),
}

pub(super) async fn call<K: Key>(
    storage: Arc<dyn TtlStorage<K>>,
    actor: usize,
    request: StorageCall<K>,
    limit: Limit,
) -> (usize, Reply) {
    // Outside the future that the limit drops: one late slot must not discard the others.
    let mut seen = match &request {
        StorageCall::Scan(keys) => vec![None; keys.len()],
        _ => Vec::new(),
    };
    let reply = {
        let sent = pin!(send(&*storage, &request, &mut seen));
        bounded(sent, limit, request.unanswered()).await
    };
    let reply = match reply {
        Reply::Scanned(scanned) => Reply::Scanned(ScanAnswer { seen, ..scanned }),
        other => other,
    };
    (actor, reply)
}

async fn send<K: Key>(
    storage: &dyn TtlStorage<K>,
    request: &StorageCall<K>,
    seen: &mut [Option<Slot>],
) -> Reply {
    match request {
        StorageCall::Get(key) => Reply::Read(storage.get(key).await),
        StorageCall::Scan(keys) => {
            // Before the scan: if hints arrive by then, one follows each release that the scan does not show.
            let hints_follow = storage.hints_of_releases();
            let outcome = storage.scan_some(keys, seen).await;
            Reply::Scanned(ScanAnswer { seen: Vec::new(), outcome, hints_follow })
        }
        StorageCall::ClaimVacant(key, vacant, entry) => {
            Reply::Claimed(storage.insert_if_not_exist(key, *vacant, entry).await)
        }
        StorageCall::ClaimExpired(key, observed, entry) => {
            Reply::Claimed(storage.take_over(key, observed, entry).await)
        }
        StorageCall::Renew(key, held, entry, turn) => {
            if let Some(turn) = turn {
                turn.wait_for_batch().await;
            }
            Reply::Swapped(storage.compare_and_swap(key, held, entry).await)
        }
        StorageCall::Release(key, incarnation, epoch) => {
            Reply::Deleted(storage.compare_and_delete(key, *incarnation, *epoch).await)
        }
    }
}

/// The channel has no bound, but the number of commands has. There is one for each campaign begun or withdrawn, for
/// each leadership handed back or dropped, and for all hints not received yet. A document writer adds at most one for
/// each answer of the storage. A [`PeerLink`](crate::successor::PeerLink) limits what it delivers.
pub(super) enum Command<K> {
    Campaign {
        ticket: u64,
        candidacy: Candidacy<K>,
        successor: Option<SuccessorTerms<K>>,
        reply: oneshot::Sender<CampaignResult<K>>,
    },
    Withdraw {
        ticket: u64,
    },
    LookNow,
    HandBack {
        lease: usize,
        reply: oneshot::Sender<ReleaseOutcome>,
    },
    Dropped {
        lease: usize,
    },
    Shown {
        lease: usize,
        epoch: Epoch,
        incarnation: Incarnation,
        shown: LeaseEvent,
    },
    Peer {
        actor: usize,
        inbox: u64,
        message: PeerMessage,
    },
    Cleanup {
        done: oneshot::Sender<()>,
    },
}

pub(super) type CampaignResult<K> = Result<(K, GrantedLeadership), AcquireError>;

/// A leadership on its way to the caller of `acquire`. If the caller is gone, it is handed back: no work has started.
#[derive(Debug)]
pub(super) struct GrantedLeadership(Option<Leadership>);

impl GrantedLeadership {
    pub(super) fn new(leadership: Leadership) -> Self {
        Self(Some(leadership))
    }

    pub(super) fn accept(mut self) -> Result<Leadership, AcquireError> {
        self.0.take().ok_or(AcquireError::Closing)
    }
}

impl Drop for GrantedLeadership {
    fn drop(&mut self) {
        if let Some(leadership) = self.0.take() {
            drop(leadership.release());
        }
    }
}

impl<K: Key> LeaseEnd for UnboundedSender<Command<K>> {
    fn hand_back(&self, lease: usize, reply: oneshot::Sender<ReleaseOutcome>) {
        // Without a task the reply is dropped, which the leadership reports as `StillArmed`.
        drop(self.send(Command::HandBack { lease, reply }));
    }

    fn dropped(&self, lease: usize) {
        drop(self.send(Command::Dropped { lease }));
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use std::future::pending;

    #[test]
    fn scans_without_an_answer_leave_places_for_renewals() {
        let mut calls = Calls::default();
        (0..MAX_IN_FLIGHT).for_each(|actor| calls.queue(actor, CallPriority::Other));
        while calls.next_turn(|_| true).is_some() {
            calls.push(pending().boxed());
        }
        let scans = calls.len();
        for actor in scans..MAX_IN_FLIGHT {
            calls.queue(actor, CallPriority::Renewal);
            assert_eq!(calls.next_turn(|_| true), Some(actor));
            calls.push(pending().boxed());
        }
        calls.queue(0, CallPriority::Renewal);
        assert!(scans < MAX_IN_FLIGHT && calls.next_turn(|_| true).is_none());
    }
}
