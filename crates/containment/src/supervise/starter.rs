//! Starting and killing helpers: as children of the supervisor, or by way of process 1 of the command's namespace.

use crate::{
    auxiliary::{self, Helper, HelperLines},
    established::Containment,
    event::{Event, OnEvent},
    link::{self, Link},
    namespace::message::{FromInit, ToInit},
    shim::{FromShim, ToShim},
};
use rustix::{
    fs::{Mode, OFlags, open},
    process::{Pid, Signal, getpid, kill_process_group},
};
use std::{ffi::OsString, io, os::fd::AsFd as _, sync::Arc};

/// What starts them.
#[derive(Debug)]
pub(crate) enum Starter {
    Supervisor(BySupervisor),
    Init(ByInit),
}

/// This process.
#[derive(Debug)]
pub(crate) struct BySupervisor {
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) containment: Containment,
}

/// Process 1 of the command's namespace, which has the lines already.
#[derive(Debug)]
pub(crate) struct ByInit {
    pub(crate) link: Arc<Link<ToInit, FromInit>>,
    pub(crate) on_event: OnEvent,
}

impl Starter {
    /// Starts one. Its process, if that is a child of ours.
    pub(super) fn start(&self, helper: Helper, lines: &HelperLines) -> io::Result<Option<Pid>> {
        let (link, far) = link::pair::<ToShim, FromShim>()?;
        let (parent, process) = match self {
            Self::Supervisor(by) => {
                let mut command = auxiliary::command(lines.of(helper).unwrap_or_default(), far)?;
                command.env_clear().envs(by.environment.iter().cloned());
                let process = by.containment.start(command)?;
                if let Some(group) = &by.containment.group {
                    // Before it is told to become the shell. One that is never told ends.
                    group.admit(process)?;
                }
                (getpid(), Some(process))
            }
            Self::Init(init) => {
                init.link.say_with(&ToInit::Helper(helper), &[far.as_fd()])?;
                (Pid::INIT, None)
            }
        };
        let nothing = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        // One that has died already is found when it is reaped.
        let _ = link.say_with(&ToShim { parent }, &[nothing.as_fd()]);
        Ok(process)
    }

    /// Kills one that has not been reaped.
    pub(super) fn kill(&self, helper: Helper, process: Option<Pid>) {
        match self {
            Self::Supervisor(by) => {
                if let Some(process) = process
                    && !by.containment.is_closed()
                {
                    // It has ended; its parent is the one that reaps it, so that the number names no other process.
                    let _ = kill_process_group(process, Signal::KILL);
                }
            }
            Self::Init(init) => {
                if let Err(refusal) = init.link.say(&ToInit::KillHelper(helper)) {
                    init.on_event.report(Event::HelperNotKilled(refusal.into()));
                }
            }
        }
    }
}
