//! How slots, settings and documents are laid out in keys and values. A key has the prefix, a letter for what it is,
//! and the partition. Numbers are big-endian. The key of a document is `d`, the length of the partition, the partition
//! and the id. Its value is the number of the batch that wrote it, one byte, and the body.

use super::{
    DecodeError,
    messages::{Event, KeyValue, RangeResponse, WatchCreateRequest, end_of},
};
use crate::{
    key::{KEY_PREFIX_PAUSE, KEY_PREFIX_SLOT_COUNT, KEY_PREFIX_STEP_DOWN, KEY_PREFIX_VVM_LEADER, Partition},
    step::{Columns, RecordColumns},
};
use bytes::{BufMut, Bytes, BytesMut};
use ielections::{DocumentVersion, Entry, Epoch, Incarnation, Slot, Vacant};

#[derive(Clone, Debug)]
pub(super) struct Keyspace {
    pub(super) prefix: Bytes,
    pub(super) identity: Bytes,
}

/// What every format of ours begins with.
pub(super) const PROGRAM: &str = "vvm elections, format ";

/// The value of the storage's own key, before random digits. A change that older versions would misread raises it.
pub(super) const FORMAT: &str = "vvm elections, format 1";

/// A leadership: epoch, and incarnation unless the slot is vacant.
pub(super) const LEADER: u8 = b'l';

/// The last write of a leadership: number, TTL and holder. It outlives the leadership, and is not read then.
pub(super) const WRITE: u8 = b'w';

pub(super) const BATCH: u8 = b'b';

pub(super) const SETTING: u8 = b's';

/// Reads bytes as the answer that shows a slot. Returns whether they are one. For tests of damaged input.
#[cfg(feature = "testing")]
pub fn decodes(bytes: &[u8]) -> bool {
    let keyspace = Keyspace::new("vvm/").known_by(Bytes::from_static(b"own"));
    let answer = |bytes: &[u8]| <super::messages::TxnResponse as prost::Message>::decode(bytes).ok();
    let is_peek = answer(bytes).is_some_and(|answer| keyspace.peeked(answer).is_ok());
    is_peek | answer(bytes).is_some_and(|answer| keyspace.fence(answer).is_ok())
}

pub(super) fn first(range: &RangeResponse) -> Option<&KeyValue> {
    range.kvs.first()
}

pub(super) fn vacancy(epoch: Epoch) -> Bytes {
    Bytes::copy_from_slice(&epoch.get().to_be_bytes())
}

pub(super) fn leadership(entry: &Entry) -> Bytes {
    leadership_of(entry.epoch, entry.version.incarnation)
}

pub(super) fn leadership_of(epoch: Epoch, incarnation: Incarnation) -> Bytes {
    [&epoch.get().to_be_bytes()[..], incarnation.as_bytes()].concat().into()
}

pub(super) fn last_write(entry: &Entry) -> Bytes {
    let holder = entry.holder.as_str().as_bytes();
    let mut bytes = BytesMut::with_capacity(16 + holder.len());
    bytes.put_u64(entry.version.write);
    // At most 24 h, far within 64 bits.
    bytes.put_u64(entry.ttl.get().as_nanos() as u64);
    bytes.put_slice(holder);
    bytes.freeze()
}

pub(super) fn is_vacancy(value: &[u8]) -> bool {
    value.len() == size_of::<u64>()
}

pub(super) fn slot(leader: Option<&KeyValue>, write: Option<&KeyValue>) -> Result<Slot, DecodeError> {
    let Some(leader) = leader else { return Ok(Slot::Vacant(Vacant { last_epoch: None })) };
    let (epoch, incarnation) =
        leader.value.split_first_chunk().ok_or_else(|| DecodeError::new("a leadership without an epoch"))?;
    let record = if is_vacancy(&leader.value) {
        None
    } else {
        let incomplete = || DecodeError::new("a leadership without its last write");
        let write = write.and_then(|write| write.value.split_first_chunk());
        let (number, rest) = write.ok_or_else(incomplete)?;
        let (ttl, holder) = rest.split_first_chunk().ok_or_else(incomplete)?;
        let (write, ttl_nanos) = (u64::from_be_bytes(*number), u64::from_be_bytes(*ttl));
        Some(RecordColumns { incarnation, write, ttl_nanos, holder })
    };
    Columns { epoch: u64::from_be_bytes(*epoch), record }.slot().map_err(DecodeError::new)
}

pub(super) const DOCUMENT: u8 = b'd';

/// Stands between number and body, so that a value with an empty body is longer than its number, too.
pub(super) const SEPARATOR: u8 = 0;

pub(super) fn stored(number: DocumentVersion) -> Bytes {
    Bytes::copy_from_slice(&number.get().to_be_bytes())
}

pub(super) fn value(number: DocumentVersion, body: &Bytes) -> Bytes {
    let mut value = BytesMut::with_capacity(size_of::<u64>() + 1 + body.len());
    value.put_u64(number.get());
    value.put_u8(SEPARATOR);
    value.put_slice(body);
    value.freeze()
}

