//! A Lease: what each field shows to people and to client-go, and where the value of the cell is. Once another program
//! has written the spec, our annotations tell of the past: last epoch and documents, but no record (I2).

use super::names::{digest, is_slot, label, name};
use crate::{
    cells::{
        Cell, Tag,
        content::{Origin, SlotCell, key_of},
    },
    key::Partition,
};
use bytes::Bytes;
use data_encoding::{BASE64, HEXLOWER};
use ielections::{Entry, Epoch, Holder, Incarnation, Slot, Ttl, Vacant, Version, storage::Cause};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};

/// The value of the cell, as text if it is text.
const CELL: &str = "vvm/cell";

/// A digest of the spec that was written with it.
const SPEC: &str = "vvm/spec";

/// The last epoch, by which claims are told from renewals.
const EPOCH: &str = "vvm/epoch";

pub(super) const NAME: &str = "vvm/name";

/// Before a value that is not text. A value that is begins with a brace.
const ENCODED: &str = "base64:";

const API_VERSION: &str = "coordination.k8s.io/v1";

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "Lease {name} is damaged: {why}. Find out what writes to it, and delete it when nothing of this name runs"
)]
pub(super) struct DecodeError {
    name: String,
    why: String,
}

#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Lease {
    api_version: String,
    kind: String,
    metadata: Metadata,
    spec: Spec,
}

#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: String,
    namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    resource_version: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    owner_references: Vec<serde_json::Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    finalizers: Vec<String>,
}

/// Reads bytes as a Lease of any program, with a slot's cell. Returns whether they are one. For tests of damaged input.
#[cfg(feature = "testing")]
pub fn decodes(bytes: &[u8]) -> bool {
    let slot = crate::key::SlotNumber::new(std::num::NonZeroU32::MIN);
    let at = crate::key::ElectionKey { cluster: "n".into(), slot }.partition();
    let cell = serde_json::from_slice::<Lease>(bytes).ok().and_then(|lease| lease.cell(&at).ok());
    cell.is_some_and(|cell| SlotCell::decode(&at, &cell.value).is_ok())
}

impl Lease {
    pub(super) fn new(at: &Partition, namespace: &str) -> Self {
        let mut lease = Self::default();
        lease.metadata.name = name(at);
        namespace.clone_into(&mut lease.metadata.namespace);
        lease
    }

    /// The Lease as it was when `tag` was returned, without the value of its cell.
    pub(super) fn of_tag(tag: &Tag) -> Result<Self, DecodeError> {
        let damaged = |cause: serde_json::Error| DecodeError { name: "?".into(), why: cause.to_string() };
        serde_json::from_slice(tag.as_bytes()).map_err(damaged)
    }

    /// `now` counts from the Unix epoch, here and below.
    pub(super) fn set(
        mut self,
        at: &Partition,
        value: &Bytes,
        record: Option<&Entry>,
        now: Duration,
    ) -> Self {
        let Metadata { annotations, labels, .. } = &mut self.metadata;
        let epoch = record.map(|entry| entry.epoch.to_string());
        let is_claim = epoch.as_ref().is_some_and(|epoch| annotations.get(EPOCH) != Some(epoch));
        self.spec = self.spec.followed_by(record, is_claim, now);
        annotations.insert(CELL.into(), text(value));
        annotations.insert(SPEC.into(), self.spec.digest());
        if let Some(epoch) = epoch {
            annotations.insert(EPOCH.into(), epoch);
        }
        labels.insert(NAME.into(), label(at));
        API_VERSION.clone_into(&mut self.api_version);
        "Lease".clone_into(&mut self.kind);
        self.metadata.name = name(at);
        self
    }

    pub(super) fn cell(mut self, at: &Partition) -> Result<Cell, DecodeError> {
        let stored = self.metadata.annotations.remove(CELL);
        let is_ours = self.metadata.annotations.get(SPEC) == Some(&self.spec.digest());
        let stored = stored.map(|text| value(&text).ok_or_else(|| self.damaged("its value is not base64")));
        let value = match stored.transpose()? {
            Some(stored) if is_ours || !is_slot(at) => stored,
            None if !is_slot(at) => return Err(self.damaged("it has no annotation vvm/cell")),
            stored => foreign_value(at, stored.as_ref(), &self.spec).map_err(|why| self.damaged(why))?,
        };
        Ok(Cell { value, tag: self.tag() })
    }

