//! Level pidns: what a PID namespace for the worker promises beyond level guardian.

use crate::VVM;
use harness::{Level, NOBODY, Running, Trial, gives_pid_namespaces, gives_user_namespaces};
use rustix::process::{Signal, geteuid, kill_process};
use std::{fs, time::Duration};
use vvm_clock::{Instant, SystemClock};

/// Daemons, a process that ignores TERM, and processes that fork so fast that no list of them is complete.
const STORM: &str =
    "trap '' TERM; (setsid sleep 1000 &); (setsid sh -c 'storm() { while :; do (:) & done; }; storm' &)
                     (setsid sh -c 'next() { (next &); }; next' &) ; echo up; exec sleep 1001";

fn of_the_worker(trial: &Trial) -> usize {
    let ours = trial.processes().with("vvm run ").len() + trial.processes().with("vvm stage-").len();
    trial.processes().0.len().saturating_sub(ours)
}

/// Whether this machine has PID namespaces. Without them, only
/// [`machine_without_pid_namespaces_is_refused_with_71`] tests anything.
fn is_at_its_level() -> bool {
    VVM.level() == Level::PidNamespace
}

fn gone_within(what: &str, bound: Duration, options: &[&str], act: impl Fn(&Trial, &Running) -> Instant) {
    if !is_at_its_level() {
        return;
    }
    VVM.timed(what, |attempt, trial| {
        let running = trial.run_script(STORM).with(options.iter().copied()).up();
        let began_at = act(trial, &running);
        attempt.within("the end of the storm", bound, began_at, || of_the_worker(trial) == 0)?;
        let _ = kill_process(running.guardian, Signal::CONT);
        running.finish();
        Ok(())
    });
}

#[test]
fn worker_sees_only_its_own_processes_and_its_mounts_stay_inside() {
    if !is_at_its_level() {
        return;
    }
    let trial = VVM.trial();
    let mounts = || {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        mounts.lines().filter(|line| line.split(' ').nth(4) == Some("/proc")).count()
    };
    let before = mounts();
    let script = "set -- /proc/[0-9]*; echo $#; cat /proc/1/cmdline | tr '\\0' ' '; echo; read word";
    let mut running = trial.run_script(script).stdin(std::process::Stdio::piped()).start();
    assert_eq!(running.stdout.wait_for(""), "2");
    running.stdout.wait_for("vvm stage-init");
    assert_eq!(mounts(), before);
    running.stop();
}

#[test]
fn killed_process_1_of_the_namespace_counts_as_a_killed_worker() {
    if !is_at_its_level() {
        return;
    }
    let trial = VVM.trial();
    let running = trial.run_script(STORM).up();
    kill_process(trial.process("vvm stage-init"), Signal::KILL).unwrap();
    let finished = running.finish();
    finished.assert_ended(128 + 9, "the command was ended by SIGKILL");
}

/// The kernel sends HUP to an orphaned group with a stopped process when a member with a parent outside of it ends.
#[test]
fn session_leader_with_a_stopped_process_survives_a_start() {
    let trial = VVM.trial();
    let script = "sleep 1000 & kill -s STOP $!; \"$@\"; echo lives; kill -s KILL $!";
    let finished = trial.run(["echo", "ran"]).through(["setsid", "sh", "-c", script, "sh"]).finish();
    assert_eq!(finished.stdout, ["ran", "lives"], "{:#?}", finished.stderr);
}

#[test]
fn ordinary_user_gets_pidns_inside_a_user_namespace() {
    if !geteuid().is_root() {
        return;
    }
    let trial = VVM.trial();
    let script = "id -u; id -g; grep CapEff /proc/self/status";
    let finished = trial.run_script(script).as_ordinary_user(&trial).finish();
    if gives_user_namespaces(&NOBODY) && is_at_its_level() {
        assert_eq!(finished.stdout[..2], ["65534", "65534"], "{:#?}", finished.stderr);
        assert!(finished.stdout[2].ends_with("0000000000000000"), "{:?}", finished.stdout);
        finished.assert_says("containment: pidns");
    } else if is_at_its_level() {
        finished.assert_code(71);
    }
}

#[test]
fn machine_without_pid_namespaces_is_refused_with_71() {
    let trial = VVM.trial();
    let run = trial.run(["echo", "started"]).with(["--containment", "pidns"]);
    let (refused, hint) = if !gives_pid_namespaces() {
        (run, "run as root or with CAP_SYS_ADMIN")
    } else if gives_user_namespaces(&[]) {
        // A user namespace has limits of its own.
        let limit = "echo 0 > /proc/sys/user/max_pid_namespaces; exec \"$@\"";
        let limited = ["unshare", "--user", "--map-root-user", "sh", "-c", limit, "sh"];
        (run.through(limited), "raise user.max_pid_namespaces")
    } else {
        // User namespaces are forbidden, so an unprivileged user gets no PID namespace either.
        (run.through(["setpriv", "--bounding-set", "-sys_admin"]), "run as root or with CAP_SYS_ADMIN")
    };
    let finished = refused.finish();
    finished.assert_ended(71, hint);
    assert_eq!(finished.stdout, [""; 0]);
}

mod timed {
    use super::*;

    #[test]
    fn fork_storm_ends_with_guardian_and_host_killed_at_once() {
        gone_within("storm, both killed", harness::OUTLIVING, &[], |_, running| {
            let host = running.host();
            let killed_at = SystemClock::read();
            running.signal(Signal::STOP);
            kill_process(host, Signal::KILL).unwrap();
            running.signal(Signal::KILL);
            killed_at
        });
    }

    /// The kernel ends all processes: no process of `vvm` can act.
    #[test]
    fn nothing_outlives_the_deadline_if_all_vvm_processes_are_stopped() {
        let bound = Duration::from_millis(1600) + harness::OUTLIVING;
        gone_within("storm, all of ours stopped", bound, &["--ttl", "2s"], |trial, running| {
            running.signal(Signal::STOP);
            kill_process(running.host(), Signal::STOP).unwrap();
            for stage in ["vvm stage-namespace", "vvm stage-init"] {
                kill_process(trial.process(stage), Signal::STOP).unwrap();
            }
            SystemClock::read()
        });
    }
}
