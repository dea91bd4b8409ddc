//! The host: leads, and decides about the worker.
//!
//! What lives here: the process between guardian and worker. Its main thread runs everything asynchronous and is the
//! one that starts workers; one other thread watches the guardian, and ends everything if that one dies.
//!
//! What does not: the protocol (`ielections`), the order of start and stop (`vvm-orch`), the worker's processes
//! (`worker`).

pub(crate) mod cession;
mod conclusion;
mod control;
mod guardian_lapse;
mod guardian_watch;
mod health;
mod lead;
mod log;
mod service;
mod storage;
mod surroundings;
mod tenure;
mod told_guardian;
mod trigger;

use crate::{
    announce::{self, say},
    async_runtime,
    cli::{args::RunArgs, exit},
    containment::{Containment, end_all},
    http::{Answers, CantListen, HttpServer},
    link::message::{Farewell, ToGuardian, ToHost},
    processes::ForeignProcFs,
    shortage::Shortage,
    signals::Signals,
    situation::{Candidate, Situation},
    stage::{self, TakeUpError, TakenUp},
};
use control::Control;
use guardian_watch::GuardianWatch;
use ielections::record::HolderTooLong;
use rustix::process::{Signal, getpid, pidfd_send_signal, set_child_subreaper};
use std::{future::pending, io, process::ExitCode, sync::Arc};
use surroundings::Surroundings;
use trigger::GuardedTrigger;
use vvm_clock::{Clock, SystemClock};
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
    Http(#[from] CantListen),
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
    let clock = Arc::new(SystemClock::start()?) as Arc<dyn Clock>;
    let trigger =
        Arc::new(GuardedTrigger::over(SystemTrigger::start(SystemOptions::default())?, Arc::clone(&link)));
    let control = Arc::new(Control::new());
    let watch =
        GuardianWatch::start(guardian, containment.clone(), Arc::clone(&control), trigger.deadline())?;
    let candidate =
        Candidate { name: run.name.clone(), holder: run.holder()?, slots: run.slots, ttl: run.ttl };
    let surroundings = Arc::new(Surroundings {
        holder: candidate.holder.clone(),
        situation: Arc::new(Situation::new(candidate, Arc::clone(&clock))),
        run: run.clone(),
        input,
        terminal_group,
        containment,
        clock,
        control,
        guardian: link,
        deadline: trigger.deadline(),
    });
    let deadman = Deadman::with_trigger(trigger);
    let farewell = runtime.block_on(async {
        let http = run.observe.http.map(HttpServer::bind).transpose()?;
        conclude(&surroundings, deadman, signals, http).await.map_err(StartError::from)
    })?;

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

/// Leads, and listens meanwhile, and answers whoever asks.
async fn conclude(
    surroundings: &Arc<Surroundings>,
    deadman: Deadman,
    signals: Signals,
    http: Option<HttpServer>,
) -> io::Result<Farewell> {
    let listening = surroundings.control.listen(
        Arc::clone(&surroundings.guardian),
        signals,
        Arc::clone(&surroundings.clock),
    );
    let answers = Answers::new(Arc::clone(&surroundings.situation));
    let answering = async {
        match http {
            Some(server) => {
                say!("{}: http://{}/ shows how it stands", surroundings.run.name, server.address());
                server.serve(&answers, &surroundings.clock).await
            }
            None => pending().await,
        }
    };
    tokio::select! {
        biased;
        never = listening => match never? {},
        never = told_guardian::tell_guardian(
            Arc::clone(&surroundings.situation),
            Arc::clone(&surroundings.guardian),
        ) => match never {},
        farewell = lead::lead(surroundings, deadman) => Ok(farewell),
        // Last: whoever asks can wait.
        never = answering => match never {},
    }
}
