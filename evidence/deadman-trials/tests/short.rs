//! A few trials, with every run of the tests.
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

use serde_json::Value;
use std::process::Command;

/// What is left between the kill deadline and the moment at which somebody else may lead, at a TTL of one
/// second. That much must hold on a machine that runs other tests, too; the 20 ms that the program asks for
/// need a quiet one.
const AT_MOST_MS: &str = "200";

#[test]
fn every_process_is_dead_soon_after_its_deadline_and_none_before() {
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
