//! What a campaign came to: outcome, exit status, and the words for it.

use super::{
    guardian_silent::GuardianSilent,
    health::Unhealthy,
    surroundings::{Course, Surroundings, WorkEnd, Worked},
};
use crate::{
    announce::{say, say_to_people},
    cli::exit,
    contained::NotStarted,
    notes::Farewell,
    report::{Outcome, Report},
    signals,
};
use ielections::AcquireError;
use rustix::process::Signal;
use std::{fmt, sync::Arc};
use vvm_containment::{Ended, Supervised, Unproven};
use vvm_host::status::{Role, WhyStopping};
use vvm_host::{Ended as HostEnded, HostError};
use vvm_orch::{Failure, Problem};
use vvm_storage::SettleError;

/// How a `vvm run` is to end, and why.
#[derive(Debug)]
pub(super) struct Conclusion {
    pub(super) outcome: Outcome,
    pub(super) farewell: Farewell,
    pub(super) reason: Option<String>,
}

/// What ended a campaign or a leadership, seen first.
#[derive(Debug)]
pub(super) enum Cause {
    /// We were asked to stop, by this signal.
    Asked(Signal),
    /// The guardian has died, and everything that it contained with it.
    GuardianDied,
    /// The guardian did not listen for as long as a deadline lasts.
    GuardianLapsed,
    /// The keeper of the command has died, so that nothing proves that the command has ended (I6).
    Unproven(Unproven),
    /// There was no storage to campaign on.
    Storage(Arc<HostError>),
    /// The command did not pass its checks.
    Unhealthy(Unhealthy),
    /// Something went wrong, or the worker ended.
    Problem(Problem),
}

/// Draws the conclusion, and says and writes it.
pub(super) fn conclude(surroundings: &Surroundings, course: &Course, cause: &Cause) -> Conclusion {
    let conclusion = Conclusion::of(surroundings, course, cause);
    conclusion.announce(surroundings, course);
    // A reader of the file has seen the guardian's end, and may have started the next one, which writes it,
    // too.
    if let Some(path) = &surroundings.run.result_file
        && conclusion.outcome != Outcome::GuardianDied
    {
        let report = conclusion.report(surroundings, course);
        report.write(path).unwrap_or_else(|refusal| say!("{refusal}"));
    }
    conclusion
}

impl Cause {
    /// Returns what ended the campaign of `course`, where the host says that it `ended` so.
    pub(super) fn of(surroundings: &Surroundings, course: &Course, ended: &HostEnded) -> Self {
        let control = &surroundings.control;
        // Of a dead guardian nothing is heard either, so this comes first.
        if control.guardian_died.is_cancelled() {
            return Self::GuardianDied;
        }
        if control.guardian_lapsed.is_cancelled() {
            return Self::GuardianLapsed;
        }
        match ended {
            HostEnded::Stopped => Self::Asked(control.stop_signal()),
            HostEnded::NotOpened(error) => Self::Storage(Arc::clone(error)),
            // The signal reached the command, too, only sooner; or something failed on the way of a stop.
            HostEnded::Problem(problem) if control.stop.is_cancelled() => {
                let was_asked =
                    matches!(surroundings.situation.role(), Role::Stopping { why: WhyStopping::Asked, .. });
                match problem {
                    Problem::Ended { .. } => Self::Asked(control.stop_signal()),
                    _ if was_asked => Self::Asked(control.stop_signal()),
                    problem => Self::Problem(problem.clone()),
                }
            }
            HostEnded::Problem(problem) => match course.unhealthy.get() {
                // Work that was done is no less done.
                Some(unhealthy)
                    if matches!(problem, Problem::Ended { .. })
                        && course.worked.get().is_some_and(|worked| worked.end != WorkEnd::Finished) =>
                {
                    Self::Unhealthy(unhealthy.clone())
                }
                _ => Self::Problem(problem.clone()),
            },
        }
    }

