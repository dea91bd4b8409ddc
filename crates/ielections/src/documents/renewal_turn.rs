//! [`RenewalTurn`]: the priority of a renewal over batches of documents.

use super::{access::DocumentAccess, partition::Partition};
use std::sync::Arc;

/// Gives a renewal priority over the writer's batches, from before it is sent until it is dropped.
pub(crate) struct RenewalTurn(Arc<DocumentAccess<dyn Partition>>);

impl RenewalTurn {
    /// `None` if the work has not used documents.
    pub(crate) fn begin(access: &Arc<DocumentAccess<dyn Partition>>) -> Option<Self> {
        access.writer()?.begin_renewal();
        Some(Self(Arc::clone(access)))
    }

    /// Waits for the batch in flight, for a bounded time.
    pub(crate) async fn wait_for_batch(&self) {
        if let Some(writer) = self.0.writer() {
            writer.batch_answered(self.0.state()).await;
        }
    }
}

impl Drop for RenewalTurn {
    fn drop(&mut self) {
        if let Some(writer) = self.0.writer() {
            writer.end_renewal();
        }
    }
}
