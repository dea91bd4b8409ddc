//! `vvm pause` and `vvm resume`, and what both say. `cargo xtask sim` shows that no command works in between.

use super::http::{answer, start};
use crate::VVM;
use harness::{eventually, has};
use serde_json::Value;
use std::process::Command;

#[test]
fn leaders_stop_and_all_candidates_wait_until_the_name_is_resumed() {
    let trial = VVM.trial();
    let run = |holder| trial.run_script("echo works; exec sleep 1000").with(["--holder", holder]);
    let mut leader = run("a").start();
    leader.stdout.wait_for("works");
    let (mut candidate, address) = start(run("b"));
    candidate.stderr.wait_for("waiting for leadership");

    let out = trial.must("pause", &["--by", "alice", "--reason", "new schema"]);
    assert!(out.contains(&format!("{}: paused by alice: new schema\n", trial.name())), "{out}");
    assert!(out.contains("no process leads, and none will until `vvm resume`"), "{out}");
    assert_eq!(trial.processes().of("sleep 1000"), []);
    leader.stderr.wait_for("stopping the work: paused by alice: new schema");
    leader.stderr.wait_for("waiting until it is resumed");
    candidate.stderr.wait_for("paused by alice: new schema; waiting until it is resumed");
    let paused = "paused by alice: new schema\n";
    // The candidate may see the pause one look before the release.
    let says = |path, status, what: &str| {
        let wanted = (status, format!("{what}: {paused}"));
        eventually(&format!("{wanted:?}"), || answer(address, path) == wanted);
    };
    says("/leader", 503, "not leading");
    says("/readyz", 200, "ready");

    has!(trial.slots()[0], "state" == "free", "paused_by" == "alice", "pause_reason" == "new schema");
    let (_, table, _) = trial.status(&[]);
    assert!(table.contains("EPOCH  HOLDER\n"), "{table}");
    assert!(table.contains("paused by alice: new schema, since 20"), "{table}");
    let out = trial.must("pause", &["--by", "bob"]);
    assert!(out.contains("paused already, by alice: new schema, since 20"), "{out}");
    let (code, _, error) = trial.about("step-down", &[]);
    assert_eq!(code, 75, "{error}");

    // Runs without time to wait end, and name the reason. With --try: at the first look, and not after 1.4 TTL.
    for options in [&["--acquire-timeout", "0"][..], &["--try", "--ttl", "1h"]] {
        let late = trial.run(["echo", "works"]).with(options.iter().copied()).finish();
        late.assert_ended(75, "paused by alice: new schema");
        assert_eq!(late.stdout, [""; 0]);
        assert!(options.len() == 2 || !late.says("waiting until it is resumed"), "{:#?}", late.stderr);
    }

    let out = trial.must("resume", &[]);
    assert!(out.contains("resumed; had been paused by alice: new schema for "), "{out}");
    eventually("a command works", || trial.processes().of("sleep 1000").len() == 1);
    candidate.stderr.wait_for(": resumed");
    assert_eq!(trial.must("resume", &[]), format!("{}: not paused\n", trial.name()));
}

/// The test itself leads, as a program without a host.
#[test]
fn unsettled_slot_count_and_programs_that_ignore_a_pause_are_named() {
    let trial = VVM.trial();
    let foreign = trial.usurp();
    let mut pause = VVM.command(&[]);
    pause.args(["pause", "--storage", &trial.storage(), "--name", &trial.name(), "--wait", "no"]);
    let output = pause.env_remove("USER").output().unwrap();
    let (out, error) = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).into();
    assert_eq!(output.status.code(), Some(0), "{error}");
    assert!(error.contains("the slot count is not settled, so only slot 1 is checked"), "{error}");
    assert!(error.contains("a vvm_host::Host, and these ignore a pause"), "{error}");
    // Without USER, the name is that of the user database.
    let user = Command::new("id").arg("-un").output().unwrap().stdout;
    assert!(out.contains(&format!("paused by {}@", String::from_utf8(user).unwrap().trim())), "{out}");
    foreign.leave();
}

#[test]
fn name_is_paused_before_its_first_start() {
    let trial = VVM.trial();
    assert_eq!(trial.ask("init-storage", &[]).0, 0);
    trial.must("pause", &["--new", "--by", "alice"]);
    has!(trial.slots()[0], "state" == "free", "paused_by" == "alice");
    let late = trial.run(["echo", "works"]).with(["--acquire-timeout", "0"]).finish();
    assert_eq!((late.code(), late.stdout.len()), (75, 0));
    assert!(trial.must("resume", &[]).contains("resumed; had been paused by alice for "));
    trial.run(["true"]).finish().assert_code(0);
}

#[test]
fn impossible_pauses_are_refused() {
    let trial = VVM.trial();
    assert_eq!(trial.about("pause", &[]).0, 66);
    trial.run(["true"]).finish();
    let misspelt = trial.name().replace("payroll", "payrol");
    for command in ["pause", "resume"] {
        let (code, _, error) = trial.ask(command, &["--name", &misspelt]);
        assert_eq!(code, 66);
        assert!(error.contains(&format!("no candidate has ever campaigned for {misspelt} ")), "{error}");
        assert_eq!(error.contains("--new"), command == "pause", "{error}");
    }
    let (code, _, error) = trial.about("pause", &["--by", "alice", "--reason", &"x".repeat(250)]);
    assert_eq!(code, 64);
    assert!(error.contains("--reason: too long: at most 248 bytes beside alice"), "{error}");
    assert_eq!(trial.slots()[0]["paused_by"], Value::Null);
}

#[test]
fn killed_leader_counts_as_stopped_after_its_ttl() {
    let trial = VVM.trial();
    let leader = trial.run_forever().with(["--ttl", harness::SHORT_TTL, "--holder", "dead"]).up();
    leader.crash();
    leader.finish();
    trial.must("pause", &["--by", "alice"]);
    assert_eq!(trial.slots()[0]["holder"], "dead");
    trial.must("resume", &[]);
    assert_eq!(trial.run(["echo", "next"]).finish().stdout, ["next"]);
}
