//! All processes of a worker are dead within 50 ms after the host or the guardian, and by the kill deadline if one of
//! these is stopped: before another candidate can lead.

use crate::VVM;
use harness::{Finished, Level, OUTLIVING, Running, Trial, command_line, eventually};
use rustix::process::{Pid, Signal, geteuid, kill_process, test_kill_process};
use std::{os::unix::fs::MetadataExt as _, time::Duration};
use vvm_clock::SystemClock;

const ESCAPES: [(&str, usize, &str); 5] = [
    ("its own session", 2, "setsid sleep 1000 & wait"),
    ("double fork", 2, "(setsid sh -c 'sleep 1000 & :' &); exec sleep 1001"),
    ("ignores TERM", 3, "trap '' TERM HUP INT QUIT; setsid sleep 1000 & sleep 1000 & wait"),
    (
        "a tree of fifty",
        56,
        "for a in 1 2 3 4 5; do
             (for b in 1 2 3 4 5 6 7 8 9 10; do sleep 1000 & done; wait) &
         done; wait",
    ),
    (
        "a chain of thirty",
        31,
        "deeper() { if [ $1 -gt 0 ]; then (deeper $(($1 - 1)); :); else sleep 1000; fi; }
         deeper 29 & wait",
    ),
];

/// Processes that fork as fast as they can, so that no list of them is complete.
const STORM: &str = "trap '' TERM; (setsid sh -c 'storm() { while :; do (:) & done; }; storm' &)
                     (setsid sh -c 'next() { (next &); }; next' &); exec sleep 1001";

/// The kernel knows all processes of a control group or a namespace.
fn escapes() -> impl Iterator<Item = (&'static str, usize, &'static str)> {
    let storm = (VVM.level() != Level::Guardian).then_some(("a fork storm", 3, STORM));
    ESCAPES.into_iter().chain(storm)
}

fn start(trial: &Trial, processes: usize, script: &str) -> Running {
    let running = trial.run_script(script).start();
    eventually("all processes", || trial.processes().0.len() >= VVM.level().ours() + processes);
    running
}

/// Kills `target` in each trial, and checks that no process outlives it for longer than documented. A host
/// whose guardian was killed releases its leadership first (`guardian_death.rs`).
fn in_time(
    who: &str,
    mut start: impl FnMut(&Trial) -> Running,
    target: impl Fn(&Running) -> Pid,
    end: impl Fn(&Finished),
) {
    VVM.timed(who, |attempt, trial| {
        let running = start(trial);
        let (host, target) = (running.host(), target(&running));
        let killed_at = SystemClock::read();
        kill_process(target, Signal::KILL).unwrap();
        attempt.within("the end of all but the host", OUTLIVING, killed_at, || {
            trial.processes().0.iter().all(|one| *one == host && *one != target)
        })?;
        eventually("no process is left", || trial.processes().0.is_empty());
        end(&running.finish());
        Ok(())
    });
}

