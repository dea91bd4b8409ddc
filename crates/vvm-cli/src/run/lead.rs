//! Runs the host of `vvm run`, and decides what follows each campaign.

use super::{
    command_runner::CommandRunner,
    control::Control,
    exit_reason::{Cause, GUARDIAN_LAPSED},
    guardian_deadline::GuardianSilent,
    leadership_run::{LeadershipRun, WorkEnd},
};
use crate::{
    announce::say_text,
    args::{OnLoss, RunArgs},
    exit,
    notes::Farewell,
    report::Outcome,
};
use ielections::{AcquireError, Terms};
use std::{
    future::pending,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use vvm_clock::Clock;
use vvm_containment::{lapsed, listens_again};
use vvm_host::{
    Ended, Host, Next,
    status::{HostStatus, Role, WhyStopping},
};
use vvm_orch::Problem;

/// How long the release and the closing of the storage may take after a second stop request.
const CLOSING: Duration = Duration::from_secs(1);

/// The record of the campaign that runs; `None` between campaigns.
#[derive(Default)]
struct Current(Mutex<Option<Arc<LeadershipRun>>>);

impl Current {
    fn get(&self) -> Option<Arc<LeadershipRun>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, run: Option<Arc<LeadershipRun>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = run;
    }
}

/// Leads until the last campaign has ended, and returns how `vvm` is to end. Each campaign has a copy of
/// `runner`, with a record of its own.
///
/// # Cancel safety
/// Not cancel safe: dropped, it leaves a leadership whose work has not stopped.
pub(super) async fn lead(runner: &CommandRunner, host: Host) -> Farewell {
    let CommandRunner { args, control, status, reporter, clock, .. } = runner;
    let current = Current::default();
    let mut last = None;
    let services = || {
        let run = Arc::new(LeadershipRun::default());
        current.set(Some(Arc::clone(&run)));
        reporter.waits();
        vec![Box::new(CommandRunner { run, ..runner.clone() }) as _]
    };
    let after = |ended: &Ended| {
        let run = current.get().unwrap_or_default();
        // A stop request after this has nothing to do with this leadership.
        current.set(None);
        let cause = cause(control, status, &run, ended);
        if cause.is_silent_guardian() {
            say_text!("{}: not leading: {GuardianSilent}; waiting for it", reporter.name);
            let (event, reason) = ("guardian_silent", GuardianSilent.to_string());
            let (name, holder) = (reporter.name.as_str(), reporter.holder.as_str());
            tracing::warn!(target: "vvm", event, name, holder, reason);
            return Next::CampaignWhen(Box::pin(listens_again(control.in_force.subscribe())));
        }
        let reason = reporter.campaign_ended(&run, &cause);
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
        let mut running = pin!(host.run_then(services, after));
        tokio::select! {
            biased;
            // Before the host, which waits for the storage when it drops an attempt to open it (I10).
            () = stopped_while_opening(control, status) => {
                let is_guardian_dead = control.guardian_died.is_cancelled();
                let stopped = Cause::Stopped(control.stop_signal());
                let cause = if is_guardian_dead { Cause::GuardianDied } else { stopped };
                reporter.end_process(&LeadershipRun::default(), &cause);
            }
            _ = &mut running => {}
            () = hangs_after_second_request(control, clock) => {
                let run = current.get().unwrap_or_default();
                reporter.end_process(&run, &Cause::Hung(control.stop_signal()));
            }
            () = guardian_lapsed(control, clock, &current) => {
                control.guardian_lapsed.cancel();
                let (event, name, holder) =
                    ("guardian_lapsed", reporter.name.as_str(), reporter.holder.as_str());
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
    last.map_or(Farewell::Exit(exit::SYSTEM), |reason| reason.farewell)
}

/// Returns what ended the campaign of `run` first.
fn cause(control: &Control, status: &HostStatus, run: &LeadershipRun, ended: &Ended) -> Cause {
    // First, because a dead guardian confirms nothing either.
    if control.guardian_died.is_cancelled() {
        return Cause::GuardianDied;
    }
    if control.guardian_lapsed.is_cancelled() {
        return Cause::GuardianLapsed;
    }
    match ended {
        Ended::Stopped => Cause::Stopped(control.stop_signal()),
        Ended::NotOpened(error) => Cause::Storage(Arc::clone(error)),
        Ended::Problem(problem) if control.stop.is_cancelled() => {
            // The signal reached the command first, or a failure followed the stop.
            let was_asked = matches!(status.role(), Role::Stopping { why: WhyStopping::Asked, .. });
            match problem {
                Problem::Ended { .. } => Cause::Stopped(control.stop_signal()),
                _ if was_asked => Cause::Stopped(control.stop_signal()),
                problem => Cause::Problem(problem.clone()),
            }
        }
        Ended::Problem(Problem::NotAcquired(refusal))
            if matches!(**refusal, AcquireError::TimedOut { .. })
                && let Some(leader) = status.leader_seen() =>
        {
            Cause::TimedOut(format!("{refusal}; {leader}"))
        }
        Ended::Problem(problem) => {
            // Finished work counts, even if the checks failed at the same time.
            let is_unfinished = run.worked.get().is_some_and(|worked| worked.end != WorkEnd::Finished);
            match run.unhealthy.get() {
                Some(unhealthy) if is_unfinished && matches!(problem, Problem::Ended { .. }) => {
                    Cause::Unhealthy(unhealthy.clone())
                }
                _ => Cause::Problem(problem.clone()),
            }
        }
    }
}

/// Waits until the guardian has lapsed during a campaign. Between campaigns there is nothing for it to
/// contain, and a guardian that continues confirms each deadline that it has missed: a past one, then none.
async fn guardian_lapsed(control: &Control, clock: &Arc<dyn Clock>, current: &Current) {
    let mut in_force = control.in_force.subscribe();
    loop {
        lapsed(in_force.clone(), clock).await;
        if current.get().is_some() {
            return;
        }
        // The sender lives as long as `control`.
        let _ = in_force.changed().await;
    }
}

/// Waits for a stop request, and never returns unless the storage is not open yet: then nothing is held.
async fn stopped_while_opening(control: &Control, status: &HostStatus) {
    control.stop.cancelled().await;
    if !matches!(status.role(), Role::Opening) {
        pending::<()>().await;
    }
}

/// Waits until a second stop request was made, no process of the command is left, and the host has not ended
/// for a while (I10).
async fn hangs_after_second_request(control: &Control, clock: &Arc<dyn Clock>) {
    control.kill.cancelled().await;
    while control.has_worker() {
        // As often as a person notices.
        clock.sleep(CLOSING / 10).await;
    }
    clock.sleep(CLOSING).await;
}

/// How long a host with an unhealthy command does not campaign: a standby reads the record at least once a
/// poll, has as long to claim it, and as long again if the first claim fails.
fn others_first(args: &RunArgs) -> Duration {
    Terms::usual_poll(args.candidate.ttl) * 3
}
