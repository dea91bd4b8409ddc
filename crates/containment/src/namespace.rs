//! A PID namespace for a command. The kernel kills everything in it when its process 1 ends. The process that makes it
//! ([`outside_main`]) is a child of the supervisor. Only its children enter the namespace: it stays outside, and ends
//! with the supervisor or with process 1. Process 1 ([`init_main`]) is the keeper, and ends with the supervisor.

use crate::{
    keeper::{self, Group, KeeperTask, Scope},
    launch::{self, Accepted, HelperLines, StageError},
    link::{self, Link, LinkMessage},
    messages::{FromKeeper, ToKeeper},
    processes::{PARENT, field_in, pid},
    refusal::{NamespaceRefusal, SetupStep},
    signal_table::signal_of,
    signals::{self, Signals},
};
use nix::sched::{CloneFlags, unshare};
use rustix::{
    io::Errno,
    mount::{MountFlags, MountPropagationFlags, mount, mount_change},
    process::{Pid, Signal, getegid, geteuid, getpid, set_parent_process_death_signal, setpgid},
    thread::{
        CapabilitySet, capabilities, clear_ambient_capability_set, configure_capability_in_ambient_set,
        set_capabilities,
    },
};
use std::{
    ffi::OsString,
    fs,
    io::{self, Read as _},
    iter,
    os::{
        fd::OwnedFd,
        unix::process::{CommandExt as _, ExitStatusExt as _},
    },
    process::{Child, ExitCode, ExitStatus},
};

/// Makes a namespace, to learn whether the system permits one. Blocks until it is gone.
pub(crate) fn try_out() -> Result<(), NamespaceRefusal> {
    let no_process = |cause: std::io::Error| NamespaceRefusal::of_system(SetupStep::Process, &cause);
    let (link, far) = link::pair::<ToKeeper, FromKeeper>()
        .map_err(|cause| NamespaceRefusal::of_system(SetupStep::Link, &cause))?;
    let mut outside = launch::command(OUTSIDE_STAGE, [], far);
    // In a group of its own. Process 1 would end in the caller's group with a parent outside of it. If that group is
    // orphaned, as under setsid(1), and has a stopped process, the kernel sends HUP to all of it (setpgid(2)).
    let mut outside = outside.process_group(0).spawn().map_err(no_process)?;
    // If the process has ended, the link shows it.
    let _ = link.send(&ToKeeper::TryOut);
    link.wait();
    let answer = match link.receive() {
        Some(LinkMessage::Message(FromKeeper::Ready, _)) => Ok(()),
        Some(LinkMessage::Message(FromKeeper::Refused(refusal), _)) => Err(refusal),
        Some(_) | None => Err(NamespaceRefusal { step: SetupStep::Process, errno: Errno::CHILD }),
    };
    drop(link);
    outside.wait().map_err(no_process)?;
    answer
}

pub(crate) const OUTSIDE_STAGE: &str = "stage-namespace";

pub(crate) fn outside_main(arguments: &[OsString]) -> Result<ExitCode, StageError> {
    let link = launch::given_link::<FromKeeper, ToKeeper>()?;
    Ok(match start_init(arguments).and_then(wait) {
        Ok(ended) => {
            // Process 1 is reaped, so all in its namespace has ended (pid_namespaces(7)): the proof at this level (I6).
            let _ = link.send(&FromKeeper::Gone);
            match ended.signal().and_then(signal_of) {
                Some(signal) => signals::die_of(signal),
                None => u8::try_from(ended.code().unwrap_or_default()).unwrap_or(REFUSED).into(),
            }
        }
        Err(refusal) => {
            // A supervisor that is gone needs no answer.
            let _ = link.send(&FromKeeper::Refused(refusal));
            REFUSED.into()
        }
    })
}

fn start_init(arguments: &[OsString]) -> Result<(Signals, Child), NamespaceRefusal> {
    let at = |step| move |cause: io::Error| NamespaceRefusal::of_system(step, &cause);
    // Signals are caught, not ignored, as in the keeper. A terminal signals the group of this process, too.
    let signals = Signals::catch_all(true).map_err(at(SetupStep::Link))?;
    // This process ends with the supervisor, and process 1 with this process.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| NamespaceRefusal { step: SetupStep::Link, errno })?;
    separate()?;
    // Process 1 inherits the link, as its standard input.
    let own_number = OsString::from(getpid().as_raw_pid().to_string());
    let arguments = iter::once(own_number).chain(arguments.iter().cloned());
    let init = launch::pass_on(INIT_STAGE, arguments).spawn().map_err(at(SetupStep::Process))?;
    // Process 1 has inherited the terminal's group, if the command is to have it. This process leaves it. The
    // kernel refuses that to a group's leader, which is in a group of its own.
    let _ = setpgid(None, None);
    Ok((signals, init))
}

