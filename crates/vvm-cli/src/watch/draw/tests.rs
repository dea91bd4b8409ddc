//! Pictures as text, and the one in the documents.

mod picture;

use super::*;
use crate::{
    terminal_view::Palette,
    watch::{
        Found, Look, Paused,
        slots::tests::{many, three},
    },
};
use ielections::ReadError;
use std::time::Duration;

fn drawn(now: u64, columns: usize, rows: usize) -> Vec<String> {
    let (slots, history, now) = three(now);
    let scene = Scene { name: "payroll", slots: &slots, history: &history, now };
    let picture = picture(&scene, columns, rows);
    picture.iter().map(|row| row.to_text(Palette::Plain).trim_end().to_owned()).collect()
}

#[test]
fn a_wide_picture_has_a_line_for_each_slot() {
    let expected = [
        "  vvm watch payroll   looked 0.0s ago   q leaves",
        "",
        "  SLOT  HOLDER                     EPOCH          RENEWAL SEEN    LEFT OF TTL, SEEN FROM HERE",
        "     1  here:2040                  1795299437000  2.0s ago        ██████████████████░░ 18.0s of 20s",
        "     2  there:77                   1795299437014  none for 11.0s  █████████░░░░░░░░░░░ 9.0s of 20s",
        "     3  free, last epoch 5",
        "",
        "  CHANGES SEEN (UTC)",
        "  00:00:00Z  slot 3: free, last epoch 5",
        "  00:00:00Z  slot 2: held by there:77, epoch 1795299437014, TTL 20s",
        "  00:00:00Z  slot 1: held by here:2040, epoch 1795299437000, TTL 20s",
    ];
    assert_eq!(drawn(11, 100, 24), expected);
}

#[test]
fn a_narrow_picture_has_two() {
    let expected = [
        "  vvm watch payroll   looked 0.0s ago",
        "",
        "     1  here:2040       12.0s ago",
        "        ████████░░░░░░░░░░ 8.0s of 20s",
        "     2  there:77        none for 21.0s",
        "        ░░░░░░░░░░░░░░░░░░ expired",
        "     3  free, last epoch 5",
        "",
        "  CHANGES SEEN (UTC)",
        "  00:00:21Z  slot 2: no renewal of",
        "             there:77 seen for 21.0s:",
        "             others may take over",
    ];
    assert_eq!(drawn(21, 40, 14)[..expected.len()], expected);
}

#[test]
fn no_picture_is_larger_than_its_terminal() {
    for (columns, rows) in
        [(1, 1), (7, 3), (20, 5), (39, 10), (75, 24), (76, 24), (95, 24), (96, 8), (300, 90)]
    {
        let picture = drawn(25, columns, rows);
        assert!(picture.len() <= rows, "{columns}×{rows}: {picture:#?}");
        assert!(picture.iter().all(|row| row.chars().count() <= columns), "{columns}×{rows}: {picture:#?}");
    }
}

/// As [`three`], after looks that were not answered, and paused.
#[test]
fn what_concerns_all_slots_stands_above_them_whole() {
    let (mut slots, history, now) = three(11);
    let look = |found, second| Look {
        found,
        settled: None,
        at: now.after(Duration::from_secs(second)),
        wall: Duration::from_secs(second),
    };
    let paused = Some(Paused { by: "alice: new schema".into(), since: Duration::from_secs(60) });
    slots.changes(look(Ok(Found { slots: Vec::new(), paused }), 1)).unwrap();
    let lost = "the disk that it was on has gone, and nobody knows where to";
    slots.changes(look(Err(ReadError::Unavailable(lost.into())), 2)).unwrap();
    let now = now.after(Duration::from_secs(4));
    let scene = Scene { name: "payroll", slots: &slots, history: &history, now };
    let rows = picture(&scene, 78, 24);
    let rows = rows.iter().map(|row| row.to_text(Palette::Plain).trim_end().to_owned()).collect::<Vec<_>>();
    let expected = [
        "  vvm watch payroll   looked 3.0s ago   q leaves",
        "  can't look for 3.0s: the storage did not answer: the disk that it was on has",
        "  gone, and nobody knows where to",
        "  paused by alice: new schema, since 1970-01-01T00:01:00Z",
        "",
        "  SLOT  HOLDER              RENEWAL SEEN    LEFT OF TTL, SEEN FROM HERE",
        "     1  here:2040           not known",
        "     2  there:77            not known",
        "     3  free, last epoch 5",
    ];
    assert_eq!(rows[..expected.len()], expected);
}

#[test]
fn two_hundred_slots_fill_the_picture_and_the_rest_is_counted() {
    let slots = many(200);
    let now = Instant::ORIGIN.after(Duration::from_secs(1_000));
    let scene = Scene { name: "payroll", slots: &slots, history: &[], now };
    let rows = picture(&scene, 100, 50);
    let rows = rows.iter().map(|row| row.to_text(Palette::Plain).trim_end().to_owned()).collect::<Vec<_>>();
    assert_eq!(rows.len(), 50);
    assert!(rows[46].starts_with("    44  free"), "{rows:#?}");
    assert_eq!(rows[47], "  … and 156 more slots, 78 of them free, 78 expired");
}
