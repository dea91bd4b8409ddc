//! [`Layer`]: a storage that changes some verbs of another one and passes on the rest.

use super::{
    Claim, Delete, Key, Limits, ReadError, Swap, TtlStorage, WriteError, documents::DocumentStorage,
};
use crate::record::{Entry, Epoch, Incarnation, Slot, Vacant};
use std::{fmt::Debug, sync::Arc};

/// Writes verbs that pass through: each returns the future of the storage beneath, without another box. The
/// lifetimes are those of `#[async_trait]`, so that an implementation can override a verb by an `async fn`.
#[doc(hidden)]
#[macro_export]
macro_rules! pass_on {
    ($beneath:ident: $(
        $(#[$doc:meta])* fn $verb:ident$(<$($life:lifetime),+>)?($($name:ident: $type:ty),*) -> $answer:ty;
    )*) => {$(
        $(#[$doc])*
        fn $verb<'life0, $($($life,)+)? 'async_trait>(
            &'life0 self, $($name: $type),*
        ) -> ::std::pin::Pin<Box<dyn ::std::future::Future<Output = $answer> + Send + 'async_trait>>
        where
            'life0: 'async_trait,
            $($($life: 'async_trait,)+)?
            Self: 'async_trait,
        {
            self.$beneath().$verb($($name),*)
        }
    )*};
}

macro_rules! verbs_passed_on_to {
    ($beneath:ident) => {
        /// See [`TtlStorage::limits`].
        fn limits(&self) -> Limits {
            self.$beneath().limits()
        }

        /// See [`TtlStorage::hints_of_releases`].
        fn hints_of_releases(&self) -> bool {
            self.$beneath().hints_of_releases()
        }

        /// See [`TtlStorage::documents`].
        fn documents(&self) -> Option<&dyn DocumentStorage<K>> {
            self.$beneath().documents()
        }

        pass_on! { $beneath:
            /// See [`TtlStorage::insert_if_not_exist`].
            fn insert_if_not_exist<'key, 'entry>(
                key: &'key K, vacant: Vacant, entry: &'entry Entry
            ) -> Result<Claim, WriteError>;
            /// See [`TtlStorage::take_over`].
            fn take_over<'key, 'observed, 'entry>(
                key: &'key K, observed: &'observed Entry, entry: &'entry Entry
            ) -> Result<Claim, WriteError>;
            /// See [`TtlStorage::compare_and_swap`].
            fn compare_and_swap<'key, 'held, 'entry>(
                key: &'key K, held: &'held Entry, entry: &'entry Entry
            ) -> Result<Swap, WriteError>;
            /// See [`TtlStorage::compare_and_delete`].
            fn compare_and_delete<'key>(
                key: &'key K, incarnation: Incarnation, epoch: Epoch
            ) -> Result<Delete, WriteError>;
            /// See [`TtlStorage::get`].
            fn get<'key>(key: &'key K) -> Result<Slot, ReadError>;
            /// See [`TtlStorage::scan`].
            fn scan<'keys>(keys: &'keys [K]) -> Result<Vec<Slot>, ReadError>;
            /// See [`TtlStorage::scan_some`].
            fn scan_some<'keys, 'seen>(
                keys: &'keys [K], seen: &'seen mut [Option<Slot>]
            ) -> Result<(), ReadError>;
            /// See [`TtlStorage::close`].
            fn close() -> ();
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
