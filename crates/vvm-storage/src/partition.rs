//! The key of a partition: bytes, whose first one is a prefix that this crate owns.

use std::fmt;

/// The key of one partition of the sysvvm keyspace. [`ElectionsTtlStorage`](crate::ElectionsTtlStorage) makes
/// them, so that two kinds of record can't meet in one partition; drivers take the bytes as they are.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(Box<[u8]>);

impl Partition {
    /// The partition of these bytes.
    pub fn from_bytes(bytes: impl Into<Box<[u8]>>) -> Self {
        Self(bytes.into())
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Partition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "partition {}", self.0.escape_ascii())
    }
}
