//! Process 1 of the namespace: parent of the worker, and of whatever it leaves behind.
//!
//! It passes signals down and the worker's end up, reaps, and ends when nobody is left or the host is gone. When it ends,
//! however that came, the kernel kills everything in the namespace, and lets nothing more be started
//! (pid_namespaces(7)).

use super::refusal::{Refusal, Step};
use crate::{
    cli::{args::WorkerArgs, exit},
    link::{
        Heard, Link,
        message::namespace::{FromInit, ToInit},
    },
    processes::{Ended, Reap, Reaped, own_group, reap},
    signals::Signals,
    stage::{self, TakeUpError, TakenUp},
    worker::{
        aide::{self, Aide, AideLines},
        reins::{Group, Reins},
    },
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    mount::{MountFlags, MountPropagationFlags, mount, mount_change},
    process::{Pid, Signal, getpid, kill_process_group, set_parent_process_death_signal},
    thread::{CapabilitySet, capabilities, clear_ambient_capability_set, set_capabilities},
};
use std::{
    os::{fd::OwnedFd, unix::process::CommandExt as _},
    process::ExitCode,
};

/// Process 1, from its start to the end of the namespace.
pub(crate) fn main(worker: &WorkerArgs) -> ExitCode {
    // Anywhere else it would mount over the `/proc` of somebody.
    let taken_up = if getpid() == Pid::INIT { stage::take_up() } else { Err(TakeUpError::NotAStage) };
    let TakenUp { link, first, descriptors } = match taken_up {
        Ok(taken_up) => taken_up,
        Err(refusal) => return refusal.conclude(),
    };
    match serve(worker, &link, first, descriptors) {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            // A host that is gone needs no answer.
            let _ = link.say(&FromInit::Refused(refusal));
            exit::SYSTEM.into()
        }
    }
}

fn serve(
    worker: &WorkerArgs,
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
    // When the process outside ends, the kernel ends this one, and everything here. It does so when the host ends.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| Refusal { step: Step::Link, errno })?;
    let Some(shim) = descriptors.into_iter().next() else { return Ok(()) };
    // Only now that both of us are tied: a host that had ended before would have taken nobody with it.
    let mut early = Vec::new();
    while let Some(heard) = link.hear() {
        match heard {
            Heard::Message(message, descriptors) => early.push((message, descriptors)),
            Heard::End => return Ok(()),
        }
    }
    let signals = Signals::of_children().map_err(at(Step::Link))?;

    let mut command = stage::command(stage::WORKER, stage::behind_dashes(&worker.command), shim);
    // The group that it inherits from us is the terminal's.
    let group = if shares_group { Group::Terminal(own_group()) } else { Group::Own };
    if group == Group::Own {
        command.process_group(0);
    }
    let pid = stage::start(command).map_err(at(Step::Process))?;
    let mut household = Household {
        link,
        lines: &worker.aides,
        at_work: Some(Reins { worker: pid, group }),
        aides: Vec::new(),
    };
    // What came before there was anybody to have it is for the command, too, which may never come to be by it.
    early.into_iter().for_each(|(message, descriptors)| household.obey(message, descriptors));
    household.watch(signals);
    Ok(())
}

/// A `/proc` that shows this namespace, for whoever looks from inside of it.
fn furnish() -> Result<(), Refusal> {
    let at_proc = |errno| Refusal { step: Step::Proc, errno };
    // What we mount stays here; what the machine mounts and unmounts later still arrives.
    let downstream = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", downstream).map_err(at_proc)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).map_err(at_proc)?;
    // A privilege that was for this alone, and not for the worker.
    let give_up = || {
        clear_ambient_capability_set()?;
        let mut sets = capabilities(None)?;
        sets.inheritable -= CapabilitySet::SYS_ADMIN;
        set_capabilities(None, sets)
    };
    give_up().map_err(|errno| Refusal { step: Step::Mapping, errno })
}

/// Who is in the namespace on behalf of the host.
struct Household<'init> {
    link: &'init Link<FromInit, ToInit>,
    lines: &'init AideLines,
    /// The worker, until it is reaped.
    at_work: Option<Reins>,
    /// Those beside it, until they are.
    aides: Vec<(Aide, Pid)>,
}

impl Household<'_> {
    /// Until nobody is left, or nobody listens.
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
        if self.at_work.take_if(|reins| reins.worker == reaped.pid).is_some() {
            // A host that is gone will be heard of.
            let _ = self.link.say(&FromInit::Ended(reaped.ended));
        }
        if let Some(place) = self.aides.iter().position(|(_, pid)| *pid == reaped.pid) {
            let (aide, _) = self.aides.swap_remove(place);
            let _ = self.link.say(&FromInit::AideEnded(aide, reaped.ended));
        }
    }

    fn obey(&mut self, message: ToInit, descriptors: Vec<OwnedFd>) {
        match message {
            // Until it is reaped, which only we do, its number means nobody else.
            ToInit::Signal(passed) => {
                if let Some(reins) = &self.at_work {
                    reins.pass_on(passed);
                }
            }
            ToInit::Aide(aide) => match self.start(aide, descriptors) {
                Some(pid) => self.aides.push((aide, pid)),
                None => {
                    let _ = self.link.say(&FromInit::AideEnded(aide, Ended::Exited(exit::NOT_EXECUTABLE)));
                }
            },
            ToInit::KillAide(wanted) => {
                for (_, pid) in self.aides.iter().filter(|(aide, _)| *aide == wanted) {
                    // It has ended already, and is about to be reaped.
                    let _ = kill_process_group(*pid, Signal::KILL);
                }
            }
            ToInit::Begin { .. } | ToInit::TryOut => {}
        }
    }

    fn start(&self, aide: Aide, descriptors: Vec<OwnedFd>) -> Option<Pid> {
        let shim = descriptors.into_iter().next()?;
        stage::start(aide::command(self.lines.of(aide)?, shim).ok()?).ok()
    }
}
