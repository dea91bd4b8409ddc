//! How `vvm` words what `vvm_containment` refuses and reports: with the options that decide about it, and the
//! statuses that it ends with.

use crate::{announce::say, cli::exit};
use std::{fmt, io, process::ExitCode};
use vvm_containment::{Event, NamespaceRefusal, Refusal, SpawnError, StageError, Step};
use vvm_host::operate::ResourceLimit;

/// The level of `--containment` is not to be had here.
#[derive(Debug, thiserror::Error)]
pub(crate) struct NotContained(#[from] pub(crate) Refusal);

impl fmt::Display for NotContained {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Refusal::ProcFs(refusal) => refusal.fmt(out),
            Refusal::ControlGroup(refusal) => {
                write!(out, "--containment cgroup: {refusal}, or use --containment guardian")
            }
            Refusal::Namespace(refusal) => no_namespace(refusal, out),
        }
    }
}

fn no_namespace(refusal: &NamespaceRefusal, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    match refusal.step {
        Step::Link | Step::Process => {
            write!(out, "--containment pidns: {}", ResourceLimit::from(refusal.errno))
        }
        _ => write!(out, "--containment pidns: {refusal}, or use --containment guardian"),
    }
}

/// The command was not started.
#[derive(Debug, thiserror::Error)]
pub(crate) struct NotStarted(#[from] SpawnError);

impl NotStarted {
    /// The status of a shell that could not execute a command; none when it did not come to that.
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

/// Says why a stage did not begin, and returns its exit status. Silent when the stage before is gone: it
/// would have read it.
pub(crate) fn conclude(refusal: &StageError) -> ExitCode {
    match refusal {
        StageError::NotAStage => {
            say!("this command is for vvm's own use: start `vvm run` instead");
            return exit::MISUSE.into();
        }
        StageError::Abandoned => {}
        StageError::NoNull(_) => say!("{refusal}"),
        StageError::System(cause) => say!("{}", limit_of(cause)),
    }
    exit::SYSTEM.into()
}

/// Says what a guardian or a supervision reports.
pub(crate) fn say_event(event: &Event) {
    match event {
        Event::NoTimeForPreStop => say!("no time is left for --pre-stop"),
        Event::PreStopFailed(Ok(ended)) => {
            say!("--pre-stop {ended}; the command is told to stop nevertheless")
        }
        Event::PreStopFailed(Err(refusal)) => {
            say!("--pre-stop {refusal}; the command is told to stop nevertheless")
        }
        event => say!("{event}"),
    }
}

/// Returns the limit behind an error that is kept.
fn limit_of(cause: &io::Error) -> ResourceLimit {
    cause.raw_os_error().map_or_else(|| io::Error::from(cause.kind()), io::Error::from_raw_os_error).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn a_refused_namespace_names_the_option_and_the_way_out() {
        let of = |step, errno| NotContained(NamespaceRefusal { step, errno }.into()).to_string();
        for (step, errno) in [(Step::Namespace, Errno::NOSPC), (Step::Proc, Errno::PERM)] {
            let text = of(step, errno);
            assert!(text.starts_with("--containment pidns: "), "{text}");
            assert!(text.ends_with("or use --containment guardian"), "{text}");
        }
        let text = of(Step::Link, Errno::MFILE);
        assert!(text.contains("Too many open files") && text.contains("ulimit -n"), "{text}");
    }

    #[test]
    fn a_stage_without_a_stage_before_it_is_a_misuse_and_every_other_refusal_the_systems() {
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