/// Shows I6.
#[test]
fn background_processes_of_a_command_end_before_vvm() {
    let trial = VVM.trial();
    let script = "up=$(mktemp -u)
                  (trap '' TERM; exec setsid sleep 1000) &
                  until [ \"$(cat /proc/$!/comm)\" = sleep ]; do sleep 0.01; done
                  (setsid sh -c \"trap 'echo told; exit' TERM; echo up; : >$up; while :; do sleep 0.01; done\" &)
                  until [ -e $up ]; do sleep 0.2; done
                  rm $up; exit 5";
    let finished = trial.run_script(script).with(["--stop-timeout", "2s"]).finish();
    assert_eq!(finished.code(), 5);
    assert_eq!(finished.stdout, ["up", "told"]);
    let left = "the command has ended and left ";
    let line = finished.stderr.iter().find(|line| line.contains(left)).unwrap();
    let (_, names) = line.split_once(" processes behind, which are stopped: ").unwrap();
    let has = |wanted: &str| names.split(", ").any(|name| name == wanted);
    assert!(has("sh") && has("sleep"), "{line}");
    assert_eq!(trial.processes().describe(), [""; 0]);
}

/// (I6) The record is released when the last process is reaped, not when the command ends.
#[test]
fn record_is_held_until_the_last_process_has_ended() {
    let trial = VVM.trial();
    let script = "(trap '' TERM; setsid sleep 1000 &); echo up; exec sleep 1001";
    // Longer than a busy machine needs for one look.
    let leader = trial.run_script(script).with(["--stop-timeout", "4s"]).up();
    let daemon = trial.process("sleep 1000");
    let command = trial.process("sleep 1001");
    leader.signal(Signal::TERM);
    eventually("the command has ended", || test_kill_process(command).is_err());
    let mut looked = 0;
    loop {
        let state = trial.slot_state();
        // A process that lives after the read also lived during the read.
        if test_kill_process(daemon).is_err() {
            break;
        }
        assert_ne!(state, "free");
        looked += 1;
    }
    assert!(looked > 0, "the daemon did not outlive the command");
    assert_eq!(leader.finish().signal(), 15);
    assert_eq!(trial.slot_state(), "free");
}

/// How long a process without renewals may live: 0.8 TTL after the last renewal was sent, and the time that
/// the scheduler needs to end all processes.
const DEADLINE: Duration = Duration::from_millis(1600 + 200);

const DAEMON: &str = "trap '' TERM; (setsid sleep 1000 &); echo up; exec sleep 1001";

fn start_daemon(trial: &Trial) -> Running {
    trial.run_script(DAEMON).with(["--ttl", "2s"]).up()
}

/// Shows I1.
#[test]
fn next_leader_starts_after_a_stopped_leader_is_dead() {
    let trial = VVM.trial();
    let running = start_daemon(&trial);
    kill_process(running.host(), Signal::STOP).unwrap();
    let script = "for at in /proc/[0-9]*; do
            tr '\\0' '\\n' <$at/environ | grep -qx \"TRIAL=$TRIAL\" && tr '\\0' ' ' <$at/cmdline && echo
        done 2>/dev/null";
    let next = trial.run_script(script).finish();
    let dead_now = eventually("no process is left", || trial.processes().0.is_empty());
    assert_eq!(running.finish().code(), 137);
    println!("{} lines, {dead_now:?}", next.stdout.len());
    // The earlier guardian has released the record, and may not have ended yet.
    let count = |is_one: &dyn Fn(&str) -> bool| next.stdout.iter().filter(|line| is_one(line)).count();
    assert_eq!(count(&|line| line.starts_with("sleep ")), 0, "{:#?}", next.stdout);
    for stage in [" stage-host ", " stage-keeper "] {
        assert!(count(&|line| line.contains(stage)) <= 1, "{:#?}", next.stdout);
    }
}

#[test]
fn no_worker_starts_while_the_guardian_is_stopped() {
    let trial = VVM.trial();
    let leader = start_daemon(&trial);
    let mut standby = trial.run(["echo", "started"]).with(["--ttl", "2s"]).waiting();
    standby.signal(Signal::STOP);
    leader.signal(Signal::KILL);
    leader.finish();
    standby.stderr.wait_for("the guardian does not answer");
    let history = || trial.must("history", &[]);
    eventually("the reason", || history().contains("command not started: the guardian does not answer"));
    assert!(trial.processes().with("echo started").iter().all(|pid| command_line(*pid).contains("vvm")));
    assert_eq!(trial.run(["echo", "another's turn"]).finish().stdout, ["another's turn"]);
    standby.signal(Signal::CONT);
    let finished = standby.finish();
    finished.assert_code(0);
    assert_eq!(finished.stdout, ["started"]);
}

mod timed {
    use super::*;

    fn end_of_a_killed_guardian(finished: &Finished) {
        assert_eq!(finished.signal(), 9, "{:#?}", finished.stderr);
    }

    #[test]
    fn nothing_outlives_a_killed_host() {
        for (who, processes, script) in escapes() {
            in_time(who, |trial| start(trial, processes, script), Running::host, |end| end.assert_code(137));
        }
    }

    #[test]
    fn nothing_outlives_a_killed_guardian() {
        for (who, processes, script) in escapes() {
            let begin = |trial: &Trial| start(trial, processes, script);
            in_time(who, begin, |running| running.guardian, end_of_a_killed_guardian);
        }
    }

    /// A change of user clears the parent-death signal, so the guardian must find these processes.
    #[test]
    fn process_of_another_user_does_not_outlive_host_or_guardian() {
        let script = "setpriv --reuid 65534 --clear-groups sleep 1000 & exec setpriv --reuid 65534 \
            --clear-groups sleep 1001";
        let trial = VVM.trial();
        if !geteuid().is_root() {
            let finished = trial.run_script("setpriv --reuid 65534 --clear-groups true").finish();
            assert_ne!(finished.code(), 0, "an ordinary user changed to another");
            return;
        }
        let begin = |trial: &Trial| {
            let running = start(trial, 2, script);
            eventually("both run as another user", || {
                let of_other_user =
                    |pid: &&Pid| std::fs::metadata(format!("/proc/{pid}")).is_ok_and(|of| of.uid() == 65534);
                trial.processes().0.iter().filter(of_other_user).count() == 2
            });
            running
        };
        in_time("another user", begin, Running::host, |end| end.assert_code(137));
        in_time("another user", begin, |running| running.guardian, end_of_a_killed_guardian);
    }

    fn dead_at_the_deadline(
        what: &str,
        stopped: impl Fn(&Trial, &Running) -> Vec<Pid>,
        end: impl Fn(&Trial, Finished),
    ) {
        VVM.timed(what, |attempt, trial| {
            let running = start_daemon(trial);
            for process in stopped(trial, &running) {
                kill_process(process, Signal::STOP).unwrap();
            }
            let stopped_at = SystemClock::read();
            attempt.within("the end of all processes", DEADLINE, stopped_at, || {
                trial.processes().0.is_empty()
            })?;
            end(trial, running.finish());
            Ok(())
        });
    }

    #[test]
    fn stopped_host_is_dead_at_the_deadline_with_its_worker() {
        dead_at_the_deadline(
            "host stopped",
            |_, running| vec![running.host()],
            |_, finished| {
                finished.assert_ended(137, "killed at the deadline");
            },
        );
    }

    #[test]
    fn stopped_host_and_stopped_worker_are_dead_at_the_deadline() {
        dead_at_the_deadline(
            "host and worker stopped",
            |trial, running| trial.processes().0.into_iter().filter(|pid| *pid != running.guardian).collect(),
            |_, finished| finished.assert_code(137),
        );
    }

    #[test]
    fn stopped_guardian_ends_all_processes_at_the_deadline() {
        dead_at_the_deadline(
            "guardian stopped",
            |_, running| vec![running.guardian],
            |trial, finished| {
                assert_eq!(finished.signal(), 9, "{:#?}", finished.stderr);
                finished.assert_says("the guardian was stopped");
                // All was proven gone, so the next leader does not wait for the record to expire.
                let next = trial.run(["echo", "next"]).with(["--acquire-timeout", "0"]).finish();
                assert_eq!(next.stdout, ["next"]);
            },
        );
    }
}
