//! What each signal does in each state: the table of docs/vvm-run.md, row by row.
//!
//! A cell says how `vvm` ends and what its command gets. Each test also checks that no process is left, and
//! who holds the record then. `terminal.rs` tests signals of terminals.

mod scene;

use crate::VVM;
use Effect::{Ends, EndsTheCommand, Kills, Nothing, PassedOn, Stops, Waits};
use harness::{Run, Terminal, Trial, eventually, gives_pid_namespaces};
use rustix::process::{Pid, Signal, kill_process};
use scene::Scene;
use std::{fs, thread};
use vvm_containment::signal_named;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// The storage can't be opened yet.
    Opening,
    /// Another process leads.
    Campaigning,
    /// The name is paused.
    Paused,
    /// It has lost its leadership to another process, and is a candidate again.
    Rejoining,
    /// It has given its leadership up because the command was unhealthy, and does not campaign yet.
    LettingOthersGoFirst,
    /// It leads, and may not have started the command yet.
    Starting,
    /// The command works.
    Leading,
    /// After TERM, it runs `--pre-stop`.
    PreStopping,
    /// It runs `--pre-stop` after a failed check.
    PreStoppingUnhealthy,
    /// The command got TERM, and still runs.
    Stopping,
    /// The command got INT, and still runs.
    StoppingByInt,
    /// A check has failed, and the command still runs.
    Unhealthy,
    /// The name is being paused, and the command still runs.
    Pausing,
    /// The leadership is lost to another process, and the command still runs.
    Lost,
    /// The command has ended, and will be started again.
    BetweenRuns,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// The signal ends `vvm` at once.
    Ends,
    /// No effect.
    Nothing,
    /// The command gets it, and nothing else happens.
    PassedOn,
    /// The command gets it after `--pre-stop`. A second one kills.
    Waits,
    /// The command gets it, and must end within the stop timeout.
    Stops,
    /// The command is killed at once.
    Kills,
    /// The command dies of it.
    EndsTheCommand,
}

/// TERM, INT, HUP, QUIT, USR1, USR2.
const TABLE: [(State, [Effect; 6]); 15] = [
    (State::Opening, [Ends, Ends, Ends, Ends, Nothing, Nothing]),
    (State::Campaigning, [Ends, Ends, Ends, Ends, Nothing, Nothing]),
    (State::Paused, [Ends, Ends, Ends, Ends, Nothing, Nothing]),
    (State::Rejoining, [Ends, Ends, Ends, Ends, Nothing, Nothing]),
    (State::LettingOthersGoFirst, [Ends, Ends, Ends, Ends, Nothing, Nothing]),
    (State::Starting, [EndsTheCommand; 6]),
    (State::Leading, [Stops, Stops, PassedOn, PassedOn, PassedOn, PassedOn]),
    (State::PreStopping, [Kills, Kills, PassedOn, PassedOn, PassedOn, PassedOn]),
    (State::PreStoppingUnhealthy, [Waits, Waits, PassedOn, PassedOn, PassedOn, PassedOn]),
    (State::Stopping, [Kills, Kills, PassedOn, PassedOn, PassedOn, PassedOn]),
    (State::StoppingByInt, [Kills, Kills, PassedOn, PassedOn, PassedOn, PassedOn]),
    (State::Unhealthy, [PassedOn; 6]),
    (State::Pausing, [PassedOn; 6]),
    (State::Lost, [PassedOn; 6]),
    (State::BetweenRuns, [Ends, Ends, Ends, Ends, Nothing, Nothing]),
];

const SIGNALS: [(Signal, &str); 6] = [
    (Signal::TERM, "TERM"),
    (Signal::INT, "INT"),
    (Signal::HUP, "HUP"),
    (Signal::QUIT, "QUIT"),
    (Signal::USR1, "USR1"),
    (Signal::USR2, "USR2"),
];

