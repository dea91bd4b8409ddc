//! [`Containment`]: the containment in force, its [`Level`], as the guardian has established it. Killing and reaping
//! suffices: this process is a sub-reaper, so processes that its descendants leave behind become its children, in any
//! session and group and of any user. Without a child there is no descendant (I6). A control group also has members
//! that left the descent: it must have none.

use crate::{
    control_group::ControlGroup,
    processes::{Family, ForeignProcFs, has_ended},
};
use std::{
    fmt,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError},
};

/// How a command's processes are contained. Every level includes [`Guardian`](Self::Guardian).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Guardian and supervisor: each ends everything when the other dies.
    Guardian,
    /// A control group for the command, whose members the kernel kills at once.
    ControlGroup,
    /// A PID namespace for the command, which the kernel ends with the supervisor.
    PidNamespace,
}

impl fmt::Display for Level {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Guardian => "guardian",
            Self::ControlGroup => "cgroup",
            Self::PidNamespace => "pidns",
        })
    }
}

/// The level that a caller requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestedLevel {
    /// The best level that the command can't notice: not a PID namespace, in which its processes have other numbers.
    Auto,
    /// This level, or a refusal.
    Exactly(Level),
}

/// The containment in force. Guardian and supervisor each have one.
#[derive(Clone, Debug)]
pub struct Containment {
    level: Level,
    pub(crate) family: Family,
    pub(crate) group: Option<Arc<ControlGroup>>,
    keepers: Arc<Mutex<Vec<Arc<OwnedFd>>>>,
    pub(crate) whole_namespace: bool,
}

impl Containment {
    /// Returns the level in force.
    pub fn level(&self) -> Level {
        self.level
    }

    pub(crate) fn of_this_namespace() -> Result<Self, ForeignProcFs> {
        let family = Family::of_this_process()?;
        Ok(Self { whole_namespace: true, ..Self::new(Level::PidNamespace, family, None) })
    }

    /// Contains the descendants of this process, without a group or namespace.
    pub fn by_family(family: Family) -> Self {
        Self::new(Level::Guardian, family, None)
    }

    pub(crate) fn from_guardian(level: Level, group: Option<ControlGroup>) -> Result<Self, ForeignProcFs> {
        Ok(Self::new(level, Family::of_this_process()?, group.map(Arc::new)))
    }

    pub(crate) fn new(level: Level, family: Family, group: Option<Arc<ControlGroup>>) -> Self {
        Self { level, family, group, keepers: Arc::default(), whole_namespace: false }
    }

    pub(crate) fn has_keeper(&self) -> bool {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|keeper| !has_ended(keeper))
    }

    pub(crate) fn remember_keeper(&self, keeper: Arc<OwnedFd>) {
        let mut keepers = self.keepers.lock().unwrap_or_else(PoisonError::into_inner);
        keepers.retain(|keeper| !has_ended(keeper));
        keepers.push(keeper);
    }

    /// Kills what it finds in the control group, and waits a moment for its end. Returns whether there is no member.
    pub(crate) fn has_no_member(&self) -> bool {
        self.group.as_ref().is_none_or(|group| group.is_empty_or_killed())
    }

    /// Removes the control group, if there is one. No process may be left in it.
    pub fn dissolve(&self) {
        // An empty group that stays does no harm.
        let _ = self.remove_group();
    }

    /// [`dissolve`](Self::dissolve), and returns whether no group is left, so that it has no member.
    pub(crate) fn remove_group(&self) -> bool {
        self.group.as_ref().is_none_or(|group| group.remove().is_ok())
    }
}
