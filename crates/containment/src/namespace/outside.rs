//! The process that makes the namespace. It stays outside, between the supervisor and process 1, and ends
//! with either of them.

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
            // Process 1 is reaped, and so everything in its namespace has ended (pid_namespaces(7)): the
            // proof at this level (I6).
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
    // A terminal signals the group of this process, and a service manager every process. The supervisor
    // forwards those signals to the command. They are caught, not ignored, because children would inherit
    // that.
    let signals = Signals::catch_also(&[Signal::TSTP]).map_err(at(Step::Link))?;
    // This process ends with the supervisor, and process 1 with this process.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| Refusal { step: Step::Link, errno })?;
    separate()?;
    // The link is its standard input, too.
    let init = launch::pass_on(init::STAGE, arguments.iter().cloned()).spawn().map_err(at(Step::Process))?;
    // Process 1 has inherited the terminal's group, if the command is to have it. This process leaves it. The
    // kernel refuses that to a group's leader, which is in a group of its own.
    let _ = setpgid(None, None);
    Ok((signals, init))
}

fn wait((_signals, mut init): (Signals, Child)) -> Result<ExitStatus, Refusal> {
    init.wait().map_err(|cause| Refusal::of_system(Step::Process, &cause))
}

/// Puts the children of this process into a new PID namespace with mounts of its own, and into a new user
/// namespace if this user may not make the first one otherwise.
fn separate() -> Result<(), Refusal> {
    let apart = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS;
    match unshare(apart) {
        Ok(()) => Ok(()),
        Err(nix::Error::EPERM) => {
            // Before the call: inside, they have no number until they are mapped.
            let (user, group) = (geteuid().as_raw(), getegid().as_raw());
            let own_users = unshare(apart | CloneFlags::CLONE_NEWUSER);
            own_users.map_err(|errno| Refusal { step: Step::UserNamespace, errno: of_nix(errno) })?;
            map(user, group).map_err(|cause| Refusal::of_system(Step::Mapping, &cause))
        }
        Err(errno) => Err(Refusal { step: Step::Namespace, errno: of_nix(errno) }),
    }
}

/// Maps user and group to themselves, and lets process 1 mount.
fn map(user: u32, group: u32) -> io::Result<()> {
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    // Without it, a process could drop a group that restricts it (user_namespaces(7)).
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
