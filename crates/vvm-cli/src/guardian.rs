//! The guardian of `vvm run`: the process that the user starts. It contains the host
//! (`vvm_containment::guard`), reports what a dead host can't, and ends as the host asks.

mod ending;
mod release;

use crate::{
    announce::{self, say},
    args::{RunArgs, STAGE_HOST, STAGE_RELEASE},
    contained::{NotContained, say_event},
    dry_run::DryRun,
    exit,
    notes::{Farewell, ToGuardian},
    result_file::{self, Unwritable},
    service_manager::{self, ServiceManager},
    settings::{HANDED_ON, Settled},
};
use ending::{Ending, Told};
use ielections::record::HolderTooLong;
use release::Release;
use std::{io, iter, process::ExitCode};
use vvm_containment::{Containment, GuardReport, guard};
use vvm_host::operate::ResourceLimit;

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("--result-file: {0}")]
    ResultFile(#[from] Unwritable),
    #[error("--holder: {0}")]
    Holder(#[from] HolderTooLong),
    #[error(transparent)]
    Containment(#[from] NotContained),
    #[error(transparent)]
    System(ResourceLimit),
}

impl From<io::Error> for StartError {
    fn from(cause: io::Error) -> Self {
        Self::System(cause.into())
    }
}

/// Runs `vvm run` with `args`, which `settled` came to.
pub(crate) fn main(args: &RunArgs, settled: &Settled) -> ExitCode {
    announce::start_log(args.candidate.log_format);
    let (farewell, is_of_vvm) = run(args, settled).unwrap_or_else(|refusal| {
        say!("{refusal}");
        let status = match refusal {
            StartError::ResultFile(_) | StartError::Holder(_) => exit::MISUSE,
            StartError::Containment(_) | StartError::System(_) => exit::SYSTEM,
        };
        (Farewell::Exit(status), true)
    });
    if is_of_vvm && farewell == Farewell::Exit(exit::MISUSE) {
        settled.origins.all().into_iter().for_each(|origins| say!("{origins}"));
    }
    match farewell {
        Farewell::Exit(status) => status.into(),
        Farewell::DieOf(signal) => exit::die_of(signal),
    }
}

/// Returns how `vvm` is to end, and whether the status is its own and not the command's.
fn run(args: &RunArgs, settled: &Settled) -> Result<(Farewell, bool), StartError> {
    let holder = args.candidate.own_holder()?;
    if let Some(path) = &args.result_file {
        result_file::check(path, &vvm_storage::url::files(&args.candidate.storage))?;
    }
    // Before a host starts: it must not win a leadership without containment for its command.
    let containment = Containment::establish(args.containment.into()).map_err(NotContained)?;
    announce::contained(containment.level());
    if args.candidate.dry_run {
        containment.dissolve();
        let command = args.command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let more = [("would run", command), ("containment", containment.level().to_string())];
        return Ok((Farewell::Exit(DryRun { candidate: &args.candidate, holder }.show(&more)), true));
    }
    let mut manager = ServiceManager::of_environment();
    let mut told = Told::default();
    let environment =
        [(service_manager::VARIABLE.into(), None), (HANDED_ON.into(), Some(settled.handed_on()))];
    let of_stage = |stage: &str| {
        iter::once(stage.into()).chain(settled.stage_arguments(&args.candidate, &holder)).collect()
    };
    let arguments = of_stage(STAGE_HOST);
    let end = guard(arguments, &environment, containment, |heard| match heard {
        GuardReport::Event(event) => say_event(&event),
        GuardReport::Note(note) => match ToGuardian::read(note) {
            Some(ToGuardian::Claim(claim)) => told.claim = claim,
            Some(ToGuardian::Unproven) => told.unproven = true,
            Some(ToGuardian::Leading(leading)) => told.leading = Some(leading),
            Some(ToGuardian::Farewell(farewell)) => told.farewell = Some(farewell),
            Some(ToGuardian::State(state)) => manager.iter_mut().for_each(|manager| manager.tell(state)),
            None => {}
        },
    })?;
    if let Some(release) = Release::of(&told, &end, args) {
        release.run(of_stage(STAGE_RELEASE), settled.handed_on());
    }
    let farewell = told.farewell.unwrap_or_else(|| Ending::of(told, &end).report(args, &holder, &end));
    Ok((farewell, told.leading.is_none()))
}
