//! `--dry-run`: shows the plan, exits with the status of a real run, and changes nothing.

use crate::VVM;
use harness::{Run, Trial};
use rustix::process::Signal;
use std::process::Output;

fn plan(trial: &Trial, options: &[&str]) -> (i32, String, String) {
    told(trial.run(["echo", "ran"]).with(options.iter().copied()))
}

fn told(run: Run) -> (i32, String, String) {
    let finished = run.with(["--dry-run"]).finish();
    (finished.code(), finished.stdout.join("\n"), finished.stderr.join("\n"))
}

#[test]
fn dry_run_shows_the_plan_and_creates_nothing() {
    let trial = VVM.trial();
    let (code, out, _) = plan(&trial, &["--slots", "2", "--holder", "here"]);
    assert_eq!(code, 0);
    for said in [
        "payroll, one of 2 slots, as here",
        "would run    echo ran",
        "containment  guardian",
        "TTL 20s: renewed every 5s, at risk 10s after the last renewal, lost after 13s, killed after 16s",
        "does not exist yet: it would be created",
    ] {
        assert!(out.contains(said), "no {said:?} in {out}");
    }
    assert!(!out.lines().any(|line| line == "ran"), "{out}");
    assert_eq!(std::fs::read_dir(trial.folder()).unwrap().count(), 0);
}

#[test]
fn dry_run_shows_the_leader_and_settles_no_slot_count() {
    let trial = VVM.trial();
    let script = "echo up; exec sleep 1000";
    let options = ["--slots", "2", "--holder", "the leader", "--ttl", "10s"];
    let mut leader = trial.run_script(script).with(options).start();
    leader.stdout.wait_for("up");
    let (code, out, _) = plan(&trial, &["--slots", "2"]);
    assert_eq!(code, 0);
    assert!(out.contains("held by the leader, epoch") && out.contains("TTL 10s"), "{out}");
    assert!(out.contains("free, never led"), "{out}");
    let (_, out, _) = plan(&trial, &["--slots", "2", "--holder", "b"]);
    assert!(out.starts_with("would lead   payroll, one of 2 slots, as b"), "{out}");
    let (one, name) = (VVM.trial(), ["--holder", "b"]);
    let mut only = one.run_script(script).with(["--holder", "the leader"]).start();
    only.stdout.wait_for("up");
    let (_, out, _) = plan(&one, &name);
    assert!(out.starts_with("would wait   for payroll as b: slot 1 is held by the leader"), "{out}");
    let (_, out, _) = plan(&one, &[&name[..], &["--try"]].concat());
    assert!(out.starts_with("would end    with status 75, unless its leader is dead: slot 1"), "{out}");
    drop(only);
    // A name without candidates so far.
    let (code, out, _) = plan(&trial, &["--name", "other", "--slots", "7"]);
    assert!((code, out.contains("slot 7       free, never led")) == (0, true), "{out}");
    assert_eq!(trial.run(["true"]).with(["--name", "other", "--slots", "1"]).finish().code(), 0);
    leader.signal(Signal::TERM);
    leader.finish();
    let (_, out, _) = plan(&trial, &["--slots", "2"]);
    assert!(out.contains("free, last epoch"), "{out}");
    assert!(!out.contains("paused"), "{out}");
    assert_eq!(trial.ask("pause", &["--name", "payroll", "--by", "alice", "--wait", "no"]).0, 0);
    let (_, out, _) = plan(&trial, &["--slots", "2"]);
    assert!(out.starts_with("would wait   for payroll, one of 2 slots, as"), "{out}");
    assert!(out.contains(": paused by alice\n"), "{out}");
    let (_, out, _) = plan(&trial, &["--slots", "2", "--try"]);
    assert!(out.starts_with("would end    with status 75: paused by alice\n"), "{out}");
    assert_eq!(trial.ask("resume", &["--name", "payroll"]).0, 0);
}

#[test]
fn dry_run_of_a_refused_run_has_the_same_status() {
    let trial = VVM.trial();
    assert_eq!(trial.run(["true"]).finish().code(), 0);
    std::fs::write(trial.folder().join("text"), "not a database, but long enough".repeat(100)).unwrap();
    let text = format!("sqlite:{}?allow=overlay", trial.folder().join("text").display());
    let missing = format!("sqlite:{}?allow=overlay", trial.folder().join("missing/leader.db").display());
    let table: [&[&str]; 7] = [
        &["--slots", "2"],
        &["--storage", "mem:"],
        &["--storage", &text],
        &["--storage", &missing],
        &["--ttl", "100ms"],
        &["--result-file", "/no/such/folder/result"],
        &["--containment", "cage"],
    ];
    for options in table {
        let (planned, out, said) = plan(&trial, options);
        let real = trial.run(["true"]).with(options.iter().copied()).finish();
        assert_eq!(planned, real.code(), "{options:?}: {out}{said}");
        assert_ne!(planned, 0, "{options:?}");
        // After the reason for a misuse come lines about settings in variables.
        let reason = real.stderr.iter().rev().find(|line| !line.contains(" is set by ")).unwrap();
        let cause = reason.rsplit(": ").next().unwrap();
        assert!(said.contains(cause), "{options:?}: {said:?}, and not {:?}", real.stderr);
    }
    assert!(!trial.folder().join("missing").exists());
}

/// A real run waits while a disk is full or a database is locked.
#[test]
fn dry_run_on_a_locked_storage_succeeds() {
    let trial = VVM.trial();
    let by_hand = rusqlite::Connection::open(trial.folder().join("leader.db")).unwrap();
    by_hand.execute_batch("CREATE TABLE x (y); BEGIN EXCLUSIVE").unwrap();
    let (code, out, said) = plan(&trial, &[]);
    assert_eq!((code, said.as_str()), (0, ""));
    assert!(out.starts_with("would wait   for payroll as "), "{out}");
    assert!(out.contains(": the storage can't be used now\n") && out.contains("would try again"), "{out}");
}

#[test]
fn dry_run_of_elect_shows_its_hooks_and_creates_nothing() {
    let trial = VVM.trial();
    let plan = |storage: &str| -> Output {
        let arguments =
            ["elect", "--dry-run", "--name", "payroll", "--on-lead", "./promote", "--on-loss", "./demote"];
        VVM.command(&[]).args(arguments).args(["--storage", storage]).output().unwrap()
    };
    let output = plan(&trial.storage());
    let out = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(out.contains("on lead      ./promote") && out.contains("killed after 16s"), "{out}");
    assert_eq!(plan("mem:").status.code(), Some(64));
    assert_eq!(std::fs::read_dir(trial.folder()).unwrap().count(), 0);
}
