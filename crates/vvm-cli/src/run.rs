//! The host: leads, and decides about the worker.
//!
//! What lives here: the process between guardian and worker. Its main thread runs everything asynchronous and
//! is the one that starts workers; one other thread watches the guardian, and ends this process if that one
//! dies.
//!
//! What does not: the protocol (`ielections`), the order of start and stop (`vvm-orch`), the worker's
//! processes (`vvm_containment`).

mod conclusion;
mod control;
mod guardian_silent;
mod health;
mod lead;
pub(crate) mod log;
mod service;
mod surroundings;
mod tenure;
mod told_guardian;

use crate::{
    announce::{self, say},
    async_runtime,
    cli::{args::RunArgs, exit},
    contained::{conclude as conclude_stage, say_event},
    notes::{Farewell, ToGuardian},
    signals::Signals,
};
use control::Control;
use ielections::{Env, record::HolderTooLong};
use rustix::process::{Signal, pidfd_send_signal};
use std::{io, process::ExitCode, sync::Arc};
use surroundings::Surroundings;
use vvm_containment::{AcceptError, GuardedTrigger, GuardianWatch, OnEvent, Supervisor};
use vvm_deadman::{ArmError, Deadman, SystemOptions, SystemTrigger};
use vvm_host::CantListen;
use vvm_host::operate::ResourceLimit;
use vvm_host::{Host, HostError, Signals as HostSignals};

/// Why the host did not come to anything. It is said on standard error, and the guardian reports the rest.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error(transparent)]
    Accept(#[from] AcceptError),
    #[error(transparent)]
    Holder(#[from] HolderTooLong),
    #[error("--http: {0}")]
    Http(CantListen),
    #[error(transparent)]
    Host(HostError),
    #[error(transparent)]
    System(ResourceLimit),
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

/// The name of the hidden command that starts the host.
pub(crate) const STAGE: &str = "stage-host";

/// The host of a `vvm run`.
pub(crate) fn main(run: &RunArgs) -> ExitCode {
    announce::speak_to(run.observe.log_format);
    match host(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(StartError::Accept(AcceptError::Stage(refusal))) => conclude_stage(&refusal),
        Err(refusal) => {
            say!("{refusal}");
            exit::SYSTEM.into()
        }
    }
}

fn host(run: &RunArgs) -> Result<(), StartError> {
    let Supervisor { guardian, guardian_process, input, terminal_group, containment } = Supervisor::accept()?;
    log::start();
    let on_event = OnEvent::new(|event| say_event(&event));
    let signals = Signals::catch()?;
    // Its timers are for the clients of databases; ours count suspend.
    let runtime = async_runtime::start()?;
    let trigger =
        Arc::new(GuardedTrigger::over(SystemTrigger::start(SystemOptions::default())?, guardian.clone()));
    let deadline = trigger.deadline();
    let holder = run.holder()?;
    let env = Env::with_deadman(Deadman::with_trigger(trigger), runtime.handle().clone())?;
    let host = {
        let _entered = runtime.enter();
        Host::with_env(lead::settings(run, holder.clone()), env, HostSignals::Ignored)?
    };
    let control = Arc::new(Control::new(host.stop(), host.status()));
    let died = Arc::clone(&control);
    let watch = GuardianWatch::start(
        Arc::clone(&guardian_process),
        containment.clone(),
        move || died.end_with_guardian(),
        deadline.clone(),
    )?;
    let surroundings = Arc::new(Surroundings {
        holder,
        situation: host.status(),
        run: run.clone(),
        input,
        terminal_group,
        containment,
        clock: Arc::clone(&host.env().clock),
        control,
        guardian,
        guardian_process,
        on_event,
        deadline,
    });
    let farewell = runtime.block_on(conclude(&surroundings, host, signals))?;

    surroundings.guardian.note(ToGuardian::Farewell(farewell).into());
    surroundings.guardian.finished();
    let guardian = watch.end();
    if surroundings.control.guardian_lapsed.is_cancelled() {
        // It does not listen, and everything else is gone. (Process 1 can't be killed, and ends when it goes
        // on.)
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
        never = control.listen(guardian.clone(), signals, Arc::clone(clock)) => match never? {},
        never = told_guardian::tell_guardian(Arc::clone(situation), guardian.clone()) => match never {},
        farewell = lead::lead(surroundings, host) => Ok(farewell),
    }
}
