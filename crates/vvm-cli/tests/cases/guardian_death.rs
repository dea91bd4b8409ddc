//! Only the guardian is killed: its processes end at once, and the host releases the leadership before it ends.

use crate::VVM;
use harness::{Terminal, Trial, eventually, has_ended, state};
use nix::sys::ptrace;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};
use vvm_clock::SystemClock;

/// The TTL. A standby that leads sooner must have got a released slot.
const LONG: Duration = Duration::from_secs(60);

const BOUND: Duration = Duration::from_millis(5000 + 500);

/// Returns a script that prints whether it alone holds a lock, and `up`. Its processes hold the lock while one lives.
pub(super) fn alone(trial: &Trial) -> String {
    let lock = trial.folder().join("lock");
    format!(
        "exec 9>>'{}'; flock -n 9 && echo alone || echo not alone; echo up; (trap '' TERM; setsid sleep 1000 &); \
         exec sleep 1001",
        lock.display()
    )
}

fn kill(process: Pid) {
    kill_process(process, Signal::KILL).unwrap();
}

fn lines(file: &Path) -> usize {
    fs::read_to_string(file).unwrap_or_default().lines().count()
}

fn workers(trial: &Trial) -> Vec<Pid> {
    let ours = trial.processes().with(VVM.path());
    let stages = trial.processes().with("stage-");
    let all = trial.processes().0;
    all.into_iter().filter(|pid| !ours.contains(pid) && !stages.contains(pid)).collect()
}

#[test]
fn host_of_a_killed_guardian_writes_nothing_to_the_terminal() {
    let trial = VVM.trial();
    let mut terminal = Terminal::new(&trial);
    let run = trial.run_script("echo at work; exec sleep 1001").with(["--ttl", "60s"]);
    terminal.type_line(&run.quoted());
    terminal.screen.wait_for("at work");
    let guardian = trial.processes().with(" run ").first().copied().unwrap();
    kill(guardian);
    eventually("the host is gone", || trial.processes().with("stage-host").is_empty());
    terminal.type_line("echo o''ver");
    let mut line = String::new();
    while line != "over" {
        line = terminal.screen.wait_for("");
        assert!(!line.contains("vvm: "), "{line}");
    }
    assert_eq!(trial.slot_state(), "free");
    terminal.close();
}

#[test]
fn success_before_the_guardian_is_killed_is_told() {
    let trial = VVM.trial();
    let options = ["--on-exit", "restart", "--restart-backoff", "1h", "--restart-backoff-max", "1h"];
    let mut running = trial.run(["true"]).with(options).with(["--ttl", "60s"]).start();
    running.stderr.wait_for("restart 1 in 3600s");
    kill(running.guardian);
    let finished = running.finish();
    finished.assert_says("the guardian died: the command exited with status 0");
}

mod timed {
    use super::*;

    #[test]
    fn standby_leads_long_before_the_ttl_after_a_killed_guardian() {
        VVM.timed("a guardian is killed beside a standby", |attempt, trial| {
            let script = alone(trial);
            let run = || trial.run_script(&script).with(["--ttl", "60s"]);
            let leader = run().up();
            let mut standby = run().waiting();
            let (host, began) = (leader.host(), SystemClock::read());
            kill(leader.guardian);
            assert_eq!(standby.stdout.wait_for("alone"), "alone");
            attempt.took("the hand-over", LONG / 4, began)?;
            eventually("the host is gone", || has_ended(host));
            let finished = leader.finish();
            assert_eq!(finished.signal(), 9);
            finished.assert_says("the guardian died: the command has been killed");
            let shown = trial.must("history", &[]);
            assert_eq!(shown.matches("the guardian died").count(), 1, "{shown}");
            Ok(())
        });
    }

    #[test]
    fn standby_ends_with_its_killed_guardian() {
        VVM.timed("a standby's guardian is killed", |attempt, trial| {
            let leader = trial.run_forever().up();
            let standby = trial.run(["echo", "never"]).waiting();
            let host = standby.host();
            let killed_at = SystemClock::read();
            kill(standby.guardian);
            attempt.within("the end of the host", BOUND, killed_at, || has_ended(host))?;
            assert_eq!(standby.finish().stdout, [""; 0]);
            leader.stop();
            Ok(())
        });
    }

