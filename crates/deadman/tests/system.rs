//! The system's trigger, in real processes that really die.
//!
//! What is asserted: never before the deadline; by which layer; and, as the scheduler of a busy machine has a say in
//! it, only roughly how soon after. How soon exactly is measured by `evidence/deadman-trials`.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open},
};
use std::{
    io::{BufRead, BufReader, PipeReader, Read, Write},
    os::unix::process::ExitStatusExt,
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};
use vvm_deadman::{EXIT_STATUS, SECOND_LAYER_BEHIND};

/// How long after the deadline a test waits for a death, on a machine that has other things to do.
const AT_MOST: Duration = Duration::from_secs(2);

/// How often the first layer may be starved for as long as the second one waits for it, before a test believes that it
/// is not there at all.
const TRIES: usize = 20;

struct Started {
    process: Child,
    words: BufReader<ChildStdout>,
    /// Before which it must not die.
    deadline: Instant,
}

struct Ended {
    status: ExitStatus,
    /// What it wrote to standard output after the deadline.
    words: String,
    last_words: String,
}

fn start(scenario: &str, last_words: Stdio) -> Started {
    let mut process = Command::new(env!("CARGO_BIN_EXE_deadman-child"))
        .arg(scenario)
        .stdout(Stdio::piped())
        .stderr(last_words)
        .spawn()
        .unwrap();
    let mut words = BufReader::new(process.stdout.take().unwrap());
    let mut deadline = String::new();
    words.read_line(&mut deadline).unwrap();
    let deadline = Instant::from_nanos(deadline.trim().parse().unwrap());
    Started { process, words, deadline }
}

impl Started {
    /// Waits for its death, and for no longer than a test has patience.
    fn end(mut self) -> Ended {
        let deadline = self.deadline;
        let patience = SystemClock::read().until(deadline) + AT_MOST;
        let pidfd = pidfd_open(Pid::from_child(&self.process), PidfdFlags::empty()).unwrap();
        let timeout = patience.try_into().unwrap();
        let dead = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout)).unwrap() == 1;
        let died = SystemClock::read();
        if !dead {
            self.process.kill().unwrap();
        }
        let status = self.process.wait().unwrap();
        assert!(dead, "still alive {:?} after its deadline", died.since(deadline));
        assert!(died >= deadline, "early: dead {:?} before its deadline, {status}", died.until(deadline));
        let mut words = String::new();
        self.words.read_to_string(&mut words).unwrap();
        let mut last_words = String::new();
        if let Some(mut stderr) = self.process.stderr.take() {
            stderr.read_to_string(&mut last_words).unwrap();
        }
        Ended { status, words, last_words }
    }
}

impl Ended {
    fn is_killed(&self) -> bool {
        self.status.signal() == Some(Signal::KILL.as_raw())
    }
}

/// Runs a scenario until its first layer came first, as it does unless the machine starves it.
fn ends_by_the_thread(scenario: &str) -> Ended {
    for _ in 0..TRIES {
        let ended = start(scenario, Stdio::piped()).end();
        if !ended.is_killed() {
            assert_eq!(ended.status.code(), Some(EXIT_STATUS), "{}", ended.last_words);
            return ended;
        }
    }
    panic!("{scenario}: in {TRIES} tries the kernel always came first");
}

fn ends_by_the_kernel(started: Started) {
    let deadline = started.deadline;
    let ended = started.end();
    assert!(ended.is_killed(), "{}: {}", ended.status, ended.last_words);
    assert!(SystemClock::read() >= deadline);
}

fn lives(scenario: &str) -> String {
    let ended = start(scenario, Stdio::piped()).end();
    assert!(ended.status.success(), "{}: {}", ended.status, ended.last_words);
    assert!(ended.words.ends_with("alive\n"));
    ended.words
}

#[test]
fn dies_at_the_deadline_with_one_line_that_says_whose_it_was() {
    let ended = ends_by_the_thread("idle");
    let line = ended.last_words.strip_suffix('\n').unwrap();
    assert_eq!(line.lines().count(), 1, "{line}");
    for part in ["deadman[", "epoch 1 ", r#"Leadership "payroll\n1" of "here""#] {
        assert!(line.contains(part), "{part:?} is not in {line:?}");
    }
}

#[test]
fn a_stopped_process_dies_by_the_kernel() {
    // Threads alone, accepted for process 1, are not what any other process gets.
    for scenario in ["idle", "threads-alone-as-init"] {
        let started = start(scenario, Stdio::piped());
        kill_process(Pid::from_child(&started.process), Signal::STOP).unwrap();
        let behind = started.deadline.after(SECOND_LAYER_BEHIND);
        ends_by_the_kernel(Started { deadline: behind, ..started });
    }
}

#[test]
fn dropping_forgetting_and_panicking_disarm_nothing() {
    for scenario in ["dropped", "forgotten", "panicked"] {
        let ended = ends_by_the_thread(scenario);
        assert!(ended.last_words.contains("deadman["), "{scenario}: {}", ended.last_words);
    }
}

#[test]
fn of_two_deadlines_the_earliest_rules() {
    assert!(ends_by_the_thread("earliest").last_words.contains("epoch 1 "));
    assert!(ends_by_the_thread("earliest-disarmed").last_words.contains("epoch 2 "));
}

#[test]
fn a_confirmed_renewal_moves_the_deadline_later_and_a_loss_earlier() {
    ends_by_the_thread("confirmed");
    ends_by_the_thread("tightened");
}

#[test]
fn disarming_keeps_alive() {
    lives("disarmed");
}

#[test]
fn disarmed_and_dropped_it_leaves_neither_thread_nor_timer() {
    assert_eq!(lives("cleaned-up"), "1 threads\n0 timers\nalive\n");
}

#[test]
fn a_standard_error_that_nobody_empties_leaves_it_to_the_kernel() {
    let (_unread, full) = full_pipe();
    ends_by_the_kernel(start("idle", full));
}

#[test]
fn a_standard_error_that_nobody_holds_is_no_obstacle() {
    for _ in 0..TRIES {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = start("idle", writer.into()).end();
        if ended.status.code() == Some(EXIT_STATUS) {
            return;
        }
        assert!(ended.is_killed(), "{}", ended.status);
    }
    panic!("in {TRIES} tries the kernel always came first");
}

#[test]
fn threads_alone_end_the_process_also_when_the_first_is_blocked() {
    let ended = start("threads-alone", Stdio::piped()).end();
    assert_eq!(ended.status.code(), Some(EXIT_STATUS), "{}", ended.last_words);
    let (_unread, full) = full_pipe();
    assert_eq!(start("threads-alone", full).end().status.code(), Some(EXIT_STATUS));
}

#[test]
fn the_kernels_timer_alone_kills_also_once_dropped() {
    for scenario in ["kernel-timer", "kernel-timer-dropped", "kernel-timer-moved", "kernel-timer-in-the-past"]
    {
        ends_by_the_kernel(start(scenario, Stdio::piped()));
    }
}

#[test]
fn the_kernels_timer_cleared_and_dropped_is_gone() {
    assert_eq!(lives("kernel-timer-cleared"), "0 timers\nalive\n");
}

/// A pipe without room for another byte, and what keeps it open.
fn full_pipe() -> (PipeReader, Stdio) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while writer.write(&[b'.'; 4096]).is_ok() {}
    while writer.write(b".").is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    (reader, writer.into())
}
