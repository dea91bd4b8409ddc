//! `--log-format json`: each line is an object about a change of state. Renewals are not logged.

use crate::VVM;
use harness::{Finished, eventually};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::time::Duration;
use vvm_clock::SystemClock;

/// Parses each line as an object.
fn every_object(finished: &Finished) -> Vec<Value> {
    let parse = |line: &String| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
    finished.stderr.iter().map(parse).collect()
}

/// Parses each line, and leaves out trouble with the storage, which a busy machine may have at any time.
fn objects(finished: &Finished) -> Vec<Value> {
    let is_trouble = |object: &Value| {
        ["storage_trouble", "storage_works_again"].contains(&object["event"].as_str().unwrap_or_default())
    };
    every_object(finished).into_iter().filter(|object| !is_trouble(object)).collect()
}

fn events(objects: &[Value]) -> Vec<&str> {
    objects.iter().map(|object| object["event"].as_str().unwrap()).collect()
}

#[test]
fn each_change_of_state_is_one_object() {
    let trial = VVM.trial();
    let run = trial.run_script("echo up; sleep 60");
    let mut running =
        run.with(["--log-format", "json", "--holder", "first", "--ttl", harness::SHORT_TTL]).start();
    running.stdout.wait_for("up");
    // Several renewals, which are not logged.
    let began = SystemClock::read();
    eventually("a TTL has passed", || SystemClock::read().since(began) > Duration::from_secs(2));
    running.signal(Signal::TERM);
    let finished = running.finish();
    let objects = objects(&finished);
    assert_eq!(
        events(&objects),
        ["storage_opened", "campaigning", "starting", "leading", "stopping", "concluded"]
    );
    for object in &objects[1..] {
        assert_eq!((&object["name"], &object["holder"]), (&trial.name().into(), &"first".into()), "{object}");
        assert!(object["at"].as_str().unwrap().ends_with('Z') && object["level"] == "info", "{object}");
    }
    for object in &objects[2..] {
        assert_eq!((&object["slot"], object["epoch"].as_u64() > Some(1)), (&1.into(), true), "{object}");
    }
    assert_eq!((&objects[4]["why"], &objects[5]["outcome"]), (&"asked".into(), &"stopped".into()));
    let messages = objects.iter().map(|object| object["message"].as_str().unwrap()).collect::<Vec<_>>();
    let name = trial.name();
    assert_eq!(
        messages[3..5],
        [format!("{name} slot 1: leading"), format!("{name} slot 1: stopping: asked")]
    );
    assert!(messages[5].starts_with(&format!("{name} slot 1: stopped: the command ")), "{messages:?}");
    for place in [1, 3, 5] {
        assert_eq!(objects[place]["containment"], VVM.level().name(), "{}", objects[place]);
    }
}

#[test]
fn loss_and_storage_trouble_are_warnings_with_their_reason() {
    let trial = VVM.trial();
    let run =
        trial.run_script("echo up; sleep 60").with(["--log-format", "json", "--ttl", harness::SHORT_TTL]);
    let mut running = run.start();
    running.stdout.wait_for("up");
    let outage = trial.outage();
    running.wait();
    drop(outage);
    let objects = every_object(&running.finish());
    let find = |event: &str| objects.iter().find(|object| object["event"] == event).unwrap();
    assert_eq!(
        (&find("storage_trouble")["level"], &find("storage_trouble")["call"]),
        (&"warn".into(), &"write".into())
    );
    let stopping = find("stopping");
    assert_eq!((&stopping["level"], &stopping["loss"]), (&"warn".into(), &"storage_unreachable".into()));
    assert_eq!(find("concluded")["outcome"], "lost");
}

/// This includes lines of the guardian after the death of the host, and lines at level debug.
#[test]
fn every_line_is_an_object() {
    let trial = VVM.trial();
    let run =
        trial.run_script("echo up; sleep 60").with(["--log-format", "json", "--ttl", harness::SHORT_TTL]);
    let mut running = run.environment("VVM_LOG", "debug").start();
    running.stdout.wait_for("up");
    running.stderr.wait_for("\"event\":\"renewed\"");
    kill_process(running.host(), Signal::KILL).unwrap();
    let objects = objects(&running.finish());
    let last = objects.last().unwrap();
    assert_eq!((&last["event"], &last["by"]), (&"concluded".into(), &"guardian".into()), "{last}");
    assert_eq!((&last["outcome"], &last["slot"]), (&"host_died".into(), &1.into()), "{last}");
    assert!(
        last["epoch"].as_u64() > Some(1) && last["reason"].as_str().unwrap().contains("the host"),
        "{last}"
    );
}

