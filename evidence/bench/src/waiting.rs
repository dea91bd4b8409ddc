//! What `vvm run` costs on SQLite while it waits and while it leads.
//!
//! One candidate leads and three wait, so that pages are shared as by several candidates of one machine. Two
//! others, on a file of their own, count requests, because serving metrics costs memory. They end before
//! memory is read.

use crate::{
    beside_peers::ProcessTree,
    report::{Failure, Figure, Unit},
};
use harness::{Level, Running, Trial};
use rustix::process::{Pid, Signal};
use std::{
    fs,
    io::{Read as _, Write as _},
    iter,
    net::TcpStream,
    path::PathBuf,
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};

const WAIT: &str = "waiting";
const LEAD: &str = "leading";

/// How many candidates wait.
const WAITING: usize = 3;

/// Starting up is over by then.
const SETTLED: Duration = Duration::from_secs(5);

pub(crate) fn measure(quick: bool) -> Result<Vec<Figure>, Failure> {
    let watched = Duration::from_secs(if quick { 5 } else { 60 });
    let program = crate::process::program(Level::Guardian)?;
    let (trial, other_trial) = (program.trial(), program.trial());
    let mut candidates = Vec::new();
    for number in 0..=WAITING {
        let mut candidate = crate::process::start(&trial, &[], &[])?;
        if number == 0 {
            candidate.stdout.wait_for("alone");
        } else {
            candidate.stderr.wait_for("waiting for leadership");
        }
        candidates.push(candidate);
    }
    let [leading, waiting] = counted(&other_trial)?;
    let requests = || Ok::<_, Failure>([leading.read()?, waiting.read()?]);
    SystemClock::block_for(SETTLED);

    let processes =
        candidates.iter().map(|one| Process::all_of(one.guardian)).collect::<Result<Vec<_>, _>>()?;
    for (number, processes) in processes.iter().enumerate() {
        expect(processes, if number == 0 { "vvm, vvm-host, vvm-keeper" } else { "vvm, vvm-host" })?;
    }
    let before = processes.iter().map(|all| Used::each(all)).collect::<Result<Vec<_>, _>>()?;
    let requests_before = requests()?;
    let began = SystemClock::read();
    SystemClock::block_for(watched);
    let (requests, requested_for) = (requests()?, minutes_since(began));
    let [leads, waits] = [0, 1].map(|at| (requests[at] - requests_before[at]) / requested_for);
    // The standby first: it must not lead.
    for Counted { candidate, .. } in [waiting, leading] {
        candidate.signal(Signal::TERM);
        candidate.finish();
    }
    let minutes = minutes_since(began);
    let after = processes.iter().map(|all| Used::each(all)).collect::<Result<Vec<_>, _>>()?;

    let spent = before.iter().zip(&after).map(|(before, after)| {
        before.iter().zip(after).map(|(before, after)| after.since(before, minutes)).collect::<Vec<_>>()
    });
    let spent = spent.collect::<Vec<_>>();
    let (leading, waiting) = spent.split_at(1);
    let mut figures = table(WAIT, waiting);
    figures.push(per_minute("waiting: requests to the storage", waits));
    figures.extend(table(LEAD, leading));
    figures.push(per_minute("leading: requests to the storage", leads));
    Ok(figures)
}

fn minutes_since(began: Instant) -> f64 {
    began.until(SystemClock::read()).as_secs_f64() / 60.0
}

fn expect(processes: &[Process], expected: &'static str) -> Result<(), Failure> {
    let found = processes.iter().map(Process::name).collect::<Vec<_>>().join(", ");
    if found == expected {
        Ok(())
    } else {
        Err(format!("a candidate has the processes {found}, and {expected} are expected").into())
    }
}

fn per_minute(name: &str, number: f64) -> Figure {
    Figure::new(name, Unit::PerMinute, vec![number])
}

