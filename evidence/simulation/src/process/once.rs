//! [`run`]: a process that does a job once per period, as `vvm once`. What it decides, counts and marks is the real
//! code, and so is the supervision of the job.

use super::{
    Started,
    command::{Command, Job},
    host_of, slots, stops,
};
use crate::{
    clock::Process,
    faults::FAULTS_END,
    world::{OnceAnswer, World},
};
use async_trait::async_trait;
use fastrand::Rng;
use ielections::{Ttl, TtlStorage as _};
use std::{
    num::NonZeroU32,
    sync::{Arc, OnceLock},
    time::Duration,
};
use vvm_clock::Clock;
use vvm_containment::Ended;
use vvm_host::{
    Next,
    once::{AttemptEnd, Decision, LEAST_KEPT, Once, OnceWork, PastPeriod, PeriodWriter, Settled, read},
};
use vvm_orch::{BoxError, Service, ServiceContext, Work};
use vvm_storage::ElectionKey;

/// Between an attempt that failed and the next.
const RETRY_AFTER: Duration = Duration::from_secs(2);
/// How long a leader that is stopped waits for its mark.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// Looks at the period, and campaigns if it is not done.
pub(super) async fn run(started: &Started) {
    let Started { world, process, profile, .. } = started;
    let once = Once {
        period: profile.period.to_string(),
        attempts: profile.attempts,
        keep: NonZeroU32::MIN.saturating_add(LEAST_KEPT),
        skip_if_newer_done: false,
    };
    let found = tokio::select! {
        biased;
        found = looks(started, &once) => found,
        () = started.env.clock.sleep(profile.ttl.get()) => None,
    };
    if let Some(decision) = found {
        world.tells(*process, profile.period, answer(&decision));
        return;
    }
    let Some(host) = host_of(started) else { return };
    let stops = stops(started, host.stop());
    let settled = Arc::new(OnceLock::new());
    let services = || {
        let command = Command::of(started);
        let job = OnceJob {
            world: Arc::clone(world),
            process: *process,
            period: profile.period,
            seed: profile.seed,
            ttl: profile.ttl,
            clock: Arc::clone(&started.env.clock),
            once: once.clone(),
            command,
            settled: Arc::clone(&settled),
        };
        vec![Box::new(job) as _]
    };
    tokio::select! {
        biased;
        ended = host.run_then(services, |_| Next::Stop) => world.note(format_args!("{process}: {ended}")),
        never = stops => match never {},
    }
    let answer = match settled.get() {
        Some(Settled::Nothing(decision)) => answer(decision),
        Some(Settled::Marked) => OnceAnswer::Done,
        _ => return,
    };
    world.tells(*process, profile.period, answer);
}

/// Returns the decision that needs no leadership, if there is one.
async fn looks(started: &Started, once: &Once) -> Option<Decision> {
    let key = slots(started.profile.slots).pop()?;
    let periods = read(started.storage.documents(), &key).await.ok()?;
    Some(periods.decide(&once.period, once.attempts)).filter(Decision::needs_no_leader)
}

fn answer(decision: &Decision) -> OnceAnswer {
    match decision {
        Decision::NoAttemptLeft(_) => OnceAnswer::NoAttemptLeft,
        Decision::Done(_) | Decision::Superseded(_) | Decision::Older { .. } | Decision::Run { .. } => {
            OnceAnswer::Done
        }
    }
}

/// The job of one leadership.
struct OnceJob {
    world: Arc<World>,
    process: Process,
    period: u32,
    seed: u64,
    ttl: Ttl,
    clock: Arc<dyn Clock>,
    once: Once,
    command: Command,
    /// How the leadership ended.
    settled: Arc<OnceLock<Settled>>,
}

#[async_trait]
impl Service<ElectionKey> for OnceJob {
    fn name(&self) -> &str {
        "job"
    }

    async fn start(self: Box<Self>, cx: ServiceContext<ElectionKey>) -> Result<Work, BoxError> {
        Ok(Box::pin(async move {
            let writer = PeriodWriter::new(&cx.standing, "10.0.0.9", &self.clock, self.ttl, &self.once)?;
            let work = Attempt { job: &self, cx: &cx };
            match writer.run(&work, &cx.stop).await {
                Ok(settled) => {
                    // Without its texts, which have the date of this machine.
                    let how = std::mem::discriminant(&settled);
                    self.world.note(format_args!("{} settles period {}: {how:?}", self.process, self.period));
                    // A leadership has one end.
                    drop(self.settled.set(settled));
                }
                Err(error) => {
                    self.world.note(format_args!("{}: {error}", self.process));
                    cx.stop.cancelled().await;
                }
            }
            Ok(())
        }))
    }
}

struct Attempt<'job> {
    job: &'job OnceJob,
    cx: &'job ServiceContext<ElectionKey>,
}

impl OnceWork for Attempt<'_> {
    async fn pause_after(&self, _last: &PastPeriod) {
        self.job.clock.sleep(RETRY_AFTER).await;
    }

    async fn attempt(&self, number: u32) -> Result<AttemptEnd, BoxError> {
        let Self { job: OnceJob { world, process, period, once, .. }, cx } = self;
        let standing = &cx.standing;
        world.job_begins(
            *process,
            (*period, once.attempts),
            number,
            (standing.epoch(), standing.incarnation()),
        );
        let mut rng = Rng::with_seed(self.job.seed ^ standing.epoch().get());
        let fails = rng.u32(..4) == 0 && world.clock.now() < FAULTS_END;
        let takes = Duration::from_secs(8).mul_f64(rng.f64());
        let supervised = self.job.command.begin(cx, Some(Job { takes, succeeds: !fails })).await;
        let succeeded = supervised.ended == Some(Ended::Exited(0));
        Ok(AttemptEnd { by_itself: supervised.by_itself, succeeded, how: Some("the job failed".to_owned()) })
    }

    async fn no_time_is_left(&self) {
        self.cx.stop.cancelled().await;
        self.job.clock.sleep(STOP_TIMEOUT).await;
    }
}
