use crate::VVM;
use harness::{Running, Trial, eventually, has};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{fs, process::Stdio, thread};

fn leader(trial: &Trial, holder: &str) -> Running {
    let mut running = candidate(trial, holder).start();
    running.stdout.wait_for("works");
    running
}

fn candidate(trial: &Trial, holder: &str) -> harness::Run {
    trial.run_script("echo $VVM_LEADER_HOLDER works; exec sleep 1000").with(["--holder", holder])
}

/// A leader `a` whose command ends when [`open_gate`] lets it, after this trap.
fn slow_leader(trial: &Trial, trap: &str) -> Running {
    let script =
        format!("cd {}; {trap}; echo up; until test -e go; do sleep 0.01; done", trial.folder().display());
    trial.run_script(&script).with(["--holder", "a", "--stop-timeout", "60s"]).up()
}

fn open_gate(trial: &Trial) {
    fs::write(trial.folder().join("go"), "").unwrap();
}

#[test]
fn named_standby_leads_next_among_several() {
    let trial = VVM.trial();
    let mut first = leader(&trial, "a");
    let mut others = ["b", "c", "d"].map(|holder| candidate(&trial, holder).waiting());
    let epoch = trial.slots()[0]["epoch"].as_u64().unwrap();

    let out = trial.must("step-down", &["--to", "c"]);
    assert!(out.starts_with(&format!("{}: c leads slot 1 now, epoch ", trial.name())), "{out}");
    assert!(out.contains("after the release"), "{out}");
    let found = trial.slots();
    assert_eq!(found[0]["holder"], "c");
    assert!(found[0]["epoch"].as_u64().unwrap() > epoch);
    assert!(out.contains(&found[0]["epoch"].to_string()), "{out}");
    assert_eq!(found[0]["stepping_down"], Value::Null);
    assert_eq!(others[1].stdout.wait_for("works"), "c works");
    first.stderr.wait_for("stopping the work: asked to step down in favour of c");
    first.stderr.wait_for("released");
    first.stderr.wait_for("waiting for leadership");
    trial.must("step-down", &["--to", "a"]);
    assert_eq!(first.stdout.wait_for("works"), "a works");
}

#[test]
fn command_is_stopped_by_term_before_the_slot_is_released() {
    let trial = VVM.trial();
    let on_term = "trap 'echo told; until test -e go; do sleep 0.01; done; echo tidied; exit 3' TERM";
    let mut first = slow_leader(&trial, on_term);
    let mut second = candidate(&trial, "b").waiting();
    thread::scope(|scope| {
        let asked = scope.spawn(|| trial.must("step-down", &["--to", "b"]));
        first.stdout.wait_for("told");
        let found = trial.slots();
        assert_eq!(found[0]["holder"], "a");
        assert_eq!(found[0]["stepping_down"]["stage"], "begun");
        let (_, table, _) = trial.status(&[]);
        assert!(table.contains("slot 1 is to step down, in favour of b: begun"), "{table}");
        open_gate(&trial);
        asked.join().unwrap();
    });
    first.stdout.wait_for("tidied");
    second.stdout.wait_for("b works");
}

/// Each waits for 10 s. In the last one the test itself leads, as a program without a host.
#[test]
fn leader_is_left_alone_if_no_standby_or_leader_answers() {
    let request = |holder: &str, standbys: &[&str], arguments: &[&str], hints: &[&str]| {
        let trial = VVM.trial();
        let foreign = (holder == "usurper").then(|| trial.usurp());
        let _leader = foreign.is_none().then(|| leader(&trial, holder));
        let _others = standbys.iter().map(|holder| candidate(&trial, holder).waiting()).collect::<Vec<_>>();
        let before = (trial.slots(), trial.processes().of("sleep 1000"));
        assert_eq!(before.0[0]["holder"], holder);
        let (code, out, error) = trial.about("step-down", arguments);
        assert_eq!((code, out.as_str()), (75, ""), "{error}");
        assert!(hints.iter().all(|hint| error.contains(hint)), "{hints:?}: {error}");
        assert_eq!((trial.slots(), trial.processes().of("sleep 1000")), before);
        assert_eq!(before.0[0]["stepping_down"], Value::Null);
        if let Some(foreign) = foreign {
            foreign.leave();
        }
    };
    let not_yet = "for standby c to accept. It is not among the last leaders of this slot: a";
    thread::scope(|scope| {
        scope.spawn(|| request("a", &[], &[], &["no standby answered", "a leads on"]));
        scope.spawn(|| {
            request("a", &["b"], &["--to", "c"], &["standby c did not answer", "a leads on", not_yet]);
        });
        scope.spawn(|| request("usurper", &["b"], &[], &["usurper did not answer"]));
    });
}

#[test]
fn timeout_that_leaves_no_time_for_an_answer_is_named_and_not_the_leader() {
    let trial = VVM.trial();
    let _leader = leader(&trial, "a");
    let (code, _, error) = trial.about("step-down", &["--to", "later", "--timeout", "0"]);
    assert!(code == 75 && error.contains("nothing was changed: a leads on"), "{code}: {error}");
    assert!(error.contains("choose a longer --timeout") && !error.contains("hangs"), "{error}");
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

    let _both = ["a", "d"].map(|holder| {
        let mut running = candidate(&trial, holder).with(["--slots", "2"]).start();
        running.stdout.wait_for("works");
        running
    });
    let slot_of =
        |holder| trial.slots().into_iter().find(|slot| slot["holder"] == holder).unwrap()["slot"].to_string();
    let (a, d) = (slot_of("a"), slot_of("d"));
    refused(&["--slot", &a, "--to", "a"], 75, &format!("a leads {name} slot {a}"));
    refused(&["--slot", &a, "--to", "d"], 75, &format!("d leads {name} slot {d}: name a standby"));
}

#[test]
fn request_that_times_out_has_status_76_and_the_leader_continues_to_stop() {
    let trial = VVM.trial();
    let mut leader = slow_leader(&trial, "trap '' TERM");
    let _standby = candidate(&trial, "b").waiting();
    let (code, out, error) = trial.about("step-down", &["--to", "b", "--timeout", "3s"]);
    assert_eq!((code, out.as_str()), (76, ""), "{error}");
    assert!(error.contains("a still stops its work"), "{error}");
    has!(trial.slots()[0]["stepping_down"], "to" == "b", "stage" == "begun");
    let (code, out, error) = trial.about("pause", &["--wait", "300ms"]);
    assert_eq!(code, 76, "{out}{error}");
    assert!(error.contains("a leads slot 1 (epoch ") && error.contains("The pause stands"), "{error}");
    assert!(error.contains("ignores a pause"), "{error}");
    open_gate(&trial);
    leader.stderr.wait_for("released");
    trial.must("pause", &[]);
}
