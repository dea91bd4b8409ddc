//! What each signal does in each state: the tables of docs/vvm-run.md, row by row. An effect says how `vvm` ends and
//! what its command gets. Each check also looks that no process is left, and who holds the record then. `terminal.rs`
//! tests signals of terminals.

mod scene;

use crate::VVM;
use Effect::{Ends, EndsTheCommand, Kills, Nothing, PassedOn, Stops, Waits};
use harness::{Run, Terminal, Trial, catches, eventually, gives_pid_namespaces};
use rustix::process::{Signal, kill_process};
use scene::Scene;
use std::{fs, thread};
use vvm_containment::signal_named;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Opening,
    Campaigning,
    Rejoining,
    LettingOthersGoFirst,
    Starting,
    Leading,
    PreStopping,
    Stopping,
    PreStoppingUnhealthy,
    Unhealthy,
    Lost,
    BetweenRuns,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    Ends,
    Nothing,
    PassedOn,
    Waits,
    Stops,
    Kills,
    EndsTheCommand,
}

/// Each state, where the documentation has its row, and the effects of TERM and INT, HUP and QUIT, USR1 and USR2.
const TABLE: [(State, &str, [Effect; 3]); 12] = [
    (State::Opening, WAITS_FOR_LEADERSHIP, [Ends, Ends, Nothing]),
    (State::Campaigning, WAITS_FOR_LEADERSHIP, [Ends, Ends, Nothing]),
    (State::Rejoining, WAITS_FOR_LEADERSHIP, [Ends, Ends, Nothing]),
    (State::LettingOthersGoFirst, WAITS_FOR_LEADERSHIP, [Ends, Ends, Nothing]),
    (State::Starting, "the command starts or works", [EndsTheCommand; 3]),
    (State::Leading, "the command starts or works", [Stops, PassedOn, PassedOn]),
    (State::PreStopping, "`--pre-stop` runs, because of TERM or INT", [Kills, PassedOn, PassedOn]),
    (State::Stopping, "the command stops, because of TERM or INT", [Kills, PassedOn, PassedOn]),
    (State::PreStoppingUnhealthy, IS_GIVEN_UP, [Waits, PassedOn, PassedOn]),
    (State::Unhealthy, IS_GIVEN_UP, [PassedOn; 3]),
    (State::Lost, IS_GIVEN_UP, [PassedOn; 3]),
    (State::BetweenRuns, "nothing runs, between two runs", [Ends, Ends, Nothing]),
];

const WAITS_FOR_LEADERSHIP: &str = "it opens the storage, or waits for leadership";
const IS_GIVEN_UP: &str = "the command stops, because leadership was lost or is given up";

/// Both signals of a column are one case for the host. So each state gets one of them, the next state the other.
const SIGNALS: [[&str; 3]; 2] = [["TERM", "HUP", "USR1"], ["INT", "QUIT", "USR2"]];

/// Checks all cells of these states at the same time, because some take seconds to reach.
fn rows(states: &[State]) {
    let mut cells = Vec::new();
    for state in states.iter().copied() {
        let place = TABLE.iter().position(|(there, ..)| *there == state).unwrap();
        let (_, _, effects) = TABLE[place];
        for (signal, effect) in SIGNALS[place % 2].into_iter().zip(effects) {
            let cell = thread::spawn(move || decide(|| Scene::set(state).check(signal, effect)));
            cells.push((format!("{state:?}, {signal}: {effect:?}"), cell));
        }
        let stopped = thread::spawn(move || decide(|| Scene::set(state).check_after_a_stop(effects[0])));
        cells.push((format!("{state:?}, STOP, CONT: Nothing"), stopped));
    }
    all_hold(cells);
}

/// What `vvm` says that was killed by a second request, if its release takes longer than a person notices.
const RELEASE_WAS_LATE: &str = "the storage does not answer, so the record may stand";

/// Repeats an attempt that was inconclusive, because this machine was late with the release.
fn decide(attempt: impl Fn() -> Option<()>) {
    assert!((0..5).any(|_| attempt().is_some()), "inconclusive: {RELEASE_WAS_LATE}");
}

