//! A leader without an engine: the caller decides when it renews.

use super::{Scene, StorageError};
use ielections::{Claim, Entry, Swap, TtlStorage, Vacant, Version};
use vvm_storage::ElectionKey;

/// The leader of a slot, and its entry.
pub(super) struct Leader<'scene> {
    pub(super) scene: &'scene Scene,
    pub(super) key: ElectionKey,
    pub(super) held: Entry,
    /// The last entry that it tried to write.
    version: Version,
}

impl<'scene> Leader<'scene> {
    pub(super) async fn claim(scene: &'scene Scene, key: ElectionKey) -> Result<Self, StorageError> {
        let held = scene.entry()?;
        match scene.storage.insert_if_not_exist(&key, Vacant::default(), &held).await? {
            Claim::Claimed => Ok(Self { scene, key, version: held.version, held }),
            Claim::Refused(_) => Err(StorageError::Refused),
        }
    }

    /// Renews. Returns the milliseconds that it took; `None` if it was not confirmed. The next one continues
    /// from what a read shows.
    pub(super) async fn renew(&mut self) -> Result<Option<f64>, StorageError> {
        let began = self.scene.clock.now();
        self.version = self.version.next();
        let renewed = self.held.renewed(self.version);
        match self.scene.storage.compare_and_swap(&self.key, &self.held, &renewed).await {
            Ok(Swap::Swapped) => {
                self.held = renewed;
                Ok(Some(began.until(self.scene.clock.now()).as_secs_f64() * 1e3))
            }
            // An unanswered renewal may have written this.
            Ok(Swap::Mismatch(_)) | Err(_) => {
                let stands = self.scene.storage.get(&self.key).await?;
                self.held = stands.entry().cloned().ok_or(StorageError::Refused)?;
                Ok(None)
            }
        }
    }

    pub(super) async fn release(&self) -> Result<(), StorageError> {
        let Entry { version, epoch, .. } = &self.held;
        self.scene.storage.compare_and_delete(&self.key, version.incarnation, *epoch).await?;
        Ok(())
    }
}
