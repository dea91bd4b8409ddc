//! A few trials in every test run.
#![allow(clippy::unwrap_used, reason = "clippy exempts tests, but not their helpers")]

use serde_json::Value;
use std::process::Command;

/// The time between the kill deadline and the earliest take-over at a TTL of one second. It must hold on a
/// busy machine, too. The program's own default, 20 ms, needs an idle one.
const AT_MOST_MS: &str = "200";

#[test]
fn every_process_dies_soon_after_its_deadline_and_not_before() {
    let run = Command::new(env!("CARGO_BIN_EXE_deadman-trials"))
        .args(["--trials", "25", "--at-most-ms", AT_MOST_MS, "--json"])
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert!(run.status.success(), "{report:#}");
    let states = report["states"].as_array().unwrap();
    assert_eq!(states.len(), 5);
    for state in states {
        let ended = state["by_thread"].as_u64().unwrap() + state["by_kernel"].as_u64().unwrap();
        assert_eq!((state["trials"].as_u64(), ended), (Some(5), 5), "{report:#}");
        let by_kernel = state["state"] == "stopped";
        assert!(!by_kernel || state["by_kernel"] == 5, "{report:#}");
    }
}
