//! The system's trigger in real processes: not before the deadline, by the expected layer, and within a bound.
#![allow(clippy::unwrap_used, reason = "clippy exempts tests, but not their helpers")]

use ::timed::{Attempt, Late, timed};
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

/// The bound between the deadline and the end of the process, which includes the kernel's clean-up.
const DEAD: Duration = Duration::from_millis(100);

/// After this time the test kills a process that has not died.
const HANGS: Duration = Duration::from_secs(30);

struct Started {
    process: Child,
    stdout: BufReader<ChildStdout>,
    /// The process must not die before this.
    deadline: Instant,
    armed_at: Instant,
}

struct Ended {
    status: ExitStatus,
    /// Its standard output after the line with the deadline.
    stdout: String,
    last_words: String,
    deadline: Instant,
    armed_at: Instant,
    died: Instant,
}

fn start(scenario: &str, last_words: Stdio) -> Started {
    let mut process = Command::new(env!("CARGO_BIN_EXE_deadman-child"))
        .arg(scenario)
        .stdout(Stdio::piped())
        .stderr(last_words)
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(process.stdout.take().unwrap());
    let mut deadline = String::new();
    stdout.read_line(&mut deadline).unwrap();
    let deadline = Instant::from_nanos(deadline.trim().parse().unwrap());
    Started { process, stdout, deadline, armed_at: SystemClock::read() }
}

impl Started {
    fn end(mut self) -> Ended {
        let deadline = self.deadline;
        let pidfd = pidfd_open(Pid::from_child(&self.process), PidfdFlags::empty()).unwrap();
        let timeout = (SystemClock::read().until(deadline) + HANGS).try_into().unwrap();
        let dead = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout)).unwrap() == 1;
        let died = SystemClock::read();
        if !dead {
            self.process.kill().unwrap();
        }
        let status = self.process.wait().unwrap();
        assert!(dead, "still alive {:?} after its deadline", died.since(deadline));
        assert!(died >= deadline, "early: dead {:?} before its deadline, {status}", died.until(deadline));
        let mut stdout = String::new();
        self.stdout.read_to_string(&mut stdout).unwrap();
        let mut last_words = String::new();
        if let Some(mut stderr) = self.process.stderr.take() {
            stderr.read_to_string(&mut last_words).unwrap();
        }
        Ended { status, stdout, last_words, deadline, armed_at: self.armed_at, died }
    }
}

impl Ended {
    fn is_killed(&self) -> bool {
        self.status.signal() == Some(Signal::KILL.as_raw())
    }
}

/// Checks that the first layer ended the process, unless the machine delayed it by [`SECOND_LAYER_BEHIND`].
fn assert_ended_by_thread(attempt: &Attempt, ended: &Ended) -> Result<(), Late> {
    let took = ended.died.since(ended.deadline);
    if ended.is_killed() {
        attempt.reported("the first layer", SECOND_LAYER_BEHIND, took, ended.deadline)?;
        panic!("the kernel acted first, {took:?} after the deadline: {}", ended.last_words);
    }
    assert_eq!(ended.status.code(), Some(EXIT_STATUS), "{}", ended.last_words);
    attempt.reported("the death", DEAD, took, ended.deadline)?;
    Ok(())
}

fn ends_by_the_thread(scenario: &str, said: &[&str]) {
    timed(scenario, |attempt| {
        let ended = start(scenario, Stdio::piped()).end();
        assert_ended_by_thread(attempt, &ended)?;
        let line = ended.last_words.strip_suffix('\n').unwrap();
        assert_eq!(line.lines().count(), 1, "{line}");
        for part in said {
            assert!(line.contains(part), "{scenario}: {part:?} is not in {line:?}");
        }
        Ok(())
    });
}

fn assert_ended_by_kernel(attempt: &Attempt, started: Started) -> Result<(), Late> {
    let ended = started.end();
    assert!(ended.is_killed(), "{}: {}", ended.status, ended.last_words);
    // A deadline in the past takes effect when it is set.
    let due = ended.deadline.max(ended.armed_at);
    attempt.reported("the death", DEAD, ended.died.since(due), due)?;
    Ok(())
}

fn lives(scenario: &str) -> String {
    let ended = start(scenario, Stdio::piped()).end();
    assert!(ended.status.success(), "{}: {}", ended.status, ended.last_words);
    assert!(ended.stdout.ends_with("alive\n"));
    ended.stdout
}

#[test]
fn disarmed_process_lives() {
    lives("disarmed");
}

#[test]
fn trigger_dropped_after_disarming_leaves_neither_thread_nor_timer() {
    assert_eq!(lives("cleaned-up"), "1 threads\n0 timers\nalive\n");
}

#[test]
fn process_that_gets_no_kernel_timer_gets_no_deadman() {
    let said = lives("without-timers");
    assert!(said.starts_with("Some(\"the kill deadline could not be set: "), "{said}");
}

/// It keeps every processor from the threads of the machine, so no bound of time is asserted.
#[test]
fn process_that_spins_on_every_processor_dies_and_not_before_its_deadline() {
    let ended = start("spinning", Stdio::piped()).end();
    let is_by_the_thread = ended.status.code() == Some(EXIT_STATUS);
    assert!(is_by_the_thread || ended.is_killed(), "{}: {}", ended.status, ended.last_words);
}

mod timed {
    use super::*;

    #[test]
    fn process_dies_at_the_deadline_with_one_line_that_names_the_leadership() {
        ends_by_the_thread("idle", &["deadman[", "epoch 1 ", r#"Leadership "payroll\n1" of "here""#]);
    }

    /// Shows I4.
    #[test]
    fn stopped_process_dies_by_the_kernel() {
        timed("idle, stopped", |attempt| {
            let started = start("idle", Stdio::piped());
            kill_process(Pid::from_child(&started.process), Signal::STOP).unwrap();
            let behind = started.deadline.after(SECOND_LAYER_BEHIND);
            assert_ended_by_kernel(attempt, Started { deadline: behind, ..started })
        });
    }

    /// Shows I4.
    #[test]
    fn dropping_and_panicking_disarm_nothing() {
        for scenario in ["dropped", "panicked"] {
            timed(scenario, |attempt| {
                let ended = start(scenario, Stdio::piped()).end();
                assert_ended_by_thread(attempt, &ended)?;
                assert!(ended.last_words.contains("deadman["), "{scenario}: {}", ended.last_words);
                Ok(())
            });
        }
    }

    #[test]
    fn confirmed_renewal_moves_the_deadline_later() {
        ends_by_the_thread("confirmed", &[]);
    }

    #[test]
    fn full_standard_error_leaves_the_kill_to_the_kernel() {
        timed("a full standard error", |attempt| {
            let (_unread, full) = full_pipe();
            assert_ended_by_kernel(attempt, start("idle", full))
        });
    }

    #[test]
    fn closed_standard_error_does_not_delay_the_thread() {
        timed("a closed standard error", |attempt| {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            assert_ended_by_thread(attempt, &start("idle", writer.into()).end())
        });
    }

    #[test]
    fn kernel_timer_kills_also_after_its_drop() {
        for scenario in ["kernel-timer-dropped", "kernel-timer-moved", "kernel-timer-in-the-past"] {
            timed(scenario, |attempt| assert_ended_by_kernel(attempt, start(scenario, Stdio::piped())));
        }
    }
}

fn full_pipe() -> (PipeReader, Stdio) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while writer.write(&[b'.'; 4096]).is_ok() {}
    while writer.write(b".").is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    (reader, writer.into())
}
