//! Faults of files: locked, deleted, truncated, or of another program; and the limit of open files.

use crate::VVM;
use harness::{Trial, eventually};
use rustix::process::Signal;
use std::{process::Stdio, time::Duration};

#[test]
fn unusable_storage_is_69() {
    let trial = VVM.trial();
    std::fs::write(
        trial.folder().join("text"),
        "not a database, but long enough to be looked at".repeat(100),
    )
    .unwrap();
    let text = format!("sqlite:{}?allow=overlay", trial.folder().join("text").display());
    let missing = format!("sqlite:{}?allow=overlay", trial.folder().join("missing/leader.db").display());
    let folder = format!("sqlite:{}?allow=overlay", trial.folder().display());
    for (url, hint) in [
        (text, "not a database: name another file"),
        (missing, "create it (mkdir -p)"),
        (folder, "is not a file"),
    ] {
        let finished = trial.run(["true"]).with(["--storage", &url]).finish();
        assert_eq!(finished.code(), 69, "{url}: {:#?}", finished.stderr);
        assert!(finished.says(hint), "{url}: {:#?}", finished.stderr);
    }
}

/// Raises the limit by one file at a time, until `vvm` and its command can run.
#[test]
fn too_low_open_file_limit_is_71_and_named() {
    let trial = VVM.trial();
    let mut refused = 0;
    for files in 4.. {
        let script = format!("ulimit -n {files}; exec \"$@\"");
        let finished = trial.run(["echo", "ran"]).through(["sh", "-c", &script, "sh"]).finish();
        if finished.status.success() {
            assert_eq!(finished.stdout, ["ran"]);
            break;
        }
        assert_eq!(finished.code(), 71, "{files} files: {:#?}", finished.stderr);
        assert!(finished.says("ulimit -n"), "{files} files: {:#?}", finished.stderr);
        assert_eq!(finished.stdout, Vec::<String>::new());
        refused += 1;
    }
    assert!(refused > 5, "refused {refused} times");
}

#[test]
fn log_truncated_or_deleted_in_use_is_69_and_says_what_to_do() {
    for cut in [None, Some(100)] {
        let trial = VVM.trial();
        let mut leader = trial.run_script("echo up; exec sleep 1000").with(["--ttl", "1h"]).start();
        leader.stdout.wait_for("up");
        // After its start, the leader does not write for a long time.
        eventually("the history has its start", || {
            trial.ask("history", &["--name", "payroll"]).1.lines().count() == 2
        });
        let log = trial.folder().join("leader.db-wal");
        match cut {
            None => std::fs::remove_file(&log).unwrap(),
            Some(length) => std::fs::File::options().write(true).open(&log).unwrap().set_len(length).unwrap(),
        }
        let finished = trial.run(["true"]).finish();
        assert_eq!(finished.code(), 69, "{cut:?}: {:#?}", finished.stderr);
        assert!(
            finished.says("stop all programs that use it, start them again"),
            "{cut:?}: {:#?}",
            finished.stderr
        );
        leader.signal(Signal::TERM);
        leader.finish();
    }
}

/// A command that was killed leaves its request behind.
#[test]
fn leader_withdraws_a_step_down_request_that_has_expired() {
    let trial = VVM.trial();
    let mut leader = trial.run_script("echo up; exec sleep 1000").start();
    leader.stdout.wait_for("up");
    let before = trial.slots();
    let mut asking = VVM.command(&[]);
    asking.args(["step-down", "--storage", &trial.storage(), "--name", "payroll", "--to", "later"]);
    let mut asking = asking.stderr(Stdio::null()).spawn().unwrap();
    eventually("it is asked for", || trial.slots()[0]["stepping_down"]["to"] == "later");
    asking.kill().unwrap();
    asking.wait().unwrap();
    let storage = trial.lock_storage();
    let sooner = "UPDATE leader SET holder = replace(holder, ' 30000 later', ' 500 later')";
    storage.execute_batch(&format!("{sooner}; COMMIT")).unwrap();
    eventually("it is withdrawn", || trial.slots() == before);
    leader.signal(Signal::TERM);
    leader.finish();
}

#[test]
fn status_creates_no_storage() {
    let trial = VVM.trial();
    let (code, out, error) = trial.status(&["--name", "payroll"]);
    assert_eq!((code, out.as_str()), (66, ""));
    assert!(error.contains("no such storage yet"), "{error}");
    assert_eq!(std::fs::read_dir(trial.folder()).unwrap().count(), 0);
}

fn doctor(trial: &Trial) -> (i32, String) {
    let (code, out, error) = trial.ask("doctor", &["--name", "payroll"]);
    (code, out + &error)
}

