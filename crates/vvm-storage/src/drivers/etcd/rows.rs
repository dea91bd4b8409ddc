//! How slots and settings are laid out in keys, the transaction of each verb, and how answers are decoded.
//!
//! A key has the prefix, a letter for what it is, and the partition. A renewal compares leadership and last
//! write, and puts the latter; a batch or a release needs no write number. Numbers are big-endian.

mod documents;
pub(super) mod messages;
pub(super) mod operations;
mod watched;

pub(super) use documents::{document_of, page_of};

use super::errors::{Damaged, DriverError};
use crate::key::Partition;
use bytes::{BufMut, Bytes, BytesMut};
use ielections::{
    DocumentVersion, Entry, Epoch, FenceState, Holder, Incarnation, Slot, Ttl, Vacant, Version,
};
use messages::{Compare, KeyValue, RangeResponse, RequestOp, TxnRequest, TxnResponse};
use operations::{absent, equal, put, range, stale_range};
use std::time::Duration;

/// What every format of ours begins with.
pub(super) const PROGRAM: &str = "vvm elections, format ";

/// The value of the storage's own key, before random digits. A change that an older version would misread
/// raises the number.
pub(super) const FORMAT: &str = "vvm elections, format 1";

/// A leadership: epoch, and incarnation unless the slot is vacant.
const LEADER: u8 = b'l';

/// The last write of a leadership: number, TTL and holder. It outlives the leadership, and is not read then.
const WRITE: u8 = b'w';

/// The number of the last batch.
const BATCH: u8 = b'b';

const SETTING: u8 = b's';

/// The keys below a prefix.
#[derive(Clone, Debug)]
pub(super) struct Keyspace {
    /// With the slash at its end.
    prefix: Bytes,
    /// The value of the storage's own key.
    identity: Bytes,
}

impl Keyspace {
    /// The keys below `prefix`, of a storage that is not known yet.
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: format!("{prefix}/").into(), identity: Bytes::new() }
    }

    /// The keys of this very storage.
    pub(super) fn known_by(self, identity: Bytes) -> Self {
        Self { identity, ..self }
    }

    /// Reads the storage's own key.
    pub(super) fn look(&self) -> TxnRequest {
        reads(vec![range(self.own())])
    }

    /// Creates the storage's own key, if there is no key with the prefix.
    pub(super) fn creation(&self, identity: Bytes) -> TxnRequest {
        let nothing = Compare { range_end: end_of(&self.prefix), ..absent(self.prefix.clone()) };
        TxnRequest { compare: vec![nothing], success: vec![put(self.own(), identity)], failure: vec![] }
    }

    /// The storage's own key.
    pub(super) fn own(&self) -> Bytes {
        [&self.prefix, &b"format"[..]].concat().into()
    }

    fn key(&self, kind: u8, at: &Partition) -> Bytes {
        [&self.prefix, &[kind][..], at.as_bytes()].concat().into()
    }

    /// The key of a leadership.
    pub(super) fn leader(&self, at: &Partition) -> Bytes {
        self.key(LEADER, at)
    }

    /// The reads that [`fence`](Self::fence) decodes.
    fn shown(&self, at: &Partition) -> Vec<RequestOp> {
        let keys = [self.own(), self.leader(at), self.key(WRITE, at), self.key(BATCH, at)];
        keys.map(range).into()
    }

    /// Writes in this very storage, if `compare` holds too; shows the partition if not.
    fn write(&self, at: &Partition, mut compare: Vec<Compare>, success: Vec<RequestOp>) -> TxnRequest {
        compare.push(equal(self.own(), self.identity.clone()));
        TxnRequest { compare, success, failure: self.shown(at) }
    }

    /// Replaces exactly the state `from` by `entry`.
    pub(super) fn swap(&self, at: &Partition, from: &Slot, entry: &Entry) -> TxnRequest {
        let (leader, write) = (self.leader(at), self.key(WRITE, at));
        let (new, mut puts) = (leadership(entry), vec![put(write.clone(), last_write(entry))]);
        let compare = match from {
            Slot::Vacant(Vacant { last_epoch: None }) => vec![absent(leader.clone())],
            Slot::Vacant(Vacant { last_epoch: Some(epoch) }) => vec![equal(leader.clone(), vacancy(*epoch))],
            Slot::Held { entry, .. } => {
                vec![equal(leader.clone(), leadership(entry)), equal(write, last_write(entry))]
            }
        };
        let is_renewal = from.entry().is_some_and(|held| leadership(held) == new);
        if !is_renewal {
            puts.push(put(leader, new));
        }
        self.write(at, compare, puts)
    }

    /// Makes the slot vacant if this leadership holds it. The epoch stays.
    pub(super) fn release(&self, at: &Partition, incarnation: Incarnation, epoch: Epoch) -> TxnRequest {
        let leader = self.leader(at);
        let held = equal(leader.clone(), leadership_of(epoch, incarnation));
        self.write(at, vec![held], vec![put(leader, vacancy(epoch))])
    }

    pub(super) fn settle(&self, at: &Partition, value: &[u8]) -> TxnRequest {
        let key = self.key(SETTING, at);
        let compare = vec![absent(key.clone()), equal(self.own(), self.identity.clone())];
        let success = vec![put(key.clone(), Bytes::copy_from_slice(value))];
        TxnRequest { compare, success, failure: vec![range(self.own()), range(key)] }
    }

    pub(super) fn setting(&self, at: &Partition) -> TxnRequest {
        reads(vec![range(self.own()), range(self.key(SETTING, at))])
    }

    pub(super) fn read(&self, at: &Partition) -> TxnRequest {
        reads(self.shown(at))
    }

    /// Reads slots as the member that is asked has them.
    pub(super) fn peek(&self, at: &[Partition]) -> TxnRequest {
        let slots = at.iter().flat_map(|at| [self.leader(at), self.key(WRITE, at)]);
        reads(std::iter::once(self.own()).chain(slots).map(stale_range).collect())
    }

    /// The reads of an answer behind that of the storage's own key, which has to be this storage's.
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
            return Err(Damaged::of("an answer of another request").into());
        };
        let last = first(batch).map_or(Ok(DocumentVersion::NONE), |batch| {
            let number = <[u8; 8]>::try_from(&*batch.value).map_err(Damaged::of)?;
            Ok::<_, Damaged>(DocumentVersion::from_stored(u64::from_be_bytes(number)))
        })?;
        Ok(FenceState { slot: slot(first(leader), first(write))?, last })
    }

    /// The slots that [`peek`](Self::peek) shows.
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
            _ => Err(Damaged::of("an answer of another request")),
        });
        Ok(slots.collect::<Result<_, _>>()?)
    }
}

