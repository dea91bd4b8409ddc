//! The failure table of containment's README: guardian, host and keeper, each killed or stopped, alone and
//! together.
//!
//! In most rows, no process of the command is left at the end. Rows with a time have their own tests
//! (`containment`, `guardian_death`, `hung`).

use crate::VVM;
use harness::{Level, Running, Trial, eventually, state};
use rustix::process::{Pid, Signal, kill_process};

/// A process of `vvm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Target {
    Guardian,
    Host,
    Keeper,
}

use Target::{Guardian, Host, Keeper};

const KILL: Signal = Signal::KILL;
const STOP: Signal = Signal::STOP;

impl Target {
    fn process(self, trial: &Trial, running: &Running) -> Pid {
        match self {
            Guardian => running.guardian,
            Host => running.host(),
            Keeper if VVM.level() == Level::PidNamespace => trial.process("vvm stage-init"),
            Keeper => trial.process("vvm stage-keeper"),
        }
    }
}

/// Starts a command with a daemon, and waits until both run.
fn start(trial: &Trial) -> Running {
    let script = "(trap '' TERM; setsid sleep 1000 &); echo up; exec sleep 1001";
    let running = trial.run_script(script).with(["--ttl", harness::SHORT_TTL]).up();
    eventually("the daemon is there", || !daemon(trial).is_empty());
    running
}

/// Finds the daemon. The command line of a keeper also contains the command, so keepers are excluded.
fn daemon(trial: &Trial) -> Vec<Pid> {
    let stages = trial.processes().with(" stage-");
    trial.processes().with("sleep 1000").into_iter().filter(|pid| !stages.contains(pid)).collect()
}

/// Sends the signals of a row. It first stops processes, so that they can't react, and it signals the keeper
/// before the others.
fn inject(trial: &Trial, running: &Running, row: &[(Target, Signal)]) {
    let found =
        row.iter().map(|(target, signal)| (target.process(trial, running), *signal)).collect::<Vec<_>>();
    for which in [STOP, KILL] {
        for (process, signal) in found.iter().rev().filter(|(_, signal)| *signal == which) {
            // The process may have ended with another one.
            let _ended = kill_process(*process, *signal);
        }
    }
}

/// Checks that no process is left, except a stopped guardian.
fn nothing_outlives(row: &[(Target, Signal)]) {
    let trial = VVM.trial();
    let running = start(&trial);
    inject(&trial, &running, row);
    let guardian = running.guardian;
    eventually(&format!("nothing is left: {row:?}"), || {
        trial.processes().0.iter().all(|one| *one == guardian && state(guardian) == Some('T'))
    });
    // Its host may have ended it.
    let _ = kill_process(guardian, Signal::CONT);
    running.finish();
}

/// Checks that the command ends. The daemon may live on, until the guardian continues or for ever.
fn command_does_not_outlive(row: &[(Target, Signal)]) {
    let trial = VVM.trial();
    let running = start(&trial);
    inject(&trial, &running, row);
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

/// The host continues a stopped keeper with the next renewal. It continues process 1 of a namespace when the
/// command must stop.
#[test]
fn nothing_outlives_a_stopped_keeper() {
    let trial = VVM.trial();
    let running = start(&trial);
    let keeper = Keeper.process(&trial, &running);
    inject(&trial, &running, &[(Keeper, STOP)]);
    if VVM.level() != Level::PidNamespace {
        eventually("the keeper continues", || state(keeper) == Some('S'));
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

/// In these rows a daemon may live on, unless the kernel ends its namespace.
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
        let row = [Guardian, Host, Keeper].map(|target| (target, signal));
        match VVM.level() {
            Level::PidNamespace => nothing_outlives(&row),
            Level::Guardian | Level::ControlGroup => command_does_not_outlive(&row),
        }
    }
}

/// (I6) Without a keeper the host has no proof that nothing runs. The guardian has: what the keeper had
/// started becomes its child. At level pidns the kernel gives the proof. Shows I6.
#[test]
fn record_is_released_after_a_killed_keeper() {
    let trial = VVM.trial();
    let script = "(trap '' TERM; setsid sleep 1000 &); echo up; exec sleep 1001";
    let running = trial.run_script(script).with(["--ttl", "60s"]).up();
    inject(&trial, &running, &[(Keeper, KILL)]);
    eventually("nothing is left", || trial.processes().0.is_empty());
    let finished = running.finish();
    assert_eq!(trial.slot_state(), "free");
    if VVM.level() == Level::PidNamespace {
        assert_eq!(finished.code(), 128 + 9, "{:#?}", finished.stderr);
    } else {
        assert_eq!(finished.code(), 71, "{:#?}", finished.stderr);
        let released = "released by the guardian after the keeper of the command died";
        assert!(finished.says(released), "{:#?}", finished.stderr);
    }
}