/// Writes are locked for the doctor and for leaders.
#[test]
fn doctor_reports_a_locked_storage() {
    let trial = VVM.trial();
    trial.run(["true"]).finish();
    let lock = trial.lock_storage();
    let (code, said) = doctor(&trial);
    drop(lock);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("problem  writes"), "{said}");
}

#[test]
fn doctor_shows_the_sqlite_version_and_settings() {
    let trial = VVM.trial();
    trial.run(["true"]).finish();
    let (code, out, error) = trial.ask("doctor", &["--name", "payroll", "--ttl", "1m", "--json"]);
    let found: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(code, 0, "{found:#}{error}");
    let about = |about: &str| {
        found["findings"].as_array().unwrap().iter().find(|finding| finding["about"] == about).unwrap()
    };
    assert_eq!(about("storage")["software"], format!("SQLite {}", rusqlite::version()));
    let settings = about("settings");
    assert_eq!((&settings["journal_mode"], &settings["synchronous"]), (&"wal".into(), &"full".into()));
}

#[test]
fn watch_of_a_missing_storage_is_66_and_creates_nothing() {
    let trial = VVM.trial();
    assert_eq!(trial.ask("watch", &["--name", "payroll"]).0, 66);
    assert_eq!(std::fs::read_dir(trial.folder()).unwrap().count(), 0);
}

#[test]
fn doctor_creates_no_storage() {
    let trial = VVM.trial();
    assert_eq!(doctor(&trial).0, 0);
    assert_eq!(std::fs::read_dir(trial.folder()).unwrap().count(), 0);
}

/// Another process keeps the storage locked.
#[test]
fn storage_locked_too_long_ends_the_leadership() {
    for (options, code) in [(&[][..], 79), (&["--exit-code-lost", "7"][..], 7)] {
        let trial = VVM.trial();
        let worker = "trap 'echo told; exit 0' TERM; echo up; while :; do sleep 0.01; done";
        let mut running = trial
            .run_script(worker)
            .with(["--ttl", harness::SHORT_TTL])
            .with(options.iter().copied())
            .start();
        running.stdout.wait_for("up");
        let lock = trial.lock_storage();
        running.stdout.wait_for("told");
        running.wait();
        drop(lock);
        let finished = running.finish();
        assert_eq!(finished.code(), code, "{:#?}", finished.stderr);
        assert!(
            finished.says("leadership lost, the command has been stopped: no renewal"),
            "{:#?}",
            finished.stderr
        );
    }
}

mod timed {
    use super::*;

    /// A storage that does not answer shows no leader: neither while it is opened, nor afterwards.
    #[test]
    fn try_on_a_locked_storage_is_75_in_bounded_time() {
        for before in [None, Some("a database of vvm")] {
            VVM.timed("a try on a locked storage", |attempt, trial| {
                if before.is_some() {
                    trial.run(["true"]).finish();
                }
                let by_hand = rusqlite::Connection::open(trial.folder().join("leader.db")).unwrap();
                by_hand.execute_batch("BEGIN EXCLUSIVE").unwrap();
                let began = vvm_clock::SystemClock::read();
                let finished = trial.run(["echo", "never"]).with(["--try", "--ttl", "1s"]).finish();
                // Opening waits five seconds for the lock. A try with a TTL of 1 s takes 1.4 s.
                attempt.took("the try", Duration::from_secs(8), began)?;
                assert_eq!(finished.code(), 75, "{before:?}: {:#?}", finished.stderr);
                assert!(finished.says("locked"), "{before:?}: {:#?}", finished.stderr);
                Ok(())
            });
        }
    }

    /// Another process may lead in the new file, so the leader is lost when it notices, before the usual loss
    /// instant.
    #[test]
    fn deleted_storage_ends_the_leadership_at_once() {
        const TTL: Duration = Duration::from_secs(8);
        VVM.timed("a storage is deleted under a leader", |attempt, trial| {
            let mut running = trial.run_script("echo up; exec sleep 1000").with(["--ttl", "8s"]).start();
            running.stdout.wait_for("up");
            for suffix in ["", "-wal", "-shm"] {
                std::fs::remove_file(trial.folder().join(format!("leader.db{suffix}"))).unwrap();
            }
            let deleted = vvm_clock::SystemClock::read();
            running.wait();
            // The time until the next renewal, and the time to stop. An ordinary loss would take at least
            // 0.65 TTL.
            attempt.took("the end of the leader", TTL * 2 / 5 + Duration::from_secs(1), deleted)?;
            let finished = running.finish();
            assert_eq!(finished.code(), 79, "{:#?}", finished.stderr);
            assert!(finished.says("the storage was replaced"), "{:#?}", finished.stderr);
            Ok(())
        });
    }
}
