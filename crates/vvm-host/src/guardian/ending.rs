//! From how the host ended to how `vvm` ends.

use super::watch::End;
use crate::{
    announce::say,
    cli::{args::RunArgs, exit},
    link::message::Farewell,
    processes::Ended,
    report::{Outcome, Report},
};
use ielections::Holder;
use std::process::ExitCode;

/// Says and writes what the host no longer could, and ends as it ended.
pub(super) fn end(run: &RunArgs, holder: &Holder, end: End) -> ExitCode {
    match end.told.farewell {
        Some(Farewell::Exit(status)) => status.into(),
        Some(Farewell::DieOf(signal)) => exit::die_of(signal),
        None => {
            let (outcome, status) = without_farewell(&end);
            let reason = format!("the host {}", end.host);
            say!("{}: {outcome}: {reason}", run.name);
            if let Some(path) = &run.result_file {
                let mut report = Report::new(outcome, &run.name, holder)
                    .contained(end.level)
                    .because(reason)
                    .ending(Farewell::Exit(status));
                if let Some(leading) = end.told.leading {
                    report = report.leading(leading.slot, leading.epoch, leading.incarnation);
                }
                if let Some(deadline) = end.told.deadline {
                    report = report.with_deadline(deadline, end.reaped_at);
                }
                report.write(path).unwrap_or_else(|refusal| say!("{refusal}"));
            }
            status.into()
        }
    }
}

/// The host never said how to end: it was ended.
fn without_farewell(end: &End) -> (Outcome, u8) {
    match end.host {
        Ended::Exited(exit::DEADMAN) => (Outcome::Deadline, exit::DEADMAN),
        Ended::Signalled(number) => {
            let outcome = if end.deadline_passed { Outcome::Deadline } else { Outcome::HostDied };
            (outcome, exit::by_signal(number))
        }
        // It could not begin, and has said what it lacked.
        Ended::Exited(exit::SYSTEM) => (Outcome::SystemRefused, exit::SYSTEM),
        Ended::Exited(_) => (Outcome::HostDied, exit::SYSTEM),
    }
}
