//! At a terminal: Ctrl-C, Ctrl-Z, `fg`, standard input, and the loss of the terminal. The terminal is a
//! pseudo-terminal, with a shell on it that has job control. On its loss the kernel signals the session leader alone:
//! `vvm`, or a shell, which then signals its jobs, and ends.

use crate::VVM;
use harness::{PseudoTerminal, Run, Running, Terminal, Trial, eventually, has, state};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;

const CTRL_C: &[u8] = b"\x03";
const CTRL_Z: &[u8] = b"\x1a";
const CTRL_D: &[u8] = b"\x04";
const CTRL_BACKSLASH: &[u8] = b"\x1c";

fn line(trial: &Trial, script: &str, options: &[&str]) -> String {
    trial.run_script(script).with(options.iter().copied()).quoted()
}

fn in_the_foreground(trial: &Trial, script: &str, options: &[&str]) -> Terminal {
    let mut terminal = Terminal::new(trial);
    terminal.type_line(&line(trial, script, options));
    terminal.screen.wait_for("up");
    terminal
}

/// The terminal has signalled the worker, so the host must not forward the signal.
#[test]
fn terminal_signal_reaches_the_worker_once() {
    let trial = VVM.trial();
    // Background processes of a shell ignore QUIT.
    let script = "trap 'n=$((n+1)); echo quit $n' QUIT; trap 'echo total $n; exit' USR1; n=0
                  sleep 1000 & echo up; while :; do wait; done";
    let mut terminal = in_the_foreground(&trial, script, &[]);
    // Two signals at the same moment merge into one. Of so many, some would not merge.
    for times in 1..=20 {
        terminal.press(CTRL_BACKSLASH);
        terminal.screen.wait_for(&format!("quit {times}"));
    }
    kill_process(trial.process("sh -c"), Signal::USR1).unwrap();
    assert_eq!(terminal.screen.wait_for("total"), "total 20");
    terminal.close();
}

/// The terminal signals only its group, so the host forwards the signal to a worker that has left it.
#[test]
fn ctrl_c_reaches_a_worker_that_left_the_group() {
    let trial = VVM.trial();
    let script =
        "exec setsid sh -c \"trap 'echo interrupted; exit 9' INT; echo up; while :; do sleep 0.01; done\"";
    let mut terminal = in_the_foreground(&trial, script, &[]);
    terminal.press(CTRL_C);
    terminal.screen.wait_for("interrupted");
    terminal.screen.wait_for("stopped: the command exited with status 9");
    terminal.close();
}

#[test]
fn key_that_is_pressed_while_the_command_starts_ends_it() {
    for key in [CTRL_C, CTRL_BACKSLASH].repeat(4) {
        let trial = VVM.trial();
        let mut terminal = Terminal::new(&trial);
        terminal.type_line(&line(&trial, "exec sleep 1000", &["--stop-timeout", "1s"]));
        terminal.screen.wait_for("leading");
        terminal.press(key);
        let end = terminal.screen.wait_for("the command was ended by");
        assert!(!end.contains("SIGKILL"), "{end}");
        terminal.close();
    }
}

#[test]
fn ctrl_c_ends_the_worker_and_vvm_dies_of_sigint() {
    let trial = VVM.trial();
    let mut terminal = Terminal::new(&trial);
    // A shell continues after a command that exited, but not after one that died of the interrupt.
    let run = line(&trial, "echo up; exec sleep 1000", &[]);
    terminal.type_line(&format!("for i in 1 2; do {run}; done; echo over"));
    terminal.screen.wait_for("up");
    terminal.press(CTRL_C);
    terminal.screen.wait_for("stopped: the command was ended by SIGINT");
    terminal.type_line("echo status $?");
    terminal.screen.wait_for("status 130");
    terminal.close();
    assert_eq!(trial.processes().describe(), [""; 0]);
}