impl Keyspace {
    /// The keys that change by releases and requests of the name whose slot count `topic` is; empty for any
    /// other topic. Those of claims are among them, and those of longer names.
    pub(super) fn watched(&self, topic: &Partition) -> Vec<WatchCreateRequest> {
        let Some(name) = topic.as_bytes().strip_prefix(&[KEY_PREFIX_SLOT_COUNT]) else { return Vec::new() };
        let key = |kind: u8| self.leader(&Partition::from_bytes([&[kind], name].concat()));
        let slots = key(KEY_PREFIX_VVM_LEADER);
        let slots = WatchCreateRequest { range_end: end_of(&slots), key: slots };
        let requests = [KEY_PREFIX_PAUSE, KEY_PREFIX_STEP_DOWN].map(key);
        let requests = requests.map(|key| WatchCreateRequest { key, range_end: Bytes::new() });
        std::iter::once(slots).chain(requests).collect()
    }

    pub(super) fn is_hint(&self, topic: &Partition, event: &Event) -> bool {
        let Some(changed) = &event.kv else { return false };
        let name = topic.as_bytes().len() - 1;
        let of_slot = self.leader(&Partition::from_bytes([KEY_PREFIX_VVM_LEADER]));
        if !changed.key.starts_with(&of_slot) {
            return true;
        }
        // Of this name, and not of a longer one: behind it stands the slot alone.
        changed.key.len() == of_slot.len() + name + size_of::<u32>() && is_vacancy(&changed.value)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{DriverError, messages::TxnResponse},
        *,
    };
    use ielections::DocumentId;
    use proptest::prelude::*;

    fn pair(value: &[u8]) -> KeyValue {
        KeyValue { key: Bytes::new(), value: Bytes::copy_from_slice(value) }
    }

    fn entry(write: u64) -> Entry {
        ielections::testing::entry(7, write, 5)
    }

    #[test]
    fn entry_survives_its_values() {
        let entry = entry(u64::MAX);
        let (leader, write) = (pair(&leadership(&entry)), pair(&last_write(&entry)));
        let held = slot(Some(&leader), Some(&write)).unwrap();
        assert_eq!(held.entry(), Some(&entry));
        let vacant = slot(Some(&pair(&vacancy(entry.epoch))), Some(&write)).unwrap();
        assert_eq!(vacant, Slot::Vacant(Vacant { last_epoch: Some(entry.epoch) }));
        assert_eq!(slot(None, None).unwrap(), Slot::Vacant(Vacant { last_epoch: None }));
    }

    #[test]
    fn damaged_slot_is_not_a_vacancy() {
        let (leader, write) = (leadership(&entry(1)), last_write(&entry(1)));
        let damaged = |leader: &[u8], write: Option<&[u8]>| {
            assert!(slot(Some(&pair(leader)), write.map(pair).as_ref()).is_err(), "{leader:?} {write:?}");
        };
        damaged(&leader[..7], Some(&write));
        damaged(&leader[..9], Some(&write));
        damaged(&[0; 8], Some(&write));
        damaged(&leader, None);
        damaged(&leader, Some(&write[..15]));
        damaged(&leader, Some(&[&write[..8], &[0; 8]].concat()));
        damaged(&leader, Some(&[&write, &[0xff][..]].concat()));
    }

    #[test]
    fn range_of_a_prefix_ends_behind_all_keys_with_it() {
        assert_eq!(*end_of(b"a/"), *b"a0");
        assert_eq!(*end_of(b"a\xff\xff"), *b"b");
    }

    #[test]
    fn storage_that_is_not_ours_is_replaced() {
        let keyspace = Keyspace::new("vvm").known_by("ours".into());
        let answer = |own: &[&str]| {
            let kvs = own.iter().map(|own| pair(own.as_bytes())).collect();
            let range = Some(RangeResponse { kvs, more: false });
            TxnResponse {
                responses: vec![crate::drivers::etcd::messages::ResponseOp { range }],
                ..Default::default()
            }
        };
        assert!(keyspace.ranges(answer(&["ours"])).is_ok());
        for own in [&["theirs"][..], &[]] {
            let refused = keyspace.ranges(answer(own));
            assert!(matches!(refused, Err(DriverError::Replaced(_))), "{refused:?}");
        }
    }

    proptest! {
        /// Partitions and ids of any bytes share no key.
        #[test]
        fn documents_of_different_partitions_have_different_keys(
            one: Vec<u8>, id: Vec<u8>, other: Vec<u8>, other_id: Vec<u8>
        ) {
            let keyspace = Keyspace::new("vvm");
            let of = |at: &[u8], id: &[u8]| {
                let id = DocumentId::new([id, b"x"].concat()).unwrap();
                keyspace.document(&Partition::from_bytes(at), &id)
            };
            let is_same = one == other && id == other_id;
            prop_assert_eq!(of(&one, &id) == of(&other, &other_id), is_same);
        }
    }
}
