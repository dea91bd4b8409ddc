//! [`Partition`]: the key of a partition. Its first byte is a prefix of this crate.

use std::fmt;

/// The key of one partition of the sysvvm keyspace. [`ElectionsTtlStorage`](crate::ElectionsTtlStorage)
/// builds the keys, so each partition has one kind of record. Drivers use the bytes as they are.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(Box<[u8]>);

impl Partition {
    /// The partition of these bytes.
    pub fn from_bytes(bytes: impl Into<Box<[u8]>>) -> Self {
        Self(bytes.into())
    }

    /// Returns the bytes as lower-case letters and digits, 8 for 5 bytes. Different partitions stay
    /// different, also on storages that ignore case.
    #[cfg(feature = "cells")]
    pub fn encoded(&self) -> String {
        data_encoding::BASE32_DNSCURVE.encode(&self.0)
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "partition {}", self.0.escape_ascii())
    }
}

impl fmt::Debug for Partition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}
