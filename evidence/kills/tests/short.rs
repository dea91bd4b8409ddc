//! A few trials in every test run.
#![allow(clippy::unwrap_used, reason = "clippy exempts tests, but not their helpers")]

use std::process::Command;

/// The time between the kill deadline and the earliest take-over at a TTL of one second. It must hold on a
/// busy machine, too. The program's own default, 20 ms, needs an idle one.
const AT_MOST_MS: &str = "200";

#[test]
fn every_process_dies_soon_after_its_deadline_and_not_before() {
    let run = Command::new(env!("CARGO_BIN_EXE_kills"))
        .args(["deadman", "--trials", "25", "--at-most-ms", AT_MOST_MS])
        .output()
        .unwrap();
    let report = String::from_utf8(run.stdout).unwrap();
    assert!(run.status.success(), "{report}");
    let states = report.lines().filter(|line| {
        let mut cells = line.get(32..).into_iter().flat_map(str::split_ascii_whitespace);
        cells.next() == Some("5")
    });
    assert_eq!(states.count(), 5, "{report}");
}
