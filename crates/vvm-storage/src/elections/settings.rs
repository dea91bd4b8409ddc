//! The slot count of a cluster, stored once under its name.
//!
//! All members must use the same count: with different counts they would campaign for different slots, and
//! work that needs one leader could have two.

use super::{BeyondLimits, ElectionsTtlStorage};
use crate::{
    key::{ClusterName, Partition, name_of_setting},
    step::Step,
};
use ielections::{ReadError, WriteError};
use std::num::NonZeroU32;

/// Why a slot count could not be settled.
#[derive(Debug, thiserror::Error)]
pub enum SettleError {
    /// Another candidate settled another count before.
    #[error(
        "{cluster} has {} in this storage, not {wanted}: start each candidate with that count (--slots \
         {stands}), or choose another name", counted(*stands)
    )]
    Differs {
        /// The cluster.
        cluster: ClusterName,
        /// The count in the storage.
        stands: NonZeroU32,
        /// The requested count.
        wanted: NonZeroU32,
    },
    /// The stored value is not a slot count.
    #[error(transparent)]
    Corrupt(#[from] SettingCorrupt),
    /// The storage failed. Settling again is safe, even if this attempt was applied.
    #[error(transparent)]
    Storage(#[from] WriteError),
}

fn counted(slots: NonZeroU32) -> String {
    if slots == NonZeroU32::MIN { "1 slot".into() } else { format!("{slots} slots") }
}

/// The stored value of a cluster's slot count is not one.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the slot count of cluster {cluster} in this storage is damaged: its value is {}",
    .found.escape_ascii()
)]
pub struct SettingCorrupt {
    /// The cluster.
    pub cluster: ClusterName,
    /// The bytes found.
    pub found: Vec<u8>,
}

impl ElectionsTtlStorage {
    /// Stores the cluster's slot count. If one is stored, it must be the same.
    ///
    /// # Errors
    /// [`SettleError::Differs`] if another count is stored; also if the storage fails or refuses.
    ///
    /// # Cancel safety
    /// Dropped, it may or may not have stored the count. Calling it again is safe.
    pub async fn settle_slot_count(
        &self,
        cluster: &ClusterName,
        wanted: NonZeroU32,
    ) -> Result<(), SettleError> {
        let partition = self.slot_count_partition(cluster).map_err(|e| WriteError::Fatal(e.into()))?;
        let settled = self.sysvvm.commit(partition, Step::settle(&wanted.get().to_be_bytes())).await?;
        let Some(found) = settled.settled_before()? else { return Ok(()) };
        match decode(cluster, found)? {
            stands if stands == wanted => Ok(()),
            stands => Err(SettleError::Differs { cluster: cluster.clone(), stands, wanted }),
        }
    }

    /// Returns the cluster's slot count, if it was settled.
    ///
    /// # Errors
    /// [`ReadError::Fatal`] if the stored value is not a slot count; also if the storage fails.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn slot_count(&self, cluster: &ClusterName) -> Result<Option<NonZeroU32>, ReadError> {
        let partition = self.slot_count_partition(cluster).map_err(|e| ReadError::Fatal(e.into()))?;
        match self.sysvvm.setting(partition).await? {
            None => Ok(None),
            Some(found) => decode(cluster, found).map(Some).map_err(|e| ReadError::Fatal(e.into())),
        }
    }

    /// Returns the names with a settled slot count, sorted; `None` if the driver can't list them.
    ///
    /// # Errors
    /// If the storage fails.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn names(&self) -> Result<Option<Vec<ClusterName>>, ReadError> {
        let Some(settings) = self.sysvvm.settings().await? else { return Ok(None) };
        let mut names = settings.iter().filter_map(name_of_setting).collect::<Vec<_>>();
        names.sort_unstable();
        Ok(Some(names))
    }

    fn slot_count_partition(&self, cluster: &ClusterName) -> Result<Partition, BeyondLimits> {
        self.check_partition(cluster.slot_count_partition())
    }
}

fn decode(cluster: &ClusterName, found: Vec<u8>) -> Result<NonZeroU32, SettingCorrupt> {
    <[u8; 4]>::try_from(found.as_slice())
        .ok()
        .and_then(|bytes| NonZeroU32::new(u32::from_be_bytes(bytes)))
        .ok_or_else(|| SettingCorrupt { cluster: cluster.clone(), found })
}
