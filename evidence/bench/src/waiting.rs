//! What `vvm run` costs on SQLite while it waits and while it leads.
//!
//! One candidate leads and three wait, so that pages are shared as by several candidates of one machine. Two
//! others, on a file of their own, count requests, because serving metrics costs memory. They end before
//! memory is read.

mod process;
mod requests;

use crate::{
    candidate::{self, ProgramError},
    figure::{Figure, Side, Statistic, Unit},
    resources::ResourcesError,
};
use harness::Level;
use process::{Process, Used};
use requests::{Requests, RequestsError};
use std::{io, time::Duration};
use vvm_clock::{Instant, SystemClock};

const WAIT: &str = "waiting";
const LEAD: &str = "leading";

/// How many candidates wait.
const WAITING: usize = 3;

/// Starting up is over by then.
const SETTLED: Duration = Duration::from_secs(5);

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WaitingError {
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error(transparent)]
    Resources(#[from] ResourcesError),
    #[error(transparent)]
    Requests(#[from] RequestsError),
    #[error("the system refuses: {0}")]
    System(#[from] io::Error),
    #[error("a candidate has the processes {0}, and {1} are expected")]
    Processes(String, &'static str),
}

pub(crate) fn measure(quick: bool) -> Result<Vec<Figure>, WaitingError> {
    let watched = Duration::from_secs(if quick { 5 } else { 60 });
    let program = candidate::program(Level::Guardian)?;
    let (trial, other_trial) = (program.trial(), program.trial());
    let mut candidates = Vec::new();
    for number in 0..=WAITING {
        let mut candidate = candidate::start(&trial, &[], &[])?;
        if number == 0 {
            candidate.stdout.wait_for("alone");
        } else {
            candidate.stderr.wait_for("waiting for leadership");
        }
        candidates.push(candidate);
    }
    let requests = Requests::start(&other_trial)?;
    SystemClock::block_for(SETTLED);

    let processes =
        candidates.iter().map(|one| Process::all_of(one.guardian)).collect::<Result<Vec<_>, _>>()?;
    for (number, processes) in processes.iter().enumerate() {
        expect(processes, if number == 0 { "vvm, vvm-host, vvm-keeper" } else { "vvm, vvm-host" })?;
    }
    let before = processes.iter().map(|all| Used::each(all)).collect::<Result<Vec<_>, _>>()?;
    let requests_before = requests.read()?;
    let began = SystemClock::read();
    SystemClock::block_for(watched);
    let counted = requests.read()?.since(requests_before, minutes_since(began));
    requests.end();
    let minutes = minutes_since(began);
    let after = processes.iter().map(|all| Used::each(all)).collect::<Result<Vec<_>, _>>()?;

    let spent = before.iter().zip(&after).map(|(before, after)| {
        before.iter().zip(after).map(|(before, after)| after.since(before, minutes)).collect::<Vec<_>>()
    });
    let spent = spent.collect::<Vec<_>>();
    let (leading, waiting) = spent.split_at(1);
    let mut figures = table(WAIT, waiting);
    figures.push(per_minute("waiting: requests to the storage", counted.waiting));
    figures.extend(table(LEAD, leading));
    figures.push(per_minute("leading: requests to the storage", counted.leading));
    Ok(figures)
}

fn minutes_since(began: Instant) -> f64 {
    began.until(SystemClock::read()).as_secs_f64() / 60.0
}

fn expect(processes: &[Process], expected: &'static str) -> Result<(), WaitingError> {
    let found = processes.iter().map(Process::name).collect::<Vec<_>>().join(", ");
    if found == expected { Ok(()) } else { Err(WaitingError::Processes(found, expected)) }
}

fn per_minute(name: &str, number: f64) -> Figure {
    Figure::new(name, Unit::PerMinute, vec![number])
}

/// The figures of candidates in one state, summed over the processes of each, and for each process.
fn table(state: &str, candidates: &[Vec<Used>]) -> Vec<Figure> {
    let sums = candidates.iter().map(|processes| processes.iter().copied().sum()).collect::<Vec<Used>>();
    let mut figures = Vec::new();
    for Quantity { what, unit, of, at_most } in QUANTITIES {
        let sum = Figure::new(format!("{state}: {what}"), unit, sums.iter().map(of).collect());
        figures.push(match at_most.filter(|_| state == WAIT) {
            Some(goal) => sum.with_goal(Statistic::Median, Side::AtMost, goal),
            None => sum,
        });
        for (place, name) in ["guardian", "host", "keeper"].into_iter().enumerate() {
            let used = candidates.iter().filter_map(|processes| processes.get(place));
            let samples = used.map(of).collect::<Vec<_>>();
            if !samples.is_empty() {
                figures.push(Figure::new(format!("  {name}"), unit, samples));
            }
        }
    }
    figures
}

/// A quantity of [`Used`].
struct Quantity {
    what: &'static str,
    unit: Unit,
    of: fn(&Used) -> f64,
    /// The goal of a waiting candidate.
    at_most: Option<f64>,
}

const QUANTITIES: [Quantity; 5] = [
    Quantity {
        what: "PSS",
        unit: Unit::Megabytes,
        of: |used| used.proportional as f64 / 1e6,
        at_most: Some(2.5),
    },
    Quantity {
        what: "private memory",
        unit: Unit::Megabytes,
        of: |used| used.private as f64 / 1e6,
        at_most: None,
    },
    Quantity {
        what: "sum of RSS",
        unit: Unit::Megabytes,
        of: |used| used.resident as f64 / 1e6,
        at_most: None,
    },
    Quantity {
        what: "CPU in a minute",
        unit: Unit::Milliseconds,
        of: |used| used.cpu.as_secs_f64() * 1e3,
        at_most: Some(15.0),
    },
    Quantity { what: "wake-ups", unit: Unit::PerMinute, of: |used| used.wake_ups, at_most: None },
];
