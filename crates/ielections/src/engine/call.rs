//! The storage calls of the engine's actors.

use crate::{
    Claim, Delete, Entry, Epoch, Incarnation, Key, ReadError, Slot, Swap, TtlStorage, Vacant, WriteError,
    bounded::{Limit, NoAnswer, bounded},
    documents::RenewalTurn,
    protocol::Scanned,
};
use std::{pin::pin, sync::Arc};

/// A call in flight. Its output is the actor and the answer.
///
/// One unnamed type in each engine, so that a call needs no box beside the one that the storage's verb
/// returns.
pub(super) trait Call: Future<Output = (usize, Reply)> + Send + 'static {}
impl<C: Future<Output = (usize, Reply)> + Send + 'static> Call for C {}

/// One call of the storage.
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

    /// Returns the reply that stands for a missing answer (I7).
    fn unanswered(&self) -> fn(NoAnswer) -> Reply {
        match self {
            Self::Get(_) => |why| Reply::Read(Err(ReadError::Unavailable(why.into()))),
            Self::Scan(_) => |why| {
                let outcome = Err(ReadError::Unavailable(why.into()));
                Reply::Scanned(Scanned { seen: Vec::new(), outcome, hints_follow: false })
            },
            Self::Insert(..) | Self::TakeOver(..) => {
                |why| Reply::Claimed(Err(WriteError::Unknown(why.into())))
            }
            Self::Swap(..) => |why| Reply::Swapped(Err(WriteError::Unknown(why.into()))),
            Self::Delete(..) => |why| Reply::Deleted(Err(WriteError::Unknown(why.into()))),
        }
    }
}

/// The answer to a request.
pub(super) enum Reply {
    Read(Result<Slot, ReadError>),
    Scanned(Scanned),
    Claimed(Result<Claim, WriteError>),
    Swapped(Result<Swap, WriteError>),
    Deleted(Result<Delete, WriteError>),
}

/// Calls the storage for `actor`, within `limit`.
pub(super) async fn call<K: Key>(
    storage: Arc<dyn TtlStorage<K>>,
    actor: usize,
    request: Request<K>,
    limit: Limit,
) -> (usize, Reply) {
    // Outside the future that the limit drops: one late slot must not discard the others.
    let mut seen = match &request {
        Request::Scan(keys) => vec![None; keys.len()],
        _ => Vec::new(),
    };
    let reply = {
        let sent = pin!(send(&*storage, &request, &mut seen));
        bounded(sent, limit, request.unanswered()).await
    };
    let reply = match reply {
        Reply::Scanned(scanned) => Reply::Scanned(Scanned { seen, ..scanned }),
        other => other,
    };
    (actor, reply)
}

async fn send<K: Key>(storage: &dyn TtlStorage<K>, request: &Request<K>, seen: &mut [Option<Slot>]) -> Reply {
    match request {
        Request::Get(key) => Reply::Read(storage.get(key).await),
        Request::Scan(keys) => {
            // Asked for before: a hint of a release that the scan does not show must follow.
            let hints_follow = storage.hints_of_releases();
            let outcome = storage.scan_some(keys, seen).await;
            Reply::Scanned(Scanned { seen: Vec::new(), outcome, hints_follow })
        }
        Request::Insert(key, vacant, entry) => {
            Reply::Claimed(storage.insert_if_not_exist(key, *vacant, entry).await)
        }
        Request::TakeOver(key, observed, entry) => {
            Reply::Claimed(storage.take_over(key, observed, entry).await)
        }
        Request::Swap(key, held, entry, turn) => {
            if let Some(turn) = turn {
                turn.wait_for_batch().await;
            }
            Reply::Swapped(storage.compare_and_swap(key, held, entry).await)
        }
        Request::Delete(key, incarnation, epoch) => {
            Reply::Deleted(storage.compare_and_delete(key, *incarnation, *epoch).await)
        }
    }
}
