//! Local wake-ups: a standby on the same machine is woken and leads at once. An unusable folder disables only that. A
//! standby polls once a second. Each trial begins with a hint to all candidates, after which none polls for three
//! quarters of a second: a hand-over within that time shows that a wake-up arrived.

use crate::VVM;
use harness::{Late, Running, Trial, eventually};
use rustix::process::Signal;
use std::{
    fs,
    os::unix::{fs::FileTypeExt as _, net::UnixDatagram},
    path::PathBuf,
    time::Duration,
};
use vvm_clock::SystemClock;

const PROMISED: Duration = Duration::from_millis(200);

/// The shortest time after which a candidate polls again without a hint.
const LEFT_ALONE: Duration = Duration::from_millis(700);

/// The same after a refused claim during a pause: half of at most a second.
const LEFT_ALONE_AFTER_A_REFUSAL: Duration = Duration::from_millis(450);

/// How long the leader's command takes to stop: long enough for every candidate to handle an earlier hint.
const SLOW_TO_STOP: &str =
    "trap 'sleep 0.3; echo ended; exit' TERM; echo works; while :; do sleep 0.01; done";

const WORK: &str = "trap 'echo ended; exit' TERM; echo works; while :; do sleep 0.01; done";

fn leader(trial: &Trial, holder: &str) -> Running {
    let mut running = trial.run_script(WORK).with(["--holder", holder]).start();
    running.stdout.wait_for("works");
    running
}

fn standby(trial: &Trial, holder: &str) -> Running {
    trial.run_script(WORK).with(["--holder", holder]).waiting()
}

fn sockets(trial: &Trial) -> Vec<PathBuf> {
    let files = fs::read_dir(trial.local_dir()).into_iter().flatten().flatten();
    files.filter(|file| file.file_type().is_ok_and(|kind| kind.is_socket())).map(|file| file.path()).collect()
}

fn hint(trial: &Trial, candidates: usize) {
    eventually("sockets of all candidates", || sockets(trial).len() == candidates);
    let socket = UnixDatagram::unbound().unwrap();
    for path in sockets(trial) {
        socket.send_to(&[], path).unwrap();
    }
}

/// This holds for candidates with `none` or without the folder, and for commands that only wake others.
#[test]
fn hand_over_without_a_local_dir_works_by_polling() {
    let trial = VVM.trial();
    let run = |holder| trial.run_script(WORK).with(["--holder", holder, "--local-dir", "none"]);
    let mut first = run("a").start();
    first.stdout.wait_for("works");
    let mut second = run("b").waiting();
    assert!(!PathBuf::from(trial.local_dir()).exists());
    fs::write(trial.local_dir(), "in the way").unwrap();
    trial.must("step-down", &["--to", "b"]);
    second.stdout.wait_for("works");
    assert_eq!(fs::read_to_string(trial.local_dir()).unwrap(), "in the way");
    fs::remove_file(trial.local_dir()).unwrap();

    let mut third = standby(&trial, "c");
    eventually("its socket", || sockets(&trial).len() == 1);
    fs::remove_dir_all(trial.local_dir()).unwrap();
    first.stop();
    second.signal(Signal::TERM);
    third.stdout.wait_for("works");
}

mod timed {
    use super::*;

    #[test]
    fn standby_leads_at_once_after_a_stopped_leader() {
        VVM.timed("TERM to a leader", |attempt, trial| {
            let start = |holder| trial.run_script(SLOW_TO_STOP).with(["--holder", holder]).start();
            let mut first = start("a");
            first.stdout.wait_for("works");
            let mut second = start("b");
            second.stderr.wait_for("waiting for leadership");
            hint(trial, 2);
            first.signal(Signal::TERM);
            first.stdout.wait_for("ended");
            let ended_at = SystemClock::read();
            second.stdout.wait_for("works");
            attempt.took("the hand-over", PROMISED, ended_at)?;
            first.finish();
            Ok(())
        });
    }

    /// It needs three wake-ups: for the standby's answer, the leader's answer, and the release.
    #[test]
    fn step_down_takes_less_than_a_polling_interval() {
        VVM.timed("step-down --to, from the command on", |attempt, trial| {
            let (_one, mut other) = (leader(trial, "a"), standby(trial, "b"));
            hint(trial, 2);
            let began_at = SystemClock::read();
            std::thread::scope(|scope| {
                let asked = scope.spawn(|| trial.about("step-down", &["--to", "b"]));
                other.stdout.wait_for("works");
                attempt.took("the step-down", LEFT_ALONE, began_at)?;
                assert_eq!(asked.join().unwrap().0, 0);
                Ok(())
            })
        });
    }

    #[test]
    fn pause_and_its_end_take_effect_at_once() {
        VVM.timed("a pause and its end", |attempt, trial| {
            let mut running = leader(trial, "a");
            hint(trial, 1);
            let began_at = SystemClock::read();
            std::thread::scope(|scope| {
                let asked = scope.spawn(|| trial.about("pause", &[]));
                running.stdout.wait_for("ended");
                attempt.took("the end of the command", LEFT_ALONE, began_at)?;
                assert_eq!(asked.join().unwrap().0, 0);
                Ok::<(), Late>(())
            })?;
            running.stderr.wait_for("paused by");
            hint(trial, 1);
            let began_at = SystemClock::read();
            std::thread::scope(|scope| {
                let asked = scope.spawn(|| trial.about("resume", &[]));
                running.stdout.wait_for("works");
                attempt.took("the start of the command", LEFT_ALONE_AFTER_A_REFUSAL, began_at)?;
                assert_eq!(asked.join().unwrap().0, 0);
                Ok(())
            })
        });
    }
}
