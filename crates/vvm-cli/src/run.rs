//! The host process of `vvm run` and `vvm once`: campaigns, leads, and decides about the command. Its main thread is
//! the async runtime, and starts the keepers of commands. One other thread watches the guardian, and ends this process
//! if the guardian dies.

mod args;
mod command;
mod control;
mod health;
mod once;
mod outcome;
mod report;
mod warm;

use crate::{
    announce,
    contained::{conclude, say_event},
    exit,
    inspection::InspectionError,
    leadership::{ExitWish, RecordId, ToGuardian},
    once::{OnceArgs, look},
    result_file::Outcome,
    runtime::{self, Signals},
    settings,
};
use args::OnLoss;
pub(crate) use args::{OnExit, RunArgs};
use command::{CommandRunner, CommandStarter, asked_by};
use control::{Control, GuardianSilent, send_changes};
use ielections::{AcquireError, Env, Terms};
pub(crate) use once::{OnceCommand, REFUSED, StageArgs};
use outcome::{Cause, ExitReason, FinishedWork, GUARDIAN_LAPSED, LeadershipRun, WorkEnd};
use rustix::process::{Signal, pidfd_send_signal};
use std::{future, io, pin::pin, process::ExitCode, sync::Arc, time::Duration};
use tokio::sync::watch;
use vvm_clock::{Clock, Instant};
use vvm_containment::{
    AcceptError, GuardedTrigger, Guardian, GuardianWatch, OnEvent, Supervisor, lapsed, listens_again,
};
use vvm_deadman::{ArmError, Deadman, SystemTrigger};
use vvm_host::{
    Host, HostError, HostOutcome, Next, Signals as HostSignals,
    status::{HostStatus, Role, WhyStopping},
};
use vvm_orch::Problem;
use warm::WarmApp;

impl From<HostError> for InspectionError {
    fn from(error: HostError) -> Self {
        match error {
            HostError::System(cause) | HostError::Deadman(ArmError::Kernel(cause)) => cause.into(),
            HostError::Successor(ref cause) => {
                Self::new(error.exit_status(), format!("--successor: {cause}"))
            }
            HostError::Http(cause) => Self::new(exit::SYSTEM, format!("--http: {cause}")),
            error => Self::new(exit::SYSTEM, error),
        }
    }
}

/// Prints why the host did not start, if so. The guardian reports the rest.
pub(crate) fn main(args: RunArgs, once: Option<OnceArgs>) -> ExitCode {
    announce::start_log(args.candidate.log_format);
    if once.as_ref().is_some_and(|once| once.quiet) {
        announce::quieten();
    }
    let started = match Supervisor::accept() {
        Ok(supervisor) => host(supervisor, args, once),
        Err(AcceptError::Stage(refusal)) => return conclude(&refusal),
        Err(refusal) => Err(InspectionError::new(exit::SYSTEM, refusal)),
    };
    started.map_or_else(|refusal| refusal.conclude().into(), |()| ExitCode::SUCCESS)
}

