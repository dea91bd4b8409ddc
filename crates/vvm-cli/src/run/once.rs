//! What a leader of `vvm once` does around its command: it reads the periods again, counts the attempt before the
//! command starts, and marks the period as done after the command has succeeded, before the release.

use super::{
    command::LeadershipWork,
    outcome::{WorkEnd, Worked},
};
use crate::{
    contained::describe,
    once::{OnceArgs, OnceEnd},
};
use std::{sync::Arc, time::Duration};
use vvm_clock::{SystemWallClock, WallClock as _};
use vvm_containment::{Ended, Supervised};
use vvm_host::{
    once::{CountedAttempt, Decision, PastPeriod, PeriodError, PeriodWriter},
    status::IdleUntil,
};
use vvm_orch::BoxError;

/// An attempt that is counted, and its number.
struct Attempt {
    counted: CountedAttempt,
    number: u32,
}

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
        let begun = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Ok(()),
            begun = self.begin(&writer, &args) => begun,
        };
        let attempt = match begun {
            Ok(Ok(attempt)) => attempt,
            Ok(Err(end)) => return self.runs_nothing(end),
            Err(PeriodError::Over(_)) => {
                // The engine finds the same, and stops this work.
                self.stop.cancelled().await;
                return Ok(());
            }
            Err(refusal) => return self.runs_nothing(refusal.into()),
        };
        let variables = [("PERIOD", args.period.clone()), ("ATTEMPT", attempt.number.to_string())];
        let variables = variables.map(|(name, value)| (format!("VVM_LEADER_{name}").into(), value.into()));
        let ended = match self.start(self.controls(), &variables).await {
            Ok(supervision) => self.run(supervision).await,
            Err(refusal) => {
                runner.status.work_ended(refusal.to_string());
                writer.note_end(&attempt.counted, &refusal.to_string()).await;
                return Err(refusal);
            }
        };
        self.settle(&writer, attempt, &args).await;
        ended
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

    /// Returns the attempt, once its count is confirmed, or why no attempt is made.
    async fn begin(
        &self,
        writer: &PeriodWriter,
        args: &OnceArgs,
    ) -> Result<Result<Attempt, OnceEnd>, PeriodError> {
        // Again, and after the claim: an earlier leader may have done the period while this candidate waited.
        let periods = writer.read().await?;
        let decision = periods.decide(&args.period, args.attempts);
        if let Some(end) = OnceEnd::of(&decision, args) {
            return Ok(Err(end));
        }
        let Decision::Run { attempt: number, last } = decision else { return Err(PeriodError::NoDocuments) };
        if let Some(last) = last {
            self.pause_after(&last, args).await;
        }
        Ok(Ok(Attempt { counted: writer.count(periods, number).await?, number }))
    }

    /// Waits until `--retry-after` is over since an attempt that failed. Wall clocks may differ: the pause is never
    /// longer than the option says.
    async fn pause_after(&self, last: &PastPeriod, args: &OnceArgs) {
        let Some(end) = &last.end else { return };
        let ended = Duration::from_millis(last.ended_ms.unwrap_or_default());
        let left = args.retry_after.saturating_sub(SystemWallClock.since_unix_epoch().saturating_sub(ended));
        if left.is_zero() {
            return;
        }
        // In whole seconds, for people.
        let left = Duration::from_secs(left.as_secs() + 1).min(args.retry_after);
        let limit = Some(args.attempts.get().saturating_sub(1));
        let how = end.strip_prefix("the command ").unwrap_or(end).into();
        self.idles(IdleUntil::Restart { number: last.attempts, limit }, left, how);
        self.runner.clock.sleep(left).await;
        self.runner.status.works();
    }

    /// Marks the period as done if the command has succeeded, or notes how it ended. Nothing of the command runs.
    async fn settle(&self, writer: &PeriodWriter, attempt: Attempt, args: &OnceArgs) {
        let OnceArgs { period, attempts, .. } = args;
        let Attempt { counted, number } = attempt;
        let of = format!("period {period}, attempt {number} of {attempts}");
        let Some(worked) = self.runner.run.worked.get() else { return };
        if !has_succeeded(worked) {
            let how = match self.runner.run.unhealthy.get() {
                Some(unhealthy) => unhealthy.to_string(),
                None => describe(&worked.last),
            };
            // The command has not failed if the guardian died: as after the death of the host, the next candidate
            // runs it at once.
            if !self.runner.control.guardian_died.is_cancelled() {
                writer.note_end(&counted, &how).await;
            }
            return self.ends_once(OnceEnd::Failed(of));
        }
        let marked = tokio::select! {
            biased;
            marked = writer.mark(&counted) => marked.map_err(|error| error.to_string()),
            () = self.no_time_is_left() => Err("the storage did not confirm it in time".to_owned()),
        };
        self.ends_once(match marked {
            Ok(()) => OnceEnd::Marked(format!("period {period} is done")),
            Err(why) => OnceEnd::NotMarked(format!("{of}: {why}; it may run again")),
        });
    }

    /// Waits until `--stop-timeout` is over since a stop, or until a second stop request.
    async fn no_time_is_left(&self) {
        self.stop.cancelled().await;
        tokio::select! {
            biased;
            () = self.runner.control.kill.cancelled() => {}
            () = self.runner.clock.sleep(self.runner.args.stop_timeout) => {}
        }
    }
}

/// Whether the command has ended by itself with status 0. One that was stopped may end with 0, too, without having
/// done its work.
fn has_succeeded(worked: &Worked) -> bool {
    let Supervised { ended, by_itself, .. } = worked.last;
    worked.end == WorkEnd::Finished && by_itself && ended == Some(Ended::Exited(0))
}
