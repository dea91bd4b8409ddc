//! [`Layer`]: what stands before a storage and changes some of its verbs. Which ones, an author says; the others pass
//! through to what is beneath. What a verb promises stands on [`TtlStorage`] alone, and a layer promises the same.

use super::{Claim, Delete, Key, Limits, ReadError, Swap, TtlStorage, WriteError};
use crate::{DocumentStorage, Entry, Epoch, Incarnation, Slot, Vacant};
use async_trait::async_trait;
use std::{fmt::Debug, sync::Arc};

/// What stands before a storage: every verb passes through, but for those that an implementation overrides. To refuse some
/// claims, to count calls, to listen to what is answered. [`into_storage`](Self::into_storage) makes a storage of it.
///
/// The contract of [`TtlStorage`] holds for the layer as for what is beneath. A verb that is overridden calls the same one
/// of [`beneath`](Self::beneath) once, or not at all; what it refuses by itself is `NotApplied`, and never will be. Limits
/// may be narrowed, not widened.
///
/// # Cancel safety
/// A layer's verbs are dropped as those of a storage are: what is done after the `await` may never be done.
///
/// # Example
/// ```
/// use async_trait::async_trait;
/// use ielections::{Entry, Key, Layer, Swap, TtlStorage, WriteError};
/// use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
///
/// /// Counts renewals.
/// #[derive(Debug)]
/// struct Counted<K: Key> {
///     storage: Arc<dyn TtlStorage<K>>,
///     renewals: AtomicU64,
/// }
///
/// #[async_trait]
/// impl<K: Key> Layer<K> for Counted<K> {
///     fn beneath(&self) -> &dyn TtlStorage<K> {
///         &*self.storage
///     }
///
///     async fn compare_and_swap(&self, key: &K, held: &Entry, entry: &Entry) -> Result<Swap, WriteError> {
///         self.renewals.fetch_add(1, Ordering::Relaxed);
///         self.beneath().compare_and_swap(key, held, entry).await
///     }
/// }
///
/// /// For elections it is a storage like any other; we go on reading what it has counted.
/// fn counted<K: Key>(storage: Arc<dyn TtlStorage<K>>) -> (Arc<Counted<K>>, Arc<dyn TtlStorage<K>>) {
///     let counted = Arc::new(Counted { storage, renewals: AtomicU64::new(0) });
///     (Arc::clone(&counted), counted.into_storage())
/// }
/// ```
#[async_trait]
pub trait Layer<K: Key>: Debug + Send + Sync + 'static {
    /// What calls are passed on to.
    fn beneath(&self) -> &dyn TtlStorage<K>;

    /// The storage that this layer makes of the one beneath.
    fn into_storage(self: Arc<Self>) -> Arc<dyn TtlStorage<K>>
    where
        Self: Sized,
    {
        Arc::new(Layered(self))
    }

    /// See [`TtlStorage::limits`].
    fn limits(&self) -> Limits {
        self.beneath().limits()
    }

    /// See [`TtlStorage::insert_if_not_exist`].
    async fn insert_if_not_exist(&self, key: &K, vacant: Vacant, entry: &Entry) -> Result<Claim, WriteError> {
        self.beneath().insert_if_not_exist(key, vacant, entry).await
    }

    /// See [`TtlStorage::take_over`].
    async fn take_over(&self, key: &K, observed: &Entry, entry: &Entry) -> Result<Claim, WriteError> {
        self.beneath().take_over(key, observed, entry).await
    }

    /// See [`TtlStorage::compare_and_swap`].
    async fn compare_and_swap(&self, key: &K, held: &Entry, entry: &Entry) -> Result<Swap, WriteError> {
        self.beneath().compare_and_swap(key, held, entry).await
    }

    /// See [`TtlStorage::compare_and_delete`].
    async fn compare_and_delete(
        &self,
        key: &K,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError> {
        self.beneath().compare_and_delete(key, incarnation, epoch).await
    }

    /// See [`TtlStorage::get`].
    async fn get(&self, key: &K) -> Result<Slot, ReadError> {
        self.beneath().get(key).await
    }

    /// See [`TtlStorage::scan`].
    async fn scan(&self, keys: &[K]) -> Result<Vec<Slot>, ReadError> {
        self.beneath().scan(keys).await
    }

    /// See [`TtlStorage::documents`].
    fn documents(&self) -> Option<&dyn DocumentStorage<K>> {
        self.beneath().documents()
    }

    /// See [`TtlStorage::close`].
    async fn close(&self) {
        self.beneath().close().await;
    }
}

/// A layer, as a storage. (Were every layer one by itself, no storage could be one for keys of any type.)
#[derive(Debug)]
struct Layered<L>(Arc<L>);

#[async_trait]
impl<K: Key, L: Layer<K>> TtlStorage<K> for Layered<L> {
    fn limits(&self) -> Limits {
        self.0.limits()
    }

    async fn insert_if_not_exist(&self, key: &K, vacant: Vacant, entry: &Entry) -> Result<Claim, WriteError> {
        self.0.insert_if_not_exist(key, vacant, entry).await
    }

    async fn take_over(&self, key: &K, observed: &Entry, entry: &Entry) -> Result<Claim, WriteError> {
        self.0.take_over(key, observed, entry).await
    }

    async fn compare_and_swap(&self, key: &K, held: &Entry, entry: &Entry) -> Result<Swap, WriteError> {
        self.0.compare_and_swap(key, held, entry).await
    }

    async fn compare_and_delete(
        &self,
        key: &K,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError> {
        self.0.compare_and_delete(key, incarnation, epoch).await
    }

    async fn get(&self, key: &K) -> Result<Slot, ReadError> {
        self.0.get(key).await
    }

    async fn scan(&self, keys: &[K]) -> Result<Vec<Slot>, ReadError> {
        self.0.scan(keys).await
    }

    fn documents(&self) -> Option<&dyn DocumentStorage<K>> {
        self.0.documents()
    }

    async fn close(&self) {
        self.0.close().await;
    }
}
