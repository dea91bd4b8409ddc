//! Storage calls, each bounded in time. [`bounded`] is the one function of the crate that may drop a write
//! half-way; what it drops is reported as `Unknown` (I7, I10). So is what a driver's panic drops: one bug in
//! a driver must not end the engine, which is all that can disarm a deadline.

use crate::{
    Claim, Delete, Entry, Epoch, Incarnation, Key, ReadError, Slot, Swap, TtlStorage, Vacant, WriteError,
    documents::RenewalTurn,
};
use futures_util::future::{AbortRegistration, Abortable, Either, FutureExt, select};
use std::{any::Any, panic::AssertUnwindSafe, pin::pin, sync::Arc, time::Duration};
use vvm_clock::{Clock, Span};

/// A call in flight. Its output is the answer, and the actor that it is for.
///
/// One type in each engine, which the compiler alone can name: so a call is polled where it lies, without a
/// box of its own. The only box of a call is the one that the storage's verb returns.
pub(super) trait Call: Future<Output = (usize, Reply)> + Send + 'static {}
impl<C: Future<Output = (usize, Reply)> + Send + 'static> Call for C {}

/// What to ask of the storage.
pub(super) enum Request<K> {
    Get(K),
    Scan(Arc<[K]>),
    Insert(K, Vacant, Entry),
    TakeOver(K, Entry, Entry),
    Swap(K, Entry, Entry, Option<RenewalTurn>),
    Delete(K, Incarnation, Epoch),
}

impl<K> Request<K> {
    pub(super) fn is_read(&self) -> bool {
        matches!(self, Self::Get(_) | Self::Scan(_))
    }

    /// What the call counts as without an answer (I7).
    pub(super) fn unanswered(&self) -> fn(NoAnswer) -> Reply {
        match self {
            Self::Get(_) => |why| Reply::Read(Err(ReadError::Unavailable(why.into()))),
            Self::Scan(_) => |why| Reply::Scanned(Vec::new(), Err(ReadError::Unavailable(why.into()))),
            Self::Insert(..) | Self::TakeOver(..) => {
                |why| Reply::Claimed(Err(WriteError::Unknown(why.into())))
            }
            Self::Swap(..) => |why| Reply::Swapped(Err(WriteError::Unknown(why.into()))),
            Self::Delete(..) => |why| Reply::Deleted(Err(WriteError::Unknown(why.into()))),
        }
    }
}

/// What it answered.
pub(super) enum Reply {
    Read(Result<Slot, ReadError>),
    /// What was read in time, and whether that is all of it.
    Scanned(Vec<Option<Slot>>, Result<(), ReadError>),
    Claimed(Result<Claim, WriteError>),
    Swapped(Result<Swap, WriteError>),
    Deleted(Result<Delete, WriteError>),
}

/// Calls the storage for `actor`, for no longer than `limit`.
pub(super) async fn call<K: Key>(
    storage: Arc<dyn TtlStorage<K>>,
    actor: usize,
    request: Request<K>,
    limit: Limit,
) -> (usize, Reply) {
    // Outside of what the limit drops: a slot that is late must not hide those that were read.
    let mut seen = match &request {
        Request::Scan(keys) => vec![None; keys.len()],
        _ => Vec::new(),
    };
    let reply = bounded(ask(&*storage, &request, &mut seen), limit, request.unanswered()).await;
    let reply = match reply {
        Reply::Scanned(_, outcome) => Reply::Scanned(seen, outcome),
        other => other,
    };
    (actor, reply)
}

async fn ask<K: Key>(storage: &dyn TtlStorage<K>, request: &Request<K>, seen: &mut [Option<Slot>]) -> Reply {
    match request {
        Request::Get(key) => Reply::Read(storage.get(key).await),
        Request::Scan(keys) => Reply::Scanned(Vec::new(), storage.scan_some(keys, seen).await),
        Request::Insert(key, vacant, entry) => {
            Reply::Claimed(storage.insert_if_not_exist(key, *vacant, entry).await)
        }
        Request::TakeOver(key, observed, entry) => {
            Reply::Claimed(storage.take_over(key, observed, entry).await)
        }
        Request::Swap(key, held, entry, turn) => {
            if let Some(turn) = turn {
                turn.come().await;
            }
            Reply::Swapped(storage.compare_and_swap(key, held, entry).await)
        }
        Request::Delete(key, incarnation, epoch) => {
            Reply::Deleted(storage.compare_and_delete(key, *incarnation, *epoch).await)
        }
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAnswer {
    #[error("no answer within {}", Span(*.0))]
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

/// What ends a call that is not answered.
pub(crate) struct Limit {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) timeout: Duration,
    /// Aborted when nobody waits for the answer any more. For reads alone.
    pub(crate) withdrawn: Option<AbortRegistration>,
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

/// The answer, or `unanswered` once the limit is reached, or the driver has panicked. A call that is answered
/// at its first poll costs no timer.
pub(crate) async fn bounded<T>(
    call: impl Future<Output = T>,
    limit: Limit,
    unanswered: fn(NoAnswer) -> T,
) -> T {
    let timeout = limit.timeout;
    // Unwind safe: the call is over with its panic, and what a driver keeps beside it is for the driver to
    // know.
    let call = pin!(AssertUnwindSafe(call).catch_unwind());
    match select(call, pin!(limit.reached())).await {
        Either::Left((Ok(answer), _)) => answer,
        Either::Left((Err(payload), _)) => unanswered(NoAnswer::from_panic(&*payload)),
        Either::Right(((), _)) => unanswered(NoAnswer::InTime(timeout)),
    }
}
