//! [`ElectionKey`]: a slot of a cluster; [`Partition`]: where a record of it is stored; and all prefixes of the
//! keyspace. The partition of a slot is `prefix ‖ name ‖ slot (4 bytes, big-endian)`. The first and the last part have
//! a fixed width, so two keys never have the same bytes, and nothing has to be escaped.

use std::{fmt, num::NonZeroU32, sync::Arc};

/// The first byte of the partitions that hold leader records.
pub const KEY_PREFIX_VVM_LEADER: u8 = 1;

/// The first byte of the partitions that hold a cluster's slot count.
pub const KEY_PREFIX_SLOT_COUNT: u8 = 2;

/// The first byte of the partitions that hold the pause of a cluster ([`Pause`](crate::Pause)).
pub const KEY_PREFIX_PAUSE: u8 = 3;

/// The first byte of the partitions that hold the step-down request of a cluster ([`StepDown`](crate::StepDown)).
pub const KEY_PREFIX_STEP_DOWN: u8 = 4;

/// The first byte of the partitions that hold the late end of a slot's leadership ([`LateEnd`](crate::LateEnd)).
pub const KEY_PREFIX_LATE_END: u8 = 5;

/// The name of a cluster: any bytes, even none. All candidates for the same work use the same name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterName(Arc<[u8]>);

impl ClusterName {
    /// The name of these bytes. The driver limits its length ([`Limits`](ielections::Limits)).
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self(bytes.into())
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the partition of the cluster's slot count.
    pub fn slot_count_partition(&self) -> Partition {
        self.partition(KEY_PREFIX_SLOT_COUNT)
    }

    pub(crate) fn of_slot_count(at: &Partition) -> Option<Self> {
        at.as_bytes().strip_prefix(&[KEY_PREFIX_SLOT_COUNT]).map(Self::new)
    }

    pub(crate) fn pause_partition(&self) -> Partition {
        self.partition(KEY_PREFIX_PAUSE)
    }

    pub(crate) fn step_down_partition(&self) -> Partition {
        self.partition(KEY_PREFIX_STEP_DOWN)
    }

    fn partition(&self, prefix: u8) -> Partition {
        let mut bytes = Vec::with_capacity(1 + self.0.len());
        bytes.push(prefix);
        bytes.extend_from_slice(&self.0);
        Partition::from_bytes(bytes)
    }
}

impl From<&str> for ClusterName {
    fn from(name: &str) -> Self {
        Self::new(name.as_bytes())
    }
}

/// The name, with a replacement character for each invalid byte if it is not UTF-8.
impl fmt::Display for ClusterName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for ClusterName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "\"{}\"", self.0.escape_ascii())
    }
}

/// The number of a slot within its cluster, counted from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotNumber(NonZeroU32);

impl SlotNumber {
    /// The first slot, and the only one of a name with one slot.
    pub const FIRST: Self = Self(NonZeroU32::MIN);

    /// The slot with this number.
    pub const fn new(number: NonZeroU32) -> Self {
        Self(number)
    }

    /// Iterates over the slots of a cluster with `count` slots, in order.
    pub fn all(count: NonZeroU32) -> impl Iterator<Item = Self> {
        (1..=count.get()).filter_map(NonZeroU32::new).map(Self)
    }

    /// The number.
    pub const fn get(self) -> NonZeroU32 {
        self.0
    }
}

impl fmt::Display for SlotNumber {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl fmt::Debug for SlotNumber {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "slot {}", self.0)
    }
}

/// A leadership key: one slot of one cluster.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ElectionKey {
    /// The cluster.
    pub cluster: ClusterName,
    /// The slot of the cluster.
    pub slot: SlotNumber,
}

impl ElectionKey {
    /// Returns the partition of the leader record.
    pub fn partition(&self) -> Partition {
        self.of_kind(KEY_PREFIX_VVM_LEADER)
    }

    pub(crate) fn late_end_partition(&self) -> Partition {
        self.of_kind(KEY_PREFIX_LATE_END)
    }

    fn of_kind(&self, prefix: u8) -> Partition {
        let name = self.cluster.as_bytes();
        let mut bytes = Vec::with_capacity(1 + name.len() + size_of::<u32>());
        bytes.push(prefix);
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(&self.slot.get().get().to_be_bytes());
        Partition::from_bytes(bytes)
    }
}

