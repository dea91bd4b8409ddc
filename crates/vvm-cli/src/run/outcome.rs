//! [`ExitReason`]: why a `vvm run` ends, with its outcome and exit status.

use super::{control::GuardianSilent, health::Unhealthy};
use crate::{
    contained::{NotStarted, describe},
    exit,
    leadership::{ExitWish, Leadership},
    once::OnceEnd,
    result_file::Outcome,
};
use ielections::AcquireError;
use rustix::process::Signal;
use std::{
    fmt,
    sync::{Arc, OnceLock},
};
use vvm_containment::{ProcessEnd, Supervised, UnprovenKeeperEnd, signal_name};
use vvm_host::{HostError, HostOutcome};
use vvm_orch::{Failure, Problem};

pub(super) const GUARDIAN_LAPSED: &str =
    "the guardian was stopped (by Ctrl-Z?) or hung until the kill deadline";

#[derive(Debug)]
pub(super) struct ExitReason {
    pub(super) outcome: Outcome,
    pub(super) farewell: ExitWish,
    pub(super) text: Option<String>,
}

#[derive(Debug)]
pub(super) enum Cause {
    /// The command ended by itself, and is not to be restarted.
    Finished,
    Stopped(Signal),
    /// The same while no warm app was ready, so that this process did not campaign.
    StoppedUnready(Signal),
    GuardianDied,
    /// The guardian did not answer until the kill deadline.
    GuardianLapsed,
    /// The keeper has died, so nothing proves that the command has ended (I6).
    Unproven(UnprovenKeeperEnd),
    /// This signal asked for a stop, a second one came, and the release or the storage hangs.
    Hung(Signal),
    TimedOut(String),
    /// The period needs no command of this candidate (`vvm once`).
    NothingToRun,
    Storage(Arc<HostError>),
    Unhealthy(Unhealthy),
    NotStarted(Arc<NotStarted>),
    Problem(Problem),
}

impl Cause {
    /// Whether a slot was won while the guardian did not answer. Nothing was started, so another campaign may follow.
    pub(super) fn is_silent_guardian(&self) -> bool {
        matches!(self, Self::Problem(Problem::StartFailed { cause, .. }) if cause.is::<GuardianSilent>())
    }
}

impl ExitReason {
    fn exit(outcome: Outcome, status: u8, text: impl ToString) -> Self {
        Self { outcome, farewell: ExitWish::Exit(status), text: Some(text.to_string()) }
    }

    fn system(text: impl ToString) -> Self {
        Self::exit(Outcome::SystemRefused, exit::SYSTEM, text)
    }

    fn signalled(outcome: Outcome, signal: Signal, what: &str) -> Self {
        let text = Some(format!("by {}{what}", signal_name(signal.as_raw())));
        Self { outcome, farewell: ExitWish::DieOf(signal), text }
    }

    pub(super) fn from_cause(cause: &Cause, run: &LeadershipRun) -> Self {
        let reason = Self::of_run(cause, run);
        match (run.once.get(), cause) {
            (None, _)
            | (_, Cause::GuardianDied | Cause::GuardianLapsed | Cause::Unproven(_) | Cause::Hung(_)) => {
                reason
            }
            (Some(end), cause) => reason.of_once(end, cause),
        }
    }

    /// Returns the reason of a `vvm once`. It ends with 0 only if the period is done.
    fn of_once(self, end: &OnceEnd, cause: &Cause) -> Self {
        let what = end.text();
        let text = self.text.map_or_else(|| what.to_owned(), |text| format!("{text}; {what}"));
        match end {
            OnceEnd::Reason(outcome, status, what) => Self::exit(*outcome, *status, what),
            OnceEnd::Skipped(what) => Self::exit(Outcome::AlreadyDone, 0, what),
            // It was stopped, and ended with 0 without having done its work.
            OnceEnd::Failed(_) if self.farewell == ExitWish::Exit(0) => {
                let signal = if let Cause::Stopped(signal) = cause { *signal } else { Signal::TERM };
                Self { farewell: ExitWish::DieOf(signal), text: Some(text), ..self }
            }
            OnceEnd::Failed(_) | OnceEnd::Marked(_) => Self { text: Some(text), ..self },
        }
    }

