//! The changes that looks show.

use super::*;
use crate::{liveness, watch::look::Found};
use ielections::{Epoch, Ttl, Vacant};
use std::num::NonZeroU32;

const TTL: Ttl = Ttl::DEFAULT;

pub(in crate::watch) fn record(holder: &str, epoch: u64, write: u64) -> Slot {
    Slot::Held { entry: liveness::tests::record(holder, epoch, write), proven_age: None }
}

pub(in crate::watch) fn free(last_epoch: u64) -> Slot {
    Slot::Vacant(Vacant { last_epoch: Epoch::new(last_epoch).ok() })
}

pub(in crate::watch) fn look(second: u64, found: Result<Slot, ReadError>) -> Look {
    let at = Instant::ORIGIN.after(Duration::from_secs(100 + second));
    let found = found.map(|slot| Found { slots: vec![(1, slot)], paused: None });
    Look { found, settled: Some(NonZeroU32::MIN), at, wall: Duration::from_secs(second) }
}

/// Returns the changes that looks at these moments show, without their moments.
fn shown(looks: impl IntoIterator<Item = (u64, Result<Slot, ReadError>)>) -> Vec<String> {
    let mut slots = Slots::default();
    let changes = looks.into_iter().flat_map(|(at, found)| slots.changes(look(at, found)).unwrap());
    changes.map(|change| change.to_string().split_once("  ").unwrap().1.to_owned()).collect()
}

fn unavailable() -> Result<Slot, ReadError> {
    Err(ReadError::Unavailable("no route".into()))
}

