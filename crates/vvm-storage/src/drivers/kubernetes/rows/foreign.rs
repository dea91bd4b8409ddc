//! A Lease whose spec another program wrote, such as client-go: it is observed by the spec.
//!
//! client-go keeps our annotations, which then tell of the past: the last epoch and the documents, but no
//! record. Nothing of ours stands on such a record (I2).

use super::spec::Spec;
use crate::{
    Partition,
    cells::content::{Origin, SlotCell},
};
use bytes::Bytes;
use data_encoding::HEXLOWER;
use ielections::{Entry, Epoch, Holder, Incarnation, Slot, Ttl, Vacant, Version};
use std::{error::Error, time::Duration};

type Cause = Box<dyn Error + Send + Sync>;

/// Returns the value that says what `spec` says. `stored` is the value of our last write.
///
/// (I1) If a record of ours was overwritten, or our Lease was deleted and another made in its place, our
/// leader may still be at work. Then the cell displaces it: the longest TTL of the name is waited for.
pub(super) fn value(at: &Partition, stored: Option<&Bytes>, spec: &Spec) -> Result<Bytes, Cause> {
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
