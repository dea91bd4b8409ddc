//! The process that makes the namespace: outside of it, between the supervisor and its process 1, and gone
//! with either.

use super::init;
use crate::{
    keeper::message::{FromKeeper, ToKeeper},
    launch::{self, StageError},
    namespace_refusal::{Refusal, Step},
    signals::{self, Signals},
};
use nix::sched::{CloneFlags, unshare};
use rustix::{
    io::Errno,
    process::{Signal, getegid, geteuid, set_parent_process_death_signal, setpgid},
    thread::{CapabilitySet, capabilities, configure_capability_in_ambient_set, set_capabilities},
};
use std::{
    ffi::OsString,
    fs, io,
    os::unix::process::ExitStatusExt as _,
    process::{Child, ExitCode, ExitStatus},
};

/// The name of the stage.
pub(crate) const STAGE: &str = "stage-namespace";

/// Makes a namespace, starts its process 1, and ends as that one does.
pub(crate) fn main(arguments: &[OsString]) -> Result<ExitCode, StageError> {
    let link = launch::given_link::<FromKeeper, ToKeeper>()?;
    Ok(match start(arguments).and_then(wait) {
        Ok(ended) => {
            // Process 1 is reaped, however it ended, and with it everything in its namespace
            // (pid_namespaces(7)): the proof at this level (I6).
            let _ = link.send(&FromKeeper::Gone);
            match ended.signal().and_then(Signal::from_named_raw) {
                Some(signal) => signals::die_of(signal),
                None => u8::try_from(ended.code().unwrap_or_default()).unwrap_or(init::REFUSED).into(),
            }
        }
        Err(refusal) => {
            // A supervisor that is gone needs no answer.
            let _ = link.send(&FromKeeper::Refused(refusal));
            init::REFUSED.into()
        }
    })
}

fn start(arguments: &[OsString]) -> Result<(Signals, Child), Refusal> {
    let at = |step| move |cause: io::Error| Refusal::of_system(step, &cause);
    // They are for the command, and reach it in another way: a terminal signals a group, which this process
    // is still in, and a service manager everybody. Caught, not ignored: what is ignored stays so for those
    // we start.
    let signals = Signals::catch_also(&[Signal::TSTP]).map_err(at(Step::Link))?;
    // When the supervisor ends, this process does, and with it process 1, which is tied to it in the same
    // way.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| Refusal { step: Step::Link, errno })?;
    separate()?;
    // The link is its standard input, as it is ours.
    let init = launch::pass_on(init::STAGE, arguments.iter().cloned()).spawn().map_err(at(Step::Process))?;
    // Process 1 has inherited the terminal's group, if the command is to have it. This one has nothing to do
    // there. (Refused to a group's leader, which is in a group of its own.)
    let _ = setpgid(None, None);
    Ok((signals, init))
}

fn wait((_signals, mut init): (Signals, Child)) -> Result<ExitStatus, Refusal> {
    init.wait().map_err(|cause| Refusal::of_system(Step::Process, &cause))
}

/// What is started from here on is in a new PID namespace, with mounts of its own. A user who may not have
/// that may have it inside a user namespace.
fn separate() -> Result<(), Refusal> {
    let apart = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS;
    match unshare(apart) {
        Ok(()) => Ok(()),
        Err(nix::Error::EPERM) => {
            // Before: inside they have no number until they are mapped.
            let (user, group) = (geteuid().as_raw(), getegid().as_raw());
            let own_users = unshare(apart | CloneFlags::CLONE_NEWUSER);
            own_users.map_err(|errno| Refusal { step: Step::UserNamespace, errno: of_nix(errno) })?;
            map(user, group).map_err(|cause| Refusal::of_system(Step::Mapping, &cause))
        }
        Err(errno) => Err(Refusal { step: Step::Namespace, errno: of_nix(errno) }),
    }
}

/// User and group stay who they are, and process 1 may mount.
fn map(user: u32, group: u32) -> io::Result<()> {
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    // Else a group that is forbidden something could be dropped (user_namespaces(7)).
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    // Only ambient capabilities survive execution by a user other than root (capabilities(7)).
    let mut sets = capabilities(None)?;
    sets.inheritable |= CapabilitySet::SYS_ADMIN;
    set_capabilities(None, sets)?;
    configure_capability_in_ambient_set(CapabilitySet::SYS_ADMIN, true)?;
    Ok(())
}

fn of_nix(errno: nix::Error) -> Errno {
    Errno::from_raw_os_error(errno as i32)
}