fn host(supervisor: Supervisor, args: RunArgs, once: Option<OnceArgs>) -> Result<(), InspectionError> {
    let Supervisor { guardian, guardian_process, input, terminal_group, containment } = supervisor;
    announce::start_events();
    announce::set_containment(containment.level());
    // This process has a group of its own, but writing to a terminal may stop it.
    let signals = Signals::catch_all(terminal_group.is_none())?;
    // Its timers are for clients of databases: they do not count suspend, ours do.
    let runtime = runtime::start()?;
    let trigger = SystemTrigger::start().map_err(HostError::from)?;
    let trigger = Arc::new(GuardedTrigger::over(trigger, guardian.clone()));
    let deadline = trigger.deadline();
    let holder = args.candidate.own_holder().map_err(HostError::from)?;
    let env = Env::with_deadman(Deadman::with_trigger(trigger), runtime.handle().clone())?;
    let mut host = {
        let _entered = runtime.enter();
        Host::with_env(args.candidate.host_settings(holder.clone()), env, HostSignals::Ignored)?
    };
    if let Some(began) = settings::began() {
        host.wait_since(began);
    }
    let guardian_of_claims = guardian.clone();
    host.report_claims(move |claim| {
        guardian_of_claims.note(ToGuardian::Claim(claim.map(RecordId::from)).into())
    });
    let control = Arc::new(Control::new(host.stop(), host.status(), args.stop_signal));
    let died = Arc::clone(&control);
    let watch = GuardianWatch::start(
        Arc::clone(&guardian_process),
        containment.clone(),
        move || died.end_with_guardian(),
        deadline.clone(),
    )?;
    let keeper = watch::Sender::new(None);
    let guardian_confirms = watch::Sender::new(Some(control.in_force.subscribe()));
    host.enforced_by(vec![guardian_confirms.subscribe(), keeper.subscribe()]);
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
            deadline,
            keeper,
        }),
        control: Arc::clone(&control),
        status: host.status(),
        holder,
        guardian: guardian.clone(),
        run: Arc::default(),
        args,
        once: once.map(Arc::new),
        clock,
    };
    let app = {
        let _entered = runtime.enter();
        let app = runner.args.warm.then(|| WarmApp::new(&runner, &mut host)).transpose();
        app.map_err(|refusal| InspectionError::new(exit::SYSTEM, refusal))?
    };
    let farewell = runtime.block_on(lead_and_listen(&runner, host, app, guardian, signals));
    runtime.shutdown_background();

    runner.part(farewell?);
    runner.guardian.finished();
    let guardian = watch.end();
    if control.guardian_lapsed.is_cancelled() {
        // It does not answer, and all else is gone. (Process 1 can't be killed; it ends when it continues.)
        containment.dissolve();
        let _ = pidfd_send_signal(&guardian, Signal::KILL);
    }
    Ok(())
}

async fn lead_and_listen(
    runner: &CommandRunner,
    host: Host,
    app: Option<WarmApp>,
    guardian: Guardian,
    signals: Signals,
) -> io::Result<ExitWish> {
    let CommandRunner { control, status, clock, .. } = runner;
    tokio::select! {
        biased;
        never = control.listen(guardian.clone(), signals, Arc::clone(clock)) => match never? {},
        never = send_changes(Arc::clone(status), guardian) => match never {},
        farewell = lead(runner, host, app) => Ok(farewell),
    }
}

/// How long the release and the closing of the storage may take after a second stop request.
const CLOSING: Duration = Duration::from_secs(1);

struct CurrentCampaign {
    run: watch::Sender<Option<Arc<LeadershipRun>>>,
    status: Arc<HostStatus>,
}

impl CurrentCampaign {
    fn get(&self) -> Option<Arc<LeadershipRun>> {
        // After a step-down the host says nothing, and no campaign runs until the app is ready again.
        let runs = !matches!(self.status.role(), Role::Unready);
        self.run.borrow().clone().filter(|_| runs)
    }

    fn set(&self, run: Option<Arc<LeadershipRun>>) {
        self.run.send_replace(run);
    }
}

