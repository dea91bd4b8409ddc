//! The picture in the documents is what is drawn: `UPDATE_PICTURES=1 cargo test -p vvm-cli --bin vvm
//! picture_in_the_documents` draws it anew.

use super::*;
use crate::{
    terminal_view::svg,
    watch::slots::tests::{free, look, record},
};
use ielections::Slot;
use std::{env, fs};

const COLUMNS: usize = 100;
const ROWS: usize = 15;

/// Three slots: one whose leader crashed and was followed, one whose leader has just crashed, one that was
/// handed over.
fn scene() -> (Slots, Vec<Change>, Instant) {
    const NOON: u64 = 12 * 3600;
    const EPOCH: u64 = 1_795_299_437_000;
    let looks: [(u64, [Slot; 3]); 8] = [
        (
            0,
            [
                record("machine-1", EPOCH, 1),
                record("machine-2", EPOCH + 14, 9),
                record("machine-3", EPOCH + 9, 4),
            ],
        ),
        (
            4,
            [
                record("machine-1", EPOCH, 2),
                record("machine-2", EPOCH + 14, 10),
                record("machine-3", EPOCH + 9, 5),
            ],
        ),
        (9, [record("machine-1", EPOCH, 2), record("machine-2", EPOCH + 14, 11), free(EPOCH + 9)]),
        (
            10,
            [
                record("machine-1", EPOCH, 2),
                record("machine-2", EPOCH + 14, 11),
                record("machine-4", EPOCH + 10_021, 1),
            ],
        ),
        (
            25,
            [
                record("machine-1", EPOCH, 2),
                record("machine-2", EPOCH + 14, 14),
                record("machine-4", EPOCH + 10_021, 4),
            ],
        ),
        (
            26,
            [
                record("machine-5", EPOCH + 25_377, 1),
                record("machine-2", EPOCH + 14, 14),
                record("machine-4", EPOCH + 10_021, 5),
            ],
        ),
        (
            40,
            [
                record("machine-5", EPOCH + 25_377, 4),
                record("machine-2", EPOCH + 14, 15),
                record("machine-4", EPOCH + 10_021, 7),
            ],
        ),
        (
            53,
            [
                record("machine-5", EPOCH + 25_377, 6),
                record("machine-2", EPOCH + 14, 15),
                record("machine-4", EPOCH + 10_021, 9),
            ],
        ),
    ];
    let (mut slots, mut history) = (Slots::default(), Vec::new());
    for (second, found) in looks {
        let found = Found { slots: (1..).zip(found).collect(), paused: None };
        let wall = Duration::from_secs(NOON + second);
        history.extend(slots.changes(Look { found: Ok(found), wall, ..look(second, Ok(free(1))) }).unwrap());
    }
    (slots, history, Instant::ORIGIN.after(Duration::from_millis(154_200)))
}

#[test]
fn the_picture_in_the_documents_is_what_is_drawn() {
    let (slots, history, now) = scene();
    let scene = Scene { name: "payroll", slots: &slots, history: &history, now };
    let drawn = svg(&picture(&scene, COLUMNS, ROWS), COLUMNS, "vvm watch on a terminal");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/watch.svg");
    if env::var_os("UPDATE_PICTURES").is_some() {
        fs::write(path, &drawn).unwrap();
    }
    assert!(fs::read_to_string(path).unwrap() == drawn, "draw docs/watch.svg anew, with UPDATE_PICTURES=1");
}
