//! The value of a cell: a line of JSON, then the bodies of the documents, one after the other. No value of a cell
//! repeats, since versions and the count of batches only rise, and an epoch is released once: a digest of the content
//! is a sound tag.

use crate::{
    document_set::DocumentSet,
    key::Partition,
    step::{CurrentState, Decision, PartitionState, Step, decide},
};
use bytes::Bytes;
use data_encoding::HEXLOWER;
use ielections::{
    DocumentId, DocumentVersion, Entry, Epoch, FenceState, Holder, Incarnation, Slot, Ttl, Vacant, Version,
};
use serde::{Deserialize, Serialize};
use std::{convert::Infallible, error::Error, time::Duration};

/// The format that this version writes, and the only one that it reads.
const FORMAT: u32 = 1;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SlotCell {
    pub(crate) slot: Slot,
    pub(crate) documents: DocumentSet,
    pub(crate) origin: Origin,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Origin {
    #[default]
    Elections,
    /// In the place of a record that was deleted, whose leader may still work.
    Placeholder,
    /// Another program wrote it.
    Foreign,
    /// Another program wrote it in the place of a record of ours that it overwrote, or that may have been deleted.
    Displacing,
}

impl Origin {
    fn is_elections(&self) -> bool {
        *self == Self::Elections
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SettingCell {
    pub(super) value: Vec<u8>,
    pub(super) longest_ttl: Duration,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("the value of {at} is written in format {found}, and this version reads format {FORMAT}")]
    Format { at: Partition, found: u32 },
    #[error("the value of {at} has the key {found}: this storage does not keep keys apart")]
    OtherKey { at: Partition, found: String },
    #[error("the value of {at} is damaged: {cause}")]
    Content { at: Partition, cause: Box<dyn Error + Send + Sync> },
}

impl SlotCell {
    pub(crate) fn vacant() -> Self {
        let slot = Slot::Vacant(Vacant { last_epoch: None });
        Self { slot, documents: DocumentSet::default(), origin: Origin::Elections }
    }

    pub(super) fn raised_to(mut self, least: Option<Epoch>) -> Self {
        match (&mut self.slot, least) {
            (Slot::Held { entry, .. }, Some(least)) => entry.epoch = entry.epoch.max(least),
            (Slot::Vacant(vacant), least) => vacant.last_epoch = vacant.last_epoch.max(least),
            (Slot::Held { .. }, None) => {}
        }
        self
    }

    pub(super) fn after(&self, step: &Step) -> Result<Self, CurrentState> {
        let Ok(decision) = decide(self, step);
        match decision {
            Decision::Hold(entry) => {
                let slot = Slot::Held { entry: entry.clone(), proven_age: None };
                Ok(Self { slot, documents: self.documents.clone(), origin: Origin::Elections })
            }
            Decision::Vacate(epoch) => {
                let slot = Slot::Vacant(Vacant { last_epoch: Some(epoch) });
                Ok(Self { slot, ..self.clone() })
            }
            Decision::Write(version, writes) => {
                let mut documents = self.documents.clone();
                documents.apply(version, writes);
                Ok(Self { documents, ..self.clone() })
            }
            Decision::Store(_) => Err(CurrentState::Nothing),
            Decision::Refuse(shown) => Err(shown),
        }
    }

    pub(crate) fn encode(&self, at: &Partition) -> Bytes {
        let record = self.slot.entry().map(|entry| EncodedRecord {
            incarnation: entry.incarnation().to_string(),
            write: entry.version.write,
            ttl_ns: nanoseconds(entry.ttl.get()),
            holder: entry.holder.as_str().to_owned(),
        });
        let documents = self.documents.iter().map(|(id, version, body)| Document {
            id: HEXLOWER.encode(id.as_bytes()),
            batch: version.get(),
            bytes: body.len(),
        });
        let slot = SlotLine {
            epoch: self.slot.last_epoch().map(Epoch::get),
            record,
            batches: self.documents.last().get(),
            documents: documents.collect(),
            origin: self.origin,
        };
        let mut bytes = line(at, Body::Slot(slot));
        self.documents.iter().for_each(|(_, _, body)| bytes.extend_from_slice(body));
        bytes.into()
    }

    pub(crate) fn decode(at: &Partition, value: &Bytes) -> Result<Self, DecodeError> {
        match parse(at, value)? {
            (Body::Slot(line), bodies) => {
                line.read(value.slice_ref(bodies)).map_err(|cause| damaged(at, cause))
            }
            (Body::Setting(_), _) => Err(damaged(at, "a setting instead of a slot")),
        }
    }
}

/// Reads bytes as the cell of a slot, and as that of a setting. Returns whether they are one. For tests of damaged input.
#[cfg(feature = "testing")]
pub fn decodes(bytes: &[u8]) -> bool {
    let (name, slot) =
        (crate::key::ClusterName::from("n"), crate::key::SlotNumber::new(std::num::NonZeroU32::MIN));
    let (setting, slot) =
        (name.slot_count_partition(), crate::key::ElectionKey { cluster: name, slot }.partition());
    let is_setting = SettingCell::decode(&setting, bytes).is_ok();
    is_setting | SlotCell::decode(&slot, &Bytes::copy_from_slice(bytes)).is_ok()
}

impl PartitionState for SlotCell {
    type Error = Infallible;

    fn slot(&self) -> Result<Slot, Infallible> {
        Ok(self.slot.clone())
    }

    fn fence(&self) -> Result<FenceState, Infallible> {
        Ok(FenceState { slot: self.slot.clone(), last: self.documents.last() })
    }

    fn version(&self, id: &DocumentId) -> Result<Option<DocumentVersion>, Infallible> {
        Ok(self.documents.version(id))
    }

    fn setting(&self) -> Result<Option<Vec<u8>>, Infallible> {
        Ok(None)
    }
}

impl SettingCell {
    pub(super) fn encode(&self, at: &Partition) -> Bytes {
        let Self { value, longest_ttl } = self;
        let setting =
            SettingLine { value: HEXLOWER.encode(value), longest_ttl_ns: nanoseconds(*longest_ttl) };
        line(at, Body::Setting(setting)).into()
    }

    pub(super) fn decode(at: &Partition, value: &[u8]) -> Result<Self, DecodeError> {
        match parse(at, value)? {
            (Body::Setting(SettingLine { value, longest_ttl_ns }), _) => {
                let value = HEXLOWER.decode(value.as_bytes()).map_err(|cause| damaged(at, cause))?;
                Ok(Self { value, longest_ttl: Duration::from_nanos(longest_ttl_ns) })
            }
            (Body::Slot(_), _) => Err(damaged(at, "a slot instead of a setting")),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct EncodedCell {
    vvm_format: u32,
    key: String,
    #[serde(flatten)]
    body: Body,
}

#[derive(Deserialize)]
struct Format {
    vvm_format: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Body {
    Slot(SlotLine),
    Setting(SettingLine),
}

#[derive(Serialize, Deserialize)]
struct SlotLine {
    epoch: Option<u64>,
    record: Option<EncodedRecord>,
    batches: u64,
    documents: Vec<Document>,
    #[serde(default, skip_serializing_if = "Origin::is_elections")]
    origin: Origin,
}

#[derive(Serialize, Deserialize)]
struct EncodedRecord {
    incarnation: String,
    write: u64,
    ttl_ns: u64,
    holder: String,
}

#[derive(Serialize, Deserialize)]
struct Document {
    id: String,
    batch: u64,
    bytes: usize,
}

#[derive(Serialize, Deserialize)]
struct SettingLine {
    value: String,
    longest_ttl_ns: u64,
}

type Cause = Box<dyn Error + Send + Sync>;

impl SlotLine {
    fn read(self, mut bodies: Bytes) -> Result<SlotCell, Cause> {
        let epoch = self.epoch.map(Epoch::new).transpose()?;
        let slot = match (self.record, epoch) {
            (None, last_epoch) => Slot::Vacant(Vacant { last_epoch }),
            (Some(record), Some(epoch)) => Slot::Held { entry: record.read(epoch)?, proven_age: None },
            (Some(_), None) => return Err("a record without an epoch".into()),
        };
        let mut documents = DocumentSet::after(DocumentVersion::from_stored(self.batches));
        for Document { id, batch, bytes } in self.documents {
            if bytes > bodies.len() {
                return Err("cut off".into());
            }
            let id = DocumentId::new(HEXLOWER.decode(id.as_bytes())?)?;
            documents.restore(id, DocumentVersion::from_stored(batch), bodies.split_to(bytes));
        }
        if bodies.is_empty() {
            Ok(SlotCell { slot, documents, origin: self.origin })
        } else {
            Err("bytes after the last document".into())
        }
    }
}

impl EncodedRecord {
    fn read(self, epoch: Epoch) -> Result<Entry, Cause> {
        let incarnation = self.incarnation.parse::<Incarnation>()?;
        Ok(Entry {
            holder: Holder::new(self.holder)?,
            version: Version { incarnation, write: self.write },
            ttl: Ttl::new(Duration::from_nanos(self.ttl_ns))?,
            epoch,
        })
    }
}

fn line(at: &Partition, body: Body) -> Vec<u8> {
    let line = EncodedCell { vvm_format: FORMAT, key: HEXLOWER.encode(at.as_bytes()), body };
    // Serialization of these types has no failing case: no map keys but strings, no custom serializer.
    let mut bytes = serde_json::to_vec(&line).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// The key in a value, of whatever format.
#[cfg(feature = "kubernetes")]
pub(crate) fn key_of(value: &[u8]) -> Option<Partition> {
    #[derive(Deserialize)]
    struct Key {
        key: String,
    }
    let line = value.split(|byte| *byte == b'\n').next()?;
    let Key { key } = serde_json::from_slice(line).ok()?;
    HEXLOWER.decode(key.as_bytes()).ok().map(Partition::from_bytes)
}

fn parse<'value>(at: &Partition, value: &'value [u8]) -> Result<(Body, &'value [u8]), DecodeError> {
    let end = value.iter().position(|byte| *byte == b'\n').ok_or_else(|| damaged(at, "no line"))?;
    let (line, rest) = (&value[..end], &value[end + 1..]);
    let Format { vvm_format: found } = serde_json::from_slice(line).map_err(|cause| damaged(at, cause))?;
    if found != FORMAT {
        return Err(DecodeError::Format { at: at.clone(), found });
    }
    let EncodedCell { key, body, .. } = serde_json::from_slice(line).map_err(|cause| damaged(at, cause))?;
    if key != HEXLOWER.encode(at.as_bytes()) {
        return Err(DecodeError::OtherKey { at: at.clone(), found: key });
    }
    Ok((body, rest))
}

fn damaged(at: &Partition, cause: impl Into<Cause>) -> DecodeError {
    DecodeError::Content { at: at.clone(), cause: cause.into() }
}

/// A TTL has at most about 584 years in nanoseconds of 64 bits, and [`Ttl`] far less.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ielections::{DocumentWrite, OnlyIf};

    fn partition() -> Partition {
        Partition::from_bytes(*b"\x01payroll\xff\0\0\0\x01")
    }

    fn cell() -> SlotCell {
        let entry = Entry {
            holder: Holder::new("two\nlines \"and\" quotes").unwrap(),
            version: Version { incarnation: Incarnation::from_bytes([7; 16]), write: u64::MAX },
            ttl: Ttl::DEFAULT,
            epoch: Epoch::new(Epoch::MAX).unwrap(),
        };
        let mut documents = DocumentSet::default();
        let put = |id: &'static [u8], body: &'static [u8]| DocumentWrite::Put {
            id: DocumentId::new(id).unwrap(),
            body: Bytes::from_static(body),
            only_if: OnlyIf::Always,
        };
        documents.apply(
            DocumentVersion::NONE.next(),
            &[put(b"a\n", b""), put(b"\xff", b"line\nline"), put(b"c", b"{}")],
        );
        SlotCell { slot: Slot::Held { entry, proven_age: None }, documents, origin: Origin::Elections }
    }

    #[test]
    fn cell_is_decoded_as_it_was_encoded() {
        let at = partition();
        for cell in [cell(), SlotCell::vacant(), SlotCell { origin: Origin::Placeholder, ..cell() }] {
            assert_eq!(SlotCell::decode(&at, &cell.encode(&at)).unwrap(), cell);
        }
        let setting = SettingCell { value: vec![0, 255], longest_ttl: Duration::from_millis(1500) };
        assert_eq!(SettingCell::decode(&at, &setting.encode(&at)).unwrap(), setting);
    }

    #[test]
    fn value_cut_off_anywhere_is_damaged_and_no_vacancy() {
        let (at, value) = (partition(), cell().encode(&partition()));
        for length in 0..value.len() {
            assert!(SlotCell::decode(&at, &value.slice(..length)).is_err(), "{length} bytes");
        }
        let longer = [&value[..], b"x"].concat().into();
        assert!(SlotCell::decode(&at, &longer).is_err());
    }

    #[test]
    fn other_format_and_other_key_are_named() {
        let (at, value) = (partition(), cell().encode(&partition()));
        let next = String::from_utf8_lossy(&value).replace("\"vvm_format\":1", "\"vvm_format\":2");
        let error = SlotCell::decode(&at, &next.into_bytes().into()).unwrap_err().to_string();
        assert!(error.ends_with("is written in format 2, and this version reads format 1"), "{error}");
        let error = SlotCell::decode(&Partition::from_bytes(*b"q"), &value).unwrap_err().to_string();
        assert!(error.contains("does not keep keys apart"), "{error}");
    }

    #[test]
    fn setting_in_the_place_of_a_slot_is_damaged() {
        let at = partition();
        let setting = SettingCell { value: Vec::new(), longest_ttl: Duration::ZERO }.encode(&at);
        assert!(SlotCell::decode(&at, &setting).is_err());
        assert!(SettingCell::decode(&at, &SlotCell::vacant().encode(&at)).is_err());
    }
}
