//! The host process of `vvm run`: campaigns, leads, and decides about the command.
//!
//! Its main thread is the async runtime, and starts the keepers of commands. One other thread watches the
//! guardian, and ends this process if the guardian dies.

mod backoff;
mod command_runner;
mod command_starter;
mod control;
mod exit_reason;
mod guardian_deadline;
mod guardian_notes;
mod health;
mod lead;
mod leadership_run;
mod reporter;

use crate::{
    announce::{self, say},
    args::RunArgs,
    async_runtime,
    contained::{conclude, say_event},
    exit, log,
    notes::{Farewell, Leading, ToGuardian},
    signals::Signals,
};
use command_runner::CommandRunner;
use command_starter::CommandStarter;
use control::Control;
use guardian_deadline::GuardianDeadline;
use ielections::Env;
use reporter::Reporter;
use rustix::process::{Signal, pidfd_send_signal};
use std::{io, process::ExitCode, sync::Arc};
use vvm_containment::{AcceptError, GuardedTrigger, Guardian, GuardianWatch, OnEvent, Supervisor};
use vvm_deadman::{ArmError, Deadman, SystemOptions, SystemTrigger};
use vvm_host::{CantListen, Host, HostError, Signals as HostSignals, operate::ResourceLimit};

/// Why the host did not start. It prints the reason, and the guardian reports the rest.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error(transparent)]
    Accept(#[from] AcceptError),
    #[error("--http: {0}")]
    Http(CantListen),
    #[error(transparent)]
    Host(HostError),
    #[error(transparent)]
    System(ResourceLimit),
}

impl From<io::Error> for StartError {
    fn from(cause: io::Error) -> Self {
        Self::System(cause.into())
    }
}

impl From<HostError> for StartError {
    fn from(error: HostError) -> Self {
        match error {
            HostError::System(cause) | HostError::Deadman(ArmError::Kernel(cause)) => {
                Self::System(cause.into())
            }
            HostError::Http(cause) => Self::Http(cause),
            error => Self::Host(error),
        }
    }
}

/// Runs the host of a `vvm run`.
pub(crate) fn main(args: RunArgs) -> ExitCode {
    announce::start_log(args.candidate.log_format);
    match host(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(StartError::Accept(AcceptError::Stage(refusal))) => conclude(&refusal),
        Err(refusal) => {
            say!("{refusal}");
            exit::SYSTEM.into()
        }
    }
}

fn host(args: RunArgs) -> Result<(), StartError> {
    let Supervisor { guardian, guardian_process, input, terminal_group, containment } = Supervisor::accept()?;
    log::start();
    announce::contained(containment.level());
    let signals = Signals::catch()?;
    // Its timers are for clients of databases: they do not count suspend, ours do.
    let runtime = async_runtime::start()?;
    let trigger = SystemTrigger::start(SystemOptions::default()).map_err(HostError::from)?;
    let trigger = Arc::new(GuardedTrigger::over(trigger, guardian.clone()));
    let deadline = trigger.deadline();
    let holder = args.candidate.own_holder().map_err(HostError::from)?;
    let env = Env::with_deadman(Deadman::with_trigger(trigger), runtime.handle().clone())?;
    let mut host = {
        let _entered = runtime.enter();
        Host::with_env(args.candidate.host_settings(holder.clone()), env, HostSignals::Ignored)?
    };
    let guardian_of_claims = guardian.clone();
    host.report_claims(move |claim| {
        guardian_of_claims.note(ToGuardian::Claim(claim.map(Leading::from)).into())
    });
    let control = Arc::new(Control::new(host.stop(), host.status()));
    let died = Arc::clone(&control);
    let watch = GuardianWatch::start(
        Arc::clone(&guardian_process),
        containment.clone(),
        move || died.end_with_guardian(),
        deadline.clone(),
    )?;
    let reporter = Arc::new(Reporter {
        name: args.candidate.name.clone(),
        holder,
        level: containment.level(),
        statuses: (&args).into(),
        result_file: args.result_file.clone(),
        guardian: guardian.clone(),
    });
    let args = Arc::new(args);
    let clock = Arc::clone(&host.env().clock);
    let runner = CommandRunner {
        starter: Arc::new(CommandStarter {
            run: Arc::clone(&args),
            input,
            terminal_group,
            containment: containment.clone(),
            guardian_process,
            on_event: OnEvent::new(|event| say_event(&event)),
            deadline: deadline.clone(),
        }),
        guardian_deadline: GuardianDeadline {
            deadline,
            in_force: control.in_force.subscribe(),
            clock: Arc::clone(&clock),
            ttl: args.candidate.ttl,
        },
        control: Arc::clone(&control),
        status: host.status(),
        reporter: Arc::clone(&reporter),
        run: Arc::default(),
        args,
        clock,
    };
    let farewell = runtime.block_on(lead(&runner, host, guardian, signals))?;

    reporter.part(farewell);
    reporter.finished();
    let guardian = watch.end();
    if control.guardian_lapsed.is_cancelled() {
        // It does not answer, and all else is gone. (Process 1 can't be killed; it ends when it continues.)
        containment.dissolve();
        let _ = pidfd_send_signal(&guardian, Signal::KILL);
    }
    Ok(())
}

/// Leads, and meanwhile handles signals and messages of the guardian.
async fn lead(
    runner: &CommandRunner,
    host: Host,
    guardian: Guardian,
    signals: Signals,
) -> io::Result<Farewell> {
    let CommandRunner { control, status, clock, args, .. } = runner;
    if let Some(address) = host.http() {
        let (event, name) = ("status_page", args.candidate.name.as_str());
        tracing::info!(target: "vvm", event, name, %address, "{name}: status page: http://{address}/");
    }
    tokio::select! {
        biased;
        never = control.listen(guardian.clone(), signals, Arc::clone(clock)) => match never? {},
        never = guardian_notes::send_changes(Arc::clone(status), guardian) => match never {},
        farewell = lead::lead(runner, host) => Ok(farewell),
    }
}
