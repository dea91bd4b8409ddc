//! `--log-format json`: each line is an object about a change of state. Renewals are not logged.

use crate::VVM;
use harness::{Finished, Run, SHORT_TTL, Trial, eventually, has};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::time::Duration;
use vvm_clock::SystemClock;

fn every_object(finished: &Finished) -> Vec<Value> {
    let parse = |line: &String| {
        let object: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
        let at = object["at"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        assert_eq!(object["unix_ms"], at.as_millisecond(), "{line}");
        object
    };
    finished.stderr.iter().map(parse).collect()
}

/// Parses each line, and leaves out trouble with the storage, which a busy machine may have at any time.
fn objects(finished: &Finished) -> Vec<Value> {
    let is_trouble = |object: &Value| {
        ["storage_trouble", "storage_works_again"].contains(&object["event"].as_str().unwrap_or_default())
    };
    every_object(finished).into_iter().filter(|object| !is_trouble(object)).collect()
}

fn events(objects: &[Value]) -> String {
    let events = objects.iter().map(|object| object["event"].as_str().unwrap());
    events.collect::<Vec<_>>().join(" ")
}

fn find<'objects>(objects: &'objects [Value], event: &str) -> &'objects Value {
    objects.iter().find(|object| object["event"] == event).unwrap()
}

fn run(trial: &Trial) -> Run {
    trial.run_forever().with(["--log-format", "json", "--ttl", SHORT_TTL])
}

#[test]
fn each_change_of_state_is_one_object() {
    let trial = VVM.trial();
    let running = run(&trial).with(["--holder", "first"]).up();
    let standby = trial.run(["true"]).with(["--try", "--log-format", "json"]).finish();
    let began = SystemClock::read();
    eventually("half a TTL has passed", || SystemClock::read().since(began) > Duration::from_secs(2));
    let objects = objects(&running.stop());
    assert_eq!(events(&objects), "storage_opened campaigning starting leading stopping concluded");
    let name = trial.name();
    for object in &objects[1..] {
        has!(object, "name" == name, "holder" == "first", "level" == "info");
        assert!(object["at"].as_str().unwrap().ends_with('Z'), "{object}");
    }
    for object in &objects[2..] {
        assert_eq!((&object["slot"], object["epoch"].as_u64() > Some(1)), (&1.into(), true), "{object}");
    }
    has!(objects[3], "message" == format!("{name} slot 1: leading"));
    has!(objects[4], "why" == "asked", "message" == format!("{name} slot 1: stopping: asked"));
    let message = objects[5]["message"].as_str().unwrap();
    assert!(message.starts_with(&format!("{name} slot 1: stopped: the command ")), "{message}");
    has!(objects[5], "outcome" == "stopped");
    for place in [1, 3, 5] {
        has!(objects[place], "containment" == VVM.level().name());
    }
    let opened: Value = serde_json::from_str(&standby.stderr[0]).unwrap();
    has!(opened, "event" == "storage_opened", "provenance" == "existing", "leader" == "first");
    has!(opened, "ttl_ms" == 20_000, "held" == 1, "slot" == 1, "epoch" == objects[3]["epoch"]);
    let path = trial.folder().join("leader.db").display().to_string();
    assert!(opened["storage"] == path && opened["file_system"].is_string(), "{opened}");
}

/// The command may end before the host hears of the request that ended it, too.
#[test]
fn stop_request_on_its_way_at_the_end_of_the_command_is_the_reason_in_the_end() {
    // A machine that is late delivers the request when the end counts as the command's own.
    for _ in 0..20 {
        let trial = VVM.trial();
        let script =
            format!("cd {}; echo up; until test -e go; do sleep 0.01; done", trial.folder().display());
        let mut running = trial.run_script(&script).with(["--log-format", "json"]).up();
        // The release waits for the storage.
        let outage = trial.outage();
        std::fs::write(trial.folder().join("go"), "").unwrap();
        running.stderr.wait_for("\"why\":\"work_ended\"");
        running.signal(Signal::TERM);
        drop(outage);
        let objects = objects(&running.finish());
        let [.., stopping, concluded] = &objects[..] else { panic!("{objects:#?}") };
        has!(stopping, "event" == "stopping");
        if concluded["outcome"] == "stopped" {
            has!(stopping, "why" == "asked");
            return;
        }
        assert_eq!((&concluded["outcome"], &stopping["why"]), (&"worker_ended".into(), &"work_ended".into()));
    }
    panic!("no request came in time");
}