fn reads(success: Vec<RequestOp>) -> TxnRequest {
    TxnRequest { success, ..TxnRequest::default() }
}

fn first(range: &RangeResponse) -> Option<&KeyValue> {
    range.kvs.first()
}

/// The end of the range of all keys that begin with `prefix`, which has a byte below 255.
fn end_of(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    while end.pop_if(|last| *last == u8::MAX).is_some() {}
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end.into()
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

/// Whether the value of a leadership's key is that of a vacancy.
pub(super) fn is_vacancy(value: &[u8]) -> bool {
    value.len() == size_of::<u64>()
}

/// Decodes the values of [`LEADER`] and [`WRITE`].
fn slot(leader: Option<&KeyValue>, write: Option<&KeyValue>) -> Result<Slot, Damaged> {
    let Some(leader) = leader else { return Ok(Slot::Vacant(Vacant { last_epoch: None })) };
    let (epoch, incarnation) =
        leader.value.split_first_chunk().ok_or_else(|| Damaged::of("a leadership without an epoch"))?;
    let epoch = Epoch::new(u64::from_be_bytes(*epoch)).map_err(Damaged::of)?;
    if is_vacancy(&leader.value) {
        return Ok(Slot::Vacant(Vacant { last_epoch: Some(epoch) }));
    }
    let incarnation =
        incarnation.try_into().map_err(|_| Damaged::of("an incarnation that has not 16 bytes"))?;
    let incomplete = || Damaged::of("a leadership without its last write");
    let (number, rest) = write.and_then(|write| write.value.split_first_chunk()).ok_or_else(incomplete)?;
    let (ttl, holder) = rest.split_first_chunk().ok_or_else(incomplete)?;
    let holder = String::from_utf8(holder.to_vec()).map_err(Damaged::of)?;
    let entry = Entry {
        holder: Holder::new(holder).map_err(Damaged::of)?,
        version: Version {
            incarnation: Incarnation::from_bytes(incarnation),
            write: u64::from_be_bytes(*number),
        },
        ttl: Ttl::new(Duration::from_nanos(u64::from_be_bytes(*ttl))).map_err(Damaged::of)?,
        epoch,
    };
    Ok(Slot::Held { entry, proven_age: None })
}

#[cfg(test)]
mod tests;
