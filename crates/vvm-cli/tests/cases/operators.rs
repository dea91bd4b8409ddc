//! Properties of all operator commands: settings from a file, refusals, dry runs.

use crate::VVM;
use harness::{Lines, Trial, eventually};
use rustix::process::Signal;
use serde_json::Value;
use std::process::{Command, Stdio};

/// Returns a `vvm` with storage and name from a file alone.
fn by_file(trial: &Trial, command: &str, options: &[&str]) -> Command {
    let path = trial.folder().join("vvm.toml");
    let settings = format!("storage = {:?}\nname = {:?}\n", trial.storage(), trial.name());
    std::fs::write(&path, settings).unwrap();
    let mut vvm = VVM.command(&[]);
    vvm.args([command, "--config"]).arg(path).args(options).env("TRIAL", trial.mark()).stdin(Stdio::null());
    vvm
}

fn ask(trial: &Trial, command: &str, options: &[&str]) -> (Option<i32>, String) {
    let output = by_file(trial, command, options).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout) + &text(output.stderr))
}

#[test]
fn each_command_takes_its_settings_from_a_file() {
    let trial = VVM.trial();
    let made = ask(&trial, "init-storage", &[]);
    assert_eq!(made.0, Some(0), "{}", made.1);
    let mut leader = by_file(&trial, "run", &["--holder", "led by file", "--", "sleep", "1000"]);
    let mut leader = leader.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = Lines::of("stderr", leader.stderr.take().unwrap());
    lines.wait_for("leading, epoch");
    // No event waits for the start to be in the history.
    eventually("the history", || ask(&trial, "history", &[]).1.contains("led by file"));
    for (command, options, code, said) in [
        ("status", &[][..], 0, "led by file"),
        ("status", &["--json", "--instances"], 0, "\"instances\""),
        ("history", &["--slot", "1"], 0, "led by file"),
        ("doctor", &["--ttl", "1m", "--json"], 0, "\"findings\""),
        ("step-down", &["--to", "elsewhere"], 75, "standby elsewhere did not answer"),
        ("pause", &["--by", "alice", "--reason", "a test"], 0, "paused by alice: a test"),
        ("resume", &[], 0, "had been paused by alice: a test"),
    ] {
        let (status, out) = ask(&trial, command, options);
        assert_eq!(status, Some(code), "{command}: {out}");
        assert!(out.contains(said), "{command}: {said:?} is not in {out}");
    }
    lines.wait_for("resumed");
    let mut watching = by_file(&trial, "watch", &["--interval", "100ms", "--json"]);
    let mut watching = watching.stdout(Stdio::piped()).spawn().unwrap();
    Lines::of("vvm watch", watching.stdout.take().unwrap()).wait_for("led by file");
    watching.kill().unwrap();
    watching.wait().unwrap();

    let elect = [
        "--on-lead",
        "echo lead $VVM_LEADER_HOLDER",
        "--on-loss",
        "echo loss",
        "--holder",
        "elected by file",
    ];
    let mut elect = by_file(&trial, "elect", &elect);
    let mut elect = elect.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut hooks = Lines::of("stdout", elect.stdout.take().unwrap());
    let stop = |child: &std::process::Child| {
        rustix::process::kill_process(rustix::process::Pid::from_child(child), Signal::TERM).unwrap();
    };
    stop(&leader);
    leader.wait().unwrap();
    hooks.wait_for("lead elected by file");
    stop(&elect);
    hooks.wait_for("loss");
    assert_eq!(elect.wait().unwrap().code(), Some(0));
}

#[test]
fn step_down_that_times_out_has_status_76_and_the_leader_continues_to_stop() {
    let trial = VVM.trial();
    let script = format!(
        "cd {}; trap '' TERM; echo up; until test -e go; do sleep 0.01; done",
        trial.folder().display()
    );
    let mut leader = trial.run_script(&script).with(["--holder", "a", "--stop-timeout", "60s"]).start();
    leader.stdout.wait_for("up");
    let mut standby = trial.run(["true"]).start();
    standby.stderr.wait_for("waiting for leadership");
    let (code, out, error) = trial.ask("step-down", &["--name", &trial.name(), "--timeout", "3s"]);
    assert_eq!((code, out.as_str()), (76, ""), "{error}");
    assert!(error.contains("a still stops its work"), "{error}");
    std::fs::write(trial.folder().join("go"), "").unwrap();
    leader.stderr.wait_for("released");
    leader.signal(Signal::TERM);
    leader.finish();
}