#[test]
fn command_is_suspended_by_ctrl_z_and_goes_on_with_fg() {
    let trial = VVM.trial();
    // No children: a shell whose child is stopped between vfork and exec stops only when the child continues.
    let traps = "trap 'echo interrupted' INT; trap 'echo continued' CONT";
    let script = format!("{traps}; echo up; while :; do read word; done");
    let mut terminal = in_the_foreground(&trial, &script, &["--stop-timeout", "1h"]);
    let worker = trial.process("sh -c");
    terminal.press(CTRL_C);
    terminal.screen.wait_for("interrupted");
    // A stop request also continues the command. That must not undo the Ctrl-Z.
    terminal.screen.wait_for("continued");
    terminal.press(CTRL_Z);
    terminal.screen.wait_for("Stopped");
    eventually("the command is stopped", || state(worker) == Some('T'));
    terminal.type_line("fg");
    terminal.screen.wait_for("continued");
    // Repeated until it has an effect, because signals within a tenth of a second count as one.
    eventually("the command is killed", || {
        terminal.press(CTRL_C);
        std::thread::sleep(std::time::Duration::from_millis(150));
        state(worker).is_none()
    });
    terminal.screen.wait_for("stopped: the command was ended by SIGKILL");
    terminal.type_line("echo status $?");
    terminal.screen.wait_for("status 137");
    terminal.close();
    assert_eq!(trial.processes().describe(), [""; 0]);
}

#[test]
fn ctrl_z_past_the_deadline_ends_the_leadership() {
    let trial = VVM.trial();
    let mut terminal = in_the_foreground(&trial, "echo up; exec sleep 1000", &["--ttl", "4s"]);
    terminal.press(CTRL_Z);
    terminal.screen.wait_for("Stopped");
    terminal.screen.wait_for("killed at the deadline: the guardian was stopped (by Ctrl-Z?)");
    eventually("no process is left", || trial.processes().with(VVM.path()).is_empty());
    terminal.close();
}

/// A process that reads in the background is stopped until it comes to the foreground, as in any job.
#[test]
fn background_worker_reads_after_it_comes_to_the_foreground() {
    let trial = VVM.trial();
    let mut terminal = Terminal::new(&trial);
    let script = "echo up; read word; echo got $word; read word; echo end of input";
    terminal.type_line(&format!("{} &", line(&trial, script, &[])));
    let started = terminal.screen.wait_for("[1] ");
    let job = started.split(' ').nth(1).and_then(|number| Pid::from_raw(number.parse().ok()?)).unwrap();
    terminal.screen.wait_for("up");
    let worker = trial.process("sh -c");
    // The shell's own child must be stopped, too: `fg` continues only a job that the shell knows is stopped.
    eventually("the job is stopped", || [worker, job].into_iter().all(|process| state(process) == Some('T')));
    terminal.type_line("fg");
    terminal.type_line("hello");
    terminal.screen.wait_for("got hello");
    terminal.press(CTRL_D);
    terminal.screen.wait_for("end of input");
    terminal.close();
}

/// The terminal's process group has no number in this namespace.
#[test]
fn namespace_below_the_terminal_works_like_no_terminal() {
    let trial = VVM.trial();
    let mut terminal = Terminal::new(&trial);
    let unshare = "unshare --pid --fork --mount-proc";
    terminal.type_line(&format!(
        "if {unshare} true; then echo unsha''ring works; else echo unsha''ring fails; fi"
    ));
    // Not a word of a refusal, which is on the screen, too.
    if terminal.screen.wait_for("unsharing").ends_with("works") {
        let script = "trap 'echo told; exit 9' TERM; echo up; while :; do sleep 0.01; done";
        terminal.type_line(&format!("{unshare} {}; echo status $?", line(&trial, script, &[])));
        terminal.screen.wait_for("up");
        kill_process(trial.process(VVM.path()), Signal::TERM).unwrap();
        terminal.screen.wait_for("told");
        terminal.screen.wait_for("status 9");
    } else {
        println!("not tested: this user may not make a PID namespace");
    }
    terminal.close();
}

/// In a container with only `vvm`, no shell could continue a suspended process.
#[test]
fn ctrl_z_without_a_shell_stops_nothing() {
    let trial = VVM.trial();
    let mut terminal = Terminal::new(&trial);
    // The shell executes `vvm`, which then leads the session.
    let script = "echo up; for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.1; done; echo done";
    terminal.type_line(&format!("exec {}", line(&trial, script, &["--ttl", "20s"])));
    terminal.screen.wait_for("up");
    terminal.press(CTRL_Z);
    terminal.screen.wait_for("done");
    assert!(terminal.shell.wait().unwrap().success());
}

