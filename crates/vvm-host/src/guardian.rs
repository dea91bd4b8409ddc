//! The guardian: the process that the user starts, and the last one to go.
//!
//! What lives here: starting the host, passing signals on to it, and, when the host ends in whatever way, killing
//! everything that descends from it before this process ends too.
//!
//! What does not: any decision. The guardian holds no lease, reads no storage, and knows the kill deadline only because
//! the host tells it.
//!
//! Why a process of its own: a process can't clean up after its own SIGKILL. And why single-threaded: what it does must
//! work as process 1, out of memory, and while everything else hangs.

mod countdown;
mod dry_run;
mod ending;
mod terminal;
mod watch;

use crate::{
    announce::{self, say},
    cli::{args::RunArgs, exit, settings::Settled},
    containment::{self, Containment},
    link::{self, message::ToHost},
    report::{Report, Unwritable},
    service_manager::{self, ServiceManager},
    shortage::Shortage,
    signals::Signals,
    stage,
};
use countdown::Countdown;
use ielections::{Holder, record::HolderTooLong};
use rustix::process::{PidfdFlags, getpid, pidfd_open, set_child_subreaper};
use std::{
    ffi::OsString,
    io,
    os::{fd::AsFd as _, unix::process::CommandExt as _},
    process::ExitCode,
};
use terminal::Terminal;
use watch::{Guardian, Told};

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("--result-file: {0}")]
    ResultFile(#[from] Unwritable),
    #[error("--holder: {0}")]
    Holder(#[from] HolderTooLong),
    #[error(transparent)]
    Containment(#[from] containment::Refusal),
    #[error(transparent)]
    System(Shortage),
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
            .map(|(guardian, holder)| ending::end(run, &settled.origins, &holder, guardian.watch()))
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

fn start(run: &RunArgs, words: &[OsString]) -> Result<(Guardian, Holder), StartError> {
    let holder = run.holder()?;
    if let Some(path) = &run.result_file {
        Report::check_writable(path)?;
    }
    // Before anything else is started: nobody shall wait for leadership, or win it, and then have nothing to work in.
    let containment = Containment::establish(run.containment.into())?;
    let arguments = host_arguments(run, &holder, words);
    let guardian = start_host(arguments, containment.clone()).inspect_err(|_| containment.dissolve())?;
    Ok((guardian, holder))
}

fn start_host(arguments: Vec<OsString>, containment: Containment) -> io::Result<Guardian> {
    let terminal = Terminal::of_this_process();
    // From here on no signal is lost: what comes before the host can take it waits in the link.
    let signals = Signals::catch_also(terminal.also_caught())?;
    let countdown = Countdown::new()?;
    set_child_subreaper(Some(getpid())).map_err(io::Error::from)?;

    let (link, far) = link::pair()?;
    let mut command = stage::command(stage::HOST, arguments, far);
    // A group of its own, so that what a terminal does to its foreground group reaches the host only through us.
    command.process_group(0);
    command.env_remove(service_manager::VARIABLE);
    let host = stage::start(command)?;
    let process = pidfd_open(host, PidfdFlags::empty()).map_err(io::Error::from)?;
    let this_process = pidfd_open(getpid(), PidfdFlags::empty()).map_err(io::Error::from)?;
    let begin =
        ToHost::Begin { guardian: getpid(), terminal_group: terminal.group(), level: containment.level };
    // A host that has died already is found by the watch.
    let mut descriptors = vec![rustix::stdio::stdin(), this_process.as_fd()];
    descriptors.extend(containment.group.as_ref().map(|group| group.as_fd()));
    let _ = link.say_with(&begin, &descriptors);
    let told = Told::default();
    let manager = ServiceManager::of_environment();
    Ok(Guardian {
        host,
        process,
        link,
        link_open: true,
        containment,
        signals,
        terminal,
        countdown,
        manager,
        told,
    })
}

/// What the host needs to know is what we were told, and who we are.
fn host_arguments(run: &RunArgs, holder: &Holder, words: &[OsString]) -> Vec<OsString> {
    let implied = run.holder.is_none().then(|| ["--holder".into(), holder.as_str().into()]);
    implied.into_iter().flatten().chain(words.iter().cloned()).collect()
}