/// Runs all signals in all of these states at the same time, because some take seconds to reach.
fn rows(states: &[State]) {
    let mut cells = Vec::new();
    for state in states.iter().copied() {
        let (_, effects) = TABLE.into_iter().find(|(there, _)| *there == state).unwrap();
        for ((signal, name), effect) in SIGNALS.into_iter().zip(effects) {
            let cell = thread::spawn(move || Scene::set(state).check(signal, name, effect));
            cells.push((format!("{state:?}, {name}: {effect:?}"), cell));
        }
        let [on_term, ..] = effects;
        let stopped = thread::spawn(move || Scene::set(state).check_after_a_stop(on_term));
        cells.push((format!("{state:?}, STOP, CONT: Nothing"), stopped));
    }
    let wrong = cells.into_iter().filter_map(|(what, cell)| cell.join().is_err().then_some(what));
    assert_eq!(wrong.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn while_the_storage_is_opened() {
    rows(&[State::Opening]);
}

#[test]
fn while_campaigning() {
    rows(&[State::Campaigning]);
}

#[test]
fn while_it_must_not_campaign() {
    rows(&[State::Paused, State::LettingOthersGoFirst]);
}

#[test]
fn while_rejoining_after_a_loss() {
    rows(&[State::Rejoining]);
}

#[test]
fn while_the_command_starts_or_works() {
    rows(&[State::Starting, State::Leading]);
}

#[test]
fn while_pre_stop_runs() {
    rows(&[State::PreStopping, State::PreStoppingUnhealthy]);
}

#[test]
fn while_stopping_by_a_signal() {
    rows(&[State::Stopping, State::StoppingByInt]);
}

#[test]
fn while_the_leadership_is_given_up() {
    rows(&[State::Unhealthy, State::Pausing]);
}

#[test]
fn while_stopping_because_of_a_loss() {
    rows(&[State::Lost]);
}

#[test]
fn between_two_runs() {
    rows(&[State::BetweenRuns]);
}

/// Returns the documentation's row of this state: TERM and INT, HUP and QUIT, USR1 and USR2.
fn documented(state: State) -> [String; 3] {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/vvm-run.md");
    let text = std::fs::read_to_string(path).unwrap();
    let table = text.split("| while | TERM, INT | HUP, QUIT | USR1, USR2 |").nth(1).unwrap();
    let mut rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let begins = match state {
        State::Opening
        | State::Campaigning
        | State::Paused
        | State::Rejoining
        | State::LettingOthersGoFirst => "it opens the storage, or waits for leadership",
        State::Starting | State::Leading => "the command starts or works",
        State::PreStopping => "`--pre-stop` runs, because of TERM or INT",
        State::Stopping | State::StoppingByInt => "the command stops, because of TERM or INT",
        State::PreStoppingUnhealthy | State::Unhealthy | State::Pausing | State::Lost => {
            "the command stops, because leadership was lost or is given up"
        }
        State::BetweenRuns => "nothing runs, between two runs",
    };
    let row = rows.find(|row| row.contains(begins)).unwrap();
    let cells = row.split('|').skip(2).take(3).map(|cell| cell.trim().to_owned());
    cells.collect::<Vec<_>>().try_into().unwrap()
}

#[test]
fn table_equals_the_documentation() {
    for (state, effects) in TABLE {
        let [first, second, third] = documented(state);
        for (effect, said) in effects.into_iter().zip([&first, &first, &second, &second, &third, &third]) {
            let said = if said == "the same" { &first } else { said };
            let expected = match effect {
                Ends => said.starts_with("it ends at once"),
                Nothing => said == "nothing",
                PassedOn | EndsTheCommand => said.starts_with("passed on"),
                Waits => said == "passed on; another one kills at once",
                Stops => said == "passed on; the command has `--stop-timeout`",
                Kills => said == "kills at once",
            };
            assert!(expected, "{state:?}: {effect:?}: {said}");
        }
    }
}

/// Where a `vvm run` was started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Setting {
    Service,
    ProcessOne,
    Terminal,
}

/// Returns the rows of the documentation's table of signals: their names, and what they do in each setting.
fn documented_signals() -> Vec<(Vec<String>, [String; 3])> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/vvm-run.md");
    let text = fs::read_to_string(path).unwrap();
    let table = text.split("| signal | as a service, without a terminal | as process 1").nth(1).unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|')).map(|row| {
        let mut cells = row.split('|').skip(1).map(|cell| cell.trim().to_owned());
        let names = cells.next().unwrap().split(", ").map(str::to_owned).collect();
        (names, [cells.next().unwrap(), cells.next().unwrap(), cells.next().unwrap()])
    });
    rows.collect()
}

