//! Runs the host of `vvm run`: one service, the contained command, and what follows each campaign.

use super::{
    conclusion::{Cause, conclude},
    control::Control,
    guardian_silent::GuardianSilent,
    service::WorkerService,
    surroundings::{Course, Surroundings},
};
use crate::{
    announce::say_to_people,
    cli::args::{AcquireTimeout, OnLoss, RunArgs},
    notes::Farewell,
    report::Outcome,
};
use ielections::{Holder, Terms};
use std::{
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use vvm_clock::Clock;
use vvm_containment::{lapsed, listens_again};
use vvm_host::LocalDir;
use vvm_host::{Ended, Host, HostSettings, Next};
use vvm_orch::Acquisition;

/// Returns the settings of the host that a command line asks for.
pub(super) fn settings(run: &RunArgs, holder: Holder) -> HostSettings {
    let mut settings = HostSettings::new(run.storage.clone(), run.name.clone());
    (settings.slots, settings.ttl, settings.holder) = (run.slots, run.ttl, Some(holder));
    // Supervision ends by killing, so there is nothing to give up on before the kill deadline.
    settings.stop_timeout = Duration::MAX;
    settings.acquisition = match (run.try_once, run.acquire_timeout) {
        (true, _) => Acquisition::UntilLeaderSeen,
        (false, AcquireTimeout::Never) => Acquisition::Forever,
        (false, AcquireTimeout::After(duration)) => Acquisition::Within(duration),
    };
    settings.http = run.observe.http;
    settings.local_dir = run.local_dir.clone().unwrap_or(LocalDir::Usual);
    settings
}

/// Leads until that is over for good, and returns how `vvm` has to end.
///
/// # Cancel safety
/// Not cancel safe: dropped, it leaves a leadership whose work has not stopped.
pub(super) async fn lead(surroundings: &Arc<Surroundings>, host: Host) -> Farewell {
    let Surroundings { run, control, clock, .. } = &**surroundings;
    let current = Mutex::new(Arc::new(Course::default()));
    let course = || Arc::clone(&current.lock().unwrap_or_else(PoisonError::into_inner));
    let is_campaigning = AtomicBool::new(false);
    let mut last = None;
    let services = || {
        is_campaigning.store(true, Ordering::Relaxed);
        let course = Arc::new(Course::default());
        *current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&course);
        say_to_people!(
            "{}: waiting for leadership as {}, containment: {}",
            run.name,
            surroundings.holder,
            surroundings.containment.level()
        );
        let service = WorkerService { surroundings: Arc::clone(surroundings), course };
        vec![Box::new(service) as _]
    };
    let after = |ended: &Ended| {
        is_campaigning.store(false, Ordering::Relaxed);
        let cause = Cause::of(surroundings, &course(), ended);
        if cause.is_silent_guardian() {
            say_to_people!("{}: not leading: {GuardianSilent}; waiting for it", run.name);
            let (event, reason) = ("guardian_silent", GuardianSilent.to_string());
            let (name, holder) = (run.name.as_str(), surroundings.holder.as_str());
            tracing::warn!(target: "vvm", event, name, holder, reason);
            return Next::campaign_when(listens_again(control.in_force.subscribe()));
        }
        let conclusion = conclude(surroundings, &course(), &cause);
        // What comes after a pause that a stop ends has nothing to do with this leadership.
        *current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::default();
        let next = match conclusion.outcome {
            Outcome::Unhealthy if run.on_loss == OnLoss::Rejoin => Next::campaign_after(others_first(run)),
            Outcome::Lost if run.on_loss == OnLoss::Rejoin => Next::campaign_after(Duration::ZERO),
            _ => {
                surroundings.situation.ends(conclusion.to_string());
                Next::Stop
            }
        };
        last = Some(conclusion);
        next
    };
    {
        let mut running = pin!(host.run_then(services, after));
        tokio::select! {
            biased;
            _ = &mut running => {}
            () = guardian_lapsed(control, clock, &is_campaigning) => {
                control.guardian_lapsed.cancel();
                let (event, name, holder) =
                    ("guardian_lapsed", run.name.as_str(), surroundings.holder.as_str());
                let course = course();
                let slot = course.leadership.get().map(|leadership| leadership.slot);
                let epoch = course.leadership.get().map(|leadership| leadership.epoch.get());
                tracing::warn!(target: "vvm", event, name, holder, slot, epoch);
                // At once, while this process can still end all of it.
                control.kill.cancel();
                control.stop.cancel();
                running.await;
            }
        }
    }
    last.map_or(Farewell::Exit(crate::cli::exit::SYSTEM), |conclusion| conclusion.farewell)
}

/// Resolves when the guardian has lapsed during a campaign. Between campaigns nothing runs that it would have
/// to end, and a guardian that goes on after a stop confirms what it has missed in order: first a deadline
/// that is over, then none.
async fn guardian_lapsed(control: &Control, clock: &Arc<dyn Clock>, is_campaigning: &AtomicBool) {
    let mut in_force = control.in_force.subscribe();
    loop {
        lapsed(in_force.clone(), clock).await;
        if is_campaigning.load(Ordering::Relaxed) {
            return;
        }
        // The sender lives as long as `control`.
        let _ = in_force.changed().await;
    }
}

/// How long a host whose command is unhealthy is no candidate: a standby looks at the record at least once a
/// poll, has as long again to claim it, and as long again in case a claim fails.
fn others_first(run: &RunArgs) -> Duration {
    Terms::usual_poll(run.ttl) * 3
}
