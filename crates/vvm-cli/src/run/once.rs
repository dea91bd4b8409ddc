//! What a leader of `vvm once` does around its command. `vvm_host::once` says when an attempt is counted, and when
//! its period is marked as done.

use super::{command::LeadershipWork, outcome::WorkEnd};
use crate::{
    contained::describe,
    once::{OnceArgs, OnceEnd},
};
use std::{sync::Arc, time::Duration};
use vvm_clock::{SystemWallClock, WallClock as _};
use vvm_containment::Ended;
use vvm_host::{
    once::{AttemptEnd, OnceWork, PastPeriod, PeriodError, PeriodWriter, Settled},
    status::IdleUntil,
};
use vvm_orch::BoxError;

impl LeadershipWork {
    /// Runs the command if the period is not done, and an attempt is left.
    ///
    /// # Errors
    /// If the command can't be started.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropped, it has everything killed, and nothing waits for that.
    pub(super) async fn run_once(self, args: Arc<OnceArgs>) -> Result<(), BoxError> {
        let runner = &self.runner;
        let ttl = runner.args.candidate.ttl;
        let holder = self.leadership.holder.as_str();
        let writer = match PeriodWriter::new(&self.standing, holder, &runner.clock, ttl, &args.plan()) {
            Ok(writer) => writer,
            Err(refusal) => return self.runs_nothing(refusal.into()),
        };
        runner.status.works();
        let of = |attempt| format!("period {}, attempt {attempt} of {}", args.period, args.attempts);
        let end = match writer.run(&Attempts { work: &self, args: &args }, &self.stop).await {
            Ok(Settled::Nothing(decision)) => match OnceEnd::of(&decision, &args) {
                Some(end) => return self.runs_nothing(end),
                None => return Ok(()),
            },
            Ok(Settled::Stopped) => return Ok(()),
            Ok(Settled::NotStarted(refusal)) => return Err(refusal),
            Ok(Settled::Failed { attempt }) => OnceEnd::Failed(of(attempt)),
            Ok(Settled::Marked) => OnceEnd::Marked(format!("period {} is done", args.period)),
            Ok(Settled::NotMarked { attempt, why }) => {
                OnceEnd::NotMarked(format!("{}: {why}; it may run again", of(attempt)))
            }
            Err(PeriodError::Over(_)) => {
                // The engine finds the same, and stops this work.
                self.stop.cancelled().await;
                return Ok(());
            }
            Err(refusal) => return self.runs_nothing(refusal.into()),
        };
        self.ends_once(end);
        Ok(())
    }

    /// Ends this leadership without a command.
    fn runs_nothing(&self, end: OnceEnd) -> Result<(), BoxError> {
        self.runner.status.work_ended(end.clone().into_parts().0);
        self.ends_once(end);
        Ok(())
    }

    fn ends_once(&self, end: OnceEnd) {
        // A leadership has one end.
        let _ = self.runner.run.once.set(end);
    }
}

/// The attempts of one leadership.
struct Attempts<'leadership> {
    work: &'leadership LeadershipWork,
    args: &'leadership OnceArgs,
}

impl OnceWork for Attempts<'_> {
    /// Waits until `--retry-after` is over since the end of `last`. Wall clocks may differ: the pause is never longer
    /// than the option says.
    async fn pause_after(&self, last: &PastPeriod) {
        let Self { work, args } = self;
        let ended = Duration::from_millis(last.ended_ms.unwrap_or_default());
        let left = args.retry_after.saturating_sub(SystemWallClock.since_unix_epoch().saturating_sub(ended));
        if left.is_zero() {
            return;
        }
        // In whole seconds, for people.
        let left = Duration::from_secs(left.as_secs() + 1).min(args.retry_after);
        let limit = Some(args.attempts.get().saturating_sub(1));
        let end = last.end.as_deref().unwrap_or_default();
        let how = end.strip_prefix("the command ").unwrap_or(end).into();
        work.idles(IdleUntil::Restart { number: last.attempts, limit }, left, how);
        work.runner.clock.sleep(left).await;
        work.runner.status.works();
    }

    async fn attempt(&self, number: u32) -> Result<AttemptEnd, BoxError> {
        let Self { work, args } = self;
        let variables = [("PERIOD", args.period.clone()), ("ATTEMPT", number.to_string())];
        let variables = variables.map(|(name, value)| (format!("VVM_LEADER_{name}").into(), value.into()));
        let started = work.start(work.controls(), &variables).await;
        let supervision =
            started.inspect_err(|refusal| work.runner.status.work_ended(refusal.to_string()))?;
        work.run(supervision).await?;
        let run = &work.runner.run;
        let worked = run.worked.get();
        let how = run.unhealthy.get().map(ToString::to_string);
        let how = how.or_else(|| worked.map(|worked| describe(&worked.last)));
        // The command has not failed if the guardian died.
        let is_failure = !work.runner.control.guardian_died.is_cancelled();
        Ok(AttemptEnd {
            by_itself: worked.is_some_and(|worked| worked.end == WorkEnd::Finished && worked.last.by_itself),
            succeeded: worked.is_some_and(|worked| worked.last.ended == Some(Ended::Exited(0))),
            how: how.filter(|_| is_failure),
        })
    }

    /// Waits until `--stop-timeout` is over since a stop, or until a second stop request.
    async fn no_time_is_left(&self) {
        let runner = &self.work.runner;
        self.work.stop.cancelled().await;
        tokio::select! {
            biased;
            () = runner.control.kill.cancelled() => {}
            () = runner.clock.sleep(runner.args.stop_timeout) => {}
        }
    }
}
