//! The failure table of containment's README: guardian, host and keeper, each killed or stopped, alone and together. In
//! most rows, no process of the command is left at the end. Rows with a time have their own tests (`containment`,
//! `guardian_death`, `hung`).

use crate::VVM;
use harness::{Level, Running, Trial, eventually, has, state};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use std::{fs, path::Path, thread};

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

fn start(trial: &Trial) -> Running {
    start_with(trial, &["--ttl", harness::SHORT_TTL])
}

fn start_with(trial: &Trial, options: &[&str]) -> Running {
    let script = "(trap '' TERM; setsid sleep 1000 &); echo up; exec sleep 1001";
    let running = trial.run_script(script).with(options.iter().copied()).up();
    eventually("the daemon is there", || !daemon(trial).is_empty());
    running
}

/// Finds the daemon. The command line of a keeper also contains the command, so keepers are excluded.
fn daemon(trial: &Trial) -> Vec<Pid> {
    let stages = trial.processes().with(" stage-");
    trial.processes().with("sleep 1000").into_iter().filter(|pid| !stages.contains(pid)).collect()
}

/// Sends the signals of a row: first stops, so that nothing can react, and to the keeper before the others.
fn inject(trial: &Trial, running: &Running, row: &[(Target, Signal)]) {
    let found =
        row.iter().map(|(target, signal)| (target.process(trial, running), *signal)).collect::<Vec<_>>();
    for which in [STOP, KILL] {
        for (process, signal) in found.iter().rev().filter(|(_, signal)| *signal == which) {
            let _ended = kill_process(*process, *signal);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    Nothing,
    /// The daemon, unless the kernel ends its namespace. Never the command.
    Daemon,
}

fn plays(row: &[(Target, Signal)], left: Left) {
    let trial = VVM.trial();
    let running = start(&trial);
    let daemon = daemon(&trial);
    inject(&trial, &running, row);
    let guardian = running.guardian;
    let daemon_may_live = left == Left::Daemon && VVM.level() != Level::PidNamespace;
    eventually(&format!("{row:?}: nothing is left"), || {
        trial.processes().0.iter().all(|one| {
            *one == guardian && state(guardian) == Some('T') || daemon_may_live && daemon.contains(one)
        })
    });
    let _ = kill_process(guardian, Signal::CONT);
    if daemon_may_live && row.contains(&(Guardian, KILL)) {
        trial.processes().kill();
    }
    eventually(&format!("{row:?}: nothing is left in the end"), || trial.processes().0.is_empty());
    running.finish();
}

fn all(rows: &[&[(Target, Signal)]], left: Left) {
    thread::scope(|scope| {
        for row in rows {
            scope.spawn(move || plays(row, left));
        }
    });
}

#[test]
fn nothing_outlives_two_of_guardian_host_and_keeper() {
    for pair in [[Guardian, Host], [Host, Keeper]] {
        let rows = [[KILL, KILL], [STOP, STOP], [KILL, STOP], [STOP, KILL]];
        let rows = rows.map(|signals| [(pair[0], signals[0]), (pair[1], signals[1])]);
        all(&rows.each_ref().map(|row| &row[..]), Left::Nothing);
    }
    all(&[&[(Guardian, KILL), (Keeper, STOP)], &[(Guardian, STOP), (Keeper, STOP)]], Left::Nothing);
}

#[test]
fn command_does_not_outlive_a_guardian_and_a_killed_keeper() {
    all(&[&[(Guardian, KILL), (Keeper, KILL)], &[(Guardian, STOP), (Keeper, KILL)]], Left::Daemon);
}

#[test]
fn command_does_not_outlive_guardian_host_and_keeper() {
    let rows = [KILL, STOP].map(|signal| [Guardian, Host, Keeper].map(|target| (target, signal)));
    all(&rows.each_ref().map(|row| &row[..]), Left::Daemon);
}

/// Gives a process as many descriptors as this one may have, or no further one.
fn limit_descriptors(process: Pid, has_more: bool) {
    let own = getrlimit(Resource::Nofile);
    let is_free = |number: &u64| !Path::new(&format!("/proc/{process}/fd/{number}")).exists();
    let limit = if has_more { own } else { Rlimit { current: (0..).find(is_free), ..own } };
    let _ = prlimit(Some(process), Resource::Nofile, limit);
}

/// How often a process of one thread has waited. `None` if it is gone.
fn waits(process: Pid) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line?.trim().parse().ok()
}

/// A pass that finds no process is repeated. If none finds any, the kernel ends the command in time. Shows I4.
#[test]
fn command_does_not_outlive_a_killed_host_for_want_of_descriptors() {
    for helped in [Some(0), Some(1), None] {
        let trial = VVM.trial();
        let ttl = if helped.is_some() { "1h" } else { harness::SHORT_TTL };
        let running = start_with(&trial, &["--ttl", ttl]);
        let both = [Guardian, Keeper].map(|target| target.process(&trial, &running));
        both.into_iter().for_each(|process| limit_descriptors(process, false));
        let before = both.map(waits);
        inject(&trial, &running, &[(Host, KILL)]);
        eventually("both have looked for processes", || {
            both.map(waits).iter().zip(&before).all(|(now, before)| now.is_none() || now > before)
        });
        match helped {
            Some(place) => limit_descriptors(both[place], true),
            None => {
                eventually("the command is gone", || trial.processes().of("sleep 1001").is_empty());
                limit_descriptors(running.guardian, true);
            }
        }
        let guardian = running.guardian;
        eventually("nothing is left", || trial.processes().0.iter().all(|one| *one == guardian));
        limit_descriptors(guardian, true);
        running.finish();
    }
}

/// The host continues a stopped keeper with the next renewal, and process 1 of a namespace when the command must stop.
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

/// (I6) Without a keeper the host has no proof that nothing runs. The guardian has: what the keeper had
/// started becomes its child. At level pidns the kernel gives the proof. Shows I6.
#[test]
fn record_is_released_after_a_killed_keeper() {
    let trial = VVM.trial();
    let running = start_with(&trial, &["--ttl", "60s", "--result-file", &trial.result_file()]);
    inject(&trial, &running, &[(Keeper, KILL)]);
    eventually("nothing is left", || trial.processes().0.is_empty());
    let finished = running.finish();
    assert_eq!(trial.slot_state(), "free");
    if VVM.level() == Level::PidNamespace {
        finished.assert_code(128 + 9);
    } else {
        finished.assert_ended(71, "released by the guardian after the keeper of the command died");
        has!(trial.result(), "outcome" == "keeper_died", "exit_status" == 71);
        assert!(trial.result()["epoch"].as_u64().is_some(), "{}", trial.result());
    }
}