/// A terminal with `tostop` stops background writers. A stopped host would be killed at the deadline.
#[test]
fn tostop_terminal_does_not_stop_the_host() {
    let trial = VVM.trial();
    let mut terminal = Terminal::new(&trial);
    terminal.type_line("stty tostop");
    let command = line(&trial, "sleep 4; exit 4", &["--ttl", harness::SHORT_TTL]);
    terminal.type_line(&format!("{command}; echo status $?"));
    terminal.screen.wait_for("status 4");
    terminal.close();
}

const REPORTER: &str = "trap 'echo got HUP' HUP; trap 'echo got TERM' TERM; trap 'echo got USR1' USR1
                        n=0; echo up; while :; do sleep 0.01; n=$((n+1)); echo count $n; done";

/// The number of counts within which the host checks the terminal twice.
const SOME_TIME: u32 = 50;

fn as_session_leader(run: Run, terminal: &PseudoTerminal) -> Running {
    run.through(["setsid", "--ctty"]).stdin(terminal.side()).up()
}

fn nothing_is_left(trial: &Trial) {
    eventually("no process is left", || trial.processes().0.is_empty());
    trial.run(["true"]).with(["--acquire-timeout", "0"]).finish().assert_code(0);
}

#[test]
fn session_leader_that_loses_its_terminal_runs_pre_stop_signals_the_command_and_stops_it() {
    let trial = VVM.trial();
    let terminal = PseudoTerminal::open();
    let said = trial.folder().join("said").display().to_string();
    let script = format!(
        "trap 'echo got HUP >> {said}' HUP; trap 'echo got TERM >> {said}' TERM
         echo up; while :; do sleep 0.01; done"
    );
    let options = ["--stop-timeout", "200ms", "--pre-stop", &format!("echo pre-stop >> {said}")];
    let running = as_session_leader(trial.run_script(&script).with(options), &terminal);
    drop(terminal);
    let finished = running.finish();
    finished.assert_ended(137, "stopped: the command was ended by SIGKILL");
    assert_eq!(fs::read_to_string(said).unwrap(), "pre-stop\ngot HUP\n", "HUP is what tells it to stop");
    nothing_is_left(&trial);
}

#[test]
fn session_leader_whose_command_dies_of_the_loss_dies_of_hup_too() {
    let trial = VVM.trial();
    let terminal = PseudoTerminal::open();
    let running = as_session_leader(trial.run_forever().with(["--on-exit", "restart"]), &terminal);
    drop(terminal);
    let finished = running.finish();
    assert_eq!(finished.signal(), Signal::HUP.as_raw(), "{:#?}", finished.stderr);
    finished.assert_says("stopped: the command was ended by SIGHUP");
    nothing_is_left(&trial);
}

#[test]
fn session_leader_that_ignores_hangups_leads_on_without_its_terminal() {
    let trial = VVM.trial();
    let terminal = PseudoTerminal::open();
    let script = "trap 'echo got USR1' USR1; echo up; read word; echo end of input
                  while :; do sleep 0.01; done";
    let ignoring = ["setsid", "--ctty", "sh", "-c", "trap '' HUP; exec \"$@\"", "sh"];
    let mut running = trial.run_script(script).through(ignoring).stdin(terminal.side()).up();
    drop(terminal);
    running.stdout.wait_for("end of input");
    running.signal(Signal::USR1);
    running.stdout.wait_for("got USR1");
    assert_eq!(running.stop().signal(), Signal::TERM.as_raw());
}

#[test]
fn job_whose_terminal_is_lost_stops_a_command_that_handles_hangups() {
    for place in ["", "&"] {
        let trial = VVM.trial();
        let terminal = PseudoTerminal::open();
        let (mut shell, mut output) = terminal.shell(&trial);
        let options = ["--stop-timeout", "200ms", "--result-file", &trial.result_file()];
        terminal.type_line(&format!("{} {place}", line(&trial, REPORTER, &options)));
        output.wait_for("up");
        drop(terminal);
        shell.wait().unwrap();
        nothing_is_left(&trial);
        has!(trial.result(), "outcome" == "stopped", "worker_signal" == 9);
    }
}

/// An ending shell first signals its jobs. The terminal of its session closes a moment later.
#[test]
fn job_of_a_shell_that_ends_by_a_hangup_is_stopped() {
    let trial = VVM.trial();
    let mut terminal = Terminal::new(&trial);
    terminal.type_line(&format!("{} &", line(&trial, REPORTER, &["--stop-timeout", "200ms"])));
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
    terminal.type_line(&format!("{} &", line(&trial, REPORTER, &["--stop-timeout", "200ms"])));
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
