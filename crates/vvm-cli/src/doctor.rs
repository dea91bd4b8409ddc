//! `vvm doctor`: whether this machine and its way to the storage are fit to lead.
//!
//! - `measured`: round trips, on a record that nobody campaigns for. `examined`: what follows from them, and
//!   from what storage and machine say of themselves. `clocks`: the same of the machine's clocks.
//! - `finding`: one thing that was found, and how good that is.

mod clocks;
mod examined;
mod finding;
mod measured;

use crate::cli::args::DoctorArgs;
use crate::inspection::inspect;
use clocks::Watched;
use finding::{Finding, Health};
use serde_json::json;
use std::{
    io::{self, Write as _},
    process::ExitCode,
};
use vvm_clock::Readings;
use vvm_host::operate::{InspectError, Purpose, StorageInspector};

/// `vvm doctor`.
pub(crate) fn main(args: &DoctorArgs) -> ExitCode {
    // While this process has no other thread: a namespace is tried out in one that has none.
    let mut findings = vec![examined::containment(), examined::limits()];
    // Who may not write is no leader, and is told that and everything else.
    let examined =
        inspect((&args.storage, &args.name), Purpose::Look, async |desk| examine(desk, args).await);
    let shown = examined.and_then(|more| {
        findings.splice(0..0, more);
        show(args, &findings).map_err(InspectError::Output)
    });
    match shown {
        Ok(()) if verdict(&findings) == Health::Problem => ExitCode::FAILURE,
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => crate::inspection::conclude(&refusal),
    }
}

/// What storage and clocks show.
async fn examine(desk: &StorageInspector, args: &DoctorArgs) -> Result<Vec<Finding>, InspectError> {
    let before = Readings::take();
    let measured = measured::measure(&desk.storage, &desk.clock, args).await;
    let (mut findings, newest_epoch) = examined::storage(desk, args, &measured).await?;
    findings.extend(clocks::clocks(&Watched { before, after: Readings::take() }, newest_epoch));
    Ok(findings)
}

/// As bad as the worst.
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
            "name": args.name, "ttl_ms": ttl_ms, "verdict": verdict.word(), "findings": findings,
        });
        return writeln!(out, "{object:#}");
    }
    for finding in findings {
        writeln!(out, "{:8} {:12} {}", finding.health.word(), finding.about, finding.says)?;
    }
    writeln!(
        out,
        "\n{}",
        match verdict {
            Health::Good => "Fit to lead.",
            Health::Caution => "Fit to lead, but see what is marked caution.",
            Health::Problem => "Not fit to lead: see what is marked problem.",
        }
    )
}
