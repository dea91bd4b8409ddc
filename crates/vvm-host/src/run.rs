//! The host: leads, and decides about the worker.
//!
//! What lives here: the process between guardian and worker. Its main thread runs everything asynchronous and is the
//! one that starts workers; one other thread watches the guardian, and ends everything if that one dies.
//!
//! What does not: the protocol (`ielections`), the order of start and stop (`vvm-orch`), the worker's processes
//! (`worker`).

mod conclusion;
mod control;
mod guardian_lapse;
mod guardian_watch;
mod health;
mod lead;
pub(crate) mod log;
mod service;
mod surroundings;
mod tenure;
mod told_guardian;
mod trigger;

use crate::{
    announce::{self, say},
    async_runtime,
    cli::{args::RunArgs, exit},
    containment::{Containment, end_all},
    host::{Host, HostError, Signals as HostSignals},
    http::CantListen,
    link::message::{Farewell, ToGuardian, ToHost},
    processes::ForeignProcFs,
    shortage::Shortage,
    signals::Signals,
    stage::{self, TakeUpError, TakenUp},
};
use control::Control;
use guardian_watch::GuardianWatch;
use ielections::{Env, record::HolderTooLong};
use rustix::process::{Signal, getpid, pidfd_send_signal, set_child_subreaper};
use std::{io, process::ExitCode, sync::Arc};
use surroundings::Surroundings;
use trigger::GuardedTrigger;
use vvm_deadman::{ArmError, Deadman, SystemOptions, SystemTrigger};

/// Why the host did not come to anything. It is said on standard error, and the guardian reports the rest.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error(transparent)]
    TakeUp(#[from] TakeUpError),
    #[error(transparent)]
    ProcFs(#[from] ForeignProcFs),
    #[error(transparent)]
    Holder(#[from] HolderTooLong),
    #[error("--http: {0}")]
    Http(CantListen),
    #[error(transparent)]
    Host(HostError),
    #[error(transparent)]
    System(Shortage),
    #[error(transparent)]
    Deadman(ArmError),
}

impl From<io::Error> for StartError {
    fn from(cause: io::Error) -> Self {
        Self::System(cause.into())
    }
}

impl From<HostError> for StartError {
    fn from(error: HostError) -> Self {
        match error {
            HostError::System(cause) => Self::System(cause.into()),
            HostError::Http(cause) => Self::Http(cause),
            error => Self::Host(error),
        }
    }
}

impl From<ArmError> for StartError {
    fn from(refusal: ArmError) -> Self {
        match refusal {
            ArmError::Kernel(cause) => Self::System(cause.into()),
            ArmError::Passed | ArmError::UnkillableInit => Self::Deadman(refusal),
        }
    }
}

/// The host of a `vvm run`.
pub(crate) fn main(run: &RunArgs) -> ExitCode {
    announce::speak_to(run.observe.log_format);
    match host(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(StartError::TakeUp(refusal)) => refusal.conclude(),
        Err(refusal) => {
            say!("{refusal}");
            exit::SYSTEM.into()
        }
    }
}

fn host(run: &RunArgs) -> Result<(), StartError> {
    let TakenUp { link, first, descriptors } = stage::take_up::<ToGuardian, ToHost>()?;
    let mut descriptors = descriptors.into_iter();
    let (ToHost::Begin { terminal_group, level, .. }, Some(input), Some(guardian)) =
        (first, descriptors.next(), descriptors.next())
    else {
        return Err(TakeUpError::NotAStage.into());
    };
    log::start();
    let containment = Containment::taken_over(level, descriptors.next())?;
    // What the worker's processes leave behind becomes ours, so that we can wait for the last of them (I6).
    set_child_subreaper(Some(getpid())).map_err(io::Error::from)?;
    let signals = Signals::catch()?;
    // Its timers are for the clients of databases; ours count suspend.
    let runtime = async_runtime::start()?;
    let link = Arc::new(link);
    let trigger =
        Arc::new(GuardedTrigger::over(SystemTrigger::start(SystemOptions::default())?, Arc::clone(&link)));
    let deadline = trigger.deadline();
    let holder = run.holder()?;
    let env = Env::system(Deadman::with_trigger(trigger), runtime.handle().clone())?;
    let host = {
        let _entered = runtime.enter();
        Host::with_env(lead::settings(run, holder.clone()), env, HostSignals::Ignored)?
    };
    let control = Arc::new(Control::new(host.stop(), host.status()));
    let watch = GuardianWatch::start(guardian, containment.clone(), Arc::clone(&control), deadline.clone())?;
    let surroundings = Arc::new(Surroundings {
        holder,
        situation: host.status(),
        run: run.clone(),
        input,
        terminal_group,
        containment,
        clock: Arc::clone(&host.env().clock),
        control,
        guardian: link,
        deadline,
    });
    let farewell = runtime.block_on(conclude(&surroundings, host, signals))?;

    // Whatever went wrong: nothing of the worker outlives this process, and nothing is left for the guardian to do.
    end_all(&surroundings.containment, drop);
    let _ = surroundings.guardian.say(&ToGuardian::Farewell(farewell));
    let guardian = watch.end();
    if surroundings.control.guardian_lapsed.is_cancelled() {
        // It does not listen, and everything else is gone. (Process 1 can't be killed, and ends when it goes on.)
        surroundings.containment.dissolve();
        let _ = pidfd_send_signal(&guardian, Signal::KILL);
    }
    Ok(())
}

/// Leads, and meanwhile handles signals and the guardian's messages.
async fn conclude(surroundings: &Arc<Surroundings>, host: Host, signals: Signals) -> io::Result<Farewell> {
    let Surroundings { run, control, guardian, clock, situation, .. } = &**surroundings;
    if let Some(address) = host.http() {
        say!("{}: http://{address}/ shows how it stands", run.name);
    }
    tokio::select! {
        biased;
        never = control.listen(Arc::clone(guardian), signals, Arc::clone(clock)) => match never? {},
        never = told_guardian::tell_guardian(Arc::clone(situation), Arc::clone(guardian)) => match never {},
        farewell = lead::lead(surroundings, host) => Ok(farewell),
    }
}
