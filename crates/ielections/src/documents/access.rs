//! [`DocumentAccess`]: the documents of one leadership, with the state that they depend on.

use super::{
    partition::Partition,
    writer::{DocumentWriter, LedSlot},
};
use crate::state::LeadershipState;
use std::sync::{Arc, OnceLock};

/// State, writer and partition of one leadership, in one allocation (I11).
pub(crate) struct DocumentAccess<P: ?Sized> {
    state: LeadershipState,
    /// Made when the work first uses documents (I11).
    writer: OnceLock<Arc<DocumentWriter>>,
    /// Last, since only the last field of a type may be unsized.
    partition: P,
}

impl<P> DocumentAccess<P> {
    pub(crate) fn new(state: LeadershipState, partition: P) -> Self {
        Self { state, writer: OnceLock::new(), partition }
    }
}

impl DocumentAccess<dyn Partition> {
    pub(crate) fn state(&self) -> &LeadershipState {
        &self.state
    }

    pub(super) fn slot(&self) -> LedSlot<'_> {
        LedSlot { state: &self.state, partition: &self.partition }
    }

    /// The writer, if the work has used documents.
    pub(super) fn writer(&self) -> Option<&Arc<DocumentWriter>> {
        self.writer.get()
    }

    /// The writer, made if necessary; `None` if the storage keeps no documents.
    pub(super) fn open_writer(&self) -> Option<&Arc<DocumentWriter>> {
        match self.writer() {
            Some(writer) => Some(writer),
            None => {
                let limits = self.partition.limits()?;
                Some(self.writer.get_or_init(|| Arc::new(DocumentWriter::new(&self.state, limits))))
            }
        }
    }
}
