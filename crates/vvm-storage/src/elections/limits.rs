//! [`BeyondLimits`]: refuses what exceeds a driver's limits, with the same message for all drivers.

use super::ElectionsTtlStorage;
use crate::key::{ElectionKey, Partition};
use ielections::{Entry, Holder, ReadError, Ttl, WriteError};
use std::time::Duration;

/// A value exceeds the driver's [`Limits`](ielections::Limits).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BeyondLimits {
    /// The key, prefixes included.
    #[error("a key of {bytes} bytes is too long for this storage, which takes {most}: choose a shorter name")]
    Key {
        /// Its length.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// The holder.
    #[error(
        "a holder of {bytes} bytes is too long for this storage, which takes {most}: choose a shorter one"
    )]
    Holder {
        /// Its length.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// The TTL.
    #[error(
        "a TTL of {ttl} is too short for this storage, whose writes need {} or more: choose a longer one",
        vvm_clock::Span(*least)
    )]
    Ttl {
        /// The requested TTL.
        ttl: Ttl,
        /// The shortest TTL of the driver.
        least: Duration,
    },
}

impl ElectionsTtlStorage {
    pub(super) fn for_write(
        &self,
        key: &ElectionKey,
        entry: Option<&Entry>,
    ) -> Result<Partition, WriteError> {
        entry
            .map_or(Ok(()), |entry| self.check_entry(entry))
            .and_then(|()| self.check_partition(key.partition()))
            .map_err(|beyond| WriteError::Fatal(beyond.into()))
    }

    pub(super) fn for_read(&self, key: &ElectionKey) -> Result<Partition, ReadError> {
        self.check_partition(key.partition()).map_err(|beyond| ReadError::Fatal(beyond.into()))
    }

    pub(super) fn check_partition(&self, partition: Partition) -> Result<Partition, BeyondLimits> {
        let (bytes, most) = (partition.as_bytes().len(), self.limits.max_key_bytes);
        if bytes > most { Err(BeyondLimits::Key { bytes, most }) } else { Ok(partition) }
    }

    pub(super) fn check_holder(&self, holder: &Holder) -> Result<(), BeyondLimits> {
        let (bytes, most) = (holder.as_str().len(), self.limits.max_value_bytes);
        if bytes > most { Err(BeyondLimits::Holder { bytes, most }) } else { Ok(()) }
    }

    fn check_entry(&self, entry: &Entry) -> Result<(), BeyondLimits> {
        self.check_holder(&entry.holder)?;
        let (ttl, least) = (entry.ttl, self.limits.min_ttl);
        if ttl.get() < least {
            return Err(BeyondLimits::Ttl { ttl, least });
        }
        Ok(())
    }
}
