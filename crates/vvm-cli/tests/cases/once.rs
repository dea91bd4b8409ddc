//! `vvm once`: a command that is run once per period, and what `vvm history` shows of it.

use crate::VVM;
use harness::{Finished, Run, SHORT_TTL, Terminal, Trial, eventually, has, has_ended};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{env, process::Command, thread, time::Duration};

const PERIOD: &str = "2026-11-24";

fn counting(trial: &Trial, rest: &str) -> Run {
    let script = format!("echo $VVM_LEADER_PERIOD $VVM_LEADER_ATTEMPT >> {}; {rest}", ran(trial));
    trial.run_script(&script).once(PERIOD).with(["--retry-after", "0"])
}

fn gated(trial: &Trial) -> Run {
    counting(trial, &format!("echo up; until [ -e {} ]; do sleep 0.05; done", gate(trial)))
}

fn gate(trial: &Trial) -> String {
    trial.folder().join("gate").display().to_string()
}

fn open_gate(trial: &Trial) {
    std::fs::write(gate(trial), "").unwrap();
}

fn ran(trial: &Trial) -> String {
    trial.folder().join("ran").display().to_string()
}

fn attempts(trial: &Trial) -> Vec<String> {
    let text = std::fs::read_to_string(ran(trial)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn of(numbers: std::ops::RangeInclusive<u32>) -> Vec<String> {
    numbers.map(|number| format!("{PERIOD} {number}")).collect()
}

fn periods(trial: &Trial) -> Vec<Value> {
    let out = trial.must("history", &["--periods", "--json"]);
    serde_json::from_str(&out).unwrap()
}

#[track_caller]
fn is_silent(finished: &Finished, code: i32) {
    finished.assert_code(code);
    assert_eq!((&finished.stdout[..], &finished.stderr[..]), (&[][..], &[][..]));
}

#[test]
fn period_that_is_done_is_not_run_again_and_the_next_one_is() {
    let trial = VVM.trial();
    let run = |holder: &str| counting(&trial, "exit 0").with(["--holder", holder]);
    is_silent(&run("web1").with(["--quiet"]).finish(), 0);
    is_silent(&run("web2").with(["--quiet"]).finish(), 0);
    let again = run("web2").finish();
    again.assert_ended(0, "nothing to do: period 2026-11-24 is done: attempt 1 by web1 at 20");
    assert!(!again.says("leading"), "{:#?}", again.stderr);
    assert_eq!(attempts(&trial), of(1..=1));

    let next = run("web2").with(["--period", "2026-11-25"]).finish();
    next.assert_says("exited with status 0; period 2026-11-25 is done");
    assert_eq!(attempts(&trial), ["2026-11-24 1", "2026-11-25 1"]);
    let found = periods(&trial);
    assert_eq!(found.len(), 2);
    has!(found[0], "period" == PERIOD, "state" == "done", "holder" == "web1", "done" == true);
    has!(found[1], "period" == "2026-11-25", "state" == "done", "holder" == "web2", "done" == true);
    let table = trial.must("history", &["--periods"]);
    let words = table.lines().nth(1).unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!((&words[..3], words[6], words[7]), (&[PERIOD, "done", "1"][..], "web1", "-"), "{table}");
}

/// What 50 starts cost beside a command that hangs: one is the leader, and one stands by.
#[test]
fn starts_that_pile_up_wait_in_one_process_each_without_the_storage() {
    let trial = VVM.trial();
    let run = || gated(&trial);
    let leader = run().up();
    assert_eq!(periods(&trial)[0]["state"], "running");
    let processes_of_leader = trial.processes().0.len();
    let standby = run().waiting();
    let mut waiting = (0..48).map(|_| run().start()).collect::<Vec<_>>();
    for start in &mut waiting {
        start.stderr.wait_for("waiting for leadership behind other starts");
    }
    let is_storage = |descriptor: std::fs::DirEntry| {
        std::fs::read_link(descriptor.path())
            .is_ok_and(|file| file.starts_with(trial.folder().join("leader.db")))
    };
    let opens_storage = |pid: &Pid| {
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", pid.as_raw_pid())).into_iter().flatten();
        descriptors.flatten().any(is_storage)
    };
    let all = trial.processes().0;
    let with_storage = all.iter().filter(|pid| opens_storage(pid)).count();
    let memory = waiting.iter().map(|start| private_kib(start.guardian)).sum::<u64>() / 48;
    println!("{} processes, {with_storage} with the storage, {memory} KiB for a start that waits", all.len());
    assert_eq!(with_storage, 2);
    // The command runs `sleep` now and then. A standby has a guardian and a host.
    assert!(all.len() <= processes_of_leader + 2 + 48 + 1, "{} beside {processes_of_leader}", all.len());
    let stopped = waiting.pop().unwrap();
    assert_eq!(stopped.stop().signal(), Signal::TERM.as_raw());
    let late = run().with(["--acquire-timeout", "10ms", "--result-file", &trial.result_file()]).finish();
    late.assert_ended(75, "not leading: not acquired in time: other starts");
    has!(trial.result(), "outcome" == "not_acquired", "exit_status" == 75);
    // The one that stands by leads after a crash, and the others find that the period is done.
    kill_process(leader.host(), Signal::KILL).unwrap();
    eventually("the standby runs the command", || attempts(&trial) == of(1..=2));
    open_gate(&trial);
    assert_eq!((leader.finish().code(), standby.finish().code()), (137, 0));
    for start in waiting {
        let finished = start.finish();
        finished.assert_ended(0, "nothing to do: period 2026-11-24 is done");
    }
    assert_eq!(attempts(&trial), of(1..=2));
}

fn private_kib(process: Pid) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", process.as_raw_pid()));
    let text = text.unwrap_or_default();
    let private = text.lines().filter_map(|line| line.strip_prefix("Private_Dirty:"));
    private.filter_map(|kib| kib.trim().strip_suffix(" kB")?.parse::<u64>().ok()).sum()
}

#[test]
fn periods_that_wait_on_one_machine_run_oldest_first() {
    let trial = VVM.trial();
    let run = |minute: &str| gated(&trial).with(["--period", &format!("2026-11-24T03:{minute}")]);
    let leader = run("02").up();
    let waiting = ["06", "03", "05"].map(|minute| run(minute).waiting());
    open_gate(&trial);
    leader.finish().assert_code(0);
    for start in waiting {
        start.finish().assert_code(0);
    }
    let expected = ["02", "03", "05", "06"].map(|minute| format!("2026-11-24T03:{minute} 1"));
    assert_eq!(attempts(&trial), expected);

    let late = run("04").with(["--skip-if-newer-done", "--quiet"]).finish();
    late.assert_ended(0, "period 2026-11-24T03:04 is skipped: the newer period 2026-11-24T03:06 is done");
    assert_eq!(attempts(&trial).len(), 4);
}

#[test]
fn command_that_fails_is_run_by_later_candidates_until_no_attempt_is_left() {
    let trial = VVM.trial();
    let failing = || counting(&trial, "exit 3").with(["--attempts", "2", "--quiet"]);
    for number in 1..=2 {
        let finished = failing().finish();
        finished.assert_code(3);
        let said = format!("command exited with status 3; period 2026-11-24, attempt {number} of 2");
        assert!(finished.says(&said) && finished.stderr.len() == 1, "{:#?}", finished.stderr);
    }
    let finished = failing().finish();
    finished.assert_code(82);
    for said in [
        "no attempt is left: period 2026-11-24 is not done, and was started 2 times",
        "the command exited with status 3, attempt 2 by ",
        "try again with --attempts 3",
    ] {
        finished.assert_says(said);
    }
    assert_eq!((attempts(&trial), &periods(&trial)[0]["state"]), (of(1..=2), &"failed".into()));

    is_silent(&counting(&trial, "exit 0").with(["--quiet"]).finish(), 0);
    is_silent(&failing().finish(), 0);
    assert_eq!((attempts(&trial), &periods(&trial)[0]["state"]), (of(1..=3), &"done".into()));
}

#[test]
fn next_attempt_waits_for_retry_after_and_a_stop_ends_the_wait_without_counting() {
    let trial = VVM.trial();
    counting(&trial, "exit 3").finish().assert_code(3);
    let mut waiting = counting(&trial, "exit 0").with(["--retry-after", "1h"]).start();
    waiting.stderr.wait_for("the command exited with status 3; restart 1 of 2 in");
    assert_eq!(waiting.stop().signal(), Signal::TERM.as_raw());
    counting(&trial, "exit 0").finish().assert_code(0);
    assert_eq!(attempts(&trial), of(1..=2));
}

#[test]
fn candidate_waits_while_the_last_attempt_may_run_and_finds_none_left_after_its_death() {
    let trial = VVM.trial();
    let run = |rest| counting(&trial, rest).with(["--ttl", SHORT_TTL, "--attempts", "1"]);
    let killed = run("echo up; exec sleep 1000").up();
    let waiting = run("exit 0").waiting();
    killed.crash();
    killed.finish();
    waiting.finish().assert_code(82);
    assert_eq!((attempts(&trial), &periods(&trial)[0]["state"]), (of(1..=1), &"interrupted".into()));
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StopOrder {
    /// The command has ended this long before `vvm` gets the signal.
    CommandFirst(Duration),
    VvmFirst,
    /// As a service manager, which signals every process.
    All,
    CtrlC,
}

/// How often each order is tried. The races are narrow: `VVM_TEST_TRIES=200` tries harder.
fn tries() -> usize {
    env::var("VVM_TEST_TRIES").ok().and_then(|tries| tries.parse().ok()).unwrap_or(2)
}

/// Starts a command that ends with status 0 as soon as it is told to stop, and stops it. Returns the last line of the log.
fn stop_in(order: StopOrder, trial: &Trial, run: impl Fn(&str) -> Run) -> String {
    // The shell is the command itself, and waits for a child that ignores the request.
    let run = run("trap 'exit 0' TERM INT; (trap '' INT; exec sleep 1000) & echo up; wait; exit 3");
    if order == StopOrder::CtrlC {
        let mut terminal = Terminal::new(trial);
        terminal.type_line(&run.quoted());
        terminal.screen.wait_for("up");
        terminal.press(b"\x03");
        let said = terminal.screen.wait_for("the command exited");
        terminal.type_line("wait; echo en''ded");
        terminal.screen.wait_for("ended");
        terminal.close();
        return said;
    }
    let running = run.up();
    let command = trial.process("sh -c");
    match order {
        StopOrder::CommandFirst(gap) => {
            kill_process(command, Signal::TERM).unwrap();
            if !gap.is_zero() {
                eventually("the command has ended", || has_ended(command));
                thread::sleep(gap);
            }
            running.signal(Signal::TERM);
        }
        StopOrder::VvmFirst => {
            running.signal(Signal::TERM);
            let _ = kill_process(command, Signal::TERM);
        }
        StopOrder::All | StopOrder::CtrlC => {
            for one in trial.processes().0 {
                let _ = kill_process(one, Signal::TERM);
            }
        }
    }
    running.finish().stderr.pop().unwrap_or_default()
}

#[test]
fn stop_that_reaches_the_command_first_is_a_stop() {
    let millis = Duration::from_millis;
    let first = [0, 1, 50].map(|gap| StopOrder::CommandFirst(millis(gap)));
    let orders = [&first[..], &[StopOrder::VvmFirst, StopOrder::All, StopOrder::CtrlC]].concat();
    let all = orders.into_iter().map(|order| {
        thread::spawn(move || {
            for _ in 0..tries() {
                let trial = VVM.trial();
                let said = stop_in(order, &trial, |script| counting(&trial, script));
                assert!(
                    said.contains("stopped: the command exited with status 0; period"),
                    "{order:?}: {said}"
                );
                let end = "stopped: the command exited with status 0";
                has!(&periods(&trial)[0], "done" == false, "state" == "failed", "end" == end);

                let options = ["--result-file", &trial.result_file(), "--on-exit", "restart"];
                let said = stop_in(order, &trial, |script| trial.run_script(script).with(options));
                assert!(said.ends_with("stopped: the command exited with status 0"), "{order:?}: {said}");
                has!(trial.result(), "outcome" == "stopped");
            }
        })
    });
    let wrong = all.collect::<Vec<_>>().into_iter().filter_map(|order| order.join().err());
    assert_eq!(wrong.count(), 0);
}

/// The record is taken away while the command runs: the end of the leadership is found when the mark is written.
#[test]
fn success_without_a_mark_is_told_and_the_period_may_run_again() {
    let trial = VVM.trial();
    let leader = gated(&trial).up();
    trial.take_away();
    open_gate(&trial);
    let finished = leader.finish();
    finished.assert_ended(
        83,
        "the command succeeded, but the period may not be marked as done: period 2026-11-24, attempt 1 of 3",
    );
    finished.assert_says("it may run again");
    counting(&trial, "exit 0").finish().assert_code(0);
    assert_eq!(attempts(&trial), of(1..=2));
}

#[test]
fn operator_who_asks_for_a_step_down_causes_one_more_attempt() {
    let trial = VVM.trial();
    let leader = counting(&trial, "echo up; exec sleep 1000").with(["--holder", "web1"]).up();
    let next = gated(&trial).with(["--holder", "web2"]).waiting();
    trial.must("step-down", &[]);
    open_gate(&trial);
    assert_eq!((next.finish().code(), leader.finish().code()), (0, 0));
    assert_eq!(attempts(&trial), of(1..=2));
}

#[test]
fn command_that_can_not_be_started_is_an_attempt() {
    let trial = VVM.trial();
    trial.run(["/no/such/command"]).once(PERIOD).finish().assert_code(127);
    has!(&periods(&trial)[0], "state" == "failed", "attempts" == 1);
}

#[test]
fn result_file_and_events_name_what_happened() {
    let trial = VVM.trial();
    let outcome = || trial.result()["outcome"].as_str().unwrap().to_owned();
    let options = ["--result-file", &trial.result_file(), "--log-format", "json"];
    let run = || counting(&trial, "exit 0").with(options);
    let first = run().finish();
    assert_eq!((first.code(), outcome()), (0, "worker_ended".into()));
    first.assert_says("\"event\":\"leading\"");
    first.assert_says("period 2026-11-24 is done");
    let second = run().finish();
    let found = (second.code(), outcome(), second.stderr.len());
    assert_eq!(found, (0, "already_done".into(), 1), "{:#?}", second.stderr);
    is_silent(&run().with(["--quiet"]).finish(), 0);
    let failing =
        counting(&trial, "exit 3").with(["--period", "p", "--log-format", "json", "--quiet"]).finish();
    assert!(failing.code() == 3 && failing.stderr.len() == 1, "{:#?}", failing.stderr);
    failing.assert_says("\"event\":\"concluded\"");
}

#[test]
fn period_that_ends_in_a_local_hour_is_warned_of() {
    let trial = VVM.trial();
    for (format, warns) in [("+%FT%H", true), ("+%FT%HZ", false)] {
        let date = Command::new("date").args(["-u", "-d", "3 hours", format]).output().unwrap();
        let period = String::from_utf8(date.stdout).unwrap();
        let run = trial.run_script("exit 0").once(period.trim()).finish();
        run.assert_code(0);
        let says = run.stderr.iter().any(|line| line.contains("local time, write date -u"));
        assert_eq!(says, warns, "{:?}", run.stderr);
    }
}
