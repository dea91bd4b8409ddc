//! The loss of the terminal: `vvm` leads its session, or is a job of an interactive shell.
//!
//! The kernel signals the session leader alone. A shell then signals its jobs, and ends.

use crate::VVM;
use harness::{PseudoTerminal, Run, Running, Terminal, Trial, eventually, state};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;

/// Counts, prints its signals, and ends on none of them.
const REPORTER: &str = "trap 'echo got HUP' HUP; trap 'echo got TERM' TERM; trap 'echo got USR1' USR1
                        n=0; echo up; while :; do sleep 0.01; n=$((n+1)); echo count $n; done";

/// The number of counts within which the host checks the terminal twice.
const SOME_TIME: u32 = 50;

/// Starts it on the terminal, as the leader of its session.
fn as_session_leader(run: Run, terminal: &PseudoTerminal) -> Running {
    run.through(["setsid", "--ctty"]).stdin(terminal.side()).start()
}

/// Returns the command line for a shell. Standard output remains the shell's.
fn line(run: &Run) -> String {
    let quoted = run.command_line().into_iter().map(|word| format!("'{}'", word.replace('\'', "'\\''")));
    quoted.collect::<Vec<_>>().join(" ")
}

fn reporter(trial: &Trial) -> Run {
    trial.run_script(REPORTER).with(["--stop-timeout", "200ms"])
}

fn nothing_is_left(trial: &Trial) {
    eventually("no process is left", || trial.processes().0.is_empty());
    let next = trial.run(["true"]).with(["--acquire-timeout", "0"]).finish();
    assert_eq!(next.code(), 0, "the record is handed back: {:#?}", next.stderr);
}

#[test]
fn session_leader_that_loses_its_terminal_signals_the_command_and_stops_it() {
    let trial = VVM.trial();
    let terminal = PseudoTerminal::open();
    let mut running = as_session_leader(reporter(&trial), &terminal);
    running.stdout.wait_for("up");
    drop(terminal);
    running.stdout.wait_for("got HUP");
    let finished = running.finish();
    assert_eq!(finished.code(), 137, "{:#?}", finished.stderr);
    assert!(finished.says("stopped: the command was ended by SIGKILL"), "{:#?}", finished.stderr);
    assert!(!finished.stdout.iter().any(|line| line == "got TERM"), "HUP is what tells it to stop");
    nothing_is_left(&trial);
}

#[test]
fn session_leader_whose_command_dies_of_the_loss_dies_of_hup_too() {
    let trial = VVM.trial();
    let terminal = PseudoTerminal::open();
    let restarting = ["--on-exit", "restart"];
    let run = trial.run_script("echo up; exec sleep 1000").with(restarting);
    let mut running = as_session_leader(run, &terminal);
    running.stdout.wait_for("up");
    drop(terminal);
    let finished = running.finish();
    assert_eq!(finished.signal(), Signal::HUP.as_raw(), "{:#?}", finished.stderr);
    assert!(finished.says("stopped: the command was ended by SIGHUP"), "{:#?}", finished.stderr);
    nothing_is_left(&trial);
}

/// The loss of the terminal does not reach a command that has left the group, so the host forwards it.
#[test]
fn session_leader_that_loses_its_terminal_signals_a_command_in_another_session() {
    let trial = VVM.trial();
    let terminal = PseudoTerminal::open();
    let script =
        "exec setsid sh -c \"trap 'echo got HUP; exit 9' HUP; echo up; while :; do sleep 0.01; done\"";
    let mut running = as_session_leader(trial.run_script(script), &terminal);
    running.stdout.wait_for("up");
    drop(terminal);
    running.stdout.wait_for("got HUP");
    let finished = running.finish();
    assert_eq!(finished.code(), 9, "{:#?}", finished.stderr);
    assert!(finished.says("stopped: the command exited with status 9"), "{:#?}", finished.stderr);
    nothing_is_left(&trial);
}

/// The order is the same as for TERM.
#[test]
fn lost_terminal_runs_pre_stop_before_the_command_is_signalled() {
    let trial = VVM.trial();
    let terminal = PseudoTerminal::open();
    let said = trial.folder().join("said");
    let script = format!(
        "trap 'echo got HUP >> {0}; exit' HUP; echo up; while :; do sleep 0.01; done",
        said.display()
    );
    let pre_stop = format!("echo pre-stop >> {}", said.display());
    let run = trial.run_script(&script).with(["--pre-stop", &pre_stop]);
    let mut running = as_session_leader(run, &terminal);
    running.stdout.wait_for("up");
    drop(terminal);
    assert_eq!(running.finish().code(), 0);
    assert_eq!(fs::read_to_string(said).unwrap(), "pre-stop\ngot HUP\n");
    nothing_is_left(&trial);
}

