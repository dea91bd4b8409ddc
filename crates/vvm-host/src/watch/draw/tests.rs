//! Pictures as text.

use super::*;
use crate::{demo::draw_terminal::Palette, watch::slots::tests::three};

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
        "  00:00:21Z  slot 2: no renewal of there",
    ];
    assert_eq!(drawn(21, 40, 12)[..expected.len()], expected);
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