    /// Whether a slot was won while the guardian did not listen: nothing was started, and nothing is wrong
    /// once it does.
    pub(super) fn is_silent_guardian(&self) -> bool {
        matches!(self, Self::Problem(Problem::StartFailed { cause, .. }) if cause.is::<GuardianSilent>())
    }
}

impl Conclusion {
    fn exit(outcome: Outcome, status: u8, reason: impl ToString) -> Self {
        Self { outcome, farewell: Farewell::Exit(status), reason: Some(reason.to_string()) }
    }

    /// Of a campaign that ended for `cause`.
    pub(super) fn of(surroundings: &Surroundings, course: &Course, cause: &Cause) -> Self {
        let run = &surroundings.run;
        match cause {
            Cause::Asked(signal) => match course.worked.get() {
                Some(Worked { end: WorkEnd::BetweenRuns, .. }) => Self {
                    outcome: Outcome::Stopped,
                    farewell: Farewell::DieOf(*signal),
                    reason: Some(format!("by {}, between two runs of the command", signals::name(*signal))),
                },
                Some(worked) => Self::of_worker(Outcome::Stopped, &worked.last),
                None => Self {
                    outcome: Outcome::StoppedWhileWaiting,
                    farewell: Farewell::DieOf(*signal),
                    reason: Some(format!("by {}", signals::name(*signal))),
                },
            },
            // For nobody: whoever waits for this has seen the guardian's own end.
            Cause::GuardianDied => {
                Self { outcome: Outcome::GuardianDied, farewell: Farewell::Exit(exit::KILLED), reason: None }
            }
            Cause::GuardianLapsed => Self::exit(
                Outcome::Deadline,
                exit::KILLED,
                "the guardian was stopped (by Ctrl-Z?) or hung beyond the kill deadline",
            ),
            Cause::Unproven(unproven) => Self::exit(Outcome::KeeperDied, exit::SYSTEM, unproven),
            Cause::Storage(refusal) => Self::no_storage(refusal, run.exit_code_timeout),
            Cause::Problem(Problem::Lost(loss)) => match course.worked.get() {
                // Its work was done, whoever leads now.
                Some(Worked { last, end: WorkEnd::Finished }) => {
                    let done = Self::of_worker(Outcome::WorkerEnded, last);
                    let ended = done.reason.unwrap_or_default();
                    Self {
                        reason: Some(format!("{ended}; leadership was lost while it was held: {loss}")),
                        ..done
                    }
                }
                _ => Self::exit(Outcome::Lost, run.exit_code_lost, loss),
            },
            Cause::Problem(Problem::Ended { failure, .. }) => match (course.worked.get(), failure) {
                (Some(worked), _) => Self::of_worker(Outcome::WorkerEnded, &worked.last),
                (None, Some(cause)) => Self::not_started(cause),
                (None, None) => Self::exit(Outcome::SystemRefused, exit::SYSTEM, "the command vanished"),
            },
            Cause::Unhealthy(unhealthy) => Self::exit(Outcome::Unhealthy, exit::UNHEALTHY, unhealthy),
            Cause::Problem(Problem::NotAcquired(refusal)) => {
                Self::not_acquired(refusal, run.exit_code_timeout)
            }
            Cause::Problem(Problem::StartFailed { cause, .. }) => Self::not_started(cause),
            Cause::Problem(problem) => Self::exit(Outcome::SystemRefused, exit::SYSTEM, problem),
        }
    }

    /// The worker's own end is ours.
    fn of_worker(outcome: Outcome, supervised: &Supervised) -> Self {
        let Some(ended) = supervised.ended else {
            return Self::exit(outcome, exit::SYSTEM, "the end of the command went unnoticed");
        };
        let farewell = match ended {
            Ended::Exited(status) => Farewell::Exit(status),
            // Told to stop, and stopped by just that: service managers take it for the clean stop that it is.
            Ended::Signalled(number) => supervised
                .told
                .iter()
                .find(|told| told.as_raw() == number)
                .map_or(Farewell::Exit(exit::by_signal(number)), |told| Farewell::DieOf(*told)),
        };
        Self { outcome, farewell, reason: Some(format!("the command {ended}")) }
    }

