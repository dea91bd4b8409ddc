//! Storages on files: deleted or truncated in use; and the limits of open files, of a file and of CPU time.

use super::http::{ask, start};
use crate::VVM;
use harness::{SHORT_TTL, eventually, has_ended};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::{fs, process::Stdio, thread, time::Duration};

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
        finished.assert_ended(71, "ulimit -n");
        assert_eq!(finished.stdout, [""; 0]);
        refused += 1;
    }
    assert!(refused > 5, "refused {refused} times");
}

fn set_soft_limit(host: Pid, resource: Resource, limit: u64) {
    prlimit(Some(host), resource, Rlimit { current: Some(limit), maximum: None }).unwrap();
}

/// As on a full disk, an error names the limit: SIGXFSZ ends no process. The guardian opens the storage anew, whose log is
/// short then, and releases, so that the next leader does not wait for the rest of the TTL.
#[test]
fn leader_whose_files_may_not_grow_is_lost_names_the_limit_and_is_released_by_its_guardian() {
    // In blocks of 512 bytes.
    let of_all = ["sh", "-c", "ulimit -f 400; exec \"$@\"", "sh"];
    for limited in [&[][..], &of_all] {
        let trial = VVM.trial();
        let run = trial.run_trapping("echo told; exit 0").with(["--ttl", SHORT_TTL]);
        let leader = run.through(limited.iter().copied()).up();
        match limited {
            [] => set_soft_limit(leader.host(), Resource::Fsize, 1),
            _ => {
                let storage = trial.lock_storage();
                storage.execute_batch("PRAGMA wal_autocheckpoint = 0; COMMIT").unwrap();
                // Each writes a page of 4 KiB.
                for _ in 0..60 {
                    storage.execute("UPDATE leader SET epoch = epoch", ()).unwrap();
                }
            }
        }
        let finished = leader.finish();
        finished.assert_ended(79, "ulimit -f");
        assert_eq!(finished.stdout, ["up", "told"]);
        // Without a release the record would stand until another candidate takes over.
        assert_eq!(trial.slot_state(), "free");
        let history = trial.must("history", &[]);
        assert!(history.contains("released by the guardian after the leadership was lost"), "{history}");
        assert_eq!(trial.run(["echo", "next"]).finish().stdout, ["next"]);
    }
}

/// The kernel sends SIGXCPU at the soft limit, which is a stop request.
#[test]
fn leader_that_has_used_its_cpu_time_stops_and_releases() {
    let trial = VVM.trial();
    let (mut leader, address) = start(trial.run_forever().with(["--ttl", "1m"]));
    leader.stdout.wait_for("up");
    set_soft_limit(leader.host(), Resource::Cpu, 1);
    let guardian = leader.guardian;
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !has_ended(guardian) {
                    let _answer = ask(address, "/metrics");
                }
            });
        }
    });
    let finished = leader.finish();
    assert_eq!(finished.signal(), 15, "{:#?}", finished.stderr);
    finished.assert_says("the host has used the CPU time that it may use: allow more (ulimit -t");
    assert_eq!(trial.slot_state(), "free");
}

#[test]
fn log_truncated_or_deleted_in_use_is_69_and_says_what_to_do() {
    for cut in [None, Some(100)] {
        let trial = VVM.trial();
        let _leader = trial.run_forever().with(["--ttl", "1h"]).up();
        // After its start, the leader does not write for a long time.
        eventually("the history has its start", || trial.must("history", &[]).lines().count() == 2);
        let log = trial.folder().join("leader.db-wal");
        match cut {
            None => fs::remove_file(&log).unwrap(),
            Some(length) => fs::File::options().write(true).open(&log).unwrap().set_len(length).unwrap(),
        }
        let finished = trial.run(["true"]).finish();
        finished.assert_ended(69, "stop all programs that use it, start them again");
    }
}

/// Another process may lead in a new file, and the next start leads there.
#[test]
fn moved_file_is_lost_by_its_leader_and_ends_a_standby_with_69() {
    let trial = VVM.trial();
    let run = || trial.run_forever().with(["--ttl", SHORT_TTL]);
    let (leader, standby) = (run().up(), run().waiting());
    for suffix in ["", "-wal", "-shm"] {
        let file = trial.folder().join(format!("leader.db{suffix}"));
        fs::rename(&file, file.with_file_name(format!("moved.db{suffix}"))).unwrap();
    }
    leader.finish().assert_code(79);
    standby.finish().assert_code(69);
    assert_eq!(trial.run(["echo", "next"]).finish().stdout, ["next"]);
}

#[test]
fn leader_withdraws_a_step_down_request_that_has_expired() {
    let trial = VVM.trial();
    let _leader = trial.run_forever().up();
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
}

#[test]
fn control_sequences_in_a_record_reach_no_terminal() {
    let trial = VVM.trial();
    let foreign = trial.usurp();
    let storage = trial.lock_storage();
    storage.execute_batch("UPDATE leader SET holder = 'a' || char(27) || '[2J'; COMMIT").unwrap();
    trial.run(["true"]).with(["--acquire-timeout", "0"]).finish().assert_ended(75, "led by a\\u{1b}[2J");
    let (_, table, _) = trial.status(&[]);
    let (_, _, refusal) = trial.about("step-down", &["--timeout", "0"]);
    for said in [table, refusal] {
        assert!(said.contains("a\\u{1b}[2J"), "{said:?}");
    }
    foreign.leave();
}

#[test]
fn status_list_watch_and_doctor_create_no_storage() {
    let trial = VVM.trial();
    let (code, out, error) = trial.status(&[]);
    assert_eq!((code, out.as_str()), (66, ""));
    assert!(error.contains("no such storage yet"), "{error}");
    assert_eq!(trial.ask("list", &[]).0, 66);
    for command in ["watch", "doctor"] {
        assert_eq!(trial.about(command, &[]).0, 66, "{command}");
    }
    assert_eq!(fs::read_dir(trial.folder()).unwrap().count(), 0);
}

mod timed {
    use super::*;

    /// Another process may lead in the new file, so the leader is lost when it notices, before the usual loss instant.
    #[test]
    fn deleted_storage_ends_the_leadership_at_once() {
        const TTL: Duration = Duration::from_secs(8);
        VVM.timed("a storage is deleted under a leader", |attempt, trial| {
            let running = trial.run_forever().with(["--ttl", "8s"]).up();
            for suffix in ["", "-wal", "-shm"] {
                fs::remove_file(trial.folder().join(format!("leader.db{suffix}"))).unwrap();
            }
            let deleted = vvm_clock::SystemClock::read();
            running.wait();
            // The time until the next renewal, and the time to stop. An ordinary loss would take at least 0.65 TTL.
            attempt.took("the end of the leader", TTL * 2 / 5 + Duration::from_secs(1), deleted)?;
            let finished = running.finish();
            finished.assert_ended(79, "the storage was replaced");
            Ok(())
        });
    }
}