/// Leads until the last campaign has ended, and returns how `vvm` is to end. Each campaign has a copy of `runner`, with
/// a record of its own. Not cancel safe: dropped, it leaves a leadership whose work has not stopped.
async fn lead(runner: &CommandRunner, host: Host, app: Option<WarmApp>) -> ExitWish {
    let warm = app.as_ref().map(WarmApp::services);
    let CommandRunner { args, control, status, clock, .. } = runner;
    let current = CurrentCampaign { run: watch::Sender::default(), status: Arc::clone(status) };
    let (mut last, mut nothing, give_up_at) = (None, None, host.gives_up_at());
    let services = || {
        let run = Arc::new(LeadershipRun::default());
        current.set(Some(Arc::clone(&run)));
        runner.waits();
        let runner = CommandRunner { run, ..runner.clone() };
        match &warm {
            Some(warm) => vec![Box::new(warm(runner)) as _],
            None => vec![Box::new(runner) as _],
        }
    };
    let after = |ended: &HostOutcome| {
        let run = current.get().unwrap_or_default();
        // A stop request after this has nothing to do with this leadership.
        current.set(None);
        let cause = cause(control, status, &run, ended);
        if matches!(cause, Cause::Stopped(_)) {
            status.was_stopped();
        }
        if cause.is_silent_guardian() {
            let (event, reason) = ("guardian_silent", GuardianSilent.to_string());
            let (name, holder) = (runner.election_name(), runner.holder.as_str());
            tracing::warn!(
                target: "vvm", event, name, holder, reason,
                "{name}: not leading: {reason}; waiting for it"
            );
            return Next::CampaignWhen(Box::pin(listens_again(control.in_force.subscribe())));
        }
        if args.warm && matches!(cause, Cause::Problem(Problem::Ended { failure: None, .. })) {
            // The app is started again, and says when it is ready.
            return Next::CampaignAfter(Duration::ZERO);
        }
        let reason = runner.campaign_ended(&run, &cause);
        let next = match reason.outcome {
            Outcome::Unhealthy if args.on_loss == OnLoss::Rejoin => Next::CampaignAfter(others_first(args)),
            Outcome::Lost if args.on_loss == OnLoss::Rejoin => Next::CampaignAfter(Duration::ZERO),
            _ => {
                status.ends(reason.to_string());
                Next::Stop
            }
        };
        last = Some(reason);
        next
    };
    {
        let mut running = pin!(async {
            if let Some(nothing) = nothing_to_run(runner, give_up_at).await {
                return Some(nothing);
            }
            let hosting = host.run_then(services, after);
            match app {
                Some(app) => app.beside(hosting).await,
                None => drop(hosting.await),
            }
            None
        });
        tokio::select! {
            biased;
            // Before the host, which waits for the storage when it drops an opening (I10). A warm app stops first.
            () = control.stopped_while_opening(), if !args.warm => runner.end_while_opening(),
            ended = &mut running => nothing = ended,
            () = hangs_after_second_request(control, clock) => {
                let run = current.get().unwrap_or_default();
                runner.end_process(&run, &Cause::Hung(control.stop_signal()));
            }
            () = guardian_lapsed(control, clock, &current) => {
                control.guardian_lapsed.cancel();
                let (event, name, holder) =
                    ("guardian_lapsed", runner.election_name(), runner.holder.as_str());
                let run = current.get().unwrap_or_default();
                let slot = run.leadership.get().map(|leadership| leadership.slot);
                let epoch = run.leadership.get().map(|leadership| leadership.epoch.get());
                tracing::warn!(target: "vvm", event, name, holder, slot, epoch);
                // Before the stop, because the first reason counts.
                status.stops(WhyStopping::GivenUp(GUARDIAN_LAPSED.into()));
                // At once, while this process can still kill all of it.
                control.kill.cancel();
                control.stop.cancel();
                running.await;
            }
        }
    }
    last.or(nothing).map_or(ExitWish::Exit(exit::SYSTEM), |reason: ExitReason| reason.farewell)
}

/// Looks at the period of a `vvm once`, and returns the reason to end without a campaign, if there is one. A
/// storage that does not answer in time is left to the campaign.
async fn nothing_to_run(runner: &CommandRunner, give_up_at: Instant) -> Option<ExitReason> {
    let (candidate, once) = (&runner.args.candidate, runner.once.as_ref()?);
    once.warn_of_local_hour(crate::announce::now());
    let until = runner.clock.now().after(candidate.ttl.get()).min(give_up_at);
    let end = tokio::select! {
        biased;
        end = look(candidate, once) => end?,
        () = runner.clock.sleep_until(until) => return None,
    };
    let run = LeadershipRun::default();
    let _ = run.once.set(end);
    let reason = runner.campaign_ended(&run, &Cause::NothingToRun);
    runner.status.ends(reason.to_string());
    Some(reason)
}

