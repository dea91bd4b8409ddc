//! How slots, settings and documents are laid out in keys, the transaction of each step, and how answers are decoded.
//!
//! A key has the prefix, a letter for what it is, and the partition. Numbers are big-endian. The key of a document is
//! `d`, the length of the partition, the partition and the id. Its value is the number of the batch that wrote it, one
//! byte, and the body.

use super::{
    errors::{DecodeError, DriverError},
    messages::{
        Compare, Event, KeyValue, RangeRequest, RangeResponse, RequestOp, TxnRequest, TxnResponse,
        WatchCreateRequest, absent, begins_with, delete, end_of, equal, put, range, read_range, stale_range,
    },
};
use crate::{
    key::{KEY_PREFIX_PAUSE, KEY_PREFIX_SLOT_COUNT, KEY_PREFIX_STEP_DOWN, KEY_PREFIX_VVM_LEADER, Partition},
    step::{Columns, RecordColumns, Step},
    sysvvm::{ListedSetting, MOST_LISTED},
};
use bytes::{BufMut, Bytes, BytesMut};
use ielections::{
    Document, DocumentId, DocumentVersion, DocumentWrite, Entry, Epoch, Fence, FenceState, Incarnation,
    OnlyIf, Scan, Slot, Vacant,
};
use std::ops::Bound;

/// What every format of ours begins with.
pub(super) const PROGRAM: &str = "vvm elections, format ";

/// The value of the storage's own key, before random digits. A change that an older version would misread
/// raises the number.
pub(super) const FORMAT: &str = "vvm elections, format 1";

/// A leadership: epoch, and incarnation unless the slot is vacant.
const LEADER: u8 = b'l';

/// The last write of a leadership: number, TTL and holder. It outlives the leadership, and is not read then.
const WRITE: u8 = b'w';

const BATCH: u8 = b'b';

const SETTING: u8 = b's';

#[derive(Clone, Debug)]
pub(super) struct Keyspace {
    prefix: Bytes,
    identity: Bytes,
}

