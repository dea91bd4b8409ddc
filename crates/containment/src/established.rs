//! The containment in force, as one process has hold of it.
//!
//! Finding and reaping processes stands in `processes`, killing all of them in `sweep`.
//!
//! Why sweeping works: this process is a sub-reaper, so whatever its descendants leave behind becomes its own
//! child, whatever session, group, or user they moved to. No child left therefore means no descendant left
//! (I6).

use crate::{
    control_group::ControlGroup,
    level::Level,
    processes::{Family, ForeignProcFs, has_ended},
};
use std::{
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError},
};

/// The containment in force, as one process has hold of it: guardian and supervisor each have one.
#[derive(Clone, Debug)]
pub struct Containment {
    level: Level,
    /// The descendants of this process.
    pub(crate) family: Family,
    /// Where the worker's processes are, if they have a group.
    pub(crate) group: Option<Arc<ControlGroup>>,
    /// The keepers of this supervisor, for all its threads.
    keepers: Arc<Mutex<Vec<Arc<OwnedFd>>>>,
    /// This process is process 1 of the command's namespace.
    pub(crate) whole_namespace: bool,
}

impl Containment {
    /// The level in force.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Everything in the command's namespace, whose process 1 this is.
    pub(crate) fn of_this_namespace() -> Result<Self, ForeignProcFs> {
        let family = Family::of_this_process()?;
        Ok(Self { whole_namespace: true, ..Self::of(Level::PidNamespace, family, None) })
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

    pub(crate) fn of(level: Level, family: Family, group: Option<Arc<ControlGroup>>) -> Self {
        Self { level, family, group, keepers: Arc::default(), whole_namespace: false }
    }

    /// Whether a keeper runs, and so may a command. Asks the kernel, and no other thread.
    pub(crate) fn has_keeper(&self) -> bool {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|keeper| !has_ended(keeper))
    }

    /// Remembers a keeper, by a descriptor of its process.
    pub(crate) fn remember_keeper(&self, keeper: Arc<OwnedFd>) {
        let mut keepers = self.keepers.lock().unwrap_or_else(PoisonError::into_inner);
        keepers.retain(|keeper| !has_ended(keeper));
        keepers.push(keeper);
    }

    /// Removes what was made for it. No process may be left in it.
    pub fn dissolve(&self) {
        if let Some(group) = &self.group {
            // One that is gone already is as good; an empty one that stays does no harm.
            let _ = group.remove();
        }
    }
}
