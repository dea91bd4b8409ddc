//! Storages for tests. [`Layer`]: a storage in front of another one. [`FaultyStorage`]: one whose next calls
//! fail or hang.

mod faulty_storage;

pub use faulty_storage::{Fault, FaultyStorage};

use crate::{Description, Opened, Partition, SysVvmDocuments, SysVvmStorage};
use ielections::{
    Claim, Delete, Entry, Epoch, Incarnation, Limits, ReadError, Slot, Swap, WriteError, pass_on,
};
use std::{fmt::Debug, sync::Arc, time::Duration};

macro_rules! verbs_passed_on_to {
    ($beneath:ident) => {
        /// See [`SysVvmStorage::limits`].
        fn limits(&self) -> Limits {
            self.$beneath().limits()
        }

        /// See [`SysVvmStorage::shared_between_processes`].
        fn shared_between_processes(&self) -> bool {
            self.$beneath().shared_between_processes()
        }

        /// See [`SysVvmStorage::documents`].
        fn documents(&self) -> Option<&dyn SysVvmDocuments> {
            self.$beneath().documents()
        }

        /// See [`SysVvmStorage::opened`].
        fn opened(&self) -> Option<Opened> {
            self.$beneath().opened()
        }

        pass_on! { $beneath:
            /// See [`SysVvmStorage::claim`].
            fn claim<'from, 'entry>(
                at: Partition, from: &'from Slot, entry: &'entry Entry
            ) -> Result<Claim, WriteError>;
            /// See [`SysVvmStorage::renew`].
            fn renew<'held, 'entry>(
                at: Partition, held: &'held Entry, entry: &'entry Entry
            ) -> Result<Swap, WriteError>;
            /// See [`SysVvmStorage::release`].
            fn release(at: Partition, incarnation: Incarnation, epoch: Epoch) -> Result<Delete, WriteError>;
            /// See [`SysVvmStorage::read`].
            fn read(at: Partition) -> Result<Slot, ReadError>;
            /// See [`SysVvmStorage::peek`].
            fn peek<'at>(at: &'at [Partition]) -> Result<Vec<Slot>, ReadError>;
            /// See [`SysVvmStorage::peek_some`].
            fn peek_some<'at, 'seen>(
                at: &'at [Partition], seen: &'seen mut [Option<Slot>]
            ) -> Result<(), ReadError>;
            /// See [`SysVvmStorage::settle`].
            fn settle<'value>(at: Partition, value: &'value [u8]) -> Result<Vec<u8>, WriteError>;
            /// See [`SysVvmStorage::setting`].
            fn setting(at: Partition) -> Result<Option<Vec<u8>>, ReadError>;
            /// See [`SysVvmStorage::describe`].
            fn describe() -> Result<Description, ReadError>;
            /// See [`SysVvmStorage::shown_ages`].
            fn shown_ages<'at>(at: &'at [Partition]) -> Result<Vec<Option<Duration>>, ReadError>;
            /// See [`SysVvmStorage::close`].
            fn close() -> ();
        }
    };
}

/// A storage in front of another one, as [`ielections::Layer`] is: verbs that it does not override pass
/// through, and cost nothing.
pub trait Layer: Debug + Send + Sync + 'static {
    /// The storage that calls are passed on to.
    fn beneath(&self) -> &dyn SysVvmStorage;

    /// Makes a storage of this layer.
    fn into_storage(self: Arc<Self>) -> Arc<dyn SysVvmStorage>
    where
        Self: Sized,
    {
        Arc::new(Layered(self))
    }

    verbs_passed_on_to!(beneath);
}

/// A layer as a storage.
#[derive(Debug)]
struct Layered<L>(Arc<L>);

impl<L> Layered<L> {
    fn layer(&self) -> &L {
        &self.0
    }
}

impl<L: Layer> SysVvmStorage for Layered<L> {
    verbs_passed_on_to!(layer);
}
