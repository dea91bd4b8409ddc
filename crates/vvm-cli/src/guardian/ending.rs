//! From how the host ended to how `vvm` ends.

use super::Told;
use crate::{
    announce::{say, say_to_people, tell_programs},
    cli::{args::RunArgs, exit, settings::Origins},
    notes::Farewell,
    report::{Outcome, Report},
    signals::ends_a_candidate,
};
use ielections::Holder;
use rustix::process::Signal;
use serde_json::{Map, Value};
use std::process::ExitCode;
use vvm_containment::{Ended, GuardEnded};

/// Says and writes what the host no longer could, and ends as it ended.
pub(super) fn end(
    run: &RunArgs,
    origins: &Origins,
    holder: &Holder,
    told: &Told,
    end: &GuardEnded,
) -> ExitCode {
    match told.farewell {
        Some(farewell) => {
            // Nothing has run, so that it is not a command's own status.
            if farewell == Farewell::Exit(exit::MISUSE) && told.leading.is_none() {
                origins.all().into_iter().for_each(|origins| say!("{origins}"));
            }
            part(farewell)
        }
        None => {
            let (outcome, farewell) = without_farewell(told, end);
            let reason = match end.supervisor {
                Some(ended) => format!("the host process {ended}"),
                None => "the host process hangs in the kernel".to_owned(),
            };
            say_to_people!("{}: {outcome}: {reason}", run.name);
            tell_programs("error", "concluded", concluded(run, holder, told, outcome, &reason));
            if let Some(path) = &run.result_file {
                let mut report = Report::new(outcome, &run.name, holder)
                    .contained(end.level)
                    .because(reason)
                    .ending(farewell);
                if let Some(leading) = told.leading {
                    report = report.leading(leading.slot, leading.epoch, leading.incarnation);
                }
                if let Some(deadline) = end.deadline {
                    report = report.with_deadline(deadline, end.reaped_at);
                }
                report.write(path).unwrap_or_else(|refusal| say!("{refusal}"));
            }
            part(farewell)
        }
    }
}

/// What the host would have told of its end.
fn concluded(
    run: &RunArgs,
    holder: &Holder,
    told: &Told,
    outcome: Outcome,
    reason: &str,
) -> Map<String, Value> {
    let mut members = Map::from_iter([
        ("name".into(), run.name.as_str().into()),
        ("holder".into(), holder.as_str().into()),
        ("outcome".into(), outcome.word().into()),
        ("reason".into(), reason.into()),
        ("by".into(), "guardian".into()),
    ]);
    if let Some(leading) = told.leading {
        members.insert("slot".into(), leading.slot.into());
        members.insert("epoch".into(), leading.epoch.get().into());
        members.insert("incarnation".into(), leading.incarnation.to_string().into());
    }
    members
}

fn part(farewell: Farewell) -> ExitCode {
    match farewell {
        Farewell::Exit(status) => status.into(),
        Farewell::DieOf(signal) => exit::die_of(signal),
    }
}

/// The host never said how to end: it was ended.
fn without_farewell(told: &Told, end: &GuardEnded) -> (Outcome, Farewell) {
    let Some(ended) = end.supervisor else { return (Outcome::HostDied, Farewell::Exit(exit::SYSTEM)) };
    match ended {
        Ended::Exited(exit::DEADMAN) => (Outcome::Deadline, Farewell::Exit(exit::DEADMAN)),
        Ended::Signalled(number) => {
            match Signal::from_named_raw(number).filter(|signal| asks_to_end(told, *signal)) {
                Some(signal) => (Outcome::StoppedWhileWaiting, Farewell::DieOf(signal)),
                None => {
                    let outcome = if end.deadline_passed { Outcome::Deadline } else { Outcome::HostDied };
                    (outcome, Farewell::Exit(exit::by_signal(number)))
                }
            }
        }
        // It could not begin, and has said what it lacked.
        Ended::Exited(exit::SYSTEM) => (Outcome::SystemRefused, Farewell::Exit(exit::SYSTEM)),
        Ended::Exited(_) => (Outcome::HostDied, Farewell::Exit(exit::SYSTEM)),
    }
}

/// A host that was asked to end before it could listen: a Ctrl-C in its first moments, while it is still in
/// our group.
fn asks_to_end(told: &Told, signal: Signal) -> bool {
    told.leading.is_none() && ends_a_candidate(signal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vvm_clock::Instant;
    use vvm_containment::Level;

    #[test]
    fn a_host_that_is_signalled_in_its_first_moments_was_asked_to_end() {
        let told = Told::default();
        let end = |number| GuardEnded {
            deadline: None,
            deadline_passed: false,
            supervisor: Some(Ended::Signalled(number)),
            level: Level::Guardian,
            reaped_at: Instant::ORIGIN,
            deposits: Vec::new(),
            proven: true,
        };
        for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
            let (outcome, farewell) = without_farewell(&told, &end(signal.as_raw()));
            assert_eq!((outcome, farewell), (Outcome::StoppedWhileWaiting, Farewell::DieOf(signal)));
        }
        let killed = without_farewell(&told, &end(Signal::KILL.as_raw()));
        assert_eq!(killed, (Outcome::HostDied, Farewell::Exit(exit::KILLED)));
    }
}
