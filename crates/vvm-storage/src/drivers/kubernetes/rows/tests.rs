//! What a Lease shows, and what is made of a Lease that another program wrote.

use super::*;
use crate::cells::content::{Origin, SlotCell};
use ielections::{Epoch, Holder, Incarnation, Slot, Ttl, Version};

fn slot() -> Partition {
    Partition::from_bytes(*b"\x01payroll\0\0\0\x01")
}

fn entry(epoch: u64) -> Entry {
    Entry {
        holder: Holder::new("").unwrap(),
        version: Version { incarnation: Incarnation::from_bytes([7; 16]), write: 1 },
        ttl: Ttl::new(Duration::from_millis(2_001)).unwrap(),
        epoch: Epoch::new(epoch).unwrap(),
    }
}

fn held(epoch: u64) -> Bytes {
    let slot_held = Slot::Held { entry: entry(epoch), proven_age: None };
    SlotCell { slot: slot_held, ..SlotCell::vacant() }.encode(&slot())
}

/// A Lease as it is written at this second, and read back.
fn written(before: Lease, record: Option<&Entry>, second: u64) -> Lease {
    let value = record.map_or_else(|| SlotCell::vacant().encode(&slot()), |entry| held(entry.epoch.get()));
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
    // Its holder has an empty name.
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