    fn tag(&self) -> Tag {
        // Maps have strings for keys, so nothing fails.
        Tag::new(serde_json::to_vec(self).unwrap_or_default())
    }

    pub(super) fn into_tag(mut self) -> Tag {
        self.metadata.annotations.remove(CELL);
        self.tag()
    }

    fn damaged(&self, why: impl ToString) -> DecodeError {
        DecodeError { name: self.metadata.name.clone(), why: why.to_string() }
    }

    pub(super) fn name(&self) -> &str {
        &self.metadata.name
    }

    /// The key that stands in its value.
    pub(super) fn key(&self) -> Option<Partition> {
        key_of(&value(self.metadata.annotations.get(CELL)?)?)
    }

    pub(super) fn is_same_object(&self, other: &Self) -> bool {
        self.metadata.uid == other.metadata.uid
    }

    pub(super) fn is_held(&self) -> bool {
        self.spec.holder().is_some()
    }
}

fn text(value: &Bytes) -> String {
    match std::str::from_utf8(value) {
        Ok(text) if text.starts_with('{') => text.to_owned(),
        _ => format!("{ENCODED}{}", BASE64.encode(value)),
    }
}

fn value(text: &str) -> Option<Bytes> {
    match text.strip_prefix(ENCODED) {
        Some(encoded) => BASE64.decode(encoded.as_bytes()).ok().map(Bytes::from),
        None => Some(text.to_owned().into()),
    }
}

#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(skip_serializing_if = "Option::is_none")]
    holder_identity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lease_duration_seconds: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    acquire_time: Option<String>,
    /// Later with each write of a record.
    #[serde(skip_serializing_if = "Option::is_none")]
    renew_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_transitions: Option<i32>,
    /// Of coordinated leader election, which would choose a holder by itself. Never written.
    #[serde(skip_serializing_if = "Option::is_none")]
    strategy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    preferred_holder: Option<String>,
}

/// Shown for a holder without a name: an empty one would be a vacancy to client-go.
const UNNAMED: &str = "-";

impl Spec {
    pub(super) fn followed_by(&self, record: Option<&Entry>, is_claim: bool, now: Duration) -> Self {
        let was_led = self.lease_duration_seconds.is_some();
        let Some(entry) = record else {
            let holder_identity = Some(String::new());
            if !was_led {
                return Self { holder_identity, ..Self::default() };
            }
            let now = self.next_time(now);
            return Self {
                holder_identity,
                // As client-go writes it: it must be positive.
                lease_duration_seconds: Some(1),
                acquire_time: now.clone(),
                renew_time: now,
                lease_transitions: self.lease_transitions,
                ..Self::default()
            };
        };
        let now = self.next_time(now);
        let name = entry.holder.as_str();
        Self {
            holder_identity: Some(if name.is_empty() { UNNAMED } else { name }.to_owned()),
            lease_duration_seconds: Some(seconds(entry.ttl.get())),
            acquire_time: if is_claim { now.clone() } else { self.acquire_time.clone() },
            renew_time: now,
            lease_transitions: Some(self.transitions().saturating_add(is_claim.into())),
            ..Self::default()
        }
    }

    /// The time to show: after the one that is shown, whatever the wall clock does.
    fn next_time(&self, now: Duration) -> Option<String> {
        let now = i64::try_from(now.as_micros()).ok()?;
        let next = self.renewed_micros().map_or(now, |last| now.max(last.saturating_add(1)));
        Some(Timestamp::from_microsecond(next).ok()?.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string())
    }

    pub(super) fn renewed_micros(&self) -> Option<i64> {
        Some(self.renew_time.as_ref()?.parse::<Timestamp>().ok()?.as_microsecond())
    }

