//! Pictures as text.

use super::*;
use crate::watch::{
    look::{Found, Look, Paused},
    slots::tests::{look, many, record, three},
};
use ielections::ReadError;
use std::time::Duration;
use unicode_width::UnicodeWidthStr as _;

fn drawn(now: u64, columns: usize, rows: usize) -> Vec<String> {
    let (slots, history, now) = three(now);
    let scene = Scene { name: "payroll", slots: &slots, history: &history, now };
    let picture = picture(&scene, columns, rows);
    picture.iter().map(|row| row.0.trim_end().to_owned()).collect()
}

#[test]
fn wide_picture_has_a_line_with_all_parts_for_each_slot() {
    let expected = [
        "  vvm watch payroll   looked 0ms ago   q leaves",
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
fn narrow_picture_is_cut_and_its_changes_are_wrapped() {
    let expected = [
        "  vvm watch payroll   looked 0ms ago   q",
        "",
        "  SLOT  HOLDER            RENEWAL SEEN",
        "     1  here:2040         12.0s ago",
        "     2  there:77          none for 21.0s",
        "     3  free, last epoch 5",
        "",
        "  CHANGES SEEN (UTC)",
        "  00:00:21Z  slot 2: no renewal of",
        "             there:77 seen for 21.0s:",
        "             candidates may take over",
    ];
    assert_eq!(drawn(21, 40, 14)[..expected.len()], expected);
}

#[test]
fn wide_characters_of_a_holder_do_not_move_the_columns() {
    let mut slots = Slots::default();
    let found = [(1, record("東京の機械", 5, 1)), (2, record("tokyo", 5, 1))];
    let found = Ok(Found { slots: found.into(), paused: None });
    slots.changes(Look { found, ..look(0, Err(ReadError::Unavailable("".into()))) }).unwrap();
    let now = Instant::ORIGIN.after(Duration::from_secs(101));
    let rows = picture(&Scene { name: "a", slots: &slots, history: &[], now }, 80, 24);
    let before_seen = |row: &Row| row.0.split_once("none for").unwrap().0.width();
    assert_eq!(before_seen(&rows[3]), before_seen(&rows[4]));
}

#[test]
fn picture_is_no_larger_than_its_terminal() {
    for (columns, rows) in
        [(1, 1), (7, 3), (20, 5), (39, 10), (75, 24), (76, 24), (95, 24), (96, 8), (300, 90)]
    {
        let picture = drawn(25, columns, rows);
        assert!(picture.len() <= rows, "{columns}×{rows}: {picture:#?}");
        assert!(picture.iter().all(|row| row.chars().count() <= columns), "{columns}×{rows}: {picture:#?}");
    }
}

#[test]
fn failure_and_pause_are_shown_whole_above_the_slots() {
    let (mut slots, history, now) = three(11);
    let at = |found, second| Look {
        found,
        settled: None,
        at: now.after(Duration::from_secs(second)),
        wall: Duration::from_secs(second),
    };
    let paused = Some(Paused { by: "alice: new schema".into(), since: Duration::from_secs(60) });
    slots.changes(at(Ok(Found { slots: Vec::new(), paused }), 1)).unwrap();
    let lost = "the disk of the database is gone, and so is the file on it";
    slots.changes(at(Err(ReadError::Unavailable(lost.into())), 2)).unwrap();
    let now = now.after(Duration::from_secs(4));
    let scene = Scene { name: "payroll", slots: &slots, history: &history, now };
    let rows = picture(&scene, 78, 24);
    let rows = rows.iter().map(|row| row.0.trim_end()).collect::<Vec<_>>();
    let expected = [
        "  vvm watch payroll   looked 3.0s ago   q leaves",
        "  can't be read for 3.0s: the storage did not answer: the disk of the database",
        "  is gone, and so is the file on it",
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
fn slots_beyond_the_picture_are_counted() {
    let slots = many(200);
    let now = Instant::ORIGIN.after(Duration::from_secs(1_000));
    let scene = Scene { name: "payroll", slots: &slots, history: &[], now };
    let rows = picture(&scene, 100, 50);
    let rows = rows.iter().map(|row| row.0.trim_end()).collect::<Vec<_>>();
    assert_eq!(rows.len(), 50);
    assert!(rows[46].starts_with("    44  free"), "{rows:#?}");
    assert_eq!(rows[47], "  … and 156 more slots, 78 of them free, 78 expired");
}