/// `name/slot`.
impl fmt::Display for ElectionKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Each leadership formats its key; a format string would double the cost.
        fmt::Display::fmt(&self.cluster, out)?;
        out.write_str("/")?;
        fmt::Display::fmt(&self.slot, out)
    }
}

/// The key of one partition of the sysvvm keyspace. [`ElectionsTtlStorage`](crate::ElectionsTtlStorage)
/// builds the keys, so each partition has one kind of record. Drivers use the bytes as they are.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(Box<[u8]>);

impl Partition {
    /// The partition of these bytes.
    pub fn from_bytes(bytes: impl Into<Box<[u8]>>) -> Self {
        Self(bytes.into())
    }

    /// Returns the bytes as lower-case letters and digits, 8 for 5 bytes: distinct, also on storages that ignore case.
    #[cfg(feature = "cells")]
    pub fn encoded(&self) -> String {
        data_encoding::BASE32_DNSCURVE.encode(&self.0)
    }

    #[cfg(feature = "object-store")]
    pub(crate) fn decoded(text: &str) -> Option<Self> {
        data_encoding::BASE32_DNSCURVE.decode(text.as_bytes()).ok().map(Self::from_bytes)
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

#[cfg(feature = "cells")]
pub(crate) fn setting_of_slot(at: &Partition) -> Option<Partition> {
    let (&prefix, rest) = at.as_bytes().split_first()?;
    let (name, _) = rest.split_last_chunk::<{ size_of::<u32>() }>()?;
    (prefix == KEY_PREFIX_VVM_LEADER).then(|| ClusterName::new(name).slot_count_partition())
}

/// Returns the partitions of all slots of a name, from the partition and the value of its slot count.
#[cfg(feature = "cells")]
pub(crate) fn slots_of_setting(at: &Partition, value: &[u8]) -> impl Iterator<Item = Partition> {
    let name = ClusterName::of_slot_count(at);
    let count = value.try_into().ok().map(u32::from_be_bytes).and_then(NonZeroU32::new);
    let slots = name.zip(count).map(|(cluster, count)| {
        SlotNumber::all(count).map(move |slot| ElectionKey { cluster: cluster.clone(), slot }.partition())
    });
    slots.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(partition: &Partition) -> Option<ElectionKey> {
        let (&prefix, rest) = partition.as_bytes().split_first()?;
        let (name, slot) = rest.split_last_chunk::<4>()?;
        let slot = SlotNumber(NonZeroU32::new(u32::from_be_bytes(*slot))?);
        (prefix == KEY_PREFIX_VVM_LEADER).then(|| ElectionKey { cluster: ClusterName::new(name), slot })
    }

    proptest! {
        #[test]
        fn key_is_decoded_from_its_partition(name: Vec<u8>, slot: NonZeroU32) {
            let key = ElectionKey { cluster: ClusterName::new(name), slot: SlotNumber(slot) };
            prop_assert_eq!(decode(&key.partition()), Some(key));
        }

        #[test]
        fn leaders_settings_and_requests_have_different_partitions(
            leader: Vec<u8>, slot: NonZeroU32, one: Vec<u8>, other: Vec<u8>
        ) {
            let key = ElectionKey { cluster: ClusterName::new(leader), slot: SlotNumber(slot) };
            let of = |name: Vec<u8>| {
                let name = ClusterName::new(name);
                [name.slot_count_partition(), name.pause_partition(), name.step_down_partition()]
            };
            let (same, one, other) = (of(one.clone()), of(one), of(other));
            for (at, partition) in one.iter().enumerate() {
                prop_assert_ne!(&key.partition(), partition);
                prop_assert_ne!(&key.late_end_partition(), partition);
                prop_assert_eq!(&same[at], partition);
                let others = other.iter().enumerate().filter(|(elsewhere, _)| *elsewhere != at);
                for (elsewhere, another) in others {
                    prop_assert_ne!(partition, another, "{} {}", at, elsewhere);
                }
            }
        }
    }

    #[test]
    fn slots_of_a_cluster_count_from_one() {
        let count = NonZeroU32::new(3).unwrap();
        assert_eq!(SlotNumber::all(count).map(|slot| slot.get().get()).collect::<Vec<_>>(), [1, 2, 3]);
    }
}