    fn transitions(&self) -> i32 {
        self.lease_transitions.unwrap_or_default()
    }

    pub(super) fn holder(&self) -> Option<&str> {
        self.holder_identity.as_deref().filter(|holder| !holder.is_empty())
    }

    /// What stays the same while one holder renews.
    pub(super) fn leadership(&self) -> String {
        let Self { acquire_time, holder_identity, .. } = self;
        digest(format!("{holder_identity:?} {acquire_time:?} {}", self.transitions()).as_bytes())
    }

    /// Changes with every field.
    pub(super) fn digest(&self) -> String {
        // Plain fields: nothing fails.
        digest(&serde_json::to_vec(self).unwrap_or_default())[..32].into()
    }
}

/// Rounded up, so that a client that goes by it is never early.
fn seconds(ttl: Duration) -> i32 {
    let whole = ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0)).max(1);
    i32::try_from(whole).unwrap_or(i32::MAX)
}

/// Returns the value that says what `spec` says. `stored` is the value of our last write. (I1) If a record of ours was
/// overwritten, or our Lease was deleted and another made in its place, our leader may still be at work. Then the cell
/// displaces it: the longest TTL of the name is waited for.
fn foreign_value(at: &Partition, stored: Option<&Bytes>, spec: &Spec) -> Result<Bytes, Cause> {
    let known = stored.map(|stored| SlotCell::decode(at, stored)).transpose()?;
    let displaces =
        known.as_ref().is_none_or(|known| known.origin == Origin::Displacing || known.slot.entry().is_some());
    let origin = if displaces { Origin::Displacing } else { Origin::Foreign };
    let known = known.unwrap_or_else(SlotCell::vacant);
    // After its release, too: to a candidate that saw the epoch, the storage would have gone back in time.
    let epoch = Epoch::following(known.slot.last_epoch(), Duration::ZERO)?;
    let slot = match spec.holder() {
        None => Slot::Vacant(Vacant { last_epoch: Some(epoch) }),
        Some(holder) => Slot::Held { entry: entry(holder, spec, epoch)?, proven_age: None },
    };
    Ok(SlotCell { slot, origin, ..known }.encode(at))
}

