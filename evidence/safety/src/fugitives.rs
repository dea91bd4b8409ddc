//! `safety fugitives`: workers that try to escape containment, and how long they outlive the host.
//!
//! Tries every kind of worker, every way to end guardian and host, and every level of containment that this
//! machine has. Fails if a process outlives the host (or the killed guardian) by more than `--at-most-ms`
//! where the level promises that none does. Other times are printed as not promised.

mod kind;
mod run;
mod setting;

use clap::Args;
use kind::{Ending, KINDS};
use rustix::process::geteuid;
use setting::SETTINGS;
use std::{fs, io, path::Path, time::Duration};

/// How many trials a line without a promise has. Each may last until it is given up.
const WITHOUT_A_PROMISE: usize = 3;

/// The trials to run.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// How many of each kind; at most three where nothing is promised.
    #[arg(long, default_value_t = 20)]
    trials: usize,
    /// Only lines that contain this, e.g. pidns, or storm.
    #[arg(long)]
    only: Option<String>,
}

/// The results of one kind of trial.
struct Line {
    title: String,
    promised: bool,
    /// The longest time that keeps the promise.
    most: Duration,
    /// Sorted; `None` for a process that did not end.
    took: Vec<Option<Duration>>,
}

/// Runs them. Returns whether all promises were kept.
pub(crate) fn run(vvm: &Path, options: &Options, most: Duration) -> io::Result<bool> {
    println!("load {}", load()?);
    let mut kept = true;
    let mut lines = 0;
    for setting in SETTINGS {
        if let Some(refusal) = setting.refusal(vvm)? {
            println!("{}: not available here: {refusal}", setting.title());
            continue;
        }
        for (kind, ending) in KINDS.into_iter().flat_map(|kind| Ending::ALL.map(|ending| (kind, ending))) {
            let title = format!("{}; {}; {}", setting.title(), kind.title, ending.title());
            if options.only.as_ref().is_some_and(|only| !title.contains(only.as_str())) {
                continue;
            }
            if kind.needs_root && !geteuid().is_root() {
                println!("{title}: not run: needs root");
                continue;
            }
            let mut line = Line { title, promised: setting.promises(kind, ending), most, took: Vec::new() };
            line.measure(options.trials, || run::trial(vvm, setting, kind, ending))?;
            println!("{line}");
            kept &= line.is_kept();
            lines += 1;
        }
    }
    println!("{lines} lines; load {}", load()?);
    if lines == 0 {
        println!("no trial matched");
    }
    Ok(kept && lines > 0)
}

impl Line {
    fn measure(&mut self, trials: usize, trial: impl Fn() -> io::Result<Option<Duration>>) -> io::Result<()> {
        let trials = if self.promised { trials } else { trials.min(WITHOUT_A_PROMISE) };
        self.took = (0..trials).map(|_| trial()).collect::<io::Result<Vec<_>>>()?;
        self.took.sort_by_key(|took| took.unwrap_or(Duration::MAX));
        Ok(())
    }

    fn is_kept(&self) -> bool {
        !self.promised || self.took.iter().all(|took| took.is_some_and(|took| took <= self.most))
    }
}

impl std::fmt::Display for Line {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |took: Option<&Option<Duration>>| match took {
            Some(Some(took)) => format!("{:.1} ms", took.as_secs_f64() * 1e3),
            Some(None) => "never".into(),
            None => "-".into(),
        };
        let verdict = match (self.promised, self.is_kept()) {
            (true, true) => "kept",
            (true, false) => "BROKEN",
            (false, _) => "not promised",
        };
        let (median, most) = (text(self.took.get(self.took.len() / 2)), text(self.took.last()));
        write!(out, "{}: {} trials, median {median}, most {most}: {verdict}", self.title, self.took.len())
    }
}

/// Returns the load average of the last minute and the number of processors.
fn load() -> io::Result<String> {
    let text = fs::read_to_string("/proc/loadavg")?;
    let processors = std::thread::available_parallelism()?;
    Ok(format!("{} on {processors} processors", text.split(' ').next().unwrap_or_default()))
}
