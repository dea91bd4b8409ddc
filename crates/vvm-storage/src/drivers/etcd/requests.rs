//! [`Keyspace`]: the transaction of each step, of whole values, and what its answer shows.

use super::{
    DecodeError, DriverError,
    messages::{
        Compare, KeyValue, RangeRequest, RangeResponse, RequestOp, TxnRequest, TxnResponse, absent,
        begins_with, delete, end_of, equal, put, range, read_range, stale_range,
    },
    rows::{
        BATCH, DOCUMENT, Keyspace, LEADER, SEPARATOR, SETTING, WRITE, first, last_write, leadership,
        leadership_of, slot, stored, vacancy, value,
    },
};
use crate::{
    key::Partition,
    step::Step,
    sysvvm::{ListedSetting, MOST_LISTED},
};
use bytes::Bytes;
use ielections::{
    Document, DocumentId, DocumentVersion, DocumentWrite, Entry, Fence, FenceState, OnlyIf, Scan, Slot,
    Vacant,
};
use std::ops::Bound;

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

fn reads(success: Vec<RequestOp>) -> TxnRequest {
    TxnRequest { success, ..TxnRequest::default() }
}

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