    /// No restart, check or `--pre-stop` starts, at whatever moment the guardian is killed.
    #[test]
    fn nothing_starts_after_the_guardian_is_killed() {
        for round in [0, 2, 4, 7, 9] {
            VVM.timed("a guardian is killed at any moment", |attempt, trial| {
                let starts = trial.folder().join("starts");
                let pre_stop = trial.folder().join("pre-stop");
                let script =
                    format!("echo x >> '{}'; (setsid sleep 1000 &); sleep 0.00{round}", starts.display());
                let check = format!("echo x >> '{}'", starts.display());
                let before = format!("echo x >> '{}'", pre_stop.display());
                let running = trial
                    .run_script(&script)
                    .with(["--ttl", "60s", "--on-exit", "restart", "--restart-backoff", "1ms"])
                    .with(["--restart-backoff-max", "1ms", "--stop-timeout", "1ms", "--on-loss", "rejoin"])
                    .with(["--check", &check, "--check-interval", "3ms", "--pre-stop", &before])
                    .start();
                eventually("it was started again", || lines(&starts) > 3 + round);
                let host = running.host();
                let killed_at = SystemClock::read();
                kill(running.guardian);
                attempt.within("the end of all processes", BOUND, killed_at, || {
                    trial.processes().0.is_empty()
                })?;
                let started = lines(&starts);
                let finished = running.finish();
                assert_eq!((lines(&starts), lines(&pre_stop)), (started, 0), "{:#?}", finished.stderr);
                // The environment of a process is gone a moment before the process.
                eventually("the host is gone", || has_ended(host));
                assert_eq!(trial.slot_state(), "free", "{:#?}", finished.stderr);
                Ok(())
            });
        }
    }

    #[test]
    fn host_ends_in_time_although_the_storage_is_locked() {
        for (ttl, at_most) in [("60s", BOUND), ("2s", Duration::from_millis(1600 + 500))] {
            VVM.timed("a guardian is killed while the storage is locked", |attempt, trial| {
                let leader = trial.run_script(&alone(trial)).with(["--ttl", ttl]).up();
                let host = leader.host();
                let lock = trial.lock_storage();
                kill(leader.guardian);
                eventually("no worker is left", || workers(trial).is_empty());
                let since = SystemClock::read();
                attempt.within("the end of the host", at_most, since, || has_ended(host))?;
                drop(lock);
                let finished = leader.finish();
                for early in ["deadman", "does not answer, so the record may stand"] {
                    assert!(!finished.says(early), "{:#?}", finished.stderr);
                }
                assert_ne!(trial.slot_state(), "free");
                Ok(())
            });
        }
    }

    /// The main thread of the host is held as by a debugger. Its other thread still ends all workers at once.
    #[test]
    fn all_workers_end_at_once_although_the_host_hangs() {
        VVM.timed("a guardian is killed while the host hangs", |attempt, trial| {
            let leader = trial.run_script(&alone(trial)).with(["--ttl", "60s"]).up();
            let host = leader.host();
            let traced = nix::unistd::Pid::from_raw(host.as_raw_pid());
            let is_held = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    ptrace::seize(traced, ptrace::Options::empty()).unwrap();
                    ptrace::interrupt(traced).unwrap();
                    nix::sys::wait::waitpid(traced, Some(nix::sys::wait::WaitPidFlag::__WALL)).unwrap();
                    is_held.store(true, Ordering::SeqCst);
                    // The tracer must see the end of the host first.
                    eventually("the host is gone", || has_ended(host));
                });
                eventually("it is held", || is_held.load(Ordering::SeqCst));
                let began = SystemClock::read();
                kill(leader.guardian);
                eventually("no command works", || workers(trial).is_empty());
                assert_eq!(state(host), Some('t'), "it was still held when the last of the worker was gone");
                let result = attempt.within("the end of the host", BOUND, began, || has_ended(host));
                eventually("the host is gone", || has_ended(host));
                result
            })?;
            leader.finish();
            assert_ne!(trial.slot_state(), "free");
            Ok(())
        });
    }
}
