//! `vvm doctor`: whether this machine and its connection to the storage are fit to lead.

mod clocks;
mod storage;
mod successor;

use crate::{
    args::{TargetArgs, parse_address, parse_duration, parse_ttl},
    inspection::operate,
};
use clap::Args;
use ielections::Ttl;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::{
    io::{self, Write as _},
    net::SocketAddr,
    process::ExitCode,
    time::Duration,
};
use vvm_clock::Readings;
use vvm_host::operate::{InspectError, Purpose, StorageInspector};

pub(crate) fn main(args: &DoctorArgs) -> ExitCode {
    // First: a namespace can be tried out only while this process has no other thread.
    let of_machine = [storage::containment(), storage::limits()];
    // Also a login that may only read a server gets all findings.
    operate(args.target.pair(), Purpose::Read, async |inspector| {
        let mut findings = examine(inspector, args).await?;
        findings.extend(of_machine);
        let verdict = findings.iter().map(|finding| finding.health).max().unwrap_or(Health::Good);
        show(args, &findings, verdict).map_err(InspectError::Output)?;
        Ok(u8::from(verdict == Health::Problem))
    })
}

/// The shortest time over which the rates of two clocks are compared. Their readings err by microseconds.
const WINDOW: Duration = Duration::from_millis(500);

async fn examine(inspector: &StorageInspector, args: &DoctorArgs) -> Result<Vec<CheckResult>, InspectError> {
    let (before, enough_at) = (Readings::take(), inspector.clock.now().after(WINDOW));
    let measured = storage::measure(&inspector.storage, &inspector.clock, args).await;
    let (mut findings, newest_epoch) = storage::examine(inspector, args, &measured).await?;
    if let Some(address) = args.successor {
        findings.extend(successor::examine(inspector, args, address, &measured.writes).await?);
    }
    inspector.clock.sleep_until(enough_at).await;
    findings.extend(clocks::clocks(&before, &Readings::take(), newest_epoch));
    Ok(findings)
}

fn show(args: &DoctorArgs, findings: &[CheckResult], verdict: Health) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if args.json {
        let ttl_ms = args.ttl.get().as_millis() as u64;
        let object = json!({
            "name": args.target.name, "ttl_ms": ttl_ms, "verdict": verdict, "findings": findings,
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
    /// The address of this machine, as in vvm run: tries the way to the leader, and compares --support with the figures
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_address)]
    pub(crate) successor: Option<SocketAddr>,
    /// With --successor: the support period, as in vvm run
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_duration)]
    pub(crate) support: Duration,
    /// As JSON: one object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Health {
    Good,
    /// It works, with little room for mishaps.
    Caution,
    /// A leader here loses leaderships, or never acquires one.
    Problem,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
struct CheckResult {
    about: &'static str,
    health: Health,
    /// For people, with the remedy if there is one.
    says: String,
    #[serde(flatten)]
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

impl CheckResult {
    fn new(about: &'static str, health: Health, says: impl Into<String>) -> Self {
        Self { about, health, says: says.into(), figures: Map::new() }
    }

    fn with(mut self, name: &str, figure: impl Into<Value>) -> Self {
        self.figures.insert(name.into(), figure.into());
        self
    }

    fn with_duration(self, name: &str, duration: Duration) -> Self {
        self.with(&format!("{name}_ms"), duration.as_secs_f64() * 1e3)
    }
}