    fn of_run(cause: &Cause, run: &LeadershipRun) -> Self {
        match cause {
            Cause::NothingToRun => Self::system("there was nothing to run"),
            Cause::Stopped(signal) => match run.worked.get() {
                Some(FinishedWork { end: WorkEnd::BetweenRuns, .. }) => {
                    Self::signalled(Outcome::Stopped, *signal, ", between two runs of the command")
                }
                Some(worked) => {
                    let stopped = Self::of_worker(Outcome::Stopped, &worked.last);
                    match stopped.farewell {
                        // Of the signal that `vvm` got, where --stop-signal has another one for the command.
                        ExitWish::DieOf(_) => Self { farewell: ExitWish::DieOf(*signal), ..stopped },
                        ExitWish::Exit(_) => stopped,
                    }
                }
                // The end of a warm app is that of no leadership.
                None if run.leadership.get().is_some() => Self::signalled(Outcome::Stopped, *signal, ""),
                None => Self::signalled(Outcome::StoppedWhileWaiting, *signal, ""),
            },
            Cause::StoppedUnready(signal) => {
                Self::signalled(Outcome::StoppedWhileWaiting, *signal, ", while no app was ready")
            }
            Cause::Hung(signal) => {
                const WHAT: &str = "the storage does not answer, so the record may stand until it expires";
                let stopped = Self::from_cause(&Cause::Stopped(*signal), run);
                let text = stopped.text.unwrap_or_default();
                Self { text: Some(format!("{text}; {WHAT}")), ..stopped }
            }
            Cause::GuardianDied => Self {
                outcome: Outcome::GuardianDied,
                farewell: ExitWish::Exit(exit::KILLED),
                text: end_of_command(run),
            },
            Cause::GuardianLapsed => Self::exit(Outcome::Deadline, exit::KILLED, GUARDIAN_LAPSED),
            Cause::Unproven(unproven) => Self::exit(Outcome::KeeperDied, exit::SYSTEM, unproven),
            Cause::TimedOut(text) => Self::exit(Outcome::NotAcquired, exit::NOT_ACQUIRED, text),
            Cause::Storage(refusal) => Self::refused(refusal.exit_status(), refusal),
            Cause::Unhealthy(unhealthy) => Self::exit(Outcome::Unhealthy, exit::UNHEALTHY, unhealthy),
            Cause::NotStarted(refusal) => Self::not_started(refusal.command_status(), refusal),
            Cause::Problem(Problem::Lost(loss)) => match run.worked.get() {
                // The work was done before the loss.
                Some(FinishedWork { last, end: WorkEnd::Finished }) => {
                    let done = Self::of_worker(Outcome::WorkerEnded, last);
                    let ended = done.text.unwrap_or_default();
                    let text = format!("{ended}; leadership was lost after that: {loss}");
                    Self { text: Some(text), ..done }
                }
                _ => Self::exit(Outcome::Lost, exit::LOST, loss),
            },
            Cause::Finished => match run.worked.get() {
                Some(worked) => Self::of_worker(Outcome::WorkerEnded, &worked.last),
                None => Self::system("the command vanished"),
            },
            Cause::Problem(Problem::Ended { failure, .. }) => match (run.worked.get(), failure) {
                (Some(worked), _) => Self::of_worker(Outcome::WorkerEnded, &worked.last),
                (None, Some(cause)) => Self::not_started(command_status(cause), cause),
                (None, None) => Self::system("the command vanished"),
            },
            Cause::Problem(problem @ Problem::NotAcquired(refusal)) => {
                let status = HostOutcome::Problem(problem.clone()).exit_status();
                match **refusal {
                    AcquireError::LeaderSeen { .. } => Self::exit(Outcome::LeaderSeen, status, refusal),
                    _ => Self::refused(status, refusal),
                }
            }
            Cause::Problem(Problem::StartFailed { cause, .. }) => {
                Self::not_started(command_status(cause), cause)
            }
            Cause::Problem(problem) => Self::system(problem),
        }
    }