    fn no_storage(error: &HostError, timeout_status: u8) -> Self {
        let (outcome, status) = match error {
            HostError::Storage { cause, .. } if cause.is_misuse() => (Outcome::Misuse, exit::MISUSE),
            HostError::Storage { cause, .. } if cause.is_of_system() => {
                (Outcome::SystemRefused, exit::SYSTEM)
            }
            HostError::Slots(SettleError::Differs { .. }) => (Outcome::Conflict, exit::CONFLICT),
            HostError::StorageTimedOut(_) => (Outcome::NotAcquired, timeout_status),
            HostError::Storage { .. } | HostError::Slots(_) => (Outcome::StorageRefused, exit::STORAGE),
            error => (Outcome::SystemRefused, error.exit_status()),
        };
        Self::exit(outcome, status, error)
    }

    fn not_acquired(refusal: &AcquireError, timeout_status: u8) -> Self {
        match refusal {
            AcquireError::TimedOut { .. } => Self::exit(Outcome::NotAcquired, timeout_status, refusal),
            AcquireError::LeaderSeen { .. } => Self::exit(Outcome::LeaderSeen, timeout_status, refusal),
            AcquireError::TtlTooShort { .. } => Self::exit(Outcome::Misuse, exit::MISUSE, refusal),
            AcquireError::Refused(_) | AcquireError::EpochWentBack { .. } => {
                Self::exit(Outcome::StorageRefused, exit::STORAGE, refusal)
            }
            AcquireError::Closing | AcquireError::NoSlots | AcquireError::Deadman(_) => {
                Self::exit(Outcome::SystemRefused, exit::SYSTEM, refusal)
            }
        }
    }

    fn not_started(cause: &Failure) -> Self {
        let status = cause.downcast_ref::<NotStarted>().and_then(NotStarted::command_status);
        match status {
            Some(exit::NOT_FOUND) => Self::exit(Outcome::CommandNotFound, exit::NOT_FOUND, cause),
            Some(status) => Self::exit(Outcome::CommandNotExecutable, status, cause),
            None => Self::exit(Outcome::SystemRefused, exit::SYSTEM, cause),
        }
    }

    /// For whoever watches.
    pub(super) fn announce(&self, surroundings: &Surroundings, course: &Course) {
        let name = &surroundings.run.name;
        let slot = course.leadership.get().map(|leadership| format!(" slot {}", leadership.slot));
        say_to_people!("{name}{}: {self}", slot.unwrap_or_default());
        let (event, holder) = ("concluded", surroundings.holder.as_str());
        let slot = course.leadership.get().map(|leadership| leadership.slot);
        let epoch = course.leadership.get().map(|leadership| leadership.epoch.get());
        let (outcome, reason) = (self.outcome.word(), self.reason.as_deref());
        tracing::info!(target: "vvm", event, name = name.as_str(), holder, slot, epoch, outcome, reason);
    }

    /// For the result file.
    pub(super) fn report(&self, surroundings: &Surroundings, course: &Course) -> Report {
        let mut report = Report::new(self.outcome, &surroundings.run.name, &surroundings.holder)
            .contained(surroundings.containment.level())
            .ending(self.farewell);
        if let Some(reason) = &self.reason {
            report = report.because(reason);
        }
        if let Some(leadership) = course.leadership.get() {
            report = report.leading(leadership.slot, leadership.epoch, leadership.incarnation);
        }
        if let Some(ended) = course.worked.get().and_then(|worked| worked.last.ended) {
            report = report.of_worker(ended);
        }
        report
    }
}

/// For people.
impl fmt::Display for Conclusion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.outcome.fmt(out)?;
        self.reason.iter().try_for_each(|reason| write!(out, ": {reason}"))
    }
}
