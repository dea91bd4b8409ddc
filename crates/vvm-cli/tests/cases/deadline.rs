//! The kill deadline: all processes of a run are dead before another candidate can lead.

use crate::VVM;
use harness::{Attempt, Late, Running, Trial, command_line, eventually};
use rustix::process::{Signal, kill_process};
use std::time::Duration;
use vvm_clock::SystemClock;

/// How long a process without renewals may live: 0.8 TTL after the last renewal was sent, and the time that
/// the scheduler needs to end all processes.
const DEADLINE: Duration = Duration::from_millis(1600 + 200);

/// A worker with a daemon. Both ignore TERM.
const DAEMON: &str = "trap '' TERM; (setsid sleep 1000 &); echo up; exec sleep 1001";

fn start(trial: &Trial) -> Running {
    trial.run_script(DAEMON).with(["--ttl", "2s"]).up()
}

/// Checks that all processes end in time after one was stopped.
fn all_gone(attempt: &Attempt, trial: &Trial) -> Result<(), Late> {
    let stopped_at = SystemClock::read();
    attempt.within("the end of all processes", DEADLINE, stopped_at, || trial.processes().0.is_empty())?;
    Ok(())
}

/// No process leads or works before all processes of the earlier leader are dead.
/// Shows I1.
#[test]
fn next_leader_starts_after_a_stopped_leader_is_dead() {
    let trial = VVM.trial();
    let running = start(&trial);
    kill_process(running.host(), Signal::STOP).unwrap();
    let script = "cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep -cx \"TRIAL=$TRIAL\"";
    let next = trial.run_script(script).finish();
    let dead_now = eventually("no process is left", || trial.processes().0.is_empty());
    assert_eq!(running.finish().code(), 137);
    println!("{} processes, {dead_now:?}", next.stdout[0]);
    // Its own guardian, host, keeper, shell, and the three that count.
    assert!(next.stdout[0].parse::<usize>().unwrap() <= 7, "{:?}", next.stdout);
}

/// The guardian is stopped before the worker could start.
#[test]
fn no_worker_starts_while_the_guardian_is_stopped() {
    let trial = VVM.trial();
    let leader = start(&trial);
    let mut standby = trial.run(["echo", "started"]).with(["--ttl", "2s"]).waiting();
    standby.signal(Signal::STOP);
    leader.signal(Signal::KILL);
    leader.finish();
    standby.stderr.wait_for("the guardian does not answer");
    let history = || trial.must("history", &[]);
    eventually("the reason", || history().contains("command not started: the guardian does not answer"));
    assert!(trial.processes().with("echo started").iter().all(|pid| command_line(*pid).contains("vvm")));
    standby.signal(Signal::CONT);
    // It has remained a candidate.
    let finished = standby.finish();
    assert_eq!(
        (finished.code(), &finished.stdout[..]),
        (0, &["started".to_owned()][..]),
        "{:#?}",
        finished.stderr
    );
}

mod timed {
    use super::*;

    #[test]
    fn stopped_host_is_dead_at_the_deadline_with_its_worker() {
        VVM.timed("host stopped", |attempt, trial| {
            let running = start(trial);
            kill_process(running.host(), Signal::STOP).unwrap();
            all_gone(attempt, trial)?;
            let finished = running.finish();
            assert_eq!(finished.code(), 137, "{:#?}", finished.stderr);
            assert!(finished.says("killed at the deadline"), "{:#?}", finished.stderr);
            Ok(())
        });
    }

    #[test]
    fn stopped_host_and_stopped_worker_are_dead_at_the_deadline() {
        VVM.timed("host and worker stopped", |attempt, trial| {
            let running = start(trial);
            for pid in trial.processes().0.into_iter().filter(|pid| *pid != running.guardian) {
                kill_process(pid, Signal::STOP).unwrap();
            }
            all_gone(attempt, trial)?;
            assert_eq!(running.finish().code(), 137);
            Ok(())
        });
    }

    #[test]
    fn stopped_guardian_ends_all_processes_at_the_deadline() {
        VVM.timed("guardian stopped", |attempt, trial| {
            let running = start(trial);
            running.signal(Signal::STOP);
            all_gone(attempt, trial)?;
            let finished = running.finish();
            assert_eq!(finished.signal(), 9, "{:#?}", finished.stderr);
            assert!(finished.says("the guardian was stopped"), "{:#?}", finished.stderr);
            // All was proven gone, so the next leader does not wait for the record to expire.
            let next = trial.run(["echo", "next"]).with(["--acquire-timeout", "0"]).finish();
            assert_eq!(next.stdout, ["next"]);
            Ok(())
        });
    }
}
