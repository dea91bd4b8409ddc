//! Starting and killing aides: as children of the host, or by way of process 1 of the worker's namespace.

use super::{Aide, AideLines};
use crate::{
    announce::say,
    containment::Containment,
    link::{
        self, Link,
        message::{
            FromShim, ToShim,
            namespace::{FromInit, ToInit},
        },
    },
    stage,
};
use rustix::{
    fs::{Mode, OFlags, open},
    process::{Pid, Signal, getpid, kill_process_group},
};
use std::{
    ffi::OsString,
    io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::process::CommandExt as _,
    },
    process::{Command, Stdio},
    sync::Arc,
};

/// Who starts them.
#[derive(Debug)]
pub(crate) enum Starter {
    Host(ByHost),
    Init(ByInit),
}

/// This process.
#[derive(Debug)]
pub(crate) struct ByHost {
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) containment: Containment,
}

/// Process 1 of the worker's namespace, which has the lines already.
#[derive(Debug)]
pub(crate) struct ByInit {
    pub(crate) link: Arc<Link<ToInit, FromInit>>,
}

/// The shim that becomes `sh -c LINE`, in a process group of its own. What it says goes to standard error: standard output
/// is the command's.
///
/// # Errors
/// When the process is out of descriptors.
pub(crate) fn command(line: &str, shim: OwnedFd) -> io::Result<Command> {
    let shell = ["sh".into(), "-c".into(), line.into()];
    let mut command = stage::command(stage::WORKER, stage::behind_dashes(&shell), shim);
    command.process_group(0).stdout(Stdio::from(rustix::stdio::stderr().try_clone_to_owned()?));
    Ok(command)
}

impl Starter {
    /// Starts one. Its process, if that is a child of ours.
    pub(super) fn start(&self, aide: Aide, lines: &AideLines) -> io::Result<Option<Pid>> {
        let (link, far) = link::pair::<ToShim, FromShim>()?;
        let (parent, process) = match self {
            Self::Host(host) => {
                let mut command = command(lines.of(aide).unwrap_or_default(), far)?;
                command.env_clear().envs(host.environment.iter().cloned());
                let process = host.containment.start(command)?;
                if let Some(group) = &host.containment.group {
                    // Before it is told to become the shell. One that is never told ends.
                    group.admit(process)?;
                }
                (getpid(), Some(process))
            }
            Self::Init(init) => {
                init.link.say_with(&ToInit::Aide(aide), &[far.as_fd()])?;
                (Pid::INIT, None)
            }
        };
        let nothing = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        // One that has died already is found when it is reaped.
        let _ = link.say_with(&ToShim { parent }, &[nothing.as_fd()]);
        Ok(process)
    }

    /// Kills one that has not been reaped.
    pub(super) fn kill(&self, aide: Aide, process: Option<Pid>) {
        match self {
            Self::Host(host) => {
                if let Some(process) = process
                    && !host.containment.is_closed()
                {
                    // It has ended; its parent is the one that reaps it, so that the number means nobody else.
                    let _ = kill_process_group(process, Signal::KILL);
                }
            }
            Self::Init(init) => {
                if let Err(refusal) = init.link.say(&ToInit::KillAide(aide)) {
                    say!("process 1 of the worker's namespace can't be told to kill: {refusal}");
                }
            }
        }
    }
}
