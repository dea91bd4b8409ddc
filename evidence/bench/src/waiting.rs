//! What waiting candidates use, and what `vvm run` asks of its storage while it waits and while it leads, on SQLite.

use crate::{
    process::{self, ProcessTree, Used},
    report::{Failure, Figure, Unit},
};
use harness::{Level, Running, Trial};
use rustix::process::Signal;
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};

/// How many candidates wait, so that pages are shared as by several candidates of one machine.
pub(crate) const WAITING: usize = 3;

/// Starting up is over by then.
pub(crate) const SETTLED: Duration = Duration::from_secs(5);

type Quantity = (&'static str, Unit, fn(&Used) -> f64);

pub(crate) const QUANTITIES: [Quantity; 3] = [
    ("memory of a waiting candidate, PSS", Unit::Megabytes, |used| used.proportional as f64 / 1e6),
    ("memory of a waiting candidate, sum of RSS", Unit::Megabytes, |used| used.resident as f64 / 1e6),
    ("CPU of a waiting candidate, each minute", Unit::Milliseconds, |used| used.cpu.as_secs_f64() * 1e3),
];

/// Calls `meanwhile`. Returns each candidate's memory then, with descendants, and CPU time in a minute of it.
pub(crate) fn used(
    candidates: &[i32],
    meanwhile: impl FnOnce() -> Result<(), Failure>,
) -> Result<Vec<Used>, Failure> {
    let now = || candidates.iter().map(|first| ProcessTree::of(*first).used()).collect::<Result<Vec<_>, _>>();
    let (began, before) = (SystemClock::read(), now()?);
    meanwhile()?;
    let (minutes, after) = (minutes_since(began), now()?);
    let in_a_minute = |(before, after): (Used, Used)| {
        let cpu = after.cpu.saturating_sub(before.cpu).div_f64(minutes);
        Used { cpu, ..after }
    };
    Ok(before.into_iter().zip(after).map(in_a_minute).collect())
}

fn minutes_since(began: Instant) -> f64 {
    began.until(SystemClock::read()).as_secs_f64() / 60.0
}

/// One candidate leads and three wait. Two others, on a file of their own, count requests, because serving metrics costs
/// memory. They end before memory is read.
pub(crate) fn measure(quick: bool) -> Result<Vec<Figure>, Failure> {
    let watched = Duration::from_secs(if quick { 5 } else { 60 });
    let program = process::program(Level::Guardian)?;
    let (trial, other_trial) = (program.trial(), program.trial());
    let mut leader = process::start(&trial, &[], &[])?;
    leader.stdout.wait_for("alone");
    let mut candidates = Vec::new();
    for _ in 0..WAITING {
        let mut candidate = process::start(&trial, &[], &[])?;
        candidate.stderr.wait_for("waiting for leadership");
        candidates.push(candidate);
    }
    let waiting: Vec<i32> = candidates.iter().map(|one| one.guardian.as_raw_pid()).collect();
    let mut leading = Counted::start(&other_trial)?;
    leading.candidate.stdout.wait_for("alone");
    let mut standby = Counted::start(&other_trial)?;
    standby.candidate.stderr.wait_for("waiting for leadership");
    SystemClock::block_for(SETTLED);

    let mut requests = [0.0; 2];
    let used = used(&waiting, || {
        let now = || Ok::<_, Failure>([standby.requests()?, leading.requests()?]);
        let (began, before) = (SystemClock::read(), now()?);
        SystemClock::block_for(watched);
        let (minutes, after) = (minutes_since(began), now()?);
        requests = [0, 1].map(|at| (after[at] - before[at]) / minutes);
        // The standby first: it must not lead.
        for Counted { candidate, .. } in [standby, leading] {
            candidate.signal(Signal::TERM);
            candidate.finish();
        }
        Ok(())
    })?;
    let quantity = |(what, unit, of): Quantity| Figure::new(what, unit, used.iter().map(of).collect());
    let mut figures: Vec<Figure> = QUANTITIES.into_iter().map(quantity).collect();
    for (state, requests) in ["waits", "leads"].into_iter().zip(requests) {
        let name = format!("requests to the storage while a candidate {state}");
        figures.push(Figure::new(name, Unit::PerMinute, vec![requests]));
    }
    Ok(figures)
}

const METRIC: &str = "vvm_storage_calls_total{";

struct Counted {
    candidate: Running,
    address: String,
}

impl Counted {
    fn start(trial: &Trial) -> Result<Self, Failure> {
        let mut candidate = process::start(trial, &[], &["--http", "127.0.0.1:0"])?;
        let line = candidate.stderr.wait_for("status page: http://");
        let address = line.rsplit("http://").next().unwrap_or_default().trim().trim_end_matches('/');
        Ok(Self { candidate, address: address.to_owned() })
    }

    fn requests(&self) -> Result<f64, Failure> {
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
