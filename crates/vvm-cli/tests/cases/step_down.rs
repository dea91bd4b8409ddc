//! `vvm step-down`: the next leader, and refusals.

use crate::VVM;
use harness::{Running, Trial, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::process::Stdio;

const WORK: &str = "echo $VVM_LEADER_HOLDER works; exec sleep 1000";

/// Returns a leader whose command works.
fn leader(trial: &Trial, holder: &str) -> Running {
    let mut running = trial.run_script(WORK).with(["--holder", holder]).start();
    running.stdout.wait_for("works");
    running
}

/// Returns a standby.
fn standby(trial: &Trial, holder: &str) -> Running {
    trial.run_script(WORK).with(["--holder", holder]).waiting()
}

#[test]
fn named_standby_leads_next_among_several() {
    let trial = VVM.trial();
    let mut first = leader(&trial, "a");
    let mut others = ["b", "c", "d"].map(|holder| standby(&trial, holder));
    let epoch = trial.slots()[0]["epoch"].as_u64().unwrap();

    let out = trial.must("step-down", &["--to", "c"]);
    assert!(
        out.starts_with(&format!("{}: c leads slot 1 now, epoch ", trial.name()))
            && out.contains("after the release"),
        "{out}"
    );
    let found = trial.slots();
    assert_eq!(found[0]["holder"], "c");
    assert!(found[0]["epoch"].as_u64().unwrap() > epoch);
    assert!(out.contains(&found[0]["epoch"].to_string()), "{out}");
    // Nothing is left of the request.
    assert_eq!(found[0]["stepping_down"], Value::Null);
    assert_eq!(others[1].stdout.wait_for("works"), "c works");
    // The former leader is a candidate again.
    first.stderr.wait_for("stopping the work: asked to step down in favour of c");
    first.stderr.wait_for("released");
    first.stderr.wait_for("waiting for leadership");
    trial.must("step-down", &["--to", "a"]);
    assert_eq!(first.stdout.wait_for("works"), "a works");
    assert_eq!(first.stop().signal(), Signal::TERM.as_raw());
}

#[test]
fn command_is_stopped_by_term_before_the_slot_is_released() {
    let trial = VVM.trial();
    let script = "trap 'echo told; until test -e go; do sleep 0.01; done; echo tidied; exit 3' TERM; echo \
        up; while :; do sleep 0.01; done";
    let script = format!("cd {}; {script}", trial.folder().display());
    let mut first = trial.run_script(&script).with(["--holder", "a", "--stop-timeout", "60s"]).up();
    let mut second = standby(&trial, "b");
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| trial.about("step-down", &["--to", "b"]));
        first.stdout.wait_for("told");
        let found = trial.slots();
        assert_eq!(
            (&found[0]["holder"], &found[0]["stepping_down"]["stage"]),
            (&"a".into(), &"begun".into())
        );
        let (_, table, _) = trial.status(&[]);
        assert!(table.contains("slot 1 is to step down, in favour of b: begun"), "{table}");
        std::fs::write(trial.folder().join("go"), "").unwrap();
        let (code, out, error) = asked.join().unwrap();
        assert_eq!(code, 0, "{out}{error}");
    });
    first.stdout.wait_for("tidied");
    second.stdout.wait_for("b works");
}

#[test]
fn leader_is_left_alone_if_no_standby_answers() {
    for (standbys, arguments, why) in
        [(&[][..], &[][..], "no standby answered"), (&["b"], &["--to", "c"], "standby c did not answer")]
    {
        let trial = VVM.trial();
        let _leader = leader(&trial, "a");
        let _others = standbys.iter().map(|holder| standby(&trial, holder)).collect::<Vec<_>>();
        let before = (trial.slots(), trial.process("sleep 1000"));
        let (code, out, error) = trial.about("step-down", arguments);
        assert_eq!((code, out.as_str()), (75, ""), "{error}");
        assert!(error.contains(why) && error.contains("a leads on"), "{error}");
        let says_standby = error.contains("for standby c to accept. It has not led this slot yet, as a did");
        assert_eq!(says_standby, !arguments.is_empty(), "{error}");
        assert_eq!((trial.slots(), trial.process("sleep 1000")), before);
    }
}