fn all_hold(checks: Vec<(String, thread::JoinHandle<()>)>) {
    let wrong = checks.into_iter().filter_map(|(what, check)| check.join().is_err().then_some(what));
    assert_eq!(wrong.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn while_the_storage_is_opened() {
    rows(&[State::Opening]);
}

#[test]
fn while_no_command_runs() {
    rows(&[State::Campaigning, State::Rejoining, State::LettingOthersGoFirst, State::BetweenRuns]);
}

#[test]
fn while_the_command_starts_or_works() {
    rows(&[State::Starting, State::Leading]);
}

#[test]
fn while_it_stops_by_a_signal() {
    rows(&[State::PreStopping, State::Stopping]);
}

#[test]
fn while_the_leadership_is_given_up_or_lost() {
    rows(&[State::PreStoppingUnhealthy, State::Unhealthy, State::Lost]);
}

fn documented(heading: &str) -> Vec<Vec<String>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/vvm-run.md");
    let text = fs::read_to_string(path).unwrap();
    let table = text.split(heading).nth(1).unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.split('|').skip(1).map(|cell| cell.trim().to_owned()).collect()).collect()
}

#[test]
fn table_equals_the_documentation() {
    let rows = documented("| while | TERM, INT | HUP, QUIT | USR1, USR2 |");
    for (state, begins, effects) in TABLE {
        let row = rows.iter().find(|row| row[0].contains(begins)).unwrap();
        for (effect, said) in effects.into_iter().zip(&row[1..]) {
            let said = if said == "the same" { &row[1] } else { said };
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

/// Where a `vvm run` was started. Its place is that of its column in the documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Setting {
    Service = 1,
    ProcessOne,
    Terminal,
}

/// Runs a command that prints the number of each signal, and ends on none. It has no child to be stopped with it.
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

fn signals_do(setting: Setting, names: &[String], effect: &str) -> Option<()> {
    let trial = VVM.trial();
    let (mut terminal, mut running) = (None, None);
    let out = if setting == Setting::Terminal {
        let terminal = terminal.insert(Terminal::new(&trial));
        terminal.type_line(&printer(&trial).quoted());
        terminal.screen.wait_for("up");
        &mut terminal.screen
    } else {
        let as_process_one = ["unshare", "--pid", "--fork", "--mount-proc"];
        let is_service = setting == Setting::Service;
        let through = if is_service { &["setsid"][..] } else { &as_process_one };
        &mut running.insert(printer(&trial).through(through.iter().copied()).up()).stdout
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
        if finished.says(RELEASE_WAS_LATE) {
            return None;
        }
        finished.assert_code(128 + 9);
    }
    Some(())
}

fn every_signal(setting: Setting) {
    let rows = documented("| signal | as a service, without a terminal | as process 1");
    let mut checks = Vec::new();
    let mut count = 0;
    for row in rows {
        let names: Vec<String> = row[0].split(", ").map(str::to_owned).collect();
        count += names.len();
        // A second stop request kills.
        let at_once = if row[setting as usize] == "stop request" { 1 } else { names.len() };
        for names in names.chunks(at_once) {
            let (names, effect) = (names.to_vec(), row[setting as usize].clone());
            let what = format!("{names:?}: {effect}");
            checks.push((what, thread::spawn(move || decide(|| signals_do(setting, &names, &effect)))));
        }
    }
    assert_eq!(count, 23);
    all_hold(checks);
}

#[test]
fn every_signal_does_as_documented_without_a_terminal() {
    every_signal(Setting::Service);
}

#[test]
fn every_signal_does_as_documented_as_process_1() {
    if !gives_pid_namespaces() {
        return println!("not tested: this user may not make a PID namespace");
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
    let trial = VVM.trial();
    let leader = trial.run_forever().up();
    let ignoring = ["sh", "-c", "trap '' HUP QUIT; exec \"$@\"", "sh"];
    let candidate = trial.run(["echo", "leads"]).through(ignoring).waiting();
    candidate.signal(Signal::HUP);
    candidate.signal(Signal::QUIT);
    leader.stop();
    let finished = candidate.finish();
    finished.assert_code(0);
    assert_eq!(finished.stdout, ["leads"]);
}