/// The record that the spec shows. Its version changes with each renewal, and its epoch is after ours.
fn entry(holder: &str, spec: &Spec, epoch: Epoch) -> Result<Entry, Cause> {
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let ttl = seconds.filter(|seconds| *seconds > 0).ok_or("it is held without a leaseDurationSeconds")?;
    let leadership = HEXLOWER.decode(spec.leadership().as_bytes())?;
    let incarnation = leadership.first_chunk().copied().ok_or("no digest")?;
    let renewed = spec.renewed_micros().and_then(|micros| u64::try_from(micros).ok());
    let shown = (0..=Holder::MAX_BYTES).rev().find_map(|end| holder.get(..end)).unwrap_or_default();
    Ok(Entry {
        holder: Holder::new(shown)?,
        version: Version {
            incarnation: Incarnation::from_bytes(incarnation),
            write: renewed.unwrap_or_default(),
        },
        ttl: Ttl::new(Duration::from_secs(ttl))?,
        epoch,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot() -> Partition {
        Partition::from_bytes(*b"\x01payroll\0\0\0\x01")
    }

    fn entry(epoch: u64) -> Entry {
        let (holder, ttl) = (Holder::new("").unwrap(), Ttl::new(Duration::from_millis(2_001)).unwrap());
        Entry { holder, ttl, ..ielections::testing::entry(7, 1, epoch) }
    }

    fn held(epoch: u64) -> Bytes {
        let slot_held = Slot::Held { entry: entry(epoch), proven_age: None };
        SlotCell { slot: slot_held, ..SlotCell::vacant() }.encode(&slot())
    }

    fn written(before: Lease, record: Option<&Entry>, second: u64) -> Lease {
        let value =
            record.map_or_else(|| SlotCell::vacant().encode(&slot()), |entry| held(entry.epoch.get()));
        let lease = before.set(&slot(), &value, record, Duration::from_secs(second));
        serde_json::from_slice(&serde_json::to_vec(&lease).unwrap()).unwrap()
    }

    fn read(lease: &Lease) -> SlotCell {
        let cell = lease.clone().cell(&slot()).unwrap();
        SlotCell::decode(&slot(), &cell.value).unwrap()
    }

    #[test]
    fn renew_time_increases_while_the_wall_clock_goes_back() {
        let claimed = written(Lease::new(&slot(), "default"), Some(&entry(5)), 1_000);
        let renewed = written(claimed.clone(), Some(&entry(5)), 10);
        let released = written(renewed.clone(), None, 10);
        let times = [&claimed, &renewed, &released].map(|lease| lease.spec.renewed_micros().unwrap());
        assert_eq!(times, [1_000_000_000, 1_000_000_001, 1_000_000_002]);
        let json = serde_json::to_value(&renewed.spec).unwrap();
        assert_eq!(json["renewTime"], "1970-01-01T00:16:40.000001Z");
        assert_eq!((&json["leaseDurationSeconds"], &json["leaseTransitions"]), (&3.into(), &1.into()));
    }

    #[test]
    fn held_lease_is_never_shown_as_a_vacancy() {
        let claimed = written(Lease::new(&slot(), "default"), Some(&entry(5)), 1_000);
        assert!(claimed.is_held() && claimed.spec.holder() == Some("-"));
        assert!(!written(claimed, None, 1_001).is_held());
    }

    #[test]
    fn value_is_text_if_it_is_text() {
        for bytes in [&b"{\"a\":\"\xc3\xa4\"}\n"[..], b"{\xff", b"base64:", b""] {
            let bytes = Bytes::from(bytes);
            assert_eq!(value(&text(&bytes)), Some(bytes));
        }
        assert_eq!(text(&Bytes::from_static(b"{}")), "{}");
        assert_eq!(value("base64:?"), None);
    }

    #[test]
    fn tag_has_all_but_the_value() {
        let claimed = written(Lease::new(&slot(), "default"), Some(&entry(5)), 1_000);
        let cell = claimed.clone().cell(&slot()).unwrap();
        let seen = Lease::of_tag(&cell.tag).unwrap();
        assert_eq!(cell.tag, claimed.clone().into_tag());
        assert!(!String::from_utf8_lossy(cell.tag.as_bytes()).contains(CELL));
        assert_eq!(written(seen, Some(&entry(5)), 1_001), written(claimed, Some(&entry(5)), 1_001));
    }

    #[test]
    fn spec_of_another_program_counts_instead_of_the_value() {
        let mut lease = written(Lease::new(&slot(), "default"), Some(&entry(5)), 1_000);
        assert_eq!(read(&lease).slot.entry(), Some(&entry(5)));
        let patched = |spec: &str| {
            let mut patched = lease.clone();
            patched.spec = serde_json::from_str(spec).unwrap();
            patched
        };
        let taken = read(&patched(r#"{"holderIdentity":"other","leaseDurationSeconds":15}"#));
        assert!(taken.origin == Origin::Displacing && taken.slot.last_epoch() == Epoch::new(6).ok());
        let vacant = read(&patched(r#"{"holderIdentity":""}"#));
        assert!(
            vacant.origin == Origin::Displacing && vacant.slot.entry().is_none(),
            "our leader may be at work"
        );
        assert_eq!(vacant.slot.last_epoch(), taken.slot.last_epoch(), "no epoch goes back with a release");
        for damaged in [r#"{"holderIdentity":"a"}"#, r#"{"holderIdentity":"a","leaseDurationSeconds":0}"#] {
            assert!(patched(damaged).cell(&slot()).is_err(), "{damaged}");
        }
        // Without annotations: never written by elections, or deleted and made anew.
        lease.metadata.annotations.clear();
        assert!(read(&lease).origin == Origin::Displacing);
        let setting = Partition::from_bytes(*b"\x02payroll");
        assert!(lease.cell(&setting).is_err());
    }
}