impl Keyspace {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: format!("{prefix}/").into(), identity: Bytes::new() }
    }

    pub(super) fn known_by(self, identity: Bytes) -> Self {
        Self { identity, ..self }
    }

    pub(super) fn look(&self) -> TxnRequest {
        reads(vec![range(self.own())])
    }

    pub(super) fn creation(&self, identity: Bytes) -> TxnRequest {
        let nothing = Compare { range_end: end_of(&self.prefix), ..absent(self.prefix.clone()) };
        TxnRequest { compare: vec![nothing], success: vec![put(self.own(), identity)], failure: vec![] }
    }

    fn own(&self) -> Bytes {
        [&self.prefix, &b"format"[..]].concat().into()
    }

    fn key(&self, kind: u8, at: &Partition) -> Bytes {
        [&self.prefix, &[kind][..], at.as_bytes()].concat().into()
    }

    pub(super) fn leader(&self, at: &Partition) -> Bytes {
        self.key(LEADER, at)
    }

    fn shown(&self, at: &Partition) -> Vec<RequestOp> {
        let keys = [self.own(), self.leader(at), self.key(WRITE, at), self.key(BATCH, at)];
        keys.map(range).into()
    }

    /// Writes in this very storage, if `compare` holds too; shows the partition if not.
    fn write(&self, at: &Partition, mut compare: Vec<Compare>, success: Vec<RequestOp>) -> TxnRequest {
        compare.push(equal(self.own(), self.identity.clone()));
        TxnRequest { compare, success, failure: self.shown(at) }
    }

    /// The transaction of a step compares what [`decide`](crate::decide) does, as whole values.
    pub(super) fn step(&self, at: &Partition, step: &Step) -> TxnRequest {
        let (leader, write) = (self.leader(at), self.key(WRITE, at));
        let held = |entry: &Entry| {
            vec![equal(leader.clone(), leadership(entry)), equal(write.clone(), last_write(entry))]
        };
        let put_write = |to: &Entry| put(write.clone(), last_write(to));
        match step {
            Step::Claim { from, to } => {
                let compare = match from {
                    Slot::Vacant(Vacant { last_epoch: None }) => vec![absent(leader.clone())],
                    Slot::Vacant(Vacant { last_epoch: Some(epoch) }) => {
                        vec![equal(leader.clone(), vacancy(*epoch))]
                    }
                    Slot::Held { entry, .. } => held(entry),
                };
                self.write(at, compare, vec![put_write(to), put(leader, leadership(to))])
            }
            // Incarnation and epoch stay.
            Step::Renew { from, to } => self.write(at, held(from), vec![put_write(to)]),
            Step::Release { incarnation, epoch } => {
                let held = equal(leader.clone(), leadership_of(*epoch, *incarnation));
                self.write(at, vec![held], vec![put(leader, vacancy(*epoch))])
            }
            Step::Batch { fence, writes } => self.batch(at, fence, writes),
            Step::Settle { value } => {
                let key = self.key(SETTING, at);
                let compare = vec![absent(key.clone()), equal(self.own(), self.identity.clone())];
                let success = vec![put(key.clone(), Bytes::copy_from_slice(value))];
                TxnRequest { compare, success, failure: vec![range(self.own()), range(key)] }
            }
        }
    }

    pub(super) fn setting(&self, at: &Partition) -> TxnRequest {
        reads(vec![range(self.own()), range(self.key(SETTING, at))])
    }

    pub(super) fn settings(&self) -> TxnRequest {
        let key = Bytes::from([&self.prefix, &[SETTING][..]].concat());
        let range_end = end_of(&key);
        let limit = MOST_LISTED as i64;
        let page = read_range(RangeRequest { key, range_end, limit, serializable: false });
        reads(vec![range(self.own()), page])
    }

    pub(super) fn settings_of(&self, answer: TxnResponse) -> Result<Vec<ListedSetting>, DriverError> {
        let shown = self.ranges(answer)?.into_iter().flat_map(|range| range.kvs);
        let before = self.prefix.len() + 1;
        let listed = shown.filter_map(|shown| {
            let at = shown.key.get(before..).map(Partition::from_bytes)?;
            Some((at, Some(shown.value.to_vec())))
        });
        Ok(listed.collect())
    }

    pub(super) fn read(&self, at: &Partition) -> TxnRequest {
        reads(self.shown(at))
    }

    pub(super) fn peek(&self, at: &[Partition]) -> TxnRequest {
        let slots = at.iter().flat_map(|at| [self.leader(at), self.key(WRITE, at)]);
        reads(std::iter::once(self.own()).chain(slots).map(stale_range).collect())
    }

    /// The first read has to show this storage's own key.
    pub(super) fn ranges(&self, answer: TxnResponse) -> Result<Vec<RangeResponse>, DriverError> {
        let mut ranges = answer.responses.into_iter().map(|response| response.range.unwrap_or_default());
        match first(&ranges.next().unwrap_or_default()) {
            Some(own) if own.value == self.identity => Ok(ranges.collect()),
            Some(_) => Err(DriverError::Replaced("the storage was deleted and created again")),
            None => Err(DriverError::Replaced("the storage was deleted from etcd")),
        }
    }

    /// The slot that [`read`](Self::read) or a refused write shows, and the number of its last batch.
    pub(super) fn fence(&self, answer: TxnResponse) -> Result<FenceState, DriverError> {
        let ranges = self.ranges(answer)?;
        let [leader, write, batch] = &ranges[..] else {
            return Err(DecodeError::new("an answer of another request").into());
        };
        let last = first(batch).map_or(Ok(DocumentVersion::NONE), |batch| {
            let number = <[u8; 8]>::try_from(&*batch.value).map_err(DecodeError::new)?;
            Ok::<_, DecodeError>(DocumentVersion::from_stored(u64::from_be_bytes(number)))
        })?;
        Ok(FenceState { slot: slot(first(leader), first(write))?, last })
    }

    pub(super) fn peeked(&self, answer: TxnResponse) -> Result<Vec<Slot>, DriverError> {
        // A member that has just joined has nothing yet.
        let is_empty = answer
            .responses
            .iter()
            .all(|response| response.range.as_ref().is_none_or(|range| range.kvs.is_empty()));
        if is_empty {
            return Err(DriverError::NotBegun("the member has no data yet".into()));
        }
        let ranges = self.ranges(answer)?;
        let slots = ranges.chunks(2).map(|pair| match pair {
            [leader, write] => slot(first(leader), first(write)),
            _ => Err(DecodeError::new("an answer of another request")),
        });
        Ok(slots.collect::<Result<_, _>>()?)
    }
}

/// Reads bytes as the answer that shows a slot. Returns whether they are one. For tests of damaged input.
#[cfg(feature = "testing")]
pub fn decodes(bytes: &[u8]) -> bool {
    let keyspace = Keyspace::new("vvm/").known_by(Bytes::from_static(b"own"));
    let answer = |bytes: &[u8]| <TxnResponse as prost::Message>::decode(bytes).ok();
    let is_peek = answer(bytes).is_some_and(|answer| keyspace.peeked(answer).is_ok());
    is_peek | answer(bytes).is_some_and(|answer| keyspace.fence(answer).is_ok())
}

fn reads(success: Vec<RequestOp>) -> TxnRequest {
    TxnRequest { success, ..TxnRequest::default() }
}

