//! Campaigning, leading, and doing so again after a loss.

use super::{
    cession::{Reason, others_first},
    conclusion::{Cause, Conclusion},
    guardian_lapse::{lapsed, listens_again},
    service::{GuardianSilent, ToldToStop, WorkerService},
    storage,
    surroundings::{Course, Surroundings, WorkEnd},
};
use crate::{
    announce::{say, say_to_people},
    cli::args::{AcquireTimeout, OnLoss},
    link::message::Farewell,
    neighbours::{LocalDir, Neighbours},
    report::Outcome,
    requests::{Gate, Heeding, Lookout},
    situation::WhyStopping,
    storage_watch::WatchedStorage,
    worker::environment::Leadership,
};
use ielections::{Env, Layer as _, OsEntropy, TokioSpawn, elections};
use std::{pin::pin, sync::Arc};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use vvm_clock::SystemWallClock;
use vvm_deadman::Deadman;
use vvm_orch::{Acquisition, Problem, Vvm, VvmConfig};
use vvm_storage::{ClusterName, ElectionKey, SlotNumber};

/// Leads until that is over for good, and says how to end.
///
/// # Cancel safety
/// Not cancel safe: dropped, it leaves a leadership whose work has not stopped.
pub(super) async fn lead(surroundings: &Arc<Surroundings>, deadman: Deadman) -> Farewell {
    let run = &surroundings.run;
    let env = Env {
        clock: Arc::clone(&surroundings.clock),
        wall: Arc::new(SystemWallClock),
        deadman,
        entropy: Arc::new(OsEntropy::default()),
        spawn: Arc::new(TokioSpawn::on(Handle::current())),
    };
    let control = &surroundings.control;
    let opened = tokio::select! {
        biased;
        opened = storage::open(surroundings) => opened,
        () = control.stop.cancelled() => return conclude(surroundings, &Course::default(), &control.asked()).farewell,
    };
    let storage = match opened {
        Ok(storage) => {
            let lookout = Arc::new(Lookout::of(storage, ClusterName::from(run.name.as_str())));
            let situation = Arc::clone(&surroundings.situation);
            let stop = control.stop.clone();
            let watched = WatchedStorage::new(Arc::clone(&lookout).into_storage(), situation, stop);
            let (holder, clock) = (surroundings.holder.clone(), Arc::clone(&surroundings.clock));
            Arc::new(Gate::before(
                Arc::new(watched).into_storage(),
                lookout,
                neighbours(surroundings),
                holder,
                clock,
            ))
        }
        Err(refusal) => {
            return conclude(surroundings, &Course::default(), &Cause::Storage(refusal)).farewell;
        }
    };
    let farewell = loop {
        let in_force = control.in_force.subscribe();
        let course = Arc::new(Course::default());
        let cause = campaign(surroundings, &env, &storage, &course).await;
        if cause.is_silent_guardian() {
            say_to_people!("{}: not leading: {GuardianSilent}; waiting for it", run.name);
            let (event, reason) = ("guardian_silent", GuardianSilent.to_string());
            let (name, holder) = (run.name.as_str(), surroundings.holder.as_str());
            tracing::warn!(target: "vvm", event, name, holder, reason);
            tokio::select! {
                biased;
                () = control.stop.cancelled() => {}
                () = listens_again(in_force) => {}
            }
            continue;
        }
        if let Cause::Ceded(reason) = &cause
            && reason.is_wanted()
        {
            if let Some(leadership) = course.leadership.get() {
                say_to_people!("{} slot {}: released: {reason}", run.name, leadership.slot);
                tell_of_cession(surroundings, "released", leadership, reason);
            }
            continue;
        }
        if let Cause::Problem(Problem::Lost(loss)) = &cause {
            surroundings.situation.stops(WhyStopping::Lost(loss.clone()));
        }
        let conclusion = conclude(surroundings, &course, &cause);
        let last = match cause {
            Cause::Ceded(reason) if reason.rejoins(run.on_loss) => {
                if !is_asked_while_others_go_first(surroundings).await {
                    continue;
                }
                conclude(surroundings, &Course::default(), &control.asked())
            }
            _ if conclusion.outcome == Outcome::Lost && run.on_loss == OnLoss::Rejoin => continue,
            _ => conclusion,
        };
        surroundings.situation.ends(last.to_string());
        break last.farewell;
    };
    storage.close().await;
    farewell
}

/// Without a folder to meet in, hand-overs take as long as a look of a standby is away, and nothing else changes.
fn neighbours(surroundings: &Surroundings) -> Neighbours {
    let Surroundings { run, clock, .. } = surroundings;
    let dir = run.local_dir.as_ref().unwrap_or(&LocalDir::Usual);
    Neighbours::meet(dir, &run.name, Arc::clone(clock)).unwrap_or_else(|unfit| {
        say!("{}: not prompt on this machine: --local-dir: {unfit}", run.name);
        Neighbours::alone(Arc::clone(clock))
    })
}

impl Course {
    /// Whether its work was stopped to give up the leadership, or never begun. Work that was done is no less done.
    fn given_up(&self, problem: &Problem) -> Option<Cause> {
        let is_cause = match problem {
            Problem::Ended { .. } => self.worked.get().is_some_and(|worked| worked.end != WorkEnd::Finished),
            Problem::StartFailed { cause, .. } => cause.is::<ToldToStop>(),
            _ => false,
        };
        self.cession.reason().filter(|_| is_cause).cloned().map(Cause::Ceded)
    }
}

