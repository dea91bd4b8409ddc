//! The picture in the documents is what is drawn: `UPDATE_PICTURES=1 cargo test -p vvm-host --lib picture_in_the_documents`
//! draws it anew.

use super::*;
use crate::watch::slots::tests::{free, look, record};
use ielections::Slot;
use std::{env, fmt::Write as _, fs};

const COLUMNS: usize = 100;
const ROWS: usize = 15;
/// Of a letter, in the picture's own units.
const WIDTH: usize = 8;
const HEIGHT: usize = 18;

/// Three slots: one whose leader crashed and was followed, one whose leader has just crashed, one that was handed over.
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

fn class(style: Style) -> &'static str {
    match style {
        Style::Strong => "s",
        Style::Dim => "d",
        Style::Good => "g",
        Style::Bad => "b",
        _ => "p",
    }
}

fn svg(rows: &[Row]) -> String {
    let (width, height) = ((COLUMNS + 2) * WIDTH, (ROWS + 1) * HEIGHT);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-label=\"vvm watch on a terminal\">\n<style>\n\
         svg {{ font: 13px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; background: #fff }}\n\
         rect.w {{ fill: #fff }} text {{ white-space: pre }} .p {{ fill: #16191d }} .s {{ fill: #16191d; font-weight: bold }}\n\
         .d {{ fill: #667079 }} .g {{ fill: #0b7a55 }} .b {{ fill: #b3261e; font-weight: bold }}\n\
         @media (prefers-color-scheme: dark) {{ svg {{ background: #111417 }} rect.w {{ fill: #111417 }} .p, .s {{ fill: #e8ebee }}\n\
         .d {{ fill: #98a2ac }} .g {{ fill: #4cc79a }} .b {{ fill: #ff8a80 }} }}\n</style>\n\
         <rect class=\"w\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>\n"
    );
    for (line, row) in rows.iter().enumerate() {
        let cells = row.cells();
        let mut at = 0;
        while at < cells.len() {
            let style = cells[at].1;
            let run = cells[at..].iter().take_while(|cell| cell.1 == style).count();
            let text = cells[at..at + run].iter().map(|cell| cell.0).collect::<String>();
            let (x, y) = ((at + 1) * WIDTH, (line + 1) * HEIGHT + HEIGHT / 3);
            // Bars are drawn, since fonts leave gaps between blocks.
            let full = text.chars().take_while(|letter| *letter == '█').count();
            if full > 0 || text.starts_with('░') {
                let opacity = if full > 0 { "" } else { " opacity=\".25\"" };
                let (wide, top) = (text.chars().count() * WIDTH, y - 11);
                let name = class(style);
                writeln!(
                    out,
                    "<rect class=\"{name}\" x=\"{x}\" y=\"{top}\" width=\"{wide}\" height=\"13\"{opacity}/>"
                )
                .unwrap();
            } else if !text.trim().is_empty() {
                // Each run at its column, and as wide as its letters, whatever the font.
                let lead = text.chars().take_while(|letter| *letter == ' ').count();
                let text = text.trim();
                let (x, wide) = (x + lead * WIDTH, text.chars().count() * WIDTH);
                let text = text.replace('&', "&amp;").replace('<', "&lt;");
                let name = class(style);
                writeln!(
                    out,
                    "<text class=\"{name}\" x=\"{x}\" y=\"{y}\" textLength=\"{wide}\" lengthAdjust=\"spacingAndGlyphs\">{text}</text>"
                )
                .unwrap();
            }
            at += run;
        }
    }
    out.push_str("</svg>\n");
    out
}

#[test]
fn the_picture_in_the_documents_is_what_is_drawn() {
    let (slots, history, now) = scene();
    let drawn =
        svg(&picture(&Scene { name: "payroll", slots: &slots, history: &history, now }, COLUMNS, ROWS));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/watch.svg");
    if env::var_os("UPDATE_PICTURES").is_some() {
        fs::write(path, &drawn).unwrap();
    }
    assert!(fs::read_to_string(path).unwrap() == drawn, "draw docs/watch.svg anew, with UPDATE_PICTURES=1");
}
