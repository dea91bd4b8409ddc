//! `vvm doctor`: whether this machine and its connection to the storage are fit to lead.

mod clocks;
mod examined;
mod file;
mod finding;
mod measured;

use crate::{
    args::DoctorArgs,
    async_runtime,
    inspection::{conclude, inspect},
};
use finding::{Finding, Health};
use serde_json::json;
use std::{
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};
use vvm_clock::Readings;
use vvm_host::operate::{InspectError, Purpose, StorageInspector};

pub(crate) fn main(args: &DoctorArgs) -> ExitCode {
    // First: a namespace can be tried out only while this process has no other thread.
    let mut findings = vec![examined::containment(), examined::limits()];
    // Also a user without the right to write gets all findings.
    let examined = match inspect_storage(&args.target.storage, args) {
        Err(InspectError::NoStorage(_)) => examine_stand_in(args),
        examined => examined,
    };
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

fn inspect_storage(url: &str, args: &DoctorArgs) -> Result<Vec<Finding>, InspectError> {
    inspect((url, &args.target.name), Purpose::Look, async |inspector| examine(inspector, args).await)
}

/// Examines a temporary file beside the one that the first candidate will create.
fn examine_stand_in(args: &DoctorArgs) -> Result<Vec<Finding>, InspectError> {
    let stand_in = match file::stand_in(&args.target.storage) {
        Ok(stand_in) => stand_in,
        Err(problem) => return Ok(vec![problem]),
    };
    let runtime = async_runtime::start().map_err(InspectError::system)?;
    runtime.block_on(vvm_storage::init_storage(&stand_in.url))?;
    drop(runtime);
    let mut findings = inspect_storage(&stand_in.url, args)?;
    // In a new storage no candidate can have used the name.
    for finding in &mut findings {
        finding.says = stand_in.rename(&finding.says);
        if finding.about == "storage" {
            finding.health = Health::Good;
        }
    }
    let absent = format!("{} does not exist yet: the first `vvm run` creates it", args.target.storage);
    findings.insert(0, Finding::new("new storage", Health::Good, format!("{absent}; examined beside it:")));
    Ok(findings)
}

/// The shortest time over which the rates of two clocks are compared. Their readings err by microseconds.
const WINDOW: Duration = Duration::from_millis(500);

async fn examine(inspector: &StorageInspector, args: &DoctorArgs) -> Result<Vec<Finding>, InspectError> {
    let (before, enough_at) = (Readings::take(), inspector.clock.now().after(WINDOW));
    let measured = measured::measure(&inspector.storage, &inspector.clock, args).await;
    let (mut findings, newest_epoch) = examined::storage(inspector, args, &measured).await?;
    findings.extend(file::permissions(&args.target.storage));
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
