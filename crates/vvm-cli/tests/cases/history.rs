//! `vvm history`: past leaderships and their ends, recorded or not.

use crate::VVM;
use harness::{Trial, eventually};
use serde_json::Value;

fn history(trial: &Trial) -> Vec<Value> {
    let (code, out, error) = trial.ask("history", &["--name", &trial.name(), "--json"]);
    assert_eq!(code, 0, "{error}");
    serde_json::from_str(&out).unwrap()
}

#[test]
fn each_leadership_is_listed_with_its_end_which_the_next_leader_records_after_a_crash() {
    let trial = VVM.trial();
    assert_eq!(trial.ask("history", &["--name", &trial.name()]).0, 66);
    assert_eq!(trial.run_script("exit 3").with(["--holder", "a"]).finish().code(), 3);
    let mut killed = trial
        .run_script("echo up; exec sleep 1000")
        .with(["--holder", "b", "--ttl", harness::SHORT_TTL])
        .start();
    killed.stdout.wait_for("up");
    eventually("the start is noted", || history(&trial).len() == 2);
    let found = history(&trial);
    assert_eq!(
        (&found[1]["holder"], &found[1]["ended_ms"], &found[1]["end"]),
        (&"b".into(), &Value::Null, &Value::Null)
    );
    killed.crash();
    killed.finish();
    let mut last = trial.run_script("echo up; exec sleep 1000").with(["--holder", "c"]).start();
    last.stdout.wait_for("up");
    let (code, _, error) = trial.ask("pause", &["--name", &trial.name(), "--by", "alice"]);
    assert_eq!(code, 0, "{error}");

    let found = history(&trial);
    let column = |name: &str| found.iter().map(|reign| reign[name].clone()).collect::<Vec<_>>();
    assert_eq!(column("holder"), ["a", "b", "c"]);
    let ends = ["the command exited with status 3", "ended without a word; followed by c", "paused by alice"];
    assert_eq!(column("end"), ends);
    let epochs = column("epoch").iter().map(|epoch| epoch.as_u64().unwrap()).collect::<Vec<_>>();
    assert!(epochs.is_sorted_by(|one, next| one < next), "{epochs:?}");
    let (_, out, _) = trial.status(&["--name", &trial.name(), "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()[0]["epoch"], epochs[2]);
    for reign in &found {
        assert!(reign["started_ms"].as_u64().unwrap() > 0, "{reign}");
        assert!(reign["ended_ms"].as_u64().is_some() && reign["slot"] == 1, "{reign}");
    }

    let (_, table, _) = trial.ask("history", &["--name", &trial.name(), "--slot", "1"]);
    assert_eq!(table.lines().count(), 4, "{table}");
    assert!(table.lines().nth(3).unwrap().contains("c                         paused by alice"), "{table}");
    assert_eq!(trial.ask("history", &["--name", &trial.name(), "--slot", "2"]).0, 64);
    // The history is not shown as an instance of a service.
    let (_, out, _) = trial.status(&["--name", &trial.name(), "--json", "--instances"]);
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()[0]["instances"], Value::Array(Vec::new()));
}

/// The test itself leads next, as a program without a host.
#[test]
fn leadership_without_recorded_end_ends_when_a_later_one_shows() {
    let trial = VVM.trial();
    let mut killed = trial.run_script("echo up; exec sleep 1000").start();
    killed.stdout.wait_for("up");
    eventually("the start is noted", || history(&trial).len() == 1);
    assert_eq!(history(&trial)[0]["end"], Value::Null);
    killed.crash();
    killed.finish();
    let next = trial.usurp();
    let epoch = &trial.slots()[0]["epoch"];
    assert_eq!(history(&trial)[0]["end"], format!("no end was recorded; followed by epoch {epoch}"));
    next.leave();
}

#[test]
fn name_led_without_a_host_has_no_history_and_the_command_gives_the_reason() {
    let trial = VVM.trial();
    let foreign = trial.usurp();
    let (code, out, error) = trial.ask("history", &["--name", &trial.name()]);
    assert_eq!((code, out.lines().count()), (0, 1), "{error}");
    assert!(error.contains("programs that lead without vvm or a vvm_host::Host write none"), "{error}");
    foreign.leave();
}