#[test]
fn loss_and_storage_trouble_are_warnings_with_their_reason() {
    let trial = VVM.trial();
    let running = run(&trial).up();
    let outage = trial.outage();
    running.wait();
    drop(outage);
    let objects = every_object(&running.finish());
    has!(find(&objects, "storage_trouble"), "level" == "warn", "call" == "write");
    has!(find(&objects, "stopping"), "level" == "warn", "loss" == "storage_unreachable");
    has!(find(&objects, "concluded"), "outcome" == "lost");
}

/// This includes lines of the guardian after the death of the host, and lines at level debug.
#[test]
fn every_line_is_an_object() {
    let trial = VVM.trial();
    let mut running = run(&trial).environment("VVM_LOG", "debug").up();
    running.stderr.wait_for("\"event\":\"renewed\"");
    kill_process(running.host(), Signal::KILL).unwrap();
    let objects = objects(&running.finish());
    let last = objects.last().unwrap();
    has!(last, "event" == "concluded", "by" == "guardian");
    has!(last, "outcome" == "host_died", "slot" == 1);
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
    let expected = "storage_opened campaigning starting leading restarting leading restarting leading stopping \
                    concluded";
    assert_eq!(events(&objects), expected);
    for (place, number) in [(4, 1), (6, 2)] {
        let object = &objects[place];
        has!(object, "restart" == number, "limit" == 2, "in_ms" == 20 * number);
        has!(object, "slot" == 1, "epoch" == objects[3]["epoch"]);
        has!(object, "reason" == "the command exited with status 3");
    }
}

#[test]
fn pause_and_step_down_name_the_operator_and_the_reason() {
    let trial = VVM.trial();
    let leader = run(&trial).with(["--holder", "first"]).up();
    let mut standby = run(&trial).with(["--holder", "second"]).start();
    standby.stderr.wait_for("campaigning");
    trial.must("step-down", &["--to", "second"]);
    standby.stdout.wait_for("up");
    trial.must("pause", &["--by", "the operator", "--reason", "a test"]);
    standby.stderr.wait_for("\"event\":\"paused\"");
    trial.must("resume", &[]);
    standby.stderr.wait_for("\"event\":\"resumed\"");
    for one in [&leader, &standby] {
        one.signal(Signal::TERM);
    }
    let [first, second] = [leader, standby].map(|one| objects(&one.finish()));
    for event in ["asked_to_give_up", "released"] {
        let (first, second) = (find(&first, event), find(&second, event));
        has!(first, "why" == "stepping_down", "to" == "second", "slot" == 1);
        has!(second, "why" == "paused", "slot" == 1);
        has!(second, "by" == "the operator", "reason" == "paused by the operator: a test");
        assert!(second["epoch"].as_u64() > first["epoch"].as_u64(), "{first} {second}");
    }
    let paused = find(&second, "paused");
    has!(paused, "by" == "the operator", "reason" == "a test", "level" == "info", "name" == trial.name());
    for objects in [&first, &second] {
        assert!(objects.iter().all(|object| object["event"] != "message"), "{objects:#?}");
    }
}

#[test]
fn death_or_silence_of_the_guardian_is_logged_with_the_leadership() {
    let trial = VVM.trial();
    let running = run(&trial).up();
    kill_process(running.guardian, Signal::KILL).unwrap();
    let died = objects(&running.finish());
    let [.., stopping, concluded] = &died[..] else { panic!("{died:#?}") };
    has!(stopping, "event" == "stopping", "why" == "guardian_died");
    has!(concluded, "outcome" == "guardian_died", "slot" == 1);

    let running = run(&trial).up();
    running.signal(Signal::STOP);
    let finished = running.finish();
    assert!(!finished.says("a second signal kills"), "{:#?}", finished.stderr);
    let objects = objects(&finished);
    has!(find(&objects, "guardian_lapsed"), "slot" == 1, "level" == "warn");
    has!(objects.last().unwrap(), "outcome" == "deadline");
    let history = trial.must("history", &[]);
    let reason = "  the guardian was stopped (by Ctrl-Z?) or hung until the kill deadline";
    assert!(history.lines().last().unwrap().ends_with(reason), "{history}");
}
