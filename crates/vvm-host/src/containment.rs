//! What holds the worker's processes together: which levels there are, which one was asked for, and the one in force.
//!
//! What lives here: [`Level`], [`Wanted`], and [`Containment`], which is established before anybody campaigns for
//! anything. [`sweep`](sweep()) and [`end_all`] kill and reap until nobody is left in it.
//!
//! What does not: finding and reaping processes (`processes`), and starting a worker inside (`worker`, `namespace`).
//!
//! - `control_group`: one for the worker. `delegation`: where that may be.
//!
//! Why sweeping works: this process is a sub-reaper, so whatever its descendants leave behind becomes its own child,
//! whatever session, group, or user they moved to. No child left therefore means no descendant left.

pub(crate) mod control_group;
mod delegation;
mod sweep;

pub(crate) use sweep::{Complaint, Sweep, end_all, sweep};

use crate::{
    link::{
        self,
        message::{FromShim, ToShim},
    },
    namespace,
    processes::{Family, ForeignProcFs},
    stage,
};
use control_group::ControlGroup;
use rustix::{io::Errno, process::Pid};
use std::{
    fmt, io,
    os::fd::OwnedFd,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// What keeps the worker's processes from getting away. Each level has all that the first one has, and something on top.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Level {
    /// Guardian and host, each of which ends everything when the other one dies.
    Guardian,
    /// A control group of the worker's own, in which everybody can be killed at once.
    ControlGroup,
    /// A PID namespace of the worker's own, which the kernel ends with the host.
    PidNamespace,
}

/// As on the command line, in the lines for people, and in the result file.
impl fmt::Display for Level {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Guardian => "guardian",
            Self::ControlGroup => "cgroup",
            Self::PidNamespace => "pidns",
        })
    }
}

/// The level asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// The best that changes nothing for the worker: in a PID namespace, its processes have other numbers.
    Auto,
    /// This one, or none.
    Exactly(Level),
}

/// The level asked for is not to be had here.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(transparent)]
    ProcFs(#[from] ForeignProcFs),
    #[error(transparent)]
    ControlGroup(#[from] delegation::Refusal),
    #[error(transparent)]
    Namespace(#[from] namespace::refusal::Refusal),
}

/// The containment in force, as one process has hold of it: guardian and host each have one.
#[derive(Clone, Debug)]
pub(crate) struct Containment {
    pub(crate) level: Level,
    /// The descendants of this process.
    pub(crate) family: Family,
    /// Where the worker's processes are, if they have a group.
    pub(crate) group: Option<Arc<ControlGroup>>,
    /// For all threads of this process.
    closed: Arc<AtomicBool>,
}

impl Containment {
    /// The level wanted, tried out. A group is there from now on, until it is [dissolved](Self::dissolve).
    ///
    /// # Errors
    /// When it is not to be had here.
    pub(crate) fn establish(wanted: Wanted) -> Result<Self, Refusal> {
        let (level, group) = match wanted {
            Wanted::Auto => delegation::own_group()
                .ok()
                .filter(|own| delegation::is_delegated(own))
                .and_then(|own| tried_group(&own).ok())
                .map_or((Level::Guardian, None), |group| (Level::ControlGroup, Some(group))),
            Wanted::Exactly(Level::Guardian) => (Level::Guardian, None),
            Wanted::Exactly(Level::ControlGroup) => {
                let own = delegation::own_group()?;
                let group =
                    tried_group(&own).map_err(|cause| delegation::Refusal::NotDelegated { own, cause })?;
                (Level::ControlGroup, Some(group))
            }
            Wanted::Exactly(Level::PidNamespace) => {
                namespace::try_out()?;
                (Level::PidNamespace, None)
            }
        };
        Ok(Self::of(level, Family::of_this_process()?, group.map(Arc::new)))
    }

    /// Of whoever descends from this process, and nothing on top.
    pub(crate) fn by_family(family: Family) -> Self {
        Self::of(Level::Guardian, family, None)
    }

    /// What another process has established: its level, and the folder of its group.
    ///
    /// # Errors
    /// When `/proc` can't be relied upon.
    pub(crate) fn taken_over(level: Level, group: Option<OwnedFd>) -> Result<Self, ForeignProcFs> {
        let group = group.map(|folder| Arc::new(ControlGroup::of(folder)));
        Ok(Self::of(level, Family::of_this_process()?, group))
    }

    fn of(level: Level, family: Family, group: Option<Arc<ControlGroup>>) -> Self {
        Self { level, family, group, closed: Arc::default() }
    }

    /// Starts what `command` says, which becomes something only when it is told to (`worker::shim`).
    ///
    /// # Errors
    /// When the system has no room for another process; `CANCELED` when the containment is closed. A process that was
    /// started nevertheless is never told, and ends.
    pub(crate) fn start(&self, command: Command) -> io::Result<Pid> {
        self.is_open()?;
        let process = stage::start(command)?;
        // Again, now that it can be found: whoever closes after this look kills it.
        self.is_open()?;
        Ok(process)
    }

    fn is_open(&self) -> rustix::io::Result<()> {
        if self.is_closed() { Err(Errno::CANCELED) } else { Ok(()) }
    }

    /// Lets nothing more be started, for good. Waits for nobody: whoever [starts](Self::start) something just then either
    /// finds that out before it is told to become anything, or has it found and killed by a [`sweep`](sweep()) that
    /// begins now.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Whether somebody ends everything. Several threads reap then, so that the number of a process may soon be anybody's.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Removes what was made for it. Nobody may be left in it.
    pub(crate) fn dissolve(&self) {
        if let Some(group) = &self.group {
            // One that is gone already is as good; an empty one that stays does no harm.
            let _ = group.remove();
        }
    }
}

/// A group that takes processes in: not every one does that lets others be made below it.
fn tried_group(own: &Path) -> io::Result<ControlGroup> {
    let group = ControlGroup::below(own)?;
    let (near, far) = link::pair::<ToShim, FromShim>()?;
    let admitted = stage::command(stage::WORKER, [], far).spawn().and_then(|mut shim| {
        let admitted = group.admit(Pid::from_child(&shim));
        // Told nothing, it ends.
        drop(near);
        shim.wait()?;
        admitted
    });
    // Nobody is in it.
    admitted.inspect_err(|_| drop(group.remove()))?;
    Ok(group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{WaitOptions, waitpid};

    #[test]
    fn a_closed_containment_lets_nobody_in_and_all_who_have_hold_of_it_know() {
        let containment = Containment::by_family(Family::of_this_process().unwrap());
        let another = containment.clone();
        let process = containment.start(Command::new("true")).unwrap();
        waitpid(Some(process), WaitOptions::empty()).unwrap();
        another.close();
        assert!(containment.is_closed());
        let refusal = containment.start(Command::new("true")).unwrap_err();
        assert_eq!(Errno::from_io_error(&refusal), Some(Errno::CANCELED));
    }
}
