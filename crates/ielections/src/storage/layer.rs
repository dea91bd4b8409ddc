//! [`Layer`]: a storage that changes some verbs of another one and passes on the rest.

use super::{
    Claim, Delete, Key, Limits, ReadError, Swap, TtlStorage, WriteError, document_storage::DocumentStorage,
};
use crate::record::{Entry, Epoch, Incarnation, Slot, Vacant};
use futures_util::future::BoxFuture;
use std::{fmt::Debug, sync::Arc};

/// The verbs that pass through: each returns the future of the storage beneath, without another box. The
/// lifetimes are those of `#[async_trait]`, so that an implementation can override a verb by an `async fn`.
macro_rules! verbs_passed_on_to {
    ($beneath:ident) => {
        /// See [`TtlStorage::limits`].
        fn limits(&self) -> Limits {
            self.$beneath().limits()
        }

        /// See [`TtlStorage::insert_if_not_exist`].
        fn insert_if_not_exist<'life0, 'life1, 'life2, 'async_trait>(
            &'life0 self,
            key: &'life1 K,
            vacant: Vacant,
            entry: &'life2 Entry,
        ) -> BoxFuture<'async_trait, Result<Claim, WriteError>>
        where
            'life0: 'async_trait,
            'life1: 'async_trait,
            'life2: 'async_trait,
            Self: 'async_trait,
        {
            self.$beneath().insert_if_not_exist(key, vacant, entry)
        }

        /// See [`TtlStorage::take_over`].
        fn take_over<'life0, 'life1, 'life2, 'life3, 'async_trait>(
            &'life0 self,
            key: &'life1 K,
            observed: &'life2 Entry,
            entry: &'life3 Entry,
        ) -> BoxFuture<'async_trait, Result<Claim, WriteError>>
        where
            'life0: 'async_trait,
            'life1: 'async_trait,
            'life2: 'async_trait,
            'life3: 'async_trait,
            Self: 'async_trait,
        {
            self.$beneath().take_over(key, observed, entry)
        }

        /// See [`TtlStorage::compare_and_swap`].
        fn compare_and_swap<'life0, 'life1, 'life2, 'life3, 'async_trait>(
            &'life0 self,
            key: &'life1 K,
            held: &'life2 Entry,
            entry: &'life3 Entry,
        ) -> BoxFuture<'async_trait, Result<Swap, WriteError>>
        where
            'life0: 'async_trait,
            'life1: 'async_trait,
            'life2: 'async_trait,
            'life3: 'async_trait,
            Self: 'async_trait,
        {
            self.$beneath().compare_and_swap(key, held, entry)
        }

        /// See [`TtlStorage::compare_and_delete`].
        fn compare_and_delete<'life0, 'life1, 'async_trait>(
            &'life0 self,
            key: &'life1 K,
            incarnation: Incarnation,
            epoch: Epoch,
        ) -> BoxFuture<'async_trait, Result<Delete, WriteError>>
        where
            'life0: 'async_trait,
            'life1: 'async_trait,
            Self: 'async_trait,
        {
            self.$beneath().compare_and_delete(key, incarnation, epoch)
        }

        /// See [`TtlStorage::get`].
        fn get<'life0, 'life1, 'async_trait>(
            &'life0 self,
            key: &'life1 K,
        ) -> BoxFuture<'async_trait, Result<Slot, ReadError>>
        where
            'life0: 'async_trait,
            'life1: 'async_trait,
            Self: 'async_trait,
        {
            self.$beneath().get(key)
        }

        /// See [`TtlStorage::scan`].
        fn scan<'life0, 'life1, 'async_trait>(
            &'life0 self,
            keys: &'life1 [K],
        ) -> BoxFuture<'async_trait, Result<Vec<Slot>, ReadError>>
        where
            'life0: 'async_trait,
            'life1: 'async_trait,
            Self: 'async_trait,
        {
            self.$beneath().scan(keys)
        }

        /// See [`TtlStorage::scan_some`].
        fn scan_some<'life0, 'life1, 'life2, 'async_trait>(
            &'life0 self,
            keys: &'life1 [K],
            seen: &'life2 mut [Option<Slot>],
        ) -> BoxFuture<'async_trait, Result<(), ReadError>>
        where
            'life0: 'async_trait,
            'life1: 'async_trait,
            'life2: 'async_trait,
            Self: 'async_trait,
        {
            self.$beneath().scan_some(keys, seen)
        }

        /// See [`TtlStorage::documents`].
        fn documents(&self) -> Option<&dyn DocumentStorage<K>> {
            self.$beneath().documents()
        }

        /// See [`TtlStorage::close`].
        fn close<'life0, 'async_trait>(&'life0 self) -> BoxFuture<'async_trait, ()>
        where
            'life0: 'async_trait,
            Self: 'async_trait,
        {
            self.$beneath().close()
        }
    };
}

/// A storage in front of another one. Every verb passes through, except those that an implementation
/// overrides, for example to refuse some claims or to count calls. [`into_storage`](Self::into_storage) makes
/// a storage of it.
///
/// A verb that passes through costs nothing. A verb that is overridden costs the one box of its `async fn`.
///
/// The contract of [`TtlStorage`] holds for the layer, too. An overridden verb calls the same verb of
/// [`beneath`](Self::beneath) at most once. A write that the layer itself refuses fails with `NotApplied`.
/// Limits may be narrowed, not widened.
///
/// # Cancel safety
/// A verb may be dropped at any `await`: code after it may never run.
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
/// /// Elections use the storage, and the caller reads the count.
/// fn counted<K: Key>(storage: Arc<dyn TtlStorage<K>>) -> (Arc<Counted<K>>, Arc<dyn TtlStorage<K>>) {
///     let counted = Arc::new(Counted { storage, renewals: AtomicU64::new(0) });
///     (Arc::clone(&counted), counted.into_storage())
/// }
/// ```
pub trait Layer<K: Key>: Debug + Send + Sync + 'static {
    /// The storage that calls are passed on to.
    fn beneath(&self) -> &dyn TtlStorage<K>;

    /// Makes a storage of this layer.
    fn into_storage(self: Arc<Self>) -> Arc<dyn TtlStorage<K>>
    where
        Self: Sized,
    {
        Arc::new(Layered(self))
    }

    verbs_passed_on_to!(beneath);
}

/// A layer as a storage. (A blanket implementation for every `Layer` would conflict with storages that are
/// generic over the key.)
#[derive(Debug)]
struct Layered<L>(Arc<L>);

impl<L> Layered<L> {
    fn layer(&self) -> &L {
        &self.0
    }
}

impl<K: Key, L: Layer<K>> TtlStorage<K> for Layered<L> {
    verbs_passed_on_to!(layer);
}