#[test]
fn interrupted_request_is_withdrawn() {
    let trial = VVM.trial();
    let _leader = leader(&trial, "a");
    let before = trial.slots();
    let mut asking = VVM.command(&[]);
    asking.args(["step-down", "--storage", &trial.storage(), "--name", &trial.name(), "--to", "later"]);
    let asking = asking.stderr(Stdio::piped()).spawn().unwrap();
    eventually("it is asked for", || trial.slots()[0]["stepping_down"]["to"] == "later");
    kill_process(Pid::from_child(&asking), Signal::INT).unwrap();
    let output = asking.wait_with_output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(75), "{error}");
    assert!(error.contains("withdrawn, so nothing was changed: a leads on"), "{error}");
    assert_eq!(trial.slots(), before);
}

#[test]
fn impossible_requests_are_refused_at_once() {
    let trial = VVM.trial();
    let refused = |arguments: &[&str], status, hint: &str| {
        let (code, out, error) = trial.about("step-down", arguments);
        assert_eq!((code, out.as_str()), (status, ""), "{arguments:?}: {error}");
        assert!(error.contains(hint), "{arguments:?}: {error}");
    };
    let name = trial.name();
    refused(&[], 66, trial.said_before_the_first());
    trial.run(["true"]).with(["--slots", "2"]).finish();
    refused(&["--slot", "2"], 75, &format!("no process leads {name} slot 2"));
    refused(&[], 64, &format!("{name} has 2 slots: name one with --slot N"));
    refused(&["--slot", "3"], 64, &format!("--slot 3: {name} has 2"));
    let misspelt = name.replace("payroll", "payrol");
    let (code, _, error) = trial.ask("step-down", &["--name", &misspelt]);
    assert_eq!(code, 66);
    assert!(error.contains(&format!("no candidate has ever campaigned for {misspelt} ")), "{error}");

    let lead = |holder| {
        let mut running = trial.run_script(WORK).with(["--holder", holder, "--slots", "2"]).start();
        running.stdout.wait_for("works");
        running
    };
    let _both = [lead("a"), lead("d")];
    let slot_of =
        |holder| trial.slots().into_iter().find(|slot| slot["holder"] == holder).unwrap()["slot"].to_string();
    let (a, d) = (slot_of("a"), slot_of("d"));
    refused(&["--slot", &a, "--to", "a"], 75, &format!("a leads {name} slot {a}"));
    refused(&["--slot", &a, "--to", "d"], 75, &format!("d leads {name} slot {d}: name a standby"));
}

/// The test itself leads, as a program without a host.
#[test]
fn leader_that_ignores_requests_is_left_alone() {
    let trial = VVM.trial();
    let foreign = trial.usurp();
    let before = trial.slots();
    assert_eq!(before[0]["holder"], "usurper");
    let _standby = standby(&trial, "b");
    let (code, _, error) = trial.about("step-down", &[]);
    assert_eq!(code, 75, "{error}");
    assert!(error.contains("usurper did not answer"), "{error}");
    // Nothing is left of the request.
    assert_eq!(trial.slots(), before);
    assert_eq!(before[0]["stepping_down"], Value::Null);
    foreign.leave();
}

#[test]
fn request_that_times_out_has_status_76_and_the_leader_continues_to_stop() {
    let trial = VVM.trial();
    let script = format!(
        "cd {}; trap '' TERM; echo up; until test -e go; do sleep 0.01; done",
        trial.folder().display()
    );
    let mut leader = trial.run_script(&script).with(["--holder", "a", "--stop-timeout", "60s"]).up();
    let _standby = standby(&trial, "b");
    let (code, out, error) = trial.about("step-down", &["--timeout", "3s"]);
    assert_eq!((code, out.as_str()), (76, ""), "{error}");
    assert!(error.contains("a still stops its work"), "{error}");
    std::fs::write(trial.folder().join("go"), "").unwrap();
    leader.stderr.wait_for("released");
    leader.stop();
}