/// Runs a command that prints the number of each signal, and ends on none of them. It has no children, which would be
/// stopped with it.
fn printer(trial: &Trial) -> Run {
    let fifo = trial.folder().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    let numbers = "1 2 3 10 12 13 14 15 16 18 20 21 22 23 24 25 26 27 28 29 30 $(seq 34 64)";
    let script = format!(
        "for s in {numbers}; do trap \"echo got $s\" $s; done; exec 3<>{}; echo up
         while :; do read -r word <&3; done",
        fifo.display()
    );
    trial.run_script(&script).with(["--stop-timeout", "1h"])
}

/// Sends these signals to a `vvm` of this setting, one after the other, and checks what each one does.
fn signals_do(setting: Setting, names: &[String], effect: &str) {
    let trial = VVM.trial();
    let mut terminal = None;
    let mut running = None;
    match setting {
        Setting::Service => running = Some(printer(&trial).through(["setsid"]).up()),
        Setting::ProcessOne => {
            running = Some(printer(&trial).through(["unshare", "--pid", "--fork", "--mount-proc"]).up());
        }
        Setting::Terminal => {
            let terminal = terminal.insert(Terminal::new(&trial));
            terminal.type_line(&printer(&trial).quoted());
            terminal.screen.wait_for("up");
        }
    }
    let out = match (&mut running, &mut terminal) {
        (Some(running), _) => &mut running.stdout,
        (None, Some(terminal)) => &mut terminal.screen,
        (None, None) => unreachable!(),
    };
    // The guardian's command line has no stage.
    let vvm = trial.process(&format!("{} run", VVM.path()));
    for name in names {
        let signal = signal_named(name).unwrap();
        if effect == "job control" {
            assert!(!catches(vvm, signal), "{name}");
            continue;
        }
        kill_process(vvm, signal).unwrap();
        out.wait_for(&format!("got {}", signal.as_raw()));
    }
    if effect != "stop request" {
        // After a stop request, it would kill.
        kill_process(vvm, Signal::TERM).unwrap();
        out.wait_for("got 15");
    }
    // Two signals within a tenth of a second count as one.
    eventually("a second stop request kills", || {
        thread::sleep(scene::NOT_AN_ECHO);
        let _ = kill_process(vvm, Signal::TERM);
        harness::has_ended(vvm)
    });
    if let Some(terminal) = terminal {
        terminal.close();
    } else if let Some(running) = running {
        let finished = running.finish();
        assert_eq!(finished.code(), 128 + 9, "{:#?}", finished.stderr);
    }
}

/// Whether a process catches a signal, from proc(5).
fn catches(process: Pid, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
    u64::from_str_radix(mask, 16).unwrap() & (1 << (signal.as_raw() - 1)) != 0
}

fn every_signal(setting: Setting) {
    let rows = documented_signals();
    assert_eq!(rows.iter().flat_map(|(names, _)| names).count(), 23);
    let mut checks = Vec::new();
    for (names, effects) in rows {
        let effect = effects[setting as usize].clone();
        // A second stop request kills.
        let at_once = if effect == "stop request" { 1 } else { names.len() };
        for names in names.chunks(at_once) {
            let (names, effect) = (names.to_vec(), effect.clone());
            let what = format!("{names:?}: {effect}");
            checks.push((what, thread::spawn(move || signals_do(setting, &names, &effect))));
        }
    }
    let wrong = checks.into_iter().filter_map(|(what, check)| check.join().is_err().then_some(what));
    assert_eq!(wrong.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn every_signal_does_as_documented_without_a_terminal() {
    every_signal(Setting::Service);
}

#[test]
fn every_signal_does_as_documented_as_process_1() {
    if !gives_pid_namespaces() {
        println!("not tested: this user may not make a PID namespace");
        return;
    }
    every_signal(Setting::ProcessOne);
}

#[test]
fn every_signal_does_as_documented_at_a_terminal() {
    every_signal(Setting::Terminal);
}

/// HUP is ignored as under `nohup`, also without a worker.
#[test]
fn candidate_started_with_hup_ignored_survives_a_hangup() {
    let scene = Scene::set(State::Campaigning);
    let ignoring = ["sh", "-c", "trap '' HUP QUIT; exec \"$@\"", "sh"];
    let candidate = scene.trial.run(["echo", "leads"]).through(ignoring).waiting();
    scene.running.signal(Signal::TERM);
    scene.running.wait();
    candidate.signal(Signal::HUP);
    candidate.signal(Signal::QUIT);
    scene.obstacle.remove(&scene.trial);
    let finished = candidate.finish();
    assert_eq!((finished.code(), finished.stdout), (0, vec!["leads".to_owned()]));
}
