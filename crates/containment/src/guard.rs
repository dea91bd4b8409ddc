//! The guardian: the process that the user starts, and the last one to go.
//!
//! It starts the supervisor, passes signals on to it, and kills everything that descends from the supervisor
//! when that ends, before this process ends too. It decides nothing, and knows the kill deadline only from
//! the supervisor.
//!
//! A process of its own, since no process can clean up after its own SIGKILL. Single-threaded, since what it
//! does must work as process 1, out of memory, and while everything else hangs.

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
    ffi::{OsStr, OsString},
    io,
    os::{fd::AsFd as _, unix::process::CommandExt as _},
};
use terminal::Terminal;
use watch::Guarding;

/// What a guardian reports while it watches.
#[derive(Debug)]
pub enum Heard {
    /// The supervisor said this, which the guardian does not read.
    Note(Note),
    /// An event of the guardian's own.
    Event(Event),
}

/// Starts the supervisor, and blocks until it has ended and no descendant of this process is left. The
/// containment is dissolved then.
///
/// The supervisor is this program again, with `arguments`, whose `main` calls
/// [`Supervisor::take_up`](crate::Supervisor::take_up). It does not see the variables `withheld`. Must be
/// called in a process with a single thread, which becomes a sub-reaper and reaps every child that it has.
///
/// # Errors
/// When the system refuses a process or a descriptor. No process runs then, and the containment is dissolved.
pub fn guard(
    arguments: Vec<OsString>,
    withheld: &[&OsStr],
    containment: Containment,
    on_heard: impl FnMut(Heard),
) -> io::Result<Ended> {
    let guarding = start(arguments, withheld, containment.clone()).inspect_err(|_| containment.dissolve())?;
    Ok(guarding.watch(on_heard))
}

fn start(arguments: Vec<OsString>, withheld: &[&OsStr], containment: Containment) -> io::Result<Guarding> {
    let terminal = Terminal::of_this_process();
    // From here on no signal is lost: what comes before the supervisor can take it waits in the link.
    let signals = Signals::catch_also(terminal.also_caught())?;
    let countdown = Countdown::new()?;
    set_child_subreaper(Some(getpid())).map_err(io::Error::from)?;

    let (link, far) = link::pair()?;
    let (first, arguments) = arguments.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = launch::command(first, arguments.iter().cloned(), far);
    // A group of its own, so that what a terminal does to its foreground group reaches the supervisor only
    // through us.
    command.process_group(0);
    for name in withheld {
        command.env_remove(name);
    }
    let supervisor = launch::start(command)?;
    let process = pidfd_open(supervisor, PidfdFlags::empty()).map_err(io::Error::from)?;
    let this_process = pidfd_open(getpid(), PidfdFlags::empty()).map_err(io::Error::from)?;
    let begin = ToSupervisor::Begin { terminal_group: terminal.group(), level: containment.level() };
    // A supervisor that has died already is found by the watch.
    let mut descriptors = vec![rustix::stdio::stdin(), this_process.as_fd()];
    descriptors.extend(containment.group.as_ref().map(|group| group.as_fd()));
    let _ = link.say_with(&begin, &descriptors);
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
    })
}