/// Draws the conclusion, and says and writes it.
fn conclude(surroundings: &Surroundings, course: &Course, cause: &Cause) -> Conclusion {
    let conclusion = Conclusion::of(surroundings, course, cause);
    conclusion.announce(surroundings, course);
    // Whoever would read the file has seen the guardian's end, and may have started the next one, which writes it, too.
    if let Some(path) = &surroundings.run.result_file
        && conclusion.outcome != Outcome::GuardianDied
    {
        let report = conclusion.report(surroundings, course);
        report.write(path).unwrap_or_else(|refusal| say!("{refusal}"));
    }
    conclusion
}

/// Tells programs of a leadership that is given up, though it could be kept: why, and by whom, or for whom.
fn tell_of_cession(surroundings: &Surroundings, event: &str, leadership: &Leadership, reason: &Reason) {
    let (name, holder) = (surroundings.run.name.as_str(), surroundings.holder.as_str());
    let (slot, epoch) = (leadership.slot, leadership.epoch.get());
    let (why, by, to) = (reason.word(), reason.by(), reason.to());
    tracing::info!(target: "vvm", event, name, holder, slot, epoch, why, by, to, reason = reason.to_string());
}

/// Gives others the time to lead. Whether we were asked to stop meanwhile.
async fn is_asked_while_others_go_first(surroundings: &Surroundings) -> bool {
    tokio::select! {
        biased;
        () = surroundings.control.stop.cancelled() => true,
        () = surroundings.clock.sleep(others_first(surroundings)) => false,
    }
}

/// One campaign, and the leadership that it may come to, until all of it has ended.
async fn campaign(
    surroundings: &Arc<Surroundings>,
    env: &Env,
    gate: &Arc<Gate>,
    course: &Arc<Course>,
) -> Cause {
    let run = &surroundings.run;
    let cluster = ClusterName::from(run.name.as_str());
    let slots =
        SlotNumber::all(run.slots).map(|slot| ElectionKey { cluster: cluster.clone(), slot }).collect();
    let mut config = VvmConfig::new(slots, surroundings.holder.clone(), env);
    // Supervision ends by killing, so there is nothing to give up on before the kill deadline does.
    config.stop_timeout = std::time::Duration::MAX;
    let acquisition = match (run.try_once, run.acquire_timeout) {
        (true, _) => Acquisition::UntilLeaderSeen,
        (false, AcquireTimeout::Never) => Acquisition::Forever,
        (false, AcquireTimeout::After(duration)) => Acquisition::Within(duration),
    };
    let service = WorkerService {
        surroundings: Arc::clone(surroundings),
        course: Arc::clone(course),
        gate: Arc::clone(gate),
    };
    let elections = elections(Arc::clone(gate).into_storage(), env.clone());
    surroundings.situation.campaigns();
    let vvm = Vvm::provide(config, elections, vec![Box::new(service)]).launch(run.ttl, acquisition);
    say_to_people!(
        "{}: waiting for leadership as {}, containment: {}",
        run.name,
        surroundings.holder,
        surroundings.containment.level
    );

    let control = &surroundings.control;
    let over = CancellationToken::new();
    let heeding = Heeding {
        candidate: surroundings.situation.candidate(),
        clock: &surroundings.clock,
        gate,
        over: &over,
    };
    let heeding = async {
        if let Some((slot, demand)) = heeding.run(&vvm).await {
            say_to_people!("{} slot {slot}: {demand}; stopping the command", run.name);
            let reason = Reason::Demanded(demand);
            if let Some(leadership) = course.leadership.get() {
                tell_of_cession(surroundings, "asked_to_give_up", leadership, &reason);
            }
            course.cession.ask(reason);
        }
    };
    let course_of_things = async {
        let first = tokio::select! {
            biased;
            problem = vvm.problem() => problem,
            () = control.stop.cancelled() => None,
        };
        over.cancel();
        // Afterwards all has stopped: the worker and what it left behind, the renewals, the elections. What went wrong
        // on the way shows in how the worker ended.
        let _ = vvm.shutdown().await;
        match first {
            _ if control.guardian_died.is_cancelled() => control.asked(),
            // Told by somebody who also told us, only sooner.
            Some(Problem::Ended { .. }) | None if control.stop.is_cancelled() => control.asked(),
            Some(problem) => course.given_up(&problem).unwrap_or(Cause::Problem(problem)),
            None => control.asked(),
        }
    };
    let course_of_things = async { tokio::join!(course_of_things, heeding).0 };
    let mut course_of_things = pin!(course_of_things);
    tokio::select! {
        biased;
        cause = &mut course_of_things => cause,
        () = lapsed(control.in_force.subscribe(), &surroundings.clock) => {
            control.guardian_lapsed.cancel();
            let (event, name, holder) = ("guardian_lapsed", run.name.as_str(), surroundings.holder.as_str());
            let slot = course.leadership.get().map(|leadership| leadership.slot);
            let epoch = course.leadership.get().map(|leadership| leadership.epoch.get());
            tracing::warn!(target: "vvm", event, name, holder, slot, epoch);
            // At once, while somebody can still end all of it: us.
            control.kill.cancel();
            control.stop.cancel();
            course_of_things.await;
            // Of a dead one nothing is heard either.
            if control.guardian_died.is_cancelled() { Cause::GuardianDied } else { Cause::GuardianLapsed }
        }
    }
}