#[test]
fn claims_releases_and_takeovers_are_shown() {
    let shown = shown([
        (0, Ok(free(0))),
        (1, Ok(record("a", 3, 1))),
        (2, Ok(record("a", 3, 2))),
        (6, Ok(record("a", 3, 3))),
        (7, Ok(free(3))),
        (8, Ok(record("b", 4, 1))),
        (9, Ok(record("c", 5, 1))),
    ]);
    let expected = [
        "slot 1: free, and never led",
        "slot 1: leads: a, epoch 3, TTL 20s",
        "slot 1: released, free, last epoch 3",
        "slot 1: leads: b, epoch 4, TTL 20s",
        "slot 1: leads: c, epoch 5, TTL 20s, after b",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn end_of_renewals_and_their_return_are_shown_once() {
    let shown = shown([
        (0, Ok(record("a", 3, 1))),
        (19, Ok(record("a", 3, 1))),
        (20, Ok(record("a", 3, 1))),
        (40, Ok(record("a", 3, 1))),
        (41, Ok(record("a", 3, 2))),
        (42, Ok(record("a", 3, 3))),
    ]);
    let expected = [
        "slot 1: held by a, epoch 3, TTL 20s",
        "slot 1: no renewal of a seen for 20.0s: candidates may take over",
        "slot 1: a renews again",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn older_state_is_shown_only_after_three_looks() {
    let shown = shown([
        (0, Ok(record("b", 4, 7))),
        (1, Ok(free(3))),
        (2, Ok(record("b", 4, 6))),
        (3, Ok(record("b", 4, 8))),
        (4, Ok(record("a", 3, 9))),
        (5, Ok(record("a", 3, 9))),
        (6, Ok(record("a", 3, 9))),
        (7, Ok(record("a", 3, 9))),
    ]);
    let expected = [
        "slot 1: held by b, epoch 4, TTL 20s",
        "slot 1: the storage shows an older epoch, 3 after 4: restored from a backup?",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn failure_is_shown_once_and_a_refusal_of_the_first_look_is_an_error() {
    let looks = [(0, Ok(free(3))), (1, unavailable()), (2, unavailable()), (3, Ok(free(3)))];
    let expected = [
        "slot 1: free, last epoch 3",
        "can't be read: the storage did not answer: no route; trying again",
        "can be read again",
    ];
    assert_eq!(shown(looks), expected);
    let refused = Err(ReadError::Fatal("no such table".into()));
    assert!(matches!(Slots::default().changes(look(0, refused)), Err(InspectError::Read(_))));
}

#[test]
fn pause_and_its_end_are_shown() {
    let paused = |second, by: Option<&str>| {
        let paused = by.map(|by| Paused { by: by.into(), since: Duration::from_secs(7) });
        Look { found: Ok(Found { slots: vec![(1, free(3))], paused }), ..look(second, unavailable()) }
    };
    let mut slots = Slots::default();
    let looks = [paused(0, None), paused(1, Some("a: \x1b")), paused(2, Some("a: \x1b")), paused(3, None)];
    let shown = looks.into_iter().flat_map(|look| slots.changes(look).unwrap());
    let shown =
        shown.map(|change| change.to_string().split_once("  ").unwrap().1.to_owned()).collect::<Vec<_>>();
    let expected = [
        "slot 1: free, last epoch 3",
        "paused by a: \\u{1b}: no new leader begins",
        "resumed: candidates may lead again",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn name_without_candidates_is_shown_once() {
    let unknown = |second| Look { settled: None, ..look(second, Ok(free(0))) };
    let mut slots = Slots::default();
    let shown = [unknown(0), unknown(1)].into_iter().flat_map(|look| slots.changes(look).unwrap());
    let shown = shown.map(|change| change.what.to_string()).collect::<Vec<_>>();
    let expected = ["no candidate has ever used this name: check --name", "free, and never led"];
    assert_eq!(shown, expected);
}

#[test]
fn rest_of_the_ttl_counts_from_the_proven_age() {
    let mut slots = Slots::default();
    let Slot::Held { entry, .. } = record("a", 3, 1) else { unreachable!() };
    let slot = Slot::Held { entry, proven_age: Some(Duration::from_secs(4)) };
    let first = look(0, Ok(slot));
    let now = first.at.after(Duration::from_secs(2));
    slots.changes(first).unwrap();
    let (_, seen) = slots.iter().next().unwrap();
    assert_eq!(seen.left(now), Some((Duration::from_secs(14), TTL.get())));
}

#[test]
fn change_is_one_json_object_on_one_line() {
    let mut slots = Slots::default();
    slots.changes(look(0, Ok(free(3)))).unwrap();
    let changes = slots.changes(look(61, Ok(record("a\n\"", 4, 1)))).unwrap();
    let line = changes[0].to_json().unwrap();
    assert!(!line.contains('\n'), "{line}");
    let shown: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&shown["event"], &shown["slot"], &shown["epoch"]), (&"leads".into(), &1.into(), &4.into()));
    assert_eq!((&shown["at"], &shown["unix_ms"]), (&"1970-01-01T00:01:01Z".into(), &61_000.into()));
    assert_eq!((&shown["holder"], &shown["ttl_ms"]), (&"a\n\"".into(), &20_000.into()));
}

/// Returns a leader that renews, one that has stopped to renew, and a free slot.
pub(in crate::watch) fn three(now: u64) -> (Slots, Vec<Change>, Instant) {
    let mut slots = Slots::default();
    let mut history = Vec::new();
    let found = |second, first: Slot| Look {
        found: Ok(Found {
            slots: vec![(1, first), (2, record("there:77", 1_795_299_437_014, 9)), (3, free(5))],
            paused: None,
        }),
        ..look(second, Ok(free(0)))
    };
    for (second, write) in [(0, 1), (9, 2)] {
        history.extend(slots.changes(found(second, record("here:2040", 1_795_299_437_000, write))).unwrap());
    }
    let last = look(now, Ok(free(0)));
    history.extend(slots.changes(found(now, record("here:2040", 1_795_299_437_000, 2))).unwrap());
    (slots, history, last.at)
}

/// Returns so many slots, each second one free.
pub(in crate::watch) fn many(count: u32) -> Slots {
    let mut slots = Slots::default();
    let found = (1..=count).map(|number| match number % 2 {
        1 => (number, record("here:2040", 1_795_299_437_000, 1)),
        _ => (number, free(5)),
    });
    let found = Ok(Found { slots: found.collect(), paused: None });
    slots.changes(Look { found, ..look(0, unavailable()) }).unwrap();
    slots
}
