//! Storages on files: locked, deleted, truncated, or of another program; the limit of open files; and the
//! place of a file. A place where candidates may not share the file is refused. Each candidate logs at its
//! start which storage it opened and who leads.

use crate::VVM;
use harness::{Finished, Trial, eventually, has, is_permitted};
use serde_json::Value;
use std::{process::Stdio, time::Duration};

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
        let leader = trial.run_forever().with(["--ttl", "1h"]).up();
        // After its start, the leader does not write for a long time.
        eventually("the history has its start", || trial.must("history", &[]).lines().count() == 2);
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
        leader.stop();
    }
}

/// A command that was killed leaves its request behind.
#[test]
fn leader_withdraws_a_step_down_request_that_has_expired() {
    let trial = VVM.trial();
    let leader = trial.run_forever().up();
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
    leader.stop();
}

#[test]
fn status_list_watch_and_doctor_create_no_storage() {
    let trial = VVM.trial();
    let (code, out, error) = trial.status(&[]);
    assert_eq!((code, out.as_str()), (66, ""));
    assert!(error.contains("no such storage yet"), "{error}");
    assert_eq!(trial.about("watch", &[]).0, 66);
    assert_eq!(trial.ask("list", &[]).0, 66);
    assert_eq!(doctor(&trial).0, 66);
    assert_eq!(std::fs::read_dir(trial.folder()).unwrap().count(), 0);
}

fn doctor(trial: &Trial) -> (i32, String) {
    let (code, out, error) = trial.about("doctor", &[]);
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

/// Mounts an overlay at `$1/merged`, runs the rest, and lists the files in the overlay. The overlay is on a
/// file system in memory, because it can't be the upper layer of another overlay.
const ON_OVERLAY: &str = "set -e; at=$1; shift
    mount -t tmpfs tmpfs \"$at\"; cd \"$at\"; mkdir lower upper work merged
    mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work merged
    set +e; \"$@\"; code=$?; echo \"left: $(ls -A merged)\"; exit $code";

/// Returns a command that runs [`ON_OVERLAY`] in its own mount namespace; `None` if this machine does not allow it.
fn on_overlay(folder: &str) -> Option<Vec<&str>> {
    let ways = [&["unshare", "--mount"][..], &["unshare", "--user", "--map-root-user", "--mount"]];
    let lines = ways.map(|way| [way, &["sh", "-c", ON_OVERLAY, "sh", folder]].concat());
    let found = lines.into_iter().find(|line| is_permitted(&[line, &["/bin/sh", "-c", ":"][..]].concat()));
    if found.is_none() {
        println!("not tested: this machine lets us mount no overlay");
    }
    found
}

fn run(trial: &Trial, through: &[&str], storage: &str) -> Finished {
    trial.run(["echo", "leads"]).with(["--storage", storage]).through(through.iter().copied()).finish()
}

#[test]
fn overlayfs_is_refused_before_a_file_is_created_unless_allowed() {
    let trial = VVM.trial();
    let folder = trial.folder().join("overlay");
    std::fs::create_dir(&folder).unwrap();
    let Some(through) = on_overlay(folder.to_str().unwrap()) else { return };
    let path = folder.join("merged/leader.db").display().to_string();

    let refused = run(&trial, &through, &format!("sqlite:{path}"));
    assert_eq!(refused.code(), 69, "{:#?}", refused.stderr);
    let merged = folder.join("merged").display().to_string();
    for part in [merged.as_str(), "is on overlayfs", "a volume or a bind mount", "`?allow=overlay`"] {
        assert!(refused.says(part), "no {part:?}: {:#?}", refused.stderr);
    }
    assert_eq!(refused.stdout, ["left:"]);

    let allowed = run(&trial, &through, &format!("sqlite:{path}?allow=overlay"));
    assert_eq!(allowed.code(), 0, "{:#?}", allowed.stderr);
    assert_eq!(allowed.stdout[0], "leads");
    assert!(allowed.stdout[1].starts_with("left: leader.db"), "{:?}", allowed.stdout);
    assert!(allowed.says(&format!("storage {path} on overlayfs, created; TTL 20s; no leader")));
}

#[test]
fn run_logs_its_storage_and_the_leader() {
    let trial = VVM.trial();
    let path = trial.folder().join("leader.db").display().to_string();
    let mut leader =
        trial.run_script("echo up $VVM_LEADER_EPOCH; sleep 60").with(["--holder", "first"]).start();
    let line = leader.stderr.wait_for("storage ");
    assert!(line.contains(&format!("Z vvm: payroll: storage {path} on ")), "{line}");
    assert!(line.ends_with(", created; TTL 20s; no leader"), "{line}");
    let up = leader.stdout.wait_for("up");
    let epoch = up.split(' ').nth(1).unwrap().parse::<u64>().unwrap();

    let standby = trial.run(["true"]).with(["--try", "--log-format", "json"]).finish();
    let objects = standby.stderr.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let opened = objects.into_iter().find(|object| object["event"] == "storage_opened").unwrap();
    let held = format!("existing; TTL 20s; slot 1 is held by first, epoch {epoch}");
    assert!(opened["message"].as_str().unwrap().contains(&held), "no {held:?}: {opened}");
    let found = ["name", "storage", "provenance", "leader"].map(|name| opened[name].as_str().unwrap());
    assert_eq!(found, ["payroll", &path, "existing", "first"]);
    assert!(opened["file_system"].is_string(), "{opened}");
    has!(opened, "ttl_ms" == 20_000, "held" == 1, "slot" == 1, "epoch" == epoch);
    leader.stop();
}

mod timed {
    use super::*;

    /// A storage that does not answer shows no leader. While it is opened, that is `outcomes`.
    #[test]
    fn try_on_a_locked_storage_is_75_in_bounded_time() {
        VVM.timed("a try on a locked storage", |attempt, trial| {
            trial.run(["true"]).finish();
            let _lock = trial.lock_storage();
            let began = vvm_clock::SystemClock::read();
            let finished = trial.run(["echo", "never"]).with(["--try", "--ttl", "1s"]).finish();
            // Opening waits five seconds for the lock. A try with a TTL of 1 s takes 1.4 s.
            attempt.took("the try", Duration::from_secs(8), began)?;
            assert_eq!(finished.code(), 75, "{:#?}", finished.stderr);
            assert!(finished.says("locked"), "{:#?}", finished.stderr);
            Ok(())
        });
    }

    /// Another process may lead in the new file, so the leader is lost when it notices, before the usual loss
    /// instant.
    #[test]
    fn deleted_storage_ends_the_leadership_at_once() {
        const TTL: Duration = Duration::from_secs(8);
        VVM.timed("a storage is deleted under a leader", |attempt, trial| {
            let running = trial.run_forever().with(["--ttl", "8s"]).up();
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

/// A file that may not grow is like a full disk: an error that names the limit, and no end by SIGXFSZ.
#[test]
fn limit_of_a_file_is_named_and_ends_no_process() {
    let trial = VVM.trial();
    let limited = ["sh", "-c", "ulimit -f 1; exec \"$@\"", "sh"];
    let finished = trial.run(["true"]).through(limited).with(["--acquire-timeout", "1s"]).finish();
    assert_ne!(finished.code(), 0, "{:#?}", finished.stderr);
    assert!(finished.says("ulimit -f"), "{:#?}", finished.stderr);
}
