//! [`SysVvmStorage`]: the trait that a driver of a new database implements.

use crate::{Description, Opened, Partition, SysVvmDocuments, SysVvmHints};
use async_trait::async_trait;
use ielections::{Claim, Delete, Entry, Epoch, Incarnation, Limits, ReadError, Slot, Swap, WriteError};
use std::{fmt::Debug, time::Duration};

/// The sysvvm keyspace of one database (the reference's ISysVvmStorage).
///
/// The contract is that of [`ielections::TtlStorage`], with partitions for keys. The contract suite runs
/// through [`ElectionsTtlStorage`](crate::ElectionsTtlStorage), and so tests a whole driver.
///
/// One partition has the epoch and the leader record of one election key, so that a claim and its fence are
/// one atomic step. Settings have partitions of their own.
///
/// A verb takes its partition by value, so that [`ElectionsTtlStorage`](crate::ElectionsTtlStorage) returns
/// the driver's future as it is: of the futures of one renewal, the driver's is the only one in a box.
#[async_trait]
pub trait SysVvmStorage: Debug + Send + Sync + 'static {
    /// Returns the limits of this driver. Larger keys and values are refused before the driver is called.
    fn limits(&self) -> Limits;

    /// Whether processes other than this one can share the storage.
    fn shared_between_processes(&self) -> bool;

    /// Replaces exactly `from` by `entry`: a vacant slot with exactly that last epoch, or a held one with
    /// exactly that version and epoch. The `proven_age` of `from` is ignored.
    async fn claim(&self, at: Partition, from: &Slot, entry: &Entry) -> Result<Claim, WriteError>;

    /// Replaces exactly the version and epoch of `held` by `entry`.
    async fn renew(&self, at: Partition, held: &Entry, entry: &Entry) -> Result<Swap, WriteError>;

    /// Makes the slot vacant if this incarnation and epoch hold it, with any version. The epoch stays.
    async fn release(
        &self,
        at: Partition,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<Delete, WriteError>;

    /// Reads a slot; linearizable.
    async fn read(&self, at: Partition) -> Result<Slot, ReadError>;

    /// Reads slots, in the order of `at`; may be stale.
    async fn peek(&self, at: &[Partition]) -> Result<Vec<Slot>, ReadError>;

    /// [`peek`](Self::peek) into `seen`, for a driver that reads slots one by one: a slot that can't be read
    /// stays `None` and does not keep the others from being read. Fails if a slot was not read. Dropped, it
    /// leaves in `seen` what was read so far.
    async fn peek_some(&self, at: &[Partition], seen: &mut [Option<Slot>]) -> Result<(), ReadError> {
        let slots = self.peek(at).await?;
        seen.iter_mut().zip(slots).for_each(|(seen, slot)| *seen = Some(slot));
        Ok(())
    }

    /// Stores `value` if there is no value, and returns the stored one. Calling it again after an unknown
    /// outcome is safe.
    async fn settle(&self, at: Partition, value: &[u8]) -> Result<Vec<u8>, WriteError>;

    /// Reads the value that [`settle`](Self::settle) stored, if there is one; linearizable.
    async fn setting(&self, at: Partition) -> Result<Option<Vec<u8>>, ReadError>;

    /// Returns the documents of this driver, if it supports them.
    fn documents(&self) -> Option<&dyn SysVvmDocuments> {
        None
    }

    /// Returns the hints of this driver, if it has them.
    fn hints(&self) -> Option<&dyn SysVvmHints> {
        None
    }

    /// Returns where the storage is and whether opening it created it, if the driver knows.
    fn opened(&self) -> Option<Opened> {
        None
    }

    /// Describes the database, its version and its configuration, for `vvm doctor`. Called rarely; may send a
    /// few requests. What the user may not read is left out, or is a concern.
    async fn describe(&self) -> Result<Description, ReadError> {
        Ok(Description::default())
    }

    /// Returns how long ago each record was written by the database's own clock, for people: that clock may
    /// jump, so no candidate may rely on it. `None` for a slot without a record, and if the database keeps no
    /// times.
    async fn shown_ages(&self, at: &[Partition]) -> Result<Vec<Option<Duration>>, ReadError> {
        Ok(vec![None; at.len()])
    }

    /// Ends the driver's threads and sockets (I9). Every call after it fails with `Fatal`.
    async fn close(&self);
}

/// Returns the outcome of a write that was not sent because the read before it failed.
pub(crate) fn unsent(error: ReadError) -> WriteError {
    match error {
        ReadError::Unavailable(cause) => WriteError::NotApplied(cause),
        ReadError::Fatal(cause) => WriteError::Fatal(cause),
        ReadError::Replaced(cause) => WriteError::Replaced(cause),
    }
}
