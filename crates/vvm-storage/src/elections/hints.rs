//! Hints for the candidates of a cluster: see [`SysVvmHints`](crate::SysVvmHints).

use super::ElectionsTtlStorage;
use crate::key::ClusterName;
use std::future::pending;

impl ElectionsTtlStorage {
    /// Hints to the other processes of the cluster that a slot was released, or a request made. Returns soon.
    pub(super) async fn announce(&self, cluster: &ClusterName) {
        if let Some(hints) = self.sysvvm.hints() {
            hints.announce(&cluster.slot_count_partition()).await;
        }
    }

    /// Waits for a hint that another process released a slot of the cluster or made a request. Never returns
    /// if the storage has no hints.
    ///
    /// A candidate then looks at once ([`Elections::look_now`](ielections::Elections::look_now)). Nothing
    /// else may follow from a hint: it may be lost, late, repeated or false.
    ///
    /// # Cancel safety
    /// May be dropped and called again at will.
    pub async fn hinted(&self, cluster: &ClusterName) {
        match self.sysvvm.hints() {
            Some(hints) => hints.hinted(&cluster.slot_count_partition()).await,
            None => pending().await,
        }
    }

    /// Whether hints about the cluster arrive, as far as this process knows. Only while
    /// [`hinted`](Self::hinted) is called time and again.
    pub fn listens(&self, cluster: &ClusterName) -> bool {
        self.sysvvm.hints().is_some_and(|hints| hints.listens(&cluster.slot_count_partition()))
    }
}