fn wait((_signals, mut init): (Signals, Child)) -> Result<ExitStatus, NamespaceRefusal> {
    init.wait().map_err(|cause| NamespaceRefusal::of_system(SetupStep::Process, &cause))
}

/// Puts the children of this process into a new PID namespace with mounts of its own, and into a new user
/// namespace if this user may not make the first one otherwise.
fn separate() -> Result<(), NamespaceRefusal> {
    let apart = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS;
    match unshare(apart) {
        Ok(()) => Ok(()),
        Err(nix::Error::EPERM) => {
            // Read before the call: inside, user and group have no number until they are mapped.
            let (user, group) = (geteuid().as_raw(), getegid().as_raw());
            let own_users = unshare(apart | CloneFlags::CLONE_NEWUSER);
            own_users
                .map_err(|errno| NamespaceRefusal { step: SetupStep::UserNamespace, errno: of_nix(errno) })?;
            map(user, group).map_err(|cause| NamespaceRefusal::of_system(SetupStep::Mapping, &cause))
        }
        Err(errno) => Err(NamespaceRefusal { step: SetupStep::Namespace, errno: of_nix(errno) }),
    }
}

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

pub(crate) const INIT_STAGE: &str = "stage-init";

/// The exit status without a namespace: `EX_OSERR` of sysexits.h.
const REFUSED: u8 = 71;

pub(crate) fn init_main(arguments: &[OsString]) -> Result<u8, StageError> {
    // Anywhere else it would mount over the `/proc` of other processes.
    if getpid() != Pid::INIT {
        return Err(StageError::NotAStage);
    }
    let Accepted { link, first, descriptors } = launch::accept()?;
    let (outside, arguments) = arguments.split_first().ok_or(StageError::NotAStage)?;
    let outside = outside.to_str().and_then(pid).ok_or(StageError::NotAStage)?;
    let command = launch::command_of(arguments).ok_or(StageError::NotAStage)?;
    match serve(outside, command, &link, first, descriptors) {
        Ok(()) => Ok(0),
        Err(refusal) => {
            let _ = link.send(&FromKeeper::Refused(refusal));
            Ok(REFUSED)
        }
    }
}

/// Runs as keeper. Fails only before it starts the command. `outside`: the process outside, by its number there.
fn serve(
    outside: Pid,
    command: &[OsString],
    link: &Link<FromKeeper, ToKeeper>,
    first: ToKeeper,
    descriptors: Vec<OwnedFd>,
) -> Result<(), NamespaceRefusal> {
    // Opened before `/proc` shows this namespace, in which a parent outside has no number.
    let mut own_stat = fs::File::open("/proc/self/stat")
        .map_err(|cause| NamespaceRefusal::of_system(SetupStep::Proc, &cause))?;
    furnish()?;
    let ToKeeper::Begin { group, deadline, before_the_deadline } = first else {
        let _ = link.send(&FromKeeper::Ready);
        return Ok(());
    };
    // When the process outside ends, as it does with the supervisor, the kernel kills this one and everything here. The
    // supervisor takes the end of that process without `Ready` for the proof that nothing runs (I6). Two cases keep it
    // true. If that process ended before this call, this one has another parent and starts nothing. If it ends later,
    // the kernel queues KILL here before the supervisor can see the end (exit_notify). This process then finishes its
    // current system call, maybe that of `Ready`, and never comes to the one that starts the command.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| NamespaceRefusal { step: SetupStep::Link, errno })?;
    let mut stat = Vec::new();
    own_stat.read_to_end(&mut stat).map_err(|cause| NamespaceRefusal::of_system(SetupStep::Proc, &cause))?;
    if field_in(&String::from_utf8_lossy(&stat), PARENT) != Some(outside) {
        return Ok(());
    }
    let signals =
        Signals::of_children().map_err(|cause| NamespaceRefusal::of_system(SetupStep::Link, &cause))?;
    // The terminal's group has no number in here. This process was started in it.
    let group = group.map_or(Group::Own, |_| Group::Terminal(None));
    keeper::keep(
        link,
        KeeperTask {
            lines: &HelperLines::of_environment(),
            command,
            group,
            deadline,
            before_the_deadline,
            descriptors,
        },
        signals,
        Scope::Namespace,
    );
    Ok(())
}

fn furnish() -> Result<(), NamespaceRefusal> {
    let at_proc = |errno| NamespaceRefusal { step: SetupStep::Proc, errno };
    // Mounts made here stay here. Later mounts of the machine still appear here.
    let downstream = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", downstream).map_err(at_proc)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).map_err(at_proc)?;
    // The command must not have this privilege.
    let give_up = || {
        clear_ambient_capability_set()?;
        let mut sets = capabilities(None)?;
        sets.inheritable -= CapabilitySet::SYS_ADMIN;
        set_capabilities(None, sets)
    };
    give_up().map_err(|errno| NamespaceRefusal { step: SetupStep::Mapping, errno })
}