#[test]
fn session_leader_that_ignores_hangups_leads_on_without_its_terminal() {
    let trial = VVM.trial();
    let terminal = PseudoTerminal::open();
    let script = "trap 'echo got USR1' USR1; echo up; read word; echo end of input
                  while :; do sleep 0.01; done";
    let ignoring = ["setsid", "--ctty", "sh", "-c", "trap '' HUP; exec \"$@\"", "sh"];
    let mut running = trial.run_script(script).through(ignoring).stdin(terminal.side()).start();
    running.stdout.wait_for("up");
    drop(terminal);
    running.stdout.wait_for("end of input");
    running.signal(Signal::USR1);
    running.stdout.wait_for("got USR1");
    running.signal(Signal::TERM);
    assert_eq!(running.finish().signal(), Signal::TERM.as_raw());
}

/// By convention, HUP by kill(1) makes a command read its settings again.
#[test]
fn hangup_that_a_process_sends_is_passed_on_and_stops_nothing() {
    let trial = VVM.trial();
    let terminal = PseudoTerminal::open();
    let mut running = as_session_leader(reporter(&trial), &terminal);
    running.stdout.wait_for("up");
    running.signal(Signal::HUP);
    running.stdout.wait_for("got HUP");
    goes_on(&mut running);
    running.signal(Signal::TERM);
    running.stdout.wait_for("got TERM");
    assert_eq!(running.finish().code(), 137);
}

/// Waits until the reporter has counted further.
fn goes_on(running: &mut Running) {
    let number = |line: &str| line.rsplit(' ').next().unwrap().parse::<u32>().unwrap();
    let first = number(&running.stdout.wait_for("count"));
    while number(&running.stdout.wait_for("count")) < first + SOME_TIME {}
}

/// Returns the outcome from the result file, because the shell is gone.
fn result_of_job_whose_terminal_is_lost(trial: &Trial, script: &str, place: &str) -> Value {
    let file = trial.folder().join("result.json");
    let terminal = PseudoTerminal::open();
    let (mut shell, mut output) = terminal.shell(trial);
    let run = trial.run_script(script);
    let run = run.with(["--stop-timeout", "200ms", "--result-file", file.to_str().unwrap()]);
    terminal.type_line(&format!("{} {place}", line(&run)));
    output.wait_for("up");
    drop(terminal);
    shell.wait().unwrap();
    eventually("vvm ends", || trial.processes().0.is_empty());
    let result = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    nothing_is_left(trial);
    result
}

#[test]
fn job_whose_terminal_is_lost_stops_a_command_that_handles_hangups() {
    for place in ["", "&"] {
        let trial = VVM.trial();
        let result = result_of_job_whose_terminal_is_lost(&trial, REPORTER, place);
        assert_eq!((&result["outcome"], &result["worker_signal"]), (&"stopped".into(), &9.into()), "{place}");
    }
}

#[test]
fn job_whose_terminal_is_lost_stops_a_command_that_dies_of_hangups() {
    for place in ["", "&"] {
        let trial = VVM.trial();
        let result = result_of_job_whose_terminal_is_lost(&trial, "echo up; exec sleep 1000", place);
        assert_eq!((&result["outcome"], &result["signal"]), (&"stopped".into(), &1.into()), "{place}");
    }
}

/// An ending shell first signals its jobs. The terminal of its session closes a moment later.
#[test]
fn job_of_a_shell_that_ends_by_a_hangup_is_stopped() {
    let trial = VVM.trial();
    let mut terminal = Terminal::new(&trial);
    let run = trial.run_script("trap 'echo got HUP' HUP; echo up; while :; do sleep 0.01; done");
    terminal.type_line(&format!("{} &", line(&run.with(["--stop-timeout", "200ms"]))));
    terminal.screen.wait_for("up");
    kill_process(Pid::from_child(&terminal.shell), Signal::HUP).unwrap();
    terminal.screen.wait_for("got HUP");
    terminal.screen.wait_for("stopped: the command was ended by SIGKILL");
    terminal.shell.wait().unwrap();
    nothing_is_left(&trial);
}

/// The operator's `kill` may be built into the shell that leads the session.
#[test]
fn job_that_its_shell_signals_leads_on_while_the_terminal_is_there() {
    let trial = VVM.trial();
    let mut terminal = Terminal::new(&trial);
    terminal.type_line(&format!("{} &", line(&reporter(&trial))));
    terminal.screen.wait_for("up");
    terminal.type_line("kill -HUP %1");
    terminal.screen.wait_for("got HUP");
    let number = |line: &str| line.rsplit(' ').next().unwrap().parse::<u32>().unwrap();
    let first = number(&terminal.screen.wait_for("count"));
    while number(&terminal.screen.wait_for("count")) < first + SOME_TIME {}
    let command = trial.process("sh -c");
    terminal.type_line("kill -TERM %1");
    terminal.screen.wait_for("got TERM");
    eventually("the command ends", || state(command).is_none());
    terminal.close();
}
