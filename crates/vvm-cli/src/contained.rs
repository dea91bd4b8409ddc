//! Messages and exit statuses for refusals and events of `vvm_containment`, with the names of our options.

use crate::{announce::say, exit};
use std::{fmt, io, process::ExitCode};
use vvm_containment::{
    ControlGroupRefusal, HelperError, KillReason, LevelRefusal, NamespaceRefusal, SetupStep, SpawnError,
    StageError, Supervised, SupervisionEvent,
};
use vvm_host::operate::ResourceLimit;

#[derive(Debug, thiserror::Error)]
pub(crate) struct NotContained(#[from] pub(crate) LevelRefusal);

impl fmt::Display for NotContained {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            LevelRefusal::ProcFs(refusal) => refusal.fmt(out),
            LevelRefusal::ControlGroup(ControlGroupRefusal::System(cause)) => limit_of(cause).fmt(out),
            LevelRefusal::ControlGroup(refusal) => {
                write!(out, "--containment cgroup: {refusal}, or use --containment guardian")
            }
            LevelRefusal::Namespace(refusal) => no_namespace(refusal, out),
        }
    }
}

fn no_namespace(refusal: &NamespaceRefusal, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    match refusal.step {
        SetupStep::Link | SetupStep::Process => {
            write!(out, "--containment pidns: {}", ResourceLimit::from(refusal.errno))
        }
        _ => write!(out, "--containment pidns: {refusal}, or use --containment guardian"),
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) struct NotStarted(#[from] SpawnError);

impl NotStarted {
    /// Returns the status of a shell that could not execute the command; none if the system refused first.
    pub(crate) fn command_status(&self) -> Option<u8> {
        match &self.0 {
            SpawnError::System(_) | SpawnError::Containment(_) => None,
            SpawnError::NotExecuted(refusal) if refusal.is_not_found() => Some(exit::NOT_FOUND),
            SpawnError::NotExecuted(_) => Some(exit::NOT_EXECUTABLE),
        }
    }
}

impl fmt::Display for NotStarted {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            SpawnError::System(cause) => limit_of(cause).fmt(out),
            SpawnError::Containment(refusal) => no_namespace(refusal, out),
            SpawnError::NotExecuted(refusal) => refusal.fmt(out),
        }
    }
}

pub(crate) fn conclude(refusal: &StageError) -> ExitCode {
    match refusal {
        StageError::NotAStage => {
            say!("this command is internal: start `vvm run` instead");
            return exit::MISUSE.into();
        }
        StageError::Abandoned => {}
        StageError::NoNull(_) => say!("{refusal}"),
        StageError::System(cause) => say!("{}", limit_of(cause)),
    }
    exit::SYSTEM.into()
}

pub(crate) fn say_event(event: &SupervisionEvent) {
    match event {
        SupervisionEvent::NoTimeForPreStop => say!("--pre-stop is skipped: the kill deadline is too near"),
        SupervisionEvent::PreStopFailed(Ok(ended)) => {
            say!("--pre-stop {ended}; the command gets its signal nevertheless")
        }
        SupervisionEvent::PreStopFailed(Err(HelperError::System(errno))) => {
            let limit = ResourceLimit::from(*errno);
            say!("--pre-stop could not be started: {limit}; the command gets its signal nevertheless")
        }
        SupervisionEvent::PreStopFailed(Err(refusal)) => {
            say!("--pre-stop {refusal}; the command gets its signal nevertheless")
        }
        event => say!("{event}"),
    }
}

fn limit_of(cause: &io::Error) -> ResourceLimit {
    cause.raw_os_error().map_or_else(|| io::Error::from(cause.kind()), io::Error::from_raw_os_error).into()
}

pub(crate) fn describe(last: &Supervised) -> String {
    let Some(ended) = last.ended else { return "the end of the command was not seen".into() };
    let killed = match last.killed {
        None => "",
        Some(KillReason::StopTimeout) => ": it did not stop within --stop-timeout",
        Some(KillReason::SecondRequest) => ": a second stop request killed it",
        Some(KillReason::Deadline) => ": it did not stop before the kill deadline",
    };
    format!("the command {ended}{killed}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn refused_namespace_names_the_option_and_the_way_out() {
        let of = |step, errno| NotContained(NamespaceRefusal { step, errno }.into()).to_string();
        for (step, errno) in [(SetupStep::Namespace, Errno::NOSPC), (SetupStep::Proc, Errno::PERM)] {
            let text = of(step, errno);
            assert!(text.starts_with("--containment pidns: "), "{text}");
            assert!(text.ends_with("or use --containment guardian"), "{text}");
        }
        let text = of(SetupStep::Link, Errno::MFILE);
        assert!(text.contains("Too many open files") && text.contains("ulimit -n"), "{text}");
    }

    #[test]
    fn stage_without_a_parent_stage_is_misuse_and_other_refusals_are_of_the_system() {
        let table = [
            (StageError::NotAStage, 64),
            (StageError::Abandoned, 71),
            (StageError::NoNull(Errno::NOENT.into()), 71),
            (StageError::System(Errno::MFILE.into()), 71),
        ];
        for (refusal, status) in table {
            assert_eq!(format!("{:?}", conclude(&refusal)), format!("{:?}", ExitCode::from(status)));
        }
    }
}