    fn of_worker(outcome: Outcome, last: &Supervised) -> Self {
        let farewell = match last.ended {
            Some(ProcessEnd::Exited(status)) => ExitWish::Exit(status),
            // A forwarded signal ended it: service managers take the same signal for a clean stop.
            Some(ProcessEnd::Signalled(number)) => {
                let forwarded = last.told.iter().find(|told| told.as_raw() == number);
                forwarded.map_or(ExitWish::Exit(exit::by_signal(number)), |signal| ExitWish::DieOf(*signal))
            }
            None => ExitWish::Exit(exit::SYSTEM),
        };
        Self { outcome, farewell, text: Some(describe(last)) }
    }

    fn refused(status: u8, cause: impl ToString) -> Self {
        let outcome = match status {
            exit::NOT_ACQUIRED => Outcome::NotAcquired,
            exit::MISUSE => Outcome::Misuse,
            exit::CONFLICT => Outcome::Conflict,
            exit::STORAGE => Outcome::StorageRefused,
            _ => Outcome::SystemRefused,
        };
        Self::exit(outcome, status, cause)
    }

    fn not_started(status: Option<u8>, cause: impl ToString) -> Self {
        match status {
            Some(exit::NOT_FOUND) => Self::exit(Outcome::CommandNotFound, exit::NOT_FOUND, cause),
            Some(status) => Self::exit(Outcome::CommandNotExecutable, status, cause),
            None => Self::system(cause),
        }
    }
}

fn end_of_command(run: &LeadershipRun) -> Option<String> {
    run.leadership.get()?;
    Some(match run.worked.get() {
        // The keeper kills it at the guardian's death.
        Some(FinishedWork {
            last: Supervised { ended: Some(ProcessEnd::Signalled(number)), .. }, ..
        }) if *number == Signal::KILL.as_raw() => "the command has been killed".into(),
        Some(FinishedWork { last, .. }) => describe(last),
        // None was started, or it was a warm app.
        None => "no process of the command is left".into(),
    })
}

fn command_status(cause: &Failure) -> Option<u8> {
    cause.downcast_ref::<NotStarted>().and_then(NotStarted::command_status)
}

impl fmt::Display for ExitReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.outcome.fmt(out)?;
        self.text.iter().try_for_each(|text| write!(out, ": {text}"))
    }
}

#[derive(Debug, Default)]
pub(super) struct LeadershipRun {
    pub(super) leadership: OnceLock<Leadership>,
    /// Set when the command has ended for the last time and no process of it is left.
    pub(super) worked: OnceLock<FinishedWork>,
    pub(super) unhealthy: OnceLock<Unhealthy>,
    /// Set when a `vvm once` knows that it runs nothing, or has written how its command ended.
    pub(super) once: OnceLock<OnceEnd>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FinishedWork {
    pub(super) last: Supervised,
    pub(super) end: WorkEnd,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WorkEnd {
    /// The command ended by itself, and is not to be restarted.
    Finished,
    Stopped,
    BetweenRuns,
}

#[cfg(test)]
mod tests {
    use super::*;
    use vvm_clock::Instant;

    #[test]
    fn once_that_was_stopped_ends_with_0_only_if_its_period_is_done() {
        let last = Supervised {
            ended: Some(ProcessEnd::Exited(0)),
            ended_at: Some(Instant::ORIGIN),
            by_itself: false,
            told: vec![Signal::INT],
            killed: None,
        };
        for (end, farewell) in [
            (OnceEnd::Failed("attempt 1".into()), ExitWish::DieOf(Signal::INT)),
            (OnceEnd::Marked("it is done".into()), ExitWish::Exit(0)),
        ] {
            let run = LeadershipRun::default();
            run.once.set(end).unwrap();
            run.worked.set(FinishedWork { last: last.clone(), end: WorkEnd::Stopped }).unwrap();
            let reason = ExitReason::from_cause(&Cause::Stopped(Signal::INT), &run);
            assert_eq!(reason.farewell, farewell, "{reason}");
        }
    }
}
