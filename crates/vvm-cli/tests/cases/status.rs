//! `vvm status`: the state of each slot, and `--exit-status` for monitoring.

use crate::VVM;
use harness::{Trial, eventually};

/// Returns the exit status of `vvm status --exit-status`, and the state of slot 1.
fn state(trial: &Trial, options: &[&str]) -> (i32, String) {
    let name = trial.name();
    let options = [&["--name", &name, "--json", "--exit-status"], options].concat();
    let (code, out, said) = trial.ask("status", &options);
    assert!(said.is_empty() || said.contains("waiting for the next renewal"), "{said}");
    let found: serde_json::Value = serde_json::from_str(&out).unwrap();
    (code, found[0]["state"].as_str().unwrap().to_owned())
}

#[test]
fn state_and_exit_status_follow_the_life_of_a_leader() {
    let trial = VVM.trial();
    let is_on_a_server = Trial::is_on_a_server();
    let of = |code, state: &str| (code, state.to_owned());
    let mut leader = trial.run_script("echo up; exec sleep 1000").with(["--ttl", harness::SHORT_TTL]).start();
    leader.stdout.wait_for("up");
    // Only PostgreSQL shows ages by a clock of its own.
    let shows_ages = !is_on_a_server || trial.storage().starts_with("postgres");
    let at_once = if shows_ages { of(0, "led") } else { of(3, "held") };
    assert_eq!(state(&trial, &["--no-wait"]), at_once);
    assert_eq!(state(&trial, &[]), of(0, "led"));
    let (_, table, said) = trial.ask("status", &["--name", &trial.name()]);
    assert!(table.contains("led") && !table.contains("unknown") && !table.contains('\x1b'), "{table}");
    assert_eq!(said.contains("waiting for the next renewal of slot 1"), !shows_ages, "{said}");
    let says_whose_clock = said.contains("by the clock of the storage's server");
    assert_eq!(says_whose_clock, shows_ages && is_on_a_server, "{said}");

    leader.crash();
    leader.finish();
    eventually("the record is stale", || state(&trial, &[]) == of(2, "stale"));

    trial.run(["true"]).finish();
    assert_eq!(state(&trial, &[]), of(1, "free"));
    assert_eq!(trial.status(&["--name", &trial.name()]).0, 0, "without --exit-status");
}

#[test]
fn exit_status_is_that_of_the_worst_slot_and_of_a_pause() {
    let trial = VVM.trial();
    let mut leader = trial.run_script("echo up; exec sleep 1000").with(["--slots", "2"]).start();
    leader.stdout.wait_for("up");
    assert_eq!(state(&trial, &[]).0, 1, "one of two slots is free");
    drop(leader);
    trial.ask("pause", &["--name", &trial.name(), "--wait", "no"]);
    let (code, out, _) = trial.status(&["--name", &trial.name(), "--exit-status"]);
    assert!(code >= 1 && out.contains("paused by"), "{code}: {out}");
}
