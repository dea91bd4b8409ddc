//! The guardian of `vvm run`: what the user starts. It contains the host (`vvm_containment::guard`), says
//! what the host no longer could, and ends as the host says.

mod dry_run;
mod ending;

use crate::{
    announce::{self, say},
    cli::{args::RunArgs, exit, settings::Settled},
    contained::{NotContained, say_event},
    notes::{Farewell, Leading, ToGuardian},
    result_file::{self, Unwritable},
    run,
    service_manager::{self, ServiceManager},
};
use ielections::{Holder, record::HolderTooLong};
use std::{ffi::OsString, io, iter, process::ExitCode};
use vvm_containment::{Containment, GuardEnded, GuardReport, guard};
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

/// What the host has said, for the end.
#[derive(Clone, Copy, Default, Debug)]
struct Told {
    leading: Option<Leading>,
    farewell: Option<Farewell>,
}

impl From<io::Error> for StartError {
    fn from(cause: io::Error) -> Self {
        Self::System(cause.into())
    }
}

/// `vvm run`, as `settled` says, which says all that `run` does.
pub(crate) fn main(run: &RunArgs, settled: &Settled) -> ExitCode {
    announce::speak_to(run.observe.log_format);
    let done = if run.dry_run {
        dry_run::show(run)
    } else {
        start(run, settled.told())
            .map(|(holder, told, end)| ending::end(run, &settled.origins, &holder, &told, &end))
    };
    match done {
        Ok(status) => status,
        Err(refusal) => {
            say!("{refusal}");
            match refusal {
                StartError::ResultFile(_) | StartError::Holder(_) => {
                    settled.origins.all().into_iter().for_each(|origins| say!("{origins}"));
                    exit::MISUSE.into()
                }
                StartError::Containment(_) | StartError::System(_) => exit::SYSTEM.into(),
            }
        }
    }
}

fn start(run: &RunArgs, words: &[OsString]) -> Result<(Holder, Told, GuardEnded), StartError> {
    let holder = run.holder()?;
    if let Some(path) = &run.result_file {
        result_file::check(path, &vvm_storage::url::files(&run.storage))?;
    }
    // Before anything else is started: no host shall wait for leadership, or win it, and then have nothing to
    // work in.
    let containment = Containment::establish(run.containment.into()).map_err(NotContained)?;
    let mut manager = ServiceManager::of_environment();
    let mut told = Told::default();
    let withheld = [service_manager::VARIABLE.as_ref()];
    let end = guard(host_arguments(run, &holder, words), &withheld, containment, |heard| match heard {
        GuardReport::Event(event) => say_event(&event),
        GuardReport::Note(note) => match ToGuardian::read(note) {
            Some(ToGuardian::Leading(leading)) => told.leading = Some(leading),
            Some(ToGuardian::Farewell(farewell)) => told.farewell = Some(farewell),
            Some(ToGuardian::Stands(stands)) => {
                if let Some(manager) = &mut manager {
                    manager.tell(stands);
                }
            }
            None => {}
        },
    })?;
    Ok((holder, told, end))
}

/// The host is told what this process was told, and the name of its holder.
fn host_arguments(run: &RunArgs, holder: &Holder, words: &[OsString]) -> Vec<OsString> {
    let implied = run.holder.is_none().then(|| ["--holder".into(), holder.as_str().into()]);
    iter::once(run::STAGE.into()).chain(implied.into_iter().flatten()).chain(words.iter().cloned()).collect()
}
