//! [`Ending`]: how `vvm` ends if the host died without saying how.

use crate::{
    announce::{is_json, say, say_text, write_event},
    args::RunArgs,
    exit,
    notes::{Farewell, Leading},
    report::{Outcome, Report},
    signals::ends_a_candidate,
};
use ielections::Holder;
use rustix::process::Signal;
use serde_json::{Map, Value};
use vvm_containment::{Ended, GuardEnded};

/// The last messages of the host.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Told {
    /// The last claim that may have been applied and not been released.
    pub(super) claim: Option<Leading>,
    pub(super) leading: Option<Leading>,
    /// Whether the host had no proof that the command has ended.
    pub(super) unproven: bool,
    pub(super) farewell: Option<Farewell>,
}

/// How `vvm` ends after a host that sent no farewell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ending {
    outcome: Outcome,
    farewell: Farewell,
    leading: Option<Leading>,
}

impl Ending {
    pub(super) fn of(told: Told, end: &GuardEnded) -> Self {
        let (outcome, farewell) = match end.supervisor {
            // It hangs in the kernel: it was left behind.
            None => (Outcome::HostDied, Farewell::Exit(exit::SYSTEM)),
            Some(Ended::Exited(exit::DEADMAN)) => (Outcome::Deadline, Farewell::Exit(exit::DEADMAN)),
            Some(Ended::Signalled(number)) => match Signal::from_named_raw(number) {
                // Ctrl-C in the first moments, while the host is still in our process group.
                Some(signal) if told.leading.is_none() && ends_a_candidate(signal) => {
                    (Outcome::StoppedWhileWaiting, Farewell::DieOf(signal))
                }
                _ => {
                    let outcome = if end.deadline_passed { Outcome::Deadline } else { Outcome::HostDied };
                    (outcome, Farewell::Exit(exit::by_signal(number)))
                }
            },
            // The host could not start, and has printed why.
            Some(Ended::Exited(exit::SYSTEM)) => (Outcome::SystemRefused, Farewell::Exit(exit::SYSTEM)),
            Some(Ended::Exited(_)) => (Outcome::HostDied, Farewell::Exit(exit::SYSTEM)),
        };
        Self { outcome, farewell, leading: told.leading }
    }

    /// Prints it and writes the result file. Returns how `vvm` is to end.
    pub(super) fn report(self, args: &RunArgs, holder: &Holder, end: &GuardEnded) -> Farewell {
        let name = &args.candidate.name;
        let ended = end.supervisor.map_or("hangs in the kernel".to_owned(), |ended| ended.to_string());
        let reason = format!("the host process {ended}");
        match self.outcome {
            // The host has printed the cause.
            Outcome::SystemRefused => {}
            Outcome::HostDied => say_text!("{name}: {}: it {ended}", self.outcome),
            outcome => say_text!("{name}: {outcome}: {reason}"),
        }
        if is_json() {
            write_event("error", "concluded", self.members(name, holder, &reason));
        }
        if let Some(path) = &args.result_file {
            let mut report = Report::new(self.outcome, name, holder);
            report.contained(end.level);
            report.reason = Some(reason);
            report.ending(self.farewell);
            if let Some(leading) = self.leading {
                report.leading(leading.slot, leading.epoch, leading.incarnation);
            }
            if let Some(deadline) = end.deadline {
                report.with_deadline(deadline, end.reaped_at);
            }
            report.write(path).unwrap_or_else(|refusal| say!("{refusal}"));
        }
        self.farewell
    }

    /// Returns the fields of the event, as the host would have sent it.
    fn members(self, name: &str, holder: &Holder, reason: &str) -> Map<String, Value> {
        let mut members = Map::from_iter([
            ("name".into(), name.into()),
            ("holder".into(), holder.as_str().into()),
            ("outcome".into(), self.outcome.word().into()),
            ("reason".into(), reason.into()),
            ("by".into(), "guardian".into()),
        ]);
        if let Some(leading) = self.leading {
            members.insert("slot".into(), leading.slot.into());
            members.insert("epoch".into(), leading.epoch.get().into());
            members.insert("incarnation".into(), leading.incarnation.to_string().into());
        }
        members
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vvm_clock::Instant;
    use vvm_containment::Level;

    #[test]
    fn host_that_is_signalled_in_its_first_moments_was_asked_to_stop() {
        let ending = |signal: Signal| {
            let end = GuardEnded {
                deadline: None,
                deadline_passed: false,
                supervisor: Some(Ended::Signalled(signal.as_raw())),
                level: Level::Guardian,
                reaped_at: Instant::ORIGIN,
                proven: true,
            };
            let Ending { outcome, farewell, .. } = Ending::of(Told::default(), &end);
            (outcome, farewell)
        };
        for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
            assert_eq!(ending(signal), (Outcome::StoppedWhileWaiting, Farewell::DieOf(signal)));
        }
        assert_eq!(ending(Signal::KILL), (Outcome::HostDied, Farewell::Exit(exit::KILLED)));
    }
}
