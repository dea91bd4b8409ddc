//! Storage calls, each bounded in time. [`bounded`] is the one function of the crate that may drop a write half-way;
//! what it drops is reported as `Unknown` (I7, I10).

use crate::{
    Claim, Delete, Entry, Epoch, Incarnation, Key, ReadError, Slot, Swap, TtlStorage, Vacant, WriteError,
};
use clock::Clock;
use futures_util::future::{AbortRegistration, Abortable, Either, select};
use std::{
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

/// A call in flight, and whose it is.
pub(super) type Call = Pin<Box<dyn Future<Output = (usize, Reply)> + Send>>;

/// What to ask of the storage.
pub(super) enum Request<K> {
    Get(K),
    Scan(Arc<[K]>),
    Insert(K, Vacant, Entry),
    TakeOver(K, Entry, Entry),
    Swap(K, Entry, Entry),
    Delete(K, Incarnation, Epoch),
}

impl<K> Request<K> {
    pub(super) fn is_read(&self) -> bool {
        matches!(self, Self::Get(_) | Self::Scan(_))
    }
}

/// What it answered.
pub(super) enum Reply {
    Read(Result<Slot, ReadError>),
    Scanned(Result<Vec<Slot>, ReadError>),
    Claimed(Result<Claim, WriteError>),
    Swapped(Result<Swap, WriteError>),
    Deleted(Result<Delete, WriteError>),
}

pub(super) fn call<K: Key>(
    actor: usize,
    storage: Arc<dyn TtlStorage<K>>,
    limit: Limit,
    request: Request<K>,
) -> Call {
    Box::pin(async move {
        let reply = match &request {
            Request::Get(key) => Reply::Read(bounded(storage.get(key), limit).await),
            Request::Scan(keys) => Reply::Scanned(bounded(storage.scan(keys), limit).await),
            Request::Insert(key, vacant, entry) => {
                Reply::Claimed(bounded(storage.insert_if_not_exist(key, *vacant, entry), limit).await)
            }
            Request::TakeOver(key, observed, entry) => {
                Reply::Claimed(bounded(storage.take_over(key, observed, entry), limit).await)
            }
            Request::Swap(key, held, entry) => {
                Reply::Swapped(bounded(storage.compare_and_swap(key, held, entry), limit).await)
            }
            Request::Delete(key, incarnation, epoch) => {
                Reply::Deleted(bounded(storage.compare_and_delete(key, *incarnation, *epoch), limit).await)
            }
        };
        (actor, reply)
    })
}

/// No answer within the bound.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {0:?}")]
struct TimedOut(Duration);

/// What a call that was given up counts as.
trait GivenUp {
    fn given_up(timed_out: TimedOut) -> Self;
}

impl GivenUp for ReadError {
    fn given_up(timed_out: TimedOut) -> Self {
        Self::Unavailable(Box::new(timed_out))
    }
}

impl GivenUp for WriteError {
    fn given_up(timed_out: TimedOut) -> Self {
        Self::Unknown(Box::new(timed_out))
    }
}

/// What ends a call that is not answered.
pub(super) struct Limit {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) timeout: Duration,
    /// Aborted when nobody waits for the answer any more. For reads alone.
    pub(super) withdrawn: Option<AbortRegistration>,
}

impl Limit {
    async fn reached(self) {
        let expiry = self.clock.sleep(self.timeout);
        match self.withdrawn {
            Some(withdrawn) => drop(Abortable::new(expiry, withdrawn).await),
            None => expiry.await,
        }
    }
}

async fn bounded<T, E: GivenUp>(call: impl Future<Output = Result<T, E>>, limit: Limit) -> Result<T, E> {
    let timeout = limit.timeout;
    // The limit is not begun before the call has been polled: one that is answered at once costs no timer.
    match select(pin!(call), pin!(limit.reached())).await {
        Either::Left((answer, _)) => answer,
        Either::Right(((), _)) => Err(E::given_up(TimedOut(timeout))),
    }
}
