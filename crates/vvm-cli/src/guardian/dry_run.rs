//! `vvm run --dry-run`: what can be refused before anything is started, and what would be started.

use super::StartError;
use crate::{announce::say, cli::args::RunArgs, contained::NotContained, dry_run::DryRun, result_file};
use std::process::ExitCode;
use vvm_containment::Containment;

/// Says what would be done. The level of containment is tried out, and given up again.
///
/// # Errors
/// As for the real thing, as far as it is refused before anything is led.
pub(super) fn show(run: &RunArgs) -> Result<ExitCode, StartError> {
    let holder = run.holder()?;
    if let Some(path) = &run.result_file {
        result_file::check(path, &vvm_storage::url::files(&run.storage))?;
    }
    let containment = Containment::establish(run.containment.into()).map_err(NotContained)?;
    containment.dissolve();
    let words = run.command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>();
    let more = [("would run", words.join(" ")), ("containment", containment.level().to_string())];
    let prospect = DryRun { storage: &run.storage, name: &run.name, slots: run.slots, ttl: run.ttl, holder };
    Ok(match prospect.show(&more) {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            say!("{refusal}");
            refusal.exit_status().into()
        }
    })
}
