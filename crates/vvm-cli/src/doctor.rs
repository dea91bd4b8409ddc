//! `vvm doctor`: whether this machine and its connection to the storage are fit to lead.

mod clocks;
mod storage;

use crate::{
    args::{TargetArgs, parse_ttl},
    inspection::{conclude, inspect},
};
use clap::Args;
use ielections::Ttl;
use serde_json::{Map, Value, json};
use std::{
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};
use vvm_clock::Readings;
use vvm_host::operate::{InspectError, Purpose, StorageInspector};

pub(crate) fn main(args: &DoctorArgs) -> ExitCode {
    // First: a namespace can be tried out only while this process has no other thread.
    let mut findings = vec![storage::containment(), storage::limits()];
    // Also a login that may only read a server gets all findings.
    let examined =
        inspect(args.target.pair(), Purpose::Look, async |inspector| examine(inspector, args).await);
    let shown = examined.and_then(|more| {
        findings.splice(0..0, more);
        show(args, &findings).map_err(InspectError::Output)
    });
    match shown {
        Ok(()) if verdict(&findings) == Health::Problem => ExitCode::FAILURE,
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => conclude(&refusal).into(),
    }
}

/// The shortest time over which the rates of two clocks are compared. Their readings err by microseconds.
const WINDOW: Duration = Duration::from_millis(500);

async fn examine(inspector: &StorageInspector, args: &DoctorArgs) -> Result<Vec<Finding>, InspectError> {
    let (before, enough_at) = (Readings::take(), inspector.clock.now().after(WINDOW));
    let measured = storage::measure(&inspector.storage, &inspector.clock, args).await;
    let (mut findings, newest_epoch) = storage::examine(inspector, args, &measured).await?;
    inspector.clock.sleep_until(enough_at).await;
    if let (Some(before), Some(after)) = (before, Readings::take()) {
        findings.extend(clocks::clocks(&before, &after, newest_epoch));
    }
    Ok(findings)
}

/// Returns the worst of all findings.
fn verdict(findings: &[Finding]) -> Health {
    findings.iter().map(|finding| finding.health).max().unwrap_or(Health::Good)
}

fn show(args: &DoctorArgs, findings: &[Finding]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let verdict = verdict(findings);
    if args.json {
        let findings = findings.iter().map(Finding::to_json).collect::<Vec<_>>();
        let ttl_ms = args.ttl.get().as_millis() as u64;
        let object = json!({
            "name": args.target.name, "ttl_ms": ttl_ms, "verdict": verdict.word(), "findings": findings,
        });
        return writeln!(out, "{object:#}");
    }
    for finding in findings {
        writeln!(out, "{:8} {:12} {}", finding.health.word(), finding.about, finding.says)?;
    }
    let sentence = match verdict {
        Health::Good => "Fit to lead.",
        Health::Caution => "Fit to lead, but see the lines marked caution.",
        Health::Problem => "Not fit to lead: see the lines marked problem.",
    };
    writeln!(out, "\n{sentence}")
}

/// Examine whether this machine and its connection to the storage are fit to lead.
///
/// Measures reads and conditional writes, on a record of its own that no candidate can lead, and compares
/// them with the time that the TTL leaves. Checks clocks, limits and levels of containment.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  vvm doctor --storage sqlite:/var/lib/payroll/leader.db --name payroll --ttl 10s

Exit status: 0 fit to lead; 1 there are problems; 64 wrong arguments;
66 no such storage; 69 the storage refused; 71 the system refused")]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// The TTL to compare the figures with, as in vvm run
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = parse_ttl)]
    pub(crate) ttl: Ttl,
    /// As JSON: one object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Health {
    Good,
    /// It works, with little room for mishaps.
    Caution,
    /// A leader here loses leaderships, or never acquires one.
    Problem,
}

#[derive(Clone, PartialEq, Debug)]
struct Finding {
    about: &'static str,
    health: Health,
    /// For people, with the remedy if there is one.
    says: String,
    /// For programs.
    figures: Map<String, Value>,
}

impl Health {
    fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Caution => "caution",
            Self::Problem => "problem",
        }
    }
}

impl Finding {
    fn new(about: &'static str, health: Health, says: impl Into<String>) -> Self {
        Self { about, health, says: says.into(), figures: Map::new() }
    }

    /// Adds a figure.
    fn with(mut self, name: &str, figure: impl Into<Value>) -> Self {
        self.figures.insert(name.into(), figure.into());
        self
    }

    /// Adds a duration, in milliseconds.
    fn with_duration(self, name: &str, duration: Duration) -> Self {
        self.with(&format!("{name}_ms"), duration.as_secs_f64() * 1e3)
    }

    fn to_json(&self) -> Value {
        let mut object = json!({"about": self.about, "health": self.health.word(), "says": self.says});
        self.figures.iter().for_each(|(name, figure)| object[name] = figure.clone());
        object
    }
}
