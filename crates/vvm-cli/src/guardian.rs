//! The guardian of `vvm run`: the process that the user starts. It contains the host
//! (`vvm_containment::guard`), reports what a dead host can't, and ends as the host asks.

use crate::{
    announce::{self, is_json, say, write_event},
    args::{STAGE_HOST, STAGE_RELEASE},
    contained::{NotContained, say_event},
    exit,
    inspection::InspectionError,
    leadership::{Activity, ExitWish, HostReport, HostState, RecordId, ToGuardian},
    once::OnceArgs,
    release::Release,
    result_file::{self, Outcome, Report},
    run::RunArgs,
    runtime::ends_a_candidate,
    service_manager::{self, ServiceManager},
    settings::{BEGAN, HANDED_ON, ResolvedArguments},
    turn::{QueueOutcome, wait_for_turn},
};
use ielections::Holder;
use rustix::process::getpid;
use std::{iter, process::ExitCode};
use vvm_clock::{Instant, SystemClock};
use vvm_containment::{Containment, GuardEnded, GuardReport, ProcessEnd, guard, signal_name, signal_of};

pub(crate) fn main(args: &RunArgs, once: Option<&OnceArgs>, settled: &ResolvedArguments) -> ExitCode {
    announce::start_log(args.candidate.log_format);
    if once.is_some_and(|once| once.quiet) {
        announce::quieten();
    }
    let (farewell, is_of_vvm) =
        run(args, once, settled).unwrap_or_else(|refusal| (ExitWish::Exit(refusal.conclude()), true));
    if is_of_vvm && farewell == ExitWish::Exit(exit::MISUSE) {
        settled.origins.all().into_iter().for_each(|origins| say!("{origins}"));
    }
    match farewell {
        ExitWish::Exit(status) => status.into(),
        ExitWish::DieOf(signal) => exit::die_of(signal),
    }
}

/// Returns how `vvm` is to end, and whether the status is its own and not the command's.
fn run(
    args: &RunArgs,
    once: Option<&OnceArgs>,
    settled: &ResolvedArguments,
) -> Result<(ExitWish, bool), InspectionError> {
    let began = SystemClock::read();
    let misuse = |why: String| InspectionError::new(exit::MISUSE, why);
    let holder = args.candidate.own_holder().map_err(|refusal| misuse(format!("--holder: {refusal}")))?;
    if let Some(path) = &args.result_file {
        result_file::check(path, &vvm_storage::url::files(&args.candidate.storage))
            .map_err(|refusal| misuse(format!("--result-file: {refusal}")))?;
    }
    contain(args, once, settled, &holder, began).or_else(|refusal| {
        let (status, reason) = (refusal.conclude(), Some(refusal.to_string()));
        let farewell = ExitWish::Exit(status);
        let outcome = if status == exit::MISUSE { Outcome::Misuse } else { Outcome::SystemRefused };
        let of = (args.candidate.name.as_str(), &holder);
        let report = Report::new((outcome, farewell, reason), (Some(getpid()), None), of);
        conclude(args, &report, "error", None);
        Ok((farewell, true))
    })
}

fn contain(
    args: &RunArgs,
    once: Option<&OnceArgs>,
    settled: &ResolvedArguments,
    holder: &Holder,
    began: Instant,
) -> Result<(ExitWish, bool), InspectionError> {
    let mut manager = ServiceManager::of_environment();
    let mut told = HostReport::default();
    let on_wait = || {
        let waits = HostState { activity: Activity::Waiting, leading: None };
        manager.iter_mut().for_each(|manager| manager.tell(waits));
    };
    // The admission ends with this function.
    let waited = match wait_for_turn(args, once, holder, began, on_wait)? {
        QueueOutcome::Candidate(admission) => Ok(admission),
        QueueOutcome::Stopped(signal) => {
            let reason = format!("by {}", signal_name(signal.as_raw()));
            Err((Outcome::StoppedWhileWaiting, ExitWish::DieOf(signal), reason))
        }
        QueueOutcome::TimedOut => {
            let reason = "not acquired in time: other starts of this line on this machine come first";
            Err((Outcome::NotAcquired, ExitWish::Exit(exit::NOT_ACQUIRED), reason.to_owned()))
        }
    };
    let _admission = match waited {
        Ok(admission) => admission,
        Err((outcome, farewell, reason)) => {
            let line = format!("{outcome}: {reason}");
            let of = (args.candidate.name.as_str(), holder);
            let report = Report::new((outcome, farewell, Some(reason)), (Some(getpid()), None), of);
            conclude(args, &report, "info", Some(line));
            return Ok((farewell, false));
        }
    };
    // Before a host starts: it must not win a leadership without containment for its command.
    let containment = Containment::establish(args.containment.into())
        .map_err(|refusal| InspectionError::new(exit::SYSTEM, NotContained(refusal)))?;
    announce::set_containment(containment.level());
    let environment = [
        (service_manager::VARIABLE.into(), None),
        (HANDED_ON.into(), Some(settled.handed_on())),
        (BEGAN.into(), Some(began.as_nanos().to_string().into())),
    ];
    let of_stage = |stage: &str| {
        iter::once(stage.into()).chain(settled.stage_arguments(&args.candidate, holder)).collect()
    };
    let arguments = of_stage(STAGE_HOST);
    let end = guard(arguments, &environment, containment, |heard| match heard {
        GuardReport::Event(event) => say_event(&event),
        GuardReport::Note(note) => match ToGuardian::read(note) {
            Some(ToGuardian::State(state)) => manager.iter_mut().for_each(|manager| manager.tell(state)),
            message => message.into_iter().for_each(|message| told.hear(message)),
        },
    })?;
    if let Some(release) = Release::new(&told, &end, args) {
        release.run(of_stage(STAGE_RELEASE), settled.handed_on());
    }
    let farewell = told.farewell.unwrap_or_else(|| LeadershipEnd::new(told, &end).report(args, holder, &end));
    Ok((farewell, told.leading.is_none()))
}