#[test]
fn elect_leads_one_of_several_slots() {
    let trial = VVM.trial();
    let (storage, name) = (trial.storage(), trial.name());
    let elect = |holder: &str| {
        let options = ["--slots", "2", "--ttl", "30s", "--holder", holder];
        let hooks = ["--on-lead", "echo lead $VVM_LEADER_SLOT", "--on-loss", "true", "--hook-timeout", "5s"];
        let mut elect = VVM.command(&[]);
        elect.args(["elect", "--storage", &storage, "--name", &name]).args(options).args(hooks);
        elect.env("TRIAL", trial.mark()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut elect = elect.stderr(Stdio::null()).spawn().unwrap();
        let mut hooks = Lines::of("stdout", elect.stdout.take().unwrap());
        let slot = hooks.wait_for("lead");
        (elect, slot)
    };
    let both = [elect("first"), elect("second")];
    let mut slots = both.iter().map(|(_, slot)| slot.as_str()).collect::<Vec<_>>();
    slots.sort();
    assert_eq!(slots, ["lead 1", "lead 2"]);
    let (_, out, _) = trial.status(&["--name", &name, "--json"]);
    let found: Vec<Value> = serde_json::from_str(&out).unwrap();
    let mut holders = found.iter().map(|slot| slot["holder"].as_str().unwrap()).collect::<Vec<_>>();
    holders.sort();
    assert_eq!(holders, ["first", "second"]);
    assert!(found.iter().all(|slot| slot["ttl_ms"] == 30_000), "{out}");
    for (mut elect, _) in both {
        rustix::process::kill_process(rustix::process::Pid::from_child(&elect), Signal::TERM).unwrap();
        assert_eq!(elect.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn elect_is_refused_with_the_cause_and_its_status() {
    let trial = VVM.trial();
    trial.run(["true"]).with(["--slots", "2"]).finish();
    let (missing, hint) = trial.storage_that_was_never_made();
    let (storage, name) = (trial.storage(), trial.name());
    for (files, storage, options, code, said) in [
        ("64", &storage, &["--slots", "2", "--ttl", "20"][..], 64, "Write 20s"),
        ("64", &storage, &["--slots", "2", "--ttl", "100ms"], 64, trial.shortest_ttl()),
        ("64", &missing, &[], 69, hint),
        ("4", &storage, &["--slots", "2"], 71, "ulimit -n"),
        ("64", &storage, &["--slots", "3"], 78, "has 2 slots in this storage, not 3"),
    ] {
        let limited = format!("ulimit -n {files}; exec \"$@\"");
        let mut elect = Command::new("sh");
        elect.args(["-c", &limited, "sh", VVM.path(), "elect"]).env("TRIAL", trial.mark());
        elect.args(["--storage", storage, "--name", &name, "--on-lead", "echo lead", "--on-loss", "true"]);
        let output = elect.args(options).stdin(Stdio::null()).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout), (Some(code), Vec::new()), "{options:?}: {error}");
        assert!(error.contains(said), "{options:?}: {error}");
    }
}

/// Only credentials of the storage in use are removed.
#[test]
fn storage_credentials_are_removed_from_the_command_without_keep_credentials() {
    let trial = VVM.trial();
    let script = "echo ${AWS_ACCESS_KEY_ID-none} ${VVM_STORAGE_PASSWORD-none}";
    let seen = |options: &[&str]| {
        let run = trial.run_script(script).with(options.iter().copied());
        run.environment("VVM_STORAGE_PASSWORD", "secret").environment("AWS_ACCESS_KEY_ID", "local").finish()
    };
    let is_of_aws = ["dynamodb:", "s3:"].iter().any(|scheme| trial.storage().starts_with(scheme));
    let without = if is_of_aws { "none none" } else { "local none" };
    assert_eq!(seen(&[]).stdout, [without]);
    assert_eq!(seen(&["--keep-credentials"]).stdout, ["local none"]);
}