/// The figures of candidates in one state, summed over the processes of each, and for each process.
fn table(state: &str, candidates: &[Vec<Used>]) -> Vec<Figure> {
    let sums = candidates.iter().map(|processes| processes.iter().copied().sum()).collect::<Vec<Used>>();
    let mut figures = Vec::new();
    for (what, unit, of, at_most) in QUANTITIES {
        let sum = Figure::new(format!("{state}: {what}"), unit, sums.iter().map(of).collect());
        figures.push(match at_most.filter(|_| state == WAIT) {
            Some(goal) => sum.median_at_most(goal),
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

/// A quantity of [`Used`]: its name and unit, and the goal of a waiting candidate.
type Quantity = (&'static str, Unit, fn(&Used) -> f64, Option<f64>);

const QUANTITIES: [Quantity; 5] = [
    ("PSS", Unit::Megabytes, |used| used.proportional as f64 / 1e6, Some(2.5)),
    ("private memory", Unit::Megabytes, |used| used.private as f64 / 1e6, None),
    ("sum of RSS", Unit::Megabytes, |used| used.resident as f64 / 1e6, None),
    ("CPU in a minute", Unit::Milliseconds, |used| used.cpu.as_secs_f64() * 1e3, Some(15.0)),
    ("wake-ups", Unit::PerMinute, |used| used.wake_ups, None),
];

/// A process of `vvm` itself, not of its command.
#[derive(Debug)]
struct Process {
    id: i32,
    name: String,
}

/// What a process uses, or a sum of that.
#[derive(Clone, Copy, Default, Debug)]
struct Used {
    /// Bytes; shared pages are divided among their processes.
    proportional: u64,
    /// Bytes that no other process shares.
    private: u64,
    /// Bytes, shared ones included.
    resident: u64,
    cpu: Duration,
    /// How often its threads have stopped waiting.
    wake_ups: f64,
}

impl Process {
    /// Returns `ancestor` and those of its descendants that run the same program, by their generation.
    fn all_of(ancestor: Pid) -> Result<Vec<Self>, Failure> {
        let program = |id: i32| fs::read_link(format!("/proc/{id}/exe"));
        let ancestor = ancestor.as_raw_pid();
        let own: PathBuf = program(ancestor)?;
        let mut all = Vec::new();
        for id in ProcessTree::of(ancestor).ids() {
            if program(id).is_ok_and(|program| program == own) {
                let name = fs::read_to_string(format!("/proc/{id}/comm"))?.trim().to_owned();
                all.push(Self { id, name });
            }
        }
        Ok(all)
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn used(&self) -> Result<Used, Failure> {
        let id = self.id.to_string();
        let memory = crate::process::memory_of(self.id)?;
        Ok(Used {
            proportional: memory.proportional,
            private: memory.private,
            resident: crate::process::resident_bytes_of(&id)?,
            cpu: crate::process::cpu_time_of(&id)?,
            wake_ups: crate::process::wake_ups_of(&id)? as f64,
        })
    }
}

impl Used {
    /// What each of `processes` uses now.
    fn each(processes: &[Process]) -> Result<Vec<Self>, Failure> {
        processes.iter().map(Process::used).collect()
    }

    /// Its memory, and its CPU and wake-ups in a minute since `before`, which is `minutes` ago.
    fn since(&self, before: &Self, minutes: f64) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(before.cpu).div_f64(minutes),
            wake_ups: (self.wake_ups - before.wake_ups) / minutes,
            ..*self
        }
    }
}

impl iter::Sum for Used {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            proportional: sum.proportional + one.proportional,
            private: sum.private + one.private,
            resident: sum.resident + one.resident,
            cpu: sum.cpu + one.cpu,
            wake_ups: sum.wake_ups + one.wake_ups,
        })
    }
}

const METRIC: &str = "vvm_storage_calls_total{";

/// Starts a leader and a standby that serve metrics.
fn counted(trial: &Trial) -> Result<[Counted; 2], Failure> {
    let mut leading = Counted::start(trial)?;
    leading.candidate.stdout.wait_for("alone");
    let mut waiting = Counted::start(trial)?;
    waiting.candidate.stderr.wait_for("waiting for leadership");
    Ok([leading, waiting])
}

struct Counted {
    candidate: Running,
    address: String,
}

impl Counted {
    fn start(trial: &Trial) -> Result<Self, Failure> {
        let mut candidate = crate::process::start(trial, &[], &["--http", "127.0.0.1:0"])?;
        let line = candidate.stderr.wait_for("status page: http://");
        let address = line.rsplit("http://").next().unwrap_or_default().trim().trim_end_matches('/');
        Ok(Self { candidate, address: address.to_owned() })
    }

    fn read(&self) -> Result<f64, Failure> {
        let mut stream = TcpStream::connect(&self.address)?;
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address)?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let samples = text.lines().filter(|line| line.starts_with(METRIC));
        let numbers = samples.map(|line| line.rsplit(' ').next()?.parse().ok()).collect::<Option<Vec<f64>>>();
        let numbers = numbers.filter(|numbers| !numbers.is_empty());
        numbers
            .map(|numbers| numbers.iter().sum())
            .ok_or_else(|| format!("the metrics of vvm are not understood: {text}").into())
    }
}