fn conclude(args: &RunArgs, report: &Report, level: &str, line: Option<String>) {
    if is_json() {
        write_event(level, "concluded", report.members());
    } else if let Some(line) = line {
        say!("{}: {line}", args.candidate.name);
    }
    report.write(args.result_file.as_deref());
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct LeadershipEnd {
    outcome: Outcome,
    farewell: ExitWish,
    leading: Option<RecordId>,
}

impl LeadershipEnd {
    fn new(told: HostReport, end: &GuardEnded) -> Self {
        let (outcome, farewell) = match end.supervisor {
            // It hangs in the kernel: it was left behind.
            None => (Outcome::HostDied, ExitWish::Exit(exit::SYSTEM)),
            Some(ProcessEnd::Exited(exit::DEADMAN)) => (Outcome::Deadline, ExitWish::Exit(exit::DEADMAN)),
            Some(ProcessEnd::Signalled(number)) => match signal_of(number) {
                // Ctrl-C in the first moments, while the host is still in our process group.
                Some(signal) if told.leading.is_none() && ends_a_candidate(signal) => {
                    (Outcome::StoppedWhileWaiting, ExitWish::DieOf(signal))
                }
                _ => {
                    let outcome = if end.deadline_passed { Outcome::Deadline } else { Outcome::HostDied };
                    (outcome, ExitWish::Exit(exit::by_signal(number)))
                }
            },
            // The host could not start, and has printed why.
            Some(ProcessEnd::Exited(exit::SYSTEM)) => (Outcome::SystemRefused, ExitWish::Exit(exit::SYSTEM)),
            Some(ProcessEnd::Exited(_)) => (Outcome::HostDied, ExitWish::Exit(exit::SYSTEM)),
        };
        Self { outcome, farewell, leading: told.leading }
    }

    fn report(self, args: &RunArgs, holder: &Holder, end: &GuardEnded) -> ExitWish {
        let ended = end.supervisor.map_or("hangs in the kernel".to_owned(), |ended| ended.to_string());
        let reason = format!("the host process {ended}");
        let line = match self.outcome {
            Outcome::SystemRefused => None,
            Outcome::HostDied => Some(format!("{}: it {ended}", self.outcome)),
            outcome => Some(format!("{outcome}: {reason}")),
        };
        let of = (args.candidate.name.as_str(), holder);
        let ended = (self.outcome, self.farewell, Some(reason));
        let mut report = Report::new(ended, (Some(getpid()), Some(end.level)), of);
        if let Some(leading) = self.leading {
            report.leading(leading);
        }
        if let Some(deadline) = end.deadline {
            report.with_deadline(deadline, end.reaped_at);
        }
        conclude(args, &report, "error", line);
        self.farewell
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ielections::{Epoch, Incarnation};
    use rustix::process::Signal;
    use vvm_containment::Level;

    #[test]
    fn host_that_is_signalled_in_its_first_moments_was_asked_to_stop() {
        let leading = RecordId {
            slot: 1,
            epoch: Epoch::new(1).unwrap(),
            incarnation: Incarnation::from_bytes([1; 16]),
        };
        let of = |ended, leading| {
            let end = GuardEnded {
                deadline: None,
                last_deadline: None,
                deadline_passed: false,
                supervisor: Some(ended),
                level: Level::Guardian,
                reaped_at: Instant::ORIGIN,
                proven: true,
            };
            let told = HostReport { leading, ..HostReport::default() };
            let LeadershipEnd { outcome, farewell, .. } = LeadershipEnd::new(told, &end);
            (outcome, farewell)
        };
        let ending = |signal: Signal| of(ProcessEnd::Signalled(signal.as_raw()), None);
        for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
            assert_eq!(ending(signal), (Outcome::StoppedWhileWaiting, ExitWish::DieOf(signal)));
            let died = (Outcome::HostDied, ExitWish::Exit(exit::by_signal(signal.as_raw())));
            assert_eq!(of(ProcessEnd::Signalled(signal.as_raw()), Some(leading)), died);
        }
        let refused = (Outcome::SystemRefused, ExitWish::Exit(exit::SYSTEM));
        assert_eq!(of(ProcessEnd::Exited(exit::SYSTEM), None), refused);
        assert_eq!(ending(Signal::KILL), (Outcome::HostDied, ExitWish::Exit(exit::KILLED)));
    }
}
