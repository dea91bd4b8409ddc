//! The records of the storage: those of the model, with the bugs that a write of a record shows in documents.

use super::{Bug, Data, Handle};
use crate::Name;
use async_trait::async_trait;
use ielections::{
    Claim, Delete, DocumentStorage, Entry, Epoch, Incarnation, Limits, ReadError, Slot, Swap, TtlStorage,
    Vacant, WriteError,
};
use std::sync::atomic::Ordering;

#[async_trait]
impl TtlStorage<Name> for Handle {
    fn limits(&self) -> Limits {
        self.records.limits()
    }

    async fn insert_if_not_exist(
        &self,
        key: &Name,
        vacant: Vacant,
        entry: &Entry,
    ) -> Result<Claim, WriteError> {
        let _turn = self.turn().await;
        self.records.insert_if_not_exist(key, vacant, entry).await
    }

    async fn take_over(&self, key: &Name, observed: &Entry, entry: &Entry) -> Result<Claim, WriteError> {
        let _turn = self.turn().await;
        let claim = self.records.take_over(key, observed, entry).await?;
        if claim == Claim::Claimed && self.has(Bug::CountStartsAnewAtTakeOver) {
            self.set_last(key, 0);
        }
        Ok(claim)
    }

    async fn compare_and_swap(&self, key: &Name, held: &Entry, entry: &Entry) -> Result<Swap, WriteError> {
        let _turn = self.turn().await;
        let swap = self.records.compare_and_swap(key, held, entry).await?;
        if swap == Swap::Swapped && self.has(Bug::RenewalCounts) {
            self.set_last(key, self.last(key) + 1);
        }
        Ok(swap)
    }

    async fn compare_and_delete(
        &self,
        key: &Name,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError> {
        let _turn = self.turn().await;
        let delete = self.records.compare_and_delete(key, incarnation, epoch).await?;
        match self.bug {
            Bug::CountStartsAnewAtRelease if delete == Delete::Deleted => self.set_last(key, 0),
            Bug::ReleaseDeletes if delete == Delete::Deleted => {
                self.data().documents.remove(key);
            }
            _ => {}
        }
        Ok(delete)
    }

    async fn get(&self, key: &Name) -> Result<Slot, ReadError> {
        self.records.get(key).await
    }

    async fn scan(&self, keys: &[Name]) -> Result<Vec<Slot>, ReadError> {
        self.records.scan(keys).await
    }

    fn documents(&self) -> Option<&dyn DocumentStorage<Name>> {
        Some(self)
    }

    async fn close(&self) {
        match self.bug {
            Bug::CloseDoesNothing => return,
            Bug::CloseForgets => *self.data() = Data::default(),
            _ => {}
        }
        self.closed.store(true, Ordering::SeqCst);
        self.records.close().await;
    }
}
