//! The guardian: the process that the user starts. It starts the supervisor and forwards signals to it. When
//! the supervisor ends or outlives its deadline, the guardian kills the supervisor and all its descendants.
//!
//! The guardian is a separate process, because no process can clean up after its own SIGKILL. It has one
//! thread, so that it works as process 1, when memory is short, and while all other processes hang.

pub(crate) mod countdown;
pub(crate) mod message;
mod terminal;
mod watch;

pub use message::{Note, ToSupervisor};
pub use watch::Ended;

use crate::{established::Containment, event::Event, launch, link, signals::Signals};
use countdown::Countdown;
use rustix::process::{PidfdFlags, getpid, pidfd_open, set_child_subreaper};
use std::{
    ffi::OsString,
    io,
    os::{fd::AsFd as _, unix::process::CommandExt as _},
};
use terminal::Terminal;
use watch::Guarding;

/// What a guardian reports while it watches.
#[derive(Debug)]
pub enum Report {
    /// A note of the supervisor. The guardian passes it on without reading it.
    Note(Note),
    /// An event of the guardian itself.
    Event(Event),
}

/// Starts the supervisor, and blocks until it has ended and no descendant of this process is left. Then
/// dissolves the containment.
///
/// The supervisor is this program again, with `arguments`. Its `main` must call
/// [`Supervisor::accept`](crate::Supervisor::accept). `environment` sets and removes variables of the
/// supervisor. The calling process must have a single thread. It becomes a sub-reaper, and this function
/// reaps all its children.
///
/// # Errors
/// If the system refuses a process or a descriptor. No process runs then, and the containment is dissolved.
pub fn guard(
    arguments: Vec<OsString>,
    environment: &[(OsString, Option<OsString>)],
    containment: Containment,
    on_report: impl FnMut(Report),
) -> io::Result<Ended> {
    let guarding =
        start(arguments, environment, containment.clone()).inspect_err(|_| containment.dissolve())?;
    Ok(guarding.watch(on_report))
}

fn start(
    arguments: Vec<OsString>,
    environment: &[(OsString, Option<OsString>)],
    containment: Containment,
) -> io::Result<Guarding> {
    let terminal = Terminal::of_this_process();
    // Signals that arrive before the supervisor can handle them wait in the link.
    let signals = Signals::catch_also(terminal.also_caught())?;
    let countdown = Countdown::new()?;
    set_child_subreaper(Some(getpid())).map_err(io::Error::from)?;

    let (link, far) = link::pair()?;
    let (first, arguments) = arguments.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = launch::command(first, arguments.iter().cloned(), far);
    // A group of its own, so that the terminal's signals to its foreground group reach the supervisor only
    // through the guardian.
    command.process_group(0);
    for (name, value) in environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let supervisor = launch::start(command)?;
    let process = pidfd_open(supervisor, PidfdFlags::empty()).map_err(io::Error::from)?;
    let this_process = pidfd_open(getpid(), PidfdFlags::empty()).map_err(io::Error::from)?;
    let begin = ToSupervisor::Begin { terminal_group: terminal.group(), level: containment.level() };
    // If the supervisor has died already, the watch finds it.
    let mut descriptors = vec![rustix::stdio::stdin(), this_process.as_fd()];
    descriptors.extend(containment.group.as_ref().map(|group| group.as_fd()));
    let _ = link.send_with(&begin, &descriptors);
    Ok(Guarding {
        supervisor,
        process,
        link,
        link_open: true,
        containment,
        signals,
        terminal,
        countdown,
        deadline: None,
        kill_at: None,
    })
}
