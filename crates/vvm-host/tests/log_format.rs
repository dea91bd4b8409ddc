//! `--log-format json`: one object a line, one for each change of state, and none for each renewal.
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

mod harness;

use clock::SystemClock;
use harness::{Finished, Trial, eventually};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::time::Duration;

/// Each line, which must be an object.
fn objects(finished: &Finished) -> Vec<Value> {
    let parse = |line: &String| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
    finished.stderr.iter().map(parse).collect()
}

fn events(objects: &[Value]) -> Vec<&str> {
    objects.iter().map(|object| object["event"].as_str().unwrap()).collect()
}

#[test]
fn a_life_is_an_object_for_each_change() {
    let trial = Trial::new();
    let run = trial.run_script("echo up; sleep 60");
    let mut running = run.with(["--log-format", "json", "--holder", "first", "--ttl", "2s"]).start();
    running.stdout.wait_for("up");
    // Several renewals, which nobody is to hear of.
    let began = SystemClock::read();
    eventually("a TTL has passed", || SystemClock::read().since(began) > Duration::from_secs(2));
    running.signal(Signal::TERM);
    let finished = running.finish();
    let objects = objects(&finished);
    assert_eq!(events(&objects), ["campaigning", "starting", "leading", "stopping", "concluded"]);
    for object in &objects {
        assert_eq!((&object["name"], &object["holder"]), (&"payroll".into(), &"first".into()), "{object}");
        assert!(object["at"].as_str().unwrap().ends_with('Z') && object["level"] == "info", "{object}");
    }
    for object in &objects[1..] {
        assert_eq!((&object["slot"], object["epoch"].as_u64() > Some(1)), (&1.into(), true), "{object}");
    }
    assert_eq!((&objects[3]["why"], &objects[4]["outcome"]), (&"asked".into(), &"stopped".into()));
}

#[test]
fn a_loss_is_a_warning_with_its_reason_and_so_is_trouble() {
    let trial = Trial::new();
    let run = trial.run_script("echo up; sleep 60").with(["--log-format", "json", "--ttl", "2s"]);
    let mut running = run.start();
    running.stdout.wait_for("up");
    let lock = trial.lock_storage();
    running.wait();
    drop(lock);
    let objects = objects(&running.finish());
    let find = |event: &str| objects.iter().find(|object| object["event"] == event).unwrap();
    assert_eq!(
        (&find("storage_trouble")["level"], &find("storage_trouble")["call"]),
        (&"warn".into(), &"write".into())
    );
    let stopping = find("stopping");
    assert_eq!((&stopping["level"], &stopping["loss"]), (&"warn".into(), &"storage_unreachable".into()));
    assert_eq!(find("concluded")["outcome"], "lost");
}

/// What the guardian says when the host says nothing any more is an object, too; and so is what only debugging asks for.
#[test]
fn every_line_is_an_object() {
    let trial = Trial::new();
    let run = trial.run_script("echo up; sleep 60").with(["--log-format", "json", "--ttl", "2s"]);
    let mut running = run.environment("VVM_LOG", "debug").start();
    running.stdout.wait_for("up");
    running.stderr.wait_for("\"event\":\"renewed\"");
    kill_process(running.host(), Signal::KILL).unwrap();
    let objects = objects(&running.finish());
    let last = objects.last().unwrap();
    assert_eq!(last["event"], "message");
    assert!(last["message"].as_str().unwrap().contains("the host"), "{last}");
}