#[test]
fn restarts_have_numbers_and_times() {
    let trial = VVM.trial();
    let options = ["--on-exit", "restart", "--restart-backoff", "20ms", "--restart-limit", "2"];
    let run = trial.run_script("exit 3").with(options).with(["--log-format", "json"]);
    let objects = objects(&run.finish());
    let expected = [
        "storage_opened",
        "campaigning",
        "starting",
        "leading",
        "restarting",
        "leading",
        "restarting",
        "leading",
        "stopping",
        "concluded",
    ];
    assert_eq!(events(&objects), expected);
    for (place, number) in [(4, 1), (6, 2)] {
        let object = &objects[place];
        assert_eq!((&object["restart"], &object["limit"]), (&number.into(), &2.into()), "{object}");
        assert_eq!((&object["slot"], &object["epoch"]), (&1.into(), &objects[3]["epoch"]), "{object}");
        assert_eq!(object["reason"], "the command exited with status 3");
        assert_eq!(object["in_ms"], 20 * number, "{object}");
    }
}

/// Both a leader that must stop and a waiting candidate log it.
#[test]
fn pause_and_step_down_name_the_operator_and_the_reason() {
    let trial = VVM.trial();
    let name = trial.name();
    let run = || {
        trial.run_script("echo up; exec sleep 60").with(["--log-format", "json", "--ttl", harness::SHORT_TTL])
    };
    let mut leader = run().with(["--holder", "first"]).start();
    leader.stdout.wait_for("up");
    let mut standby = run().with(["--holder", "second"]).start();
    standby.stderr.wait_for("campaigning");
    let asked = ["--name", &name, "--to", "second"];
    assert_eq!(trial.ask("step-down", &asked).0, 0);
    standby.stdout.wait_for("up");
    let paused = ["--name", &name, "--by", "the operator", "--reason", "a test"];
    assert_eq!(trial.ask("pause", &paused).0, 0);
    standby.stderr.wait_for("\"event\":\"paused\"");
    assert_eq!(trial.ask("resume", &["--name", &name]).0, 0);
    standby.stderr.wait_for("\"event\":\"resumed\"");
    for one in [&leader, &standby] {
        one.signal(Signal::TERM);
    }
    let [first, second] = [leader, standby].map(|one| objects(&one.finish()));
    for event in ["asked_to_give_up", "released"] {
        let of = |objects: &[Value]| objects.iter().find(|object| object["event"] == event).cloned().unwrap();
        let (first, second) = (of(&first), of(&second));
        assert_eq!(
            (&first["why"], &first["to"], &first["slot"]),
            (&"stepping_down".into(), &"second".into(), &1.into())
        );
        assert_eq!((&second["why"], &second["slot"]), (&"paused".into(), &1.into()), "{second}");
        assert_eq!(
            (&second["by"], &second["reason"]),
            (&"the operator".into(), &"paused by the operator: a test".into())
        );
        assert!(second["epoch"].as_u64() > first["epoch"].as_u64(), "{first} {second}");
    }
    let paused = second.iter().find(|object| object["event"] == "paused").unwrap();
    assert_eq!((&paused["by"], &paused["reason"]), (&"the operator".into(), &"a test".into()), "{paused}");
    assert_eq!((&paused["name"], &paused["level"]), (&name.as_str().into(), &"info".into()));
    for objects in [&first, &second] {
        assert!(objects.iter().all(|object| object["event"] != "message"), "{objects:#?}");
    }
}

/// The guardian is killed, or stopped.
#[test]
fn death_or_silence_of_the_guardian_is_logged_with_the_leadership() {
    let trial = VVM.trial();
    let run = || {
        trial.run_script("echo up; exec sleep 60").with(["--log-format", "json", "--ttl", harness::SHORT_TTL])
    };
    let mut running = run().start();
    running.stdout.wait_for("up");
    kill_process(running.guardian, Signal::KILL).unwrap();
    let died = objects(&running.finish());
    let [.., stopping, concluded] = &died[..] else { panic!("{died:#?}") };
    assert_eq!((&stopping["event"], &stopping["why"]), (&"stopping".into(), &"guardian_died".into()));
    assert_eq!(
        (&concluded["outcome"], &concluded["slot"]),
        (&"guardian_died".into(), &1.into()),
        "{concluded}"
    );

    let mut running = run().start();
    running.stdout.wait_for("up");
    running.signal(Signal::STOP);
    let objects = objects(&running.finish());
    let lapsed = objects.iter().find(|object| object["event"] == "guardian_lapsed").unwrap();
    assert_eq!((&lapsed["slot"], &lapsed["level"]), (&1.into(), &"warn".into()), "{lapsed}");
    assert_eq!(objects.last().unwrap()["outcome"], "deadline");
    let (_, history, _) = trial.ask("history", &["--name", &trial.name()]);
    let last = history.lines().last().unwrap();
    assert!(
        last.ends_with("  the guardian was stopped (by Ctrl-Z?) or hung until the kill deadline"),
        "{last}"
    );

    let mut running = trial.run_script("echo up; exec sleep 60").with(["--ttl", harness::SHORT_TTL]).start();
    running.stdout.wait_for("up");
    running.signal(Signal::STOP);
    let finished = running.finish();
    assert!(!finished.says("a second signal kills"), "{finished:#?}");
}
