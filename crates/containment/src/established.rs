//! The containment in force: the level that was asked for, tried out before anything is started in it.
//!
//! Finding and reaping processes stands in `processes`, killing all of them in `sweep`.
//!
//! Why sweeping works: this process is a sub-reaper, so whatever its descendants leave behind becomes its own child,
//! whatever session, group, or user they moved to. No child left therefore means no descendant left (I6).

use crate::{
    control_group::ControlGroup,
    delegation, launch,
    level::{Level, Wanted},
    link, namespace,
    processes::{Family, ForeignProcFs},
    shim::{self, FromShim, ToShim},
};
use rustix::{io::Errno, process::Pid};
use std::{
    io,
    os::fd::OwnedFd,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// The level asked for is not to be had here.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// No level is.
    #[error(transparent)]
    ProcFs(#[from] ForeignProcFs),
    /// There is no control group for the command.
    #[error(transparent)]
    ControlGroup(#[from] delegation::Refusal),
    /// There is no PID namespace for it.
    #[error(transparent)]
    Namespace(#[from] namespace::refusal::Refusal),
}

/// The containment in force, as one process has hold of it: guardian and supervisor each have one.
#[derive(Clone, Debug)]
pub struct Containment {
    level: Level,
    /// The descendants of this process.
    pub(crate) family: Family,
    /// Where the worker's processes are, if they have a group.
    pub(crate) group: Option<Arc<ControlGroup>>,
    /// For all threads of this process.
    closed: Arc<AtomicBool>,
}

impl Containment {
    /// The level in force.
    pub fn level(&self) -> Level {
        self.level
    }

    /// The level wanted, tried out. A group is there from now on, until it is [dissolved](Self::dissolve).
    ///
    /// # Errors
    /// When it is not to be had here.
    pub fn establish(wanted: Wanted) -> Result<Self, Refusal> {
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

    /// The descendants of this process, and nothing on top.
    pub fn by_family(family: Family) -> Self {
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

    /// Starts what `command` says, which becomes something only when it is told to (`shim`).
    ///
    /// # Errors
    /// When the system has no room for another process; `CANCELED` when the containment is closed. A process that was
    /// started nevertheless is never told, and ends.
    pub(crate) fn start(&self, command: Command) -> io::Result<Pid> {
        self.is_open()?;
        let process = launch::start(command)?;
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

    /// Whether everything is being ended. Several threads reap then, so that the number of a process may soon be another's.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Removes what was made for it. No process may be left in it.
    pub fn dissolve(&self) {
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
    let admitted = launch::command(shim::STAGE, [], far).spawn().and_then(|mut shim| {
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
