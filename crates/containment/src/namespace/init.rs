//! Process 1 of the namespace: parent of the command, and of whatever it leaves behind.
//!
//! It passes signals down and the command's end up, reaps, and ends when no process is left or the supervisor is gone. When it ends,
//! however that came, the kernel kills everything in the namespace, and lets nothing more be started
//! (pid_namespaces(7)).

use super::{
    message::{FromInit, ToInit},
    refusal::{Refusal, Step},
};
use crate::{
    auxiliary::{self, Helper, HelperLines},
    child_handle::{ChildHandle, Group},
    launch::{self, StageError, TakenUp},
    link::{Heard, Link},
    processes::{Ended, Reap, Reaped, own_group, reap},
    shim,
    signals::Signals,
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    mount::{MountFlags, MountPropagationFlags, mount, mount_change},
    process::{Pid, Signal, getpid, kill_process_group, set_parent_process_death_signal},
    thread::{CapabilitySet, capabilities, clear_ambient_capability_set, set_capabilities},
};
use std::{
    ffi::OsString,
    os::{fd::OwnedFd, unix::process::CommandExt as _},
};

/// The name of the stage.
pub(crate) const STAGE: &str = "stage-init";

/// The exit status when there is no namespace: `EX_OSERR` of sysexits.h.
pub(crate) const REFUSED: u8 = 71;

/// The status of a helper that could not be started, as a shell reports it.
const NOT_STARTED: Ended = Ended::Exited(126);

/// Process 1, from its start to the end of the namespace.
pub(crate) fn main(arguments: &[OsString]) -> Result<u8, StageError> {
    // Anywhere else it would mount over the `/proc` of other processes.
    if getpid() != Pid::INIT {
        return Err(StageError::NotAStage);
    }
    let TakenUp { link, first, descriptors } = launch::take_up()?;
    let (lines, command) = HelperLines::read(arguments).ok_or(StageError::NotAStage)?;
    match serve(&lines, command, &link, first, descriptors) {
        Ok(()) => Ok(0),
        Err(refusal) => {
            // A supervisor that is gone needs no answer.
            let _ = link.say(&FromInit::Refused(refusal));
            Ok(REFUSED)
        }
    }
}

fn serve(
    lines: &HelperLines,
    command: &[OsString],
    link: &Link<FromInit, ToInit>,
    first: ToInit,
    descriptors: Vec<OwnedFd>,
) -> Result<(), Refusal> {
    furnish()?;
    let ToInit::Begin { shares_group } = first else {
        let _ = link.say(&FromInit::Ready);
        return Ok(());
    };
    let at = |step| move |cause: std::io::Error| Refusal::of_system(step, &cause);
    // When the process outside ends, the kernel ends this one, and everything here. It does so when the supervisor ends.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| Refusal { step: Step::Link, errno })?;
    let Some(shim) = descriptors.into_iter().next() else { return Ok(()) };
    // Only now that both of us are tied: a supervisor that had ended before would have taken no process with it.
    let mut early = Vec::new();
    while let Some(heard) = link.hear() {
        match heard {
            Heard::Message(message, descriptors) => early.push((message, descriptors)),
            Heard::End => return Ok(()),
        }
    }
    let signals = Signals::of_children().map_err(at(Step::Link))?;

    let mut command = launch::command(shim::STAGE, launch::behind_dashes(command), shim);
    // The group that it inherits from us is the terminal's.
    let group = if shares_group { Group::Terminal(own_group()) } else { Group::Own };
    if group == Group::Own {
        command.process_group(0);
    }
    let pid = launch::start(command).map_err(at(Step::Process))?;
    let mut household =
        Household { link, lines, at_work: Some(ChildHandle { pid, group }), helpers: Vec::new() };
    // What came before there was a command is for the command, too, which may never come to be by it.
    early.into_iter().for_each(|(message, descriptors)| household.obey(message, descriptors));
    household.watch(signals);
    Ok(())
}

/// A `/proc` that shows this namespace, for the processes inside of it.
fn furnish() -> Result<(), Refusal> {
    let at_proc = |errno| Refusal { step: Step::Proc, errno };
    // What we mount stays here; what the machine mounts and unmounts later still arrives.
    let downstream = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", downstream).map_err(at_proc)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).map_err(at_proc)?;
    // A privilege that was for this alone, and not for the command.
    let give_up = || {
        clear_ambient_capability_set()?;
        let mut sets = capabilities(None)?;
        sets.inheritable -= CapabilitySet::SYS_ADMIN;
        set_capabilities(None, sets)
    };
    give_up().map_err(|errno| Refusal { step: Step::Mapping, errno })
}

/// What is in the namespace on behalf of the supervisor.
struct Household<'init> {
    link: &'init Link<FromInit, ToInit>,
    lines: &'init HelperLines,
    /// The command, until it is reaped.
    at_work: Option<ChildHandle>,
    /// Those beside it, until they are.
    helpers: Vec<(Helper, Pid)>,
}

impl Household<'_> {
    /// Until no process is left, or the supervisor is gone.
    fn watch(mut self, mut signals: Signals) {
        loop {
            // Reaping and listening happen in any case.
            let _ = signals.pending();
            loop {
                match reap() {
                    Reap::One(reaped) => self.note(reaped),
                    Reap::NoneYet => break,
                    Reap::Childless => return,
                }
            }
            loop {
                match self.link.hear() {
                    Some(Heard::Message(message, descriptors)) => self.obey(message, descriptors),
                    Some(Heard::End) => return,
                    None => break,
                }
            }
            let mut fds = [PollFd::new(&signals, PollFlags::IN), PollFd::new(self.link, PollFlags::IN)];
            // Interrupted: looking at everything is right after that, too.
            let _ = poll(&mut fds, None);
        }
    }

    fn note(&mut self, reaped: Reaped) {
        if self.at_work.take_if(|child| child.pid == reaped.pid).is_some() {
            // A supervisor that is gone will be heard of.
            let _ = self.link.say(&FromInit::Ended(reaped.ended));
        }
        if let Some(place) = self.helpers.iter().position(|(_, pid)| *pid == reaped.pid) {
            let (helper, _) = self.helpers.swap_remove(place);
            let _ = self.link.say(&FromInit::HelperEnded(helper, reaped.ended));
        }
    }

    fn obey(&mut self, message: ToInit, descriptors: Vec<OwnedFd>) {
        match message {
            // Until it is reaped, which only we do, its number names no other process.
            ToInit::Signal(passed) => {
                if let Some(Err(errno)) = self.at_work.as_ref().map(|child| child.pass_on(passed)) {
                    let _ = self.link.say(&FromInit::NotPassedOn(passed.signal, errno));
                }
            }
            ToInit::Helper(helper) => match self.start(helper, descriptors) {
                Some(pid) => self.helpers.push((helper, pid)),
                None => {
                    let _ = self.link.say(&FromInit::HelperEnded(helper, NOT_STARTED));
                }
            },
            ToInit::KillHelper(wanted) => {
                for (_, pid) in self.helpers.iter().filter(|(helper, _)| *helper == wanted) {
                    // It has ended already, and is about to be reaped.
                    let _ = kill_process_group(*pid, Signal::KILL);
                }
            }
            ToInit::Begin { .. } | ToInit::TryOut => {}
        }
    }

    fn start(&self, helper: Helper, descriptors: Vec<OwnedFd>) -> Option<Pid> {
        let shim = descriptors.into_iter().next()?;
        launch::start(auxiliary::command(self.lines.of(helper)?, shim).ok()?).ok()
    }
}
