//! What the errors of all drivers share.
#![allow(dead_code, reason = "each driver needs some of it")]

use crate::{
    opening::OpenError,
    step::{Decision, SlotAlone, Step, decide},
};
use futures_util::future::{BoxFuture, FutureExt as _, Shared, ready};
use ielections::{ReadError, Slot, WriteError};
use std::{
    error::Error,
    fmt,
    iter::successors,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("this handle of the storage is closed: open another one")]
pub(super) struct HandleClosed;

/// What a handle has until it is closed. A call that runs keeps its own.
#[derive(Debug)]
pub(super) struct Closable<T>(Mutex<Option<T>>);

impl<T: Clone> Closable<T> {
    pub(super) fn new(open: T) -> Self {
        Self(Mutex::new(Some(open)))
    }

    pub(super) fn get(&self) -> Result<T, HandleClosed> {
        self.lock().clone().ok_or(HandleClosed)
    }

    pub(super) fn close(&self) {
        drop(self.lock().take());
    }

    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Closable<Arc<T>> {
    /// Replaces what a call was given, unless another call has, or the handle is closed.
    pub(super) fn replace(&self, given: &Arc<T>, by: impl FnOnce() -> T) {
        if let Some(current) = self.lock().as_mut().filter(|current| Arc::ptr_eq(current, given)) {
            *current = Arc::new(by());
        }
    }
}

pub(super) struct Renewable<T: ?Sized> {
    current: Mutex<Arc<T>>,
    build: Build<T>,
}

type Build<T> = Box<dyn Fn() -> Result<Arc<T>, OpenError> + Send + Sync>;

impl<T: ?Sized> Renewable<T> {
    pub(super) fn new(current: Arc<T>, build: Build<T>) -> Self {
        Self { current: Mutex::new(current), build }
    }

    pub(super) fn current(&self) -> Arc<T> {
        Arc::clone(&self.lock())
    }

    pub(super) fn replace(&self, failed: &Arc<T>) {
        let mut current = self.lock();
        if Arc::ptr_eq(&current, failed) {
            match (self.build)() {
                Ok(anew) => *current = anew,
                Err(error) => tracing::debug!(%error, "what failed is kept"),
            }
        }
    }

    pub(super) fn until_answered(&self, used: Arc<T>) -> PendingRequest<'_, T> {
        PendingRequest { of: self, used: Some(used) }
    }

    fn lock(&self) -> MutexGuard<'_, Arc<T>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Renewable<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.current().fmt(out)
    }
}

/// Dropped before the answer, it replaces the connections: those to a peer that has vanished cost an attempt each.
pub(super) struct PendingRequest<'a, T: ?Sized> {
    of: &'a Renewable<T>,
    used: Option<Arc<T>>,
}

impl<T: ?Sized> PendingRequest<'_, T> {
    pub(super) fn answered(mut self) {
        self.used = None;
    }
}

impl<T: ?Sized> Drop for PendingRequest<'_, T> {
    fn drop(&mut self) {
        if let Some(used) = &self.used {
            self.of.replace(used);
        }
    }
}

/// A loading that outlives the request that began it. It goes on while a request waits for it.
#[derive(Debug)]
pub(super) struct Loading<T: Clone>(Mutex<Option<Shared<BoxFuture<'static, T>>>>);

impl<T: Clone + Send + 'static> Loading<T> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(None))
    }

    pub(super) fn ended(with: T) -> Self {
        Self(Mutex::new(Some(ready(with).boxed().shared())))
    }

    pub(super) async fn join(&self, begin: impl FnOnce() -> BoxFuture<'static, T>) -> T {
        let loading = self.lock().get_or_insert_with(|| begin().shared()).clone();
        let loaded = loading.clone().await;
        self.lock().take_if(|current| current.ptr_eq(&loading));
        loaded
    }

    fn lock(&self) -> MutexGuard<'_, Option<Shared<BoxFuture<'static, T>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the thread that owns the database ended before it answered")]
pub(super) struct ThreadEnded;

impl From<HandleClosed> for WriteError {
    fn from(closed: HandleClosed) -> Self {
        Self::Fatal(closed.into())
    }
}

impl From<HandleClosed> for ReadError {
    fn from(closed: HandleClosed) -> Self {
        Self::Fatal(closed.into())
    }
}

pub(super) fn of_read(error: WriteError) -> ReadError {
    match error {
        WriteError::Fatal(cause) => ReadError::Fatal(cause),
        WriteError::Replaced(cause) => ReadError::Replaced(cause),
        WriteError::NotApplied(cause) | WriteError::Unknown(cause) => ReadError::Unavailable(cause),
    }
}

/// A server that refused the step and shows this slot is damaged.
pub(super) fn is_met(step: &Step, stands: &Slot) -> bool {
    let Ok(decision) = decide(&SlotAlone(stands), step);
    !matches!(decision, Decision::Refuse(_))
}

/// Whether a request's connection was never made. "Connection refused" proves nothing: it may end an established one.
#[cfg(any(feature = "dynamodb", feature = "object-store"))]
pub(super) fn never_connected(error: &(dyn Error + 'static)) -> bool {
    chain(error)
        .filter_map(|error| error.downcast_ref::<hyper_util::client::legacy::Error>())
        .any(hyper_util::client::legacy::Error::is_connect)
}

pub(super) fn chain<'error>(
    error: &'error (dyn Error + 'static),
) -> impl Iterator<Item = &'error (dyn Error + 'static)> {
    successors(Some(error), |&error| error.source())
}

/// An error and its causes: the outermost alone says little.
pub(super) fn described(error: &(dyn Error + 'static)) -> String {
    chain(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// For tests of the tables of errors: what a caller learns of a write, and of a read.
#[cfg(test)]
pub(super) mod kinds {
    use super::*;

    pub(in crate::drivers) fn of_write(error: &WriteError) -> &'static str {
        match error {
            WriteError::NotApplied(_) => "NotApplied",
            WriteError::Unknown(_) => "Unknown",
            WriteError::Fatal(_) => "Fatal",
            WriteError::Replaced(_) => "Replaced",
        }
    }

    pub(in crate::drivers) fn of_read(error: &ReadError) -> &'static str {
        match error {
            ReadError::Unavailable(_) => "Unavailable",
            ReadError::Fatal(_) => "Fatal",
            ReadError::Replaced(_) => "Replaced",
        }
    }
}
