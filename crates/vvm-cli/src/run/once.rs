//! The command line of `vvm once`, and what its leader does around its command. `vvm_host::once` says when an attempt
//! is counted, and when its period is marked as done.

use super::{args::RunArgs, command::LeadershipWork, outcome::WorkEnd};
use crate::{
    contained::describe,
    exit,
    once::{OnceArgs, OnceEnd},
    result_file::Outcome,
};
use clap::Args;
use std::{sync::Arc, time::Duration};
use vvm_clock::{SystemWallClock, WallClock as _};
use vvm_containment::ProcessEnd;
use vvm_host::{
    once::{AttemptEnd, OnceWork, PastPeriod, PeriodError, PeriodOutcome, PeriodWriter},
    status::PendingRestart,
};
use vvm_orch::BoxError;

/// Run a command once per period, on one of several machines.
///
/// Start the same command line on all machines, for example by cron: one of them runs the command. If it succeeds
/// (status 0), the period is done, and every other start for the period ends at once, with status 0 and without
/// running it. If it fails, or its machine dies, a candidate that waits or comes later runs it again, at most
/// --attempts times in all. A machine that dies after the success and before the storage has the mark causes one
/// more run: at least once, and exactly once as far as the command is idempotent or its writes are fenced.
#[derive(Clone, Debug, Args)]
#[command(after_help = HELP, after_long_help = long_help(), override_usage = USAGE)]
#[command(mut_arg("slots", |arg| arg.hide(true)), mut_arg("try_once", |arg| arg.hide(true)))]
#[command(mut_arg("on_exit", |arg| arg.hide(true)), mut_arg("restart_limit", |arg| arg.hide(true)))]
#[command(mut_arg("restart_backoff", |arg| arg.hide(true)))]
#[command(mut_arg("restart_backoff_max", |arg| arg.hide(true)))]
#[command(mut_arg("successor", |arg| arg.hide(true)), mut_arg("support", |arg| arg.hide(true)))]
#[command(mut_arg("successor_advertise", |arg| arg.hide(true)))]
#[command(mut_arg("warm", |arg| arg.hide(true)), mut_arg("after_stop", |arg| arg.hide(true)))]
#[command(mut_arg("start_timeout", |arg| arg.hide(true)), mut_arg("alive_within", |arg| arg.hide(true)))]
pub(crate) struct OnceCommand {
    #[command(flatten)]
    pub(crate) once: OnceArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Clone, Debug, Args)]
#[command(mut_arg("period", |arg| arg.required(false)))]
pub(crate) struct StageArgs {
    #[command(flatten)]
    pub(crate) once: Option<OnceArgs>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

const USAGE: &str = "vvm once --storage URL --name NAME --period TEXT [OPTIONS] -- CMD [ARGS…]";

const HELP: &str = "\
Exit status:
  0    the period is done, by this command or an earlier one
  82   no attempt is left             83   CMD succeeded, but the period could
                                           not be marked as done
  Otherwise CMD's own, or as vvm run: 64 (also for a period that is older than
  what is kept), 69, 71, 75, 78, 79, 80, 81, 126, 127, 137, or 128 + n.";

fn long_help() -> String {
    const EXAMPLE: &str = "\
Example:
  vvm once --storage sqlite:/var/lib/backup/leader.db --name backup --period 2026-11-24 --quiet -- ./backup

  In a crontab, write --period \"$(date +\\%F)\". CMD also gets VVM_LEADER_PERIOD and VVM_LEADER_ATTEMPT.
  What was done: vvm history --periods.";
    format!("{EXAMPLE}\n\n{HELP}")
}

/// Options that `vvm once` refuses, each with the value that has no effect, and why.
pub(crate) const REFUSED: [(&str, &str, &str); 7] = [
    (
        "try_once",
        "false",
        "a candidate that does not wait can't run the command if the leader dies; leave it out",
    ),
    ("slots", "1", "a period is done once, so there is one slot; leave it out"),
    ("on_exit", "release", "a command that fails is started again by the next candidate, up to --attempts"),
    (
        "warm",
        "false",
        "an app that is warm works in each leadership, also if the period is done; leave it out",
    ),
    ("successor", "", "the attempt after the loss of a machine begins when the TTL has passed; leave it out"),
    ("support", "5s", "there is no successor; leave it out"),
    ("successor_advertise", "", "there is no successor; leave it out"),
];

impl LeadershipWork {
    /// Runs the command if the period is not done, and an attempt is left. Not cancel safe: dropped, it has everything
    /// killed, and nothing waits for that.
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
            Ok(PeriodOutcome::Nothing(decision)) => match OnceEnd::from_decision(&decision, &args) {
                Some(end) => return self.runs_nothing(end),
                None => return Ok(()),
            },
            Ok(PeriodOutcome::Stopped) => return Ok(()),
            Ok(PeriodOutcome::NotStarted(refusal)) => return Err(refusal),
            Ok(PeriodOutcome::Failed { attempt }) => OnceEnd::Failed(of(attempt)),
            Ok(PeriodOutcome::Marked) => OnceEnd::Marked(format!("period {} is done", args.period)),
            Ok(PeriodOutcome::NotMarked { attempt, why }) => {
                let text = format!("{}: {why}; it may run again", of(attempt));
                OnceEnd::Reason(Outcome::NotMarked, exit::NOT_MARKED, text)
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

    fn runs_nothing(&self, end: OnceEnd) -> Result<(), BoxError> {
        self.runner.status.work_ended(end.text());
        self.ends_once(end);
        Ok(())
    }

    fn ends_once(&self, end: OnceEnd) {
        let _ = self.runner.run.once.set(end);
    }
}

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
        let left = Duration::from_secs(left.as_secs() + 1).min(args.retry_after);
        let limit = Some(args.attempts.get().saturating_sub(1));
        let end = last.end.as_deref().unwrap_or_default();
        let ended = end.strip_prefix("the command ").unwrap_or(end).into();
        work.idles(PendingRestart { number: last.attempts, limit, pause: left, ended });
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
        let how = how.or_else(|| {
            // A command that was stopped may have ended with 0, and is not done.
            let last = &worked?.last;
            let why = if last.by_itself { "" } else { "stopped: " };
            Some(format!("{why}{}", describe(last)))
        });
        // The command has not failed if the guardian died.
        let is_failure = !work.runner.control.guardian_died.is_cancelled();
        Ok(AttemptEnd {
            by_itself: worked.is_some_and(|worked| worked.end == WorkEnd::Finished && worked.last.by_itself),
            succeeded: worked.is_some_and(|worked| worked.last.ended == Some(ProcessEnd::Exited(0))),
            how: how.filter(|_| is_failure),
        })
    }

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
