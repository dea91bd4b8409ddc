//! Fail-over after the death of the leader's host, with a standby on the machine: the guardian releases the
//! record, so the TTL does not matter. It does if all processes die at once.

use crate::{
    process::ProgramError,
    report::{Figure, Side, Statistic, Unit},
};
use harness::{Level, MemoryGroup, Program, Running, Trial, eventually, has_ended, is_permitted};
use rustix::process::{Signal, kill_process};
use std::{io, time::Duration};
use vvm_clock::{Instant, SystemClock};

/// How a leader's host dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Death {
    /// Of this signal.
    Of(Signal),
    /// The kernel ends it in a control group without memory. Counted from its end.
    OutOfMemory,
    /// Stopped, it is killed at its deadline. Counted from its end.
    Deadline,
    /// All processes of the leader die at once, with their PID namespace. Counted from the last renewal.
    OfMachine,
}

struct Row {
    name: &'static str,
    death: Death,
    level: Level,
    /// Whether the guardian is process 1 of a PID namespace.
    is_first: bool,
    rounds: usize,
}

const KILLED: Row = Row {
    name: "kill -9",
    death: Death::Of(Signal::KILL),
    level: Level::Guardian,
    is_first: false,
    rounds: 50,
};

/// A panic is not among them: nothing outside a released program makes it panic.
const ROWS: [Row; 8] = [
    KILLED,
    Row { name: "kill -9, level cgroup", level: Level::ControlGroup, ..KILLED },
    Row { name: "kill -9, level pidns", level: Level::PidNamespace, ..KILLED },
    Row { name: "kill -9, guardian is process 1", is_first: true, ..KILLED },
    Row { name: "abort", death: Death::Of(Signal::ABORT), ..KILLED },
    Row { name: "out of memory", death: Death::OutOfMemory, ..KILLED },
    Row { name: "stopped until its deadline", death: Death::Deadline, rounds: 10, ..KILLED },
    Row {
        name: "machine, from its last renewal",
        death: Death::OfMachine,
        is_first: true,
        rounds: 10,
        ..KILLED
    },
];

/// Starts what follows as process 1 of a PID namespace, which ends with `unshare`.
const NAMESPACE: [&str; 5] = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];

/// Measures all rows; with `quick` few rounds, and without those that take most of a TTL.
pub(crate) fn measure(quick: bool) -> Result<Vec<Figure>, ProgramError> {
    let mut figures = Vec::new();
    for row in ROWS {
        let rounds = if quick { row.rounds / 25 } else { row.rounds };
        match row.measure(crate::process::program(row.level)?, rounds) {
            Ok(samples) if samples.is_empty() => {}
            Ok(samples) => figures.push(row.figure(samples)),
            Err(cause) => eprintln!("bench: {} is left out: {cause}", row.name),
        }
    }
    Ok(figures)
}

impl Row {
    /// Returns the seconds from each death until the next command works. Fails if this machine does not
    /// allow such a death.
    fn measure(&self, program: Program, rounds: usize) -> io::Result<Vec<f64>> {
        let before = if self.is_first { &NAMESPACE[..] } else { &[] };
        if program.level() != self.level || !is_permitted(&[before, &["true"]].concat()) {
            return Err(io::Error::other("this machine does not allow it"));
        }
        let trial = program.trial();
        let mut leader = crate::process::start(&trial, before, &[])?;
        leader.stdout.wait_for("alone");
        let mut samples = Vec::new();
        for _ in 0..rounds {
            let mut standby = crate::process::start(&trial, before, &[])?;
            standby.stderr.wait_for("waiting for leadership");
            let died_at = self.death.strike(&trial, &leader)?;
            standby.stdout.wait_for("alone");
            samples.push(SystemClock::read().since(died_at).as_secs_f64());
            leader.finish();
            leader = standby;
        }
        Ok(samples)
    }

    fn figure(&self, samples: Vec<f64>) -> Figure {
        let figure = Figure::new(format!("next command, TTL 20 s: {}", self.name), Unit::Seconds, samples);
        match self.death {
            // 1.05 TTL and 50 ms.
            Death::OfMachine => figure.with_goal(Statistic::Max, Side::AtMost, 21.05),
            Death::Of(_) | Death::OutOfMemory | Death::Deadline => figure
                .with_goal(Statistic::Median, Side::AtMost, 0.1)
                .with_goal(Statistic::Max, Side::AtMost, 0.5),
        }
    }
}

impl Death {
    /// Has the host of `leader` die. Returns the instant to count from.
    fn strike(self, trial: &Trial, leader: &Running) -> io::Result<Instant> {
        let host = leader.host();
        let began_at = SystemClock::read();
        match self {
            Self::Of(signal) => {
                kill_process(host, signal)?;
                Ok(began_at)
            }
            Self::OutOfMemory => Ok(MemoryGroup::of(&format!("{}-{host}", trial.mark()))?.exhaust(host)),
            Self::Deadline => {
                kill_process(host, Signal::STOP)?;
                eventually("the host is killed at its deadline", || has_ended(host));
                Ok(SystemClock::read())
            }
            Self::OfMachine => {
                leader.signal(Signal::KILL);
                eventually("the host dies with its namespace", || has_ended(host));
                renewed_at(trial)
            }
        }
    }
}

/// Returns when the record was written last.
fn renewed_at(trial: &Trial) -> io::Result<Instant> {
    let asked_at = SystemClock::read();
    let (_, shown, said) = trial.status(&["--name", &trial.name(), "--json"]);
    let slots: serde_json::Value = serde_json::from_str(&shown)?;
    let age = slots.pointer("/0/age_ms").and_then(serde_json::Value::as_u64);
    let age = age.ok_or_else(|| io::Error::other(format!("vvm status shows no age: {said}")))?;
    Ok(asked_at.before(Duration::from_millis(age)))
}
