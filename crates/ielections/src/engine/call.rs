//! Storage calls, each bounded in time. [`bounded`] is the one function of the crate that may drop a write half-way;
//! what it drops is reported as `Unknown` (I7, I10). So is what a driver's panic drops: one bug in a driver must not end
//! the engine, which is all that can disarm a deadline.

use crate::{
    Claim, Delete, Entry, Epoch, Incarnation, Key, ReadError, Slot, Swap, TtlStorage, Vacant, WriteError,
};
use clock::Clock;
use futures_util::future::{AbortRegistration, Abortable, Either, FutureExt, select};
use std::{
    any::Any,
    panic::AssertUnwindSafe,
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

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum NoAnswer {
    #[error("no answer within {0:?}")]
    InTime(Duration),
    #[error("the storage driver panicked: {0}")]
    Panicked(String),
}

impl NoAnswer {
    fn from_panic(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self::Panicked(text.unwrap_or("a payload that is no text").to_owned())
    }
}

/// What a call without an answer counts as.
trait Unanswered {
    fn unanswered(why: NoAnswer) -> Self;
}

impl Unanswered for ReadError {
    fn unanswered(why: NoAnswer) -> Self {
        Self::Unavailable(Box::new(why))
    }
}

impl Unanswered for WriteError {
    fn unanswered(why: NoAnswer) -> Self {
        Self::Unknown(Box::new(why))
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

async fn bounded<T, E: Unanswered>(call: impl Future<Output = Result<T, E>>, limit: Limit) -> Result<T, E> {
    let timeout = limit.timeout;
    // Unwind safe: the call is over with its panic, and what a driver keeps beside it is for the driver to know.
    let call = AssertUnwindSafe(call).catch_unwind();
    // The limit is not begun before the call has been polled: one that is answered at once costs no timer.
    match select(pin!(call), pin!(limit.reached())).await {
        Either::Left((Ok(answer), _)) => answer,
        Either::Left((Err(payload), _)) => Err(E::unanswered(NoAnswer::from_panic(&*payload))),
        Either::Right(((), _)) => Err(E::unanswered(NoAnswer::InTime(timeout))),
    }
}
