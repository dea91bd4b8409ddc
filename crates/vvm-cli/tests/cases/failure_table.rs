//! The failure table of docs/architecture.md: guardian, host and keeper, each killed or stopped, alone and
//! together.
//!
//! In every row but those named, nothing of the command is left in the end. Where the table gives a time, the
//! row has a test of its own (`containment`, `guardian_death`, `hung`).

use crate::VVM;
use harness::{Level, Running, Trial, eventually, state};
use rustix::process::{Pid, Signal, kill_process};

/// The three.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    Guardian,
    Host,
    Keeper,
}

use Who::{Guardian, Host, Keeper};

const KILL: Signal = Signal::KILL;
const STOP: Signal = Signal::STOP;

impl Who {
    fn process(self, trial: &Trial, running: &Running) -> Pid {
        match self {
            Guardian => running.guardian,
            Host => running.host(),
            Keeper if VVM.level() == Level::PidNamespace => trial.process("vvm stage-init"),
            Keeper => trial.process("vvm stage-keeper"),
        }
    }
}

/// A command, and a daemon that it leaves behind: both are there.
fn start(trial: &Trial) -> Running {
    let script = "(trap '' TERM; setsid sleep 1000 &); echo up; exec sleep 1001";
    let mut running = trial.run_script(script).with(["--ttl", trial.ttl("2s")]).start();
    running.stdout.wait_for("up");
    eventually("the daemon is there", || !daemon(trial).is_empty());
    running
}

/// Not a keeper, whose command line names the command.
fn daemon(trial: &Trial) -> Vec<Pid> {
    let stages = trial.processes().with(" stage-");
    trial.processes().with("sleep 1000").into_iter().filter(|pid| !stages.contains(pid)).collect()
}

/// What is to be stopped is stopped first, and the keeper is killed before the others: each of them would act
/// otherwise.
fn suffer(trial: &Trial, running: &Running, row: &[(Who, Signal)]) {
    let found = row.iter().map(|(who, signal)| (who.process(trial, running), *signal)).collect::<Vec<_>>();
    for which in [STOP, KILL] {
        for (process, signal) in found.iter().rev().filter(|(_, signal)| *signal == which) {
            // The end of another one may have been faster.
            let _ended = kill_process(*process, *signal);
        }
    }
}

/// Nothing is left, but a guardian that is stopped.
fn nothing_outlives(row: &[(Who, Signal)]) {
    let trial = VVM.trial();
    let running = start(&trial);
    suffer(&trial, &running, row);
    let guardian = running.guardian;
    eventually(&format!("nothing is left: {row:?}"), || {
        trial.processes().0.iter().all(|one| *one == guardian && state(guardian) == Some('T'))
    });
    // It may have been ended by its host.
    let _ = kill_process(guardian, Signal::CONT);
    running.finish();
}

/// The kernel ends the command. The daemon may live on, for good or until the guardian goes on.
fn command_does_not_outlive(row: &[(Who, Signal)]) {
    let trial = VVM.trial();
    let running = start(&trial);
    suffer(&trial, &running, row);
    let daemon = daemon(&trial);
    eventually(&format!("the command is gone: {row:?}"), || {
        let left = trial.processes().0;
        left.iter().all(|one| *one == running.guardian || daemon.contains(one))
    });
    let _ = kill_process(running.guardian, Signal::CONT);
    if row.contains(&(Guardian, KILL)) {
        trial.processes().kill();
    }
    eventually("nothing is left", || trial.processes().0.is_empty());
    running.finish();
}

#[test]
fn nothing_outlives_one_killed_process() {
    for who in [Guardian, Host, Keeper] {
        nothing_outlives(&[(who, KILL)]);
    }
}

#[test]
fn nothing_outlives_a_stopped_guardian_or_host() {
    for who in [Guardian, Host] {
        nothing_outlives(&[(who, STOP)]);
    }
}

/// The host continues it with the next renewal. Process 1 of a namespace is found when the command is to
/// stop.
#[test]
fn nothing_outlives_a_stopped_keeper() {
    let trial = VVM.trial();
    let running = start(&trial);
    let keeper = Keeper.process(&trial, &running);
    suffer(&trial, &running, &[(Keeper, STOP)]);
    if VVM.level() != Level::PidNamespace {
        eventually("the keeper goes on", || state(keeper) == Some('S'));
    }
    running.signal(Signal::TERM);
    eventually("nothing is left", || trial.processes().0.is_empty());
    running.finish();
}

#[test]
fn nothing_outlives_guardian_and_host() {
    for row in [[KILL, KILL], [STOP, STOP], [KILL, STOP], [STOP, KILL]] {
        nothing_outlives(&[(Guardian, row[0]), (Host, row[1])]);
    }
}

#[test]
fn nothing_outlives_host_and_keeper() {
    for row in [[KILL, KILL], [STOP, STOP], [KILL, STOP], [STOP, KILL]] {
        nothing_outlives(&[(Host, row[0]), (Keeper, row[1])]);
    }
}

#[test]
fn nothing_outlives_a_guardian_and_a_stopped_keeper() {
    for guardian in [KILL, STOP] {
        nothing_outlives(&[(Guardian, guardian), (Keeper, STOP)]);
    }
}

/// The rows at which a daemon may live on, unless the kernel ends its namespace.
#[test]
fn command_does_not_outlive_a_guardian_and_a_killed_keeper() {
    for guardian in [KILL, STOP] {
        let row = [(Guardian, guardian), (Keeper, KILL)];
        match VVM.level() {
            Level::PidNamespace => nothing_outlives(&row),
            Level::Guardian | Level::ControlGroup => command_does_not_outlive(&row),
        }
    }
}

#[test]
fn command_does_not_outlive_guardian_host_and_keeper() {
    for signal in [KILL, STOP] {
        let row = [Guardian, Host, Keeper].map(|who| (who, signal));
        match VVM.level() {
            Level::PidNamespace => nothing_outlives(&row),
            Level::Guardian | Level::ControlGroup => command_does_not_outlive(&row),
        }
    }
}

/// (I6) Without proof that nothing runs, the record is left to expire. At level pidns the kernel gives the
/// proof.
/// Shows I6.
#[test]
fn record_expires_after_a_killed_keeper_unless_the_kernel_proves_the_end() {
    let trial = VVM.trial();
    let script = "(trap '' TERM; setsid sleep 1000 &); echo up; exec sleep 1001";
    let mut running = trial.run_script(script).with(["--ttl", "60s"]).start();
    running.stdout.wait_for("up");
    suffer(&trial, &running, &[(Keeper, KILL)]);
    eventually("nothing is left", || trial.processes().0.is_empty());
    let finished = running.finish();
    let (_, shown, _) = trial.status(&["--name", &trial.name()]);
    if VVM.level() == Level::PidNamespace {
        assert_eq!(finished.code(), 128 + 9, "{:#?}", finished.stderr);
        assert!(shown.contains("free"), "{shown}");
    } else {
        assert_eq!(finished.code(), 71, "{:#?}", finished.stderr);
        assert!(finished.says("the record is left to expire"), "{:#?}", finished.stderr);
        assert!(!shown.contains("free"), "{shown}");
    }
}