fn first(range: &RangeResponse) -> Option<&KeyValue> {
    range.kvs.first()
}

fn vacancy(epoch: Epoch) -> Bytes {
    Bytes::copy_from_slice(&epoch.get().to_be_bytes())
}

fn leadership(entry: &Entry) -> Bytes {
    leadership_of(entry.epoch, entry.version.incarnation)
}

fn leadership_of(epoch: Epoch, incarnation: Incarnation) -> Bytes {
    [&epoch.get().to_be_bytes()[..], incarnation.as_bytes()].concat().into()
}

fn last_write(entry: &Entry) -> Bytes {
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

fn slot(leader: Option<&KeyValue>, write: Option<&KeyValue>) -> Result<Slot, DecodeError> {
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

const DOCUMENT: u8 = b'd';

/// Stands between number and body, so that a value with an empty body is longer than its number, too.
const SEPARATOR: u8 = 0;

impl Keyspace {
    fn documents(&self, at: &Partition) -> Vec<u8> {
        // Keys are limited to far less.
        let length = (at.as_bytes().len() as u16).to_be_bytes();
        [&self.prefix, &[DOCUMENT][..], &length, at.as_bytes()].concat()
    }

    fn document_key(&self, at: &Partition, id: &[u8]) -> Bytes {
        [&self.documents(at), id].concat().into()
    }

    fn batch(&self, at: &Partition, fence: &Fence, batch: &[DocumentWrite]) -> TxnRequest {
        let (counted, number) = (self.key(BATCH, at), fence.after.next());
        let mut compare = vec![equal(self.leader(at), leadership_of(fence.epoch, fence.incarnation))];
        compare.push(match fence.after {
            DocumentVersion::NONE => absent(counted.clone()),
            after => equal(counted.clone(), stored(after)),
        });
        let mut writes = vec![put(counted, stored(number))];
        for write in batch {
            let key = self.document_key(at, write.id().as_bytes());
            match write.only_if() {
                OnlyIf::Always => {}
                OnlyIf::Absent => compare.push(absent(key.clone())),
                OnlyIf::Version(version) => compare.extend(begins_with(&key, &stored(version))),
            }
            writes.push(match write {
                DocumentWrite::Put { body, .. } => put(key, value(number, body)),
                DocumentWrite::Delete { .. } => delete(key),
            });
        }
        self.write(at, compare, writes)
    }

    pub(super) fn document(&self, at: &Partition, id: &DocumentId) -> TxnRequest {
        reads(vec![range(self.own()), range(self.document_key(at, id.as_bytes()))])
    }

    pub(super) fn documents_page(&self, at: &Partition, scan: &Scan) -> TxnRequest {
        let key = match scan.start() {
            // The next key in the order of bytes.
            Bound::Excluded(after) => [&self.document_key(at, after), &[0][..]].concat().into(),
            Bound::Included(start) => self.document_key(at, start),
            Bound::Unbounded => self.document_key(at, b""),
        };
        let range_end = match scan.end() {
            Some(end) => self.document_key(at, &end),
            None => end_of(&self.documents(at)),
        };
        let limit = i64::try_from(scan.limit).unwrap_or(i64::MAX);
        reads(vec![
            range(self.own()),
            read_range(RangeRequest { key, range_end, limit, serializable: false }),
        ])
    }

    pub(super) fn documents_of(
        &self,
        at: &Partition,
        answer: TxnResponse,
    ) -> Result<(Vec<Document>, bool), DriverError> {
        let page = self.ranges(answer)?.into_iter().next();
        let page = page.ok_or_else(|| DecodeError::new("an answer without a page"))?;
        let shown = page.kvs.into_iter().map(|shown| self.shown_document(at, shown));
        Ok((shown.collect::<Result<_, _>>()?, page.more))
    }

    fn shown_document(&self, at: &Partition, shown: KeyValue) -> Result<Document, DecodeError> {
        let id = shown.key.slice(self.documents(at).len().min(shown.key.len())..);
        let (number, rest) =
            shown.value.split_first_chunk().ok_or_else(|| DecodeError::new("a short document"))?;
        if rest.first() != Some(&SEPARATOR) {
            return Err(DecodeError::new("a document of another format"));
        }
        let version = DocumentVersion::from_stored(u64::from_be_bytes(*number));
        let body = shown.value.slice(number.len() + 1..);
        Ok(Document { id: DocumentId::new(id).map_err(DecodeError::new)?, version, body })
    }
}

fn stored(number: DocumentVersion) -> Bytes {
    Bytes::copy_from_slice(&number.get().to_be_bytes())
}

fn value(number: DocumentVersion, body: &Bytes) -> Bytes {
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

    /// Whether a change of a watched key is a release or a request.
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
    use super::*;
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
