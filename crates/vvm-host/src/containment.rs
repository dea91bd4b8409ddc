//! What holds the worker's processes together: which levels there are, which one was asked for, which one is in force.
//!
//! What lives here: [`Level`], [`Wanted`], and [`establish`], which finds out whether this machine has the level wanted
//! before anybody campaigns for anything.
//!
//! What does not: killing (`processes`), and starting a worker inside of it (`worker`, `namespace`).

use crate::namespace::{self, refusal::Refusal};
use std::{fmt, str::FromStr};

/// What keeps the worker's processes from getting away. Each level has all that the first one has, and something on top.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Level {
    /// Guardian and host, each of which ends everything when the other one dies.
    Guardian,
    /// A PID namespace of the worker's own, which the kernel ends with the host.
    PidNamespace,
}

/// As on the command line, in the lines for people, and in the result file.
impl fmt::Display for Level {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Guardian => "guardian",
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

/// No level of containment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NotALevel {
    #[error("this version can't contain by cgroup: write auto, guardian or pidns")]
    NotBuilt,
    #[error("write auto, guardian or pidns")]
    Unknown,
}

impl FromStr for Wanted {
    type Err = NotALevel;

    fn from_str(text: &str) -> Result<Self, NotALevel> {
        match text {
            "auto" => Ok(Self::Auto),
            "guardian" => Ok(Self::Exactly(Level::Guardian)),
            "pidns" => Ok(Self::Exactly(Level::PidNamespace)),
            "cgroup" => Err(NotALevel::NotBuilt),
            _ => Err(NotALevel::Unknown),
        }
    }
}

/// The level that will be in force.
///
/// # Errors
/// When the one wanted is not to be had here.
pub(crate) fn establish(wanted: Wanted) -> Result<Level, Refusal> {
    match wanted {
        Wanted::Auto | Wanted::Exactly(Level::Guardian) => Ok(Level::Guardian),
        Wanted::Exactly(Level::PidNamespace) => namespace::try_out().map(|()| Level::PidNamespace),
    }
}
