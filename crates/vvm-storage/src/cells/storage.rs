use crate::{
    key::Partition,
    sysvvm::{Description, OpenedStorage, SysVvmHints},
};
use async_trait::async_trait;
use bytes::Bytes;
use ielections::{Entry, ReadError, WriteError};
use std::{fmt::Debug, sync::Arc, time::Duration};

/// What a [`CellStorage`] can carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CellLimits {
    /// The shortest TTL that round trips leave room for: ten times an ordinary slow write of a full cell, or more.
    pub min_ttl: Duration,
    /// The longest key, in bytes, before it is encoded. At least
    /// [`Limits::LEAST_KEY_BYTES`](ielections::Limits::LEAST_KEY_BYTES).
    pub max_key_bytes: usize,
    /// The largest value, in bytes. At least 64 KiB: room for the longest key and holder, and for one small document.
    pub max_cell_bytes: usize,
}

/// Names one value of one cell, as the server knows it: an ETag, a resource version, a revision.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Tag(Arc<[u8]>);

impl Tag {
    /// Wraps the server's bytes.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self(bytes.into())
    }

    /// Returns the server's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Debug for Tag {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "tag {}", self.0.escape_ascii())
    }
}

/// A value and its tag, both from one answer of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cell {
    /// The value.
    pub value: Bytes,
    /// The tag of exactly this value.
    pub tag: Tag,
}

/// The state that a write replaces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CellCondition {
    /// The cell does not exist.
    Absent,
    /// The cell has this tag.
    Tag(Tag),
}

/// The outcome of a write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CellWrite {
    /// The value was written. Its tag, if the same answer named it.
    Written(Option<Tag>),
    /// Not written, now or later: the cell is not in the expected state.
    Refused,
}

/// One value per key, replaced only by a writer that has seen it.
///
/// [`Cells`](super::Cells) turns an implementation into a [`SysVvmStorage`](crate::SysVvmStorage) with
/// documents. Implementations encode keys by [`Partition::encoded`], or keep them apart in their own way.
///
/// # Contract
/// 1. A write is atomic, linearizable and durable before its answer. It applies exactly if the cell is in the
///    expected state.
/// 2. `read` is linearizable. Value and tag are of one moment.
/// 3. Two different values of a cell have different tags. ([`Cells`](super::Cells) never writes one value
///    twice, so a digest of the content is a tag.)
/// 4. [`WriteError::NotApplied`] means that the write is not applied and never will be. Everything ambiguous
///    is [`WriteError::Unknown`]: time-outs, broken connections, server errors. The client never retries.
/// 5. Cells of different keys are apart, whatever bytes the keys have.
///
/// # Cancel safety
/// A dropped write is [`WriteError::Unknown`]. Reads may be dropped at will.
#[async_trait]
pub trait CellStorage: Debug + Send + Sync + 'static {
    /// Returns what this storage can carry; constant.
    fn limits(&self) -> CellLimits;

    /// Returns the cell as it is now, or `None` if it does not exist; linearizable.
    async fn read(&self, key: &Partition) -> Result<Option<Cell>, ReadError>;

    /// Returns a value with its tag; may be stale. For a storage where it is cheaper than [`read`](Self::read).
    async fn peek(&self, key: &Partition) -> Result<Option<Cell>, ReadError> {
        self.read(key).await
    }

    /// Replaces the cell by `value` if it is in the state `expected`.
    async fn write(
        &self,
        key: &Partition,
        value: Bytes,
        expected: CellCondition,
    ) -> Result<CellWrite, WriteError>;

    /// [`write`](Self::write) of a slot's cell, which holds this record; `None` if the slot is vacant. For a
    /// storage that shows the record in fields of its own.
    async fn write_slot(
        &self,
        key: &Partition,
        value: Bytes,
        record: Option<&Entry>,
        expected: CellCondition,
    ) -> Result<CellWrite, WriteError> {
        let _shown_by_the_value_alone = record;
        self.write(key, value, expected).await
    }

    /// Lists settings, as [`SysVvmStorage::settings`](crate::SysVvmStorage::settings) does.
    async fn settings(&self) -> Result<Option<Vec<Partition>>, ReadError> {
        Ok(None)
    }

    /// Returns the hints of this storage, if it has them.
    fn hints(&self) -> Option<&dyn SysVvmHints> {
        None
    }

    /// Returns where the storage is and whether opening it created it, if the driver knows.
    fn opened(&self) -> Option<OpenedStorage> {
        None
    }

    /// Returns what the server tells about itself, for `vvm doctor`.
    async fn describe(&self) -> Result<Description, ReadError> {
        Ok(Description::default())
    }

    /// Ends connections and threads (I9), and waits for those that still write. Every later call fails with `Fatal`.
    async fn close(&self);
}