fn cause(control: &Control, status: &HostStatus, run: &LeadershipRun, ended: &HostOutcome) -> Cause {
    // First, because a dead guardian confirms nothing either.
    if control.guardian_died.is_cancelled() {
        return Cause::GuardianDied;
    }
    if control.guardian_lapsed.is_cancelled() {
        return Cause::GuardianLapsed;
    }
    if let Some(refusal) = control.not_started.get() {
        return Cause::NotStarted(Arc::clone(refusal));
    }
    let is_finished = run.worked.get().is_some_and(|FinishedWork { last, end }| {
        *end == WorkEnd::Finished && !control.was_asked_to_stop_by(asked_by(last))
    });
    match ended {
        // Even if its checks failed at the same time, or a stop was requested later.
        HostOutcome::Stopped | HostOutcome::Problem(Problem::Ended { .. }) if is_finished => Cause::Finished,
        HostOutcome::Stopped if matches!(status.role(), Role::Unready) => {
            Cause::StoppedUnready(control.stop_signal())
        }
        HostOutcome::Stopped => Cause::Stopped(control.stop_signal()),
        HostOutcome::NotOpened(error) => Cause::Storage(Arc::clone(error)),
        HostOutcome::Problem(problem) if control.stop.is_cancelled() => {
            // The command ended before the signal was read, or a failure followed the stop.
            let was_asked = matches!(status.role(), Role::Stopping { why: WhyStopping::Asked, .. });
            match was_asked || matches!(problem, Problem::Ended { .. }) {
                true => Cause::Stopped(control.stop_signal()),
                false => Cause::Problem(problem.clone()),
            }
        }
        HostOutcome::Problem(Problem::NotAcquired(refusal))
            if matches!(**refusal, AcquireError::TimedOut { .. })
                && let Some(leader) = status.leader_seen() =>
        {
            Cause::TimedOut(format!("{refusal}; {leader}"))
        }
        HostOutcome::Problem(problem) => match run.unhealthy.get() {
            Some(unhealthy) if run.worked.get().is_some() && matches!(problem, Problem::Ended { .. }) => {
                Cause::Unhealthy(unhealthy.clone())
            }
            _ => Cause::Problem(problem.clone()),
        },
    }
}

/// Waits until the guardian has lapsed during a campaign. Between campaigns there is nothing for it to
/// contain, and a guardian that continues confirms each deadline that it has missed: a past one, then none.
async fn guardian_lapsed(control: &Control, clock: &Arc<dyn Clock>, current: &CurrentCampaign) {
    let mut in_force = control.in_force.subscribe();
    loop {
        lapsed(in_force.clone(), clock).await;
        if current.get().is_some() {
            return;
        }
        let _ = in_force.changed().await;
    }
}

impl CommandRunner {
    fn end_while_opening(&self) -> ! {
        let run = LeadershipRun::default();
        self.end_process(&run, &cause(&self.control, &self.status, &run, &HostOutcome::Stopped))
    }
}

/// Waits until a second stop was requested, no process of the command is left, and the host has hung for a while (I10).
async fn hangs_after_second_request(control: &Control, clock: &Arc<dyn Clock>) {
    control.kill.cancelled().await;
    while control.has_worker() {
        // As often as a person notices.
        clock.sleep(CLOSING / 10).await;
    }
    clock.sleep(CLOSING).await;
    if control.guardian_died.is_cancelled() {
        // The thread that watches the guardian limits this wait.
        future::pending::<()>().await;
    }
}

/// How long a host with an unhealthy command does not campaign. A standby reads the record at least once a
/// poll, has as long to claim it, and as long again if the first claim fails.
fn others_first(args: &RunArgs) -> Duration {
    Terms::usual_poll(args.candidate.ttl) * 3
}
