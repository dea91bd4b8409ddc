//! Changes to records without their leader, as an operator with a database console would make them.

use super::FaultyStorage;
use crate::{Claim, Delete, Entry, Key, ReadError, Slot, WriteError};

impl<K: Key> FaultyStorage<K> {
    /// Replaces the record in the slot by `entry`, without faults.
    ///
    /// # Errors
    /// If the storage behind the network fails.
    pub async fn tamper(&self, key: &K, entry: Entry) -> Result<(), WriteError> {
        let mut slot = self.look(key).await?;
        loop {
            let claim = match &slot {
                Slot::Vacant(vacant) => self.storage.insert_if_not_exist(key, *vacant, &entry).await?,
                Slot::Held { entry: standing, .. } => self.storage.take_over(key, standing, &entry).await?,
            };
            match claim {
                Claim::Claimed => break,
                Claim::Refused(standing) => slot = standing,
            }
        }
        self.state().counts.tampered += 1;
        Ok(())
    }

    /// Deletes the record in the slot, without faults. Its epoch stays.
    ///
    /// # Errors
    /// If the storage behind the network fails.
    pub async fn wipe(&self, key: &K) -> Result<(), WriteError> {
        let mut slot = self.look(key).await?;
        while let Some(standing) = slot.entry() {
            match self.storage.compare_and_delete(key, standing.incarnation(), standing.epoch).await? {
                Delete::Deleted => break,
                Delete::Mismatch(standing) => slot = standing,
            }
        }
        self.state().counts.tampered += 1;
        Ok(())
    }

    async fn look(&self, key: &K) -> Result<Slot, WriteError> {
        self.storage.get(key).await.map_err(|error| match error {
            ReadError::Unavailable(cause) => WriteError::NotApplied(cause),
            ReadError::Fatal(cause) => WriteError::Fatal(cause),
            ReadError::Replaced(cause) => WriteError::Replaced(cause),
        })
    }
}
