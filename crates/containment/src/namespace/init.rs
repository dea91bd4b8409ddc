//! Process 1 of the namespace: a keeper of everything in it. When it ends, the kernel kills everything in the
//! namespace, and no process can be started there (pid_namespaces(7)).

use crate::{
    auxiliary::HelperLines,
    keeper::{
        self, KeeperTask, Scope,
        message::{FromKeeper, ToKeeper},
    },
    launch::{self, Accepted, StageError},
    link::Link,
    namespace_refusal::{Refusal, Step},
    signals::Signals,
};
use rustix::{
    mount::{MountFlags, MountPropagationFlags, mount, mount_change},
    process::{Pid, Signal, getpid, set_parent_process_death_signal},
    thread::{CapabilitySet, capabilities, clear_ambient_capability_set, set_capabilities},
};
use std::{ffi::OsString, os::fd::OwnedFd};

/// The name of the stage.
pub(crate) const STAGE: &str = "stage-init";

/// The exit status without a namespace: `EX_OSERR` of sysexits.h.
pub(crate) const REFUSED: u8 = 71;

/// Runs process 1 until the end of the namespace.
pub(crate) fn main(arguments: &[OsString]) -> Result<u8, StageError> {
    // Anywhere else it would mount over the `/proc` of other processes.
    if getpid() != Pid::INIT {
        return Err(StageError::NotAStage);
    }
    let Accepted { link, first, descriptors } = launch::accept()?;
    let command = launch::command_of(arguments).ok_or(StageError::NotAStage)?;
    match serve(&HelperLines::of_environment(), command, &link, first, descriptors) {
        Ok(()) => Ok(0),
        Err(refusal) => {
            // A supervisor that is gone needs no answer.
            let _ = link.send(&FromKeeper::Refused(refusal));
            Ok(REFUSED)
        }
    }
}

/// Keeps the command. Fails only before anything is started.
fn serve(
    lines: &HelperLines,
    command: &[OsString],
    link: &Link<FromKeeper, ToKeeper>,
    first: ToKeeper,
    descriptors: Vec<OwnedFd>,
) -> Result<(), Refusal> {
    furnish()?;
    let ToKeeper::Begin { group, deadline } = first else {
        let _ = link.send(&FromKeeper::Ready);
        return Ok(());
    };
    // When the process outside ends, as it does with the supervisor, the kernel kills this one and everything
    // here.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| Refusal { step: Step::Link, errno })?;
    let signals = Signals::of_children().map_err(|cause| Refusal::of_system(Step::Link, &cause))?;
    // The group has no number in here, and this process was started in it.
    let group = group.map(|_| None);
    keeper::keep(
        link,
        KeeperTask { lines, command, group, deadline, descriptors },
        signals,
        Scope::Namespace,
    );
    Ok(())
}

/// Mounts a `/proc` that shows this namespace.
fn furnish() -> Result<(), Refusal> {
    let at_proc = |errno| Refusal { step: Step::Proc, errno };
    // Mounts made here stay here. Later mounts of the machine still appear here.
    let downstream = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", downstream).map_err(at_proc)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).map_err(at_proc)?;
    // The command shall not have this privilege.
    let give_up = || {
        clear_ambient_capability_set()?;
        let mut sets = capabilities(None)?;
        sets.inheritable -= CapabilitySet::SYS_ADMIN;
        set_capabilities(None, sets)
    };
    give_up().map_err(|errno| Refusal { step: Step::Mapping, errno })
}
