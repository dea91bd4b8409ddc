//! The levels of containment, and the level that a caller asks for.

use std::fmt;

/// What keeps a command's processes from getting away. Each level has everything that
/// [`Guardian`](Self::Guardian) has, and one thing on top.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Guardian and supervisor: each ends everything when the other dies.
    Guardian,
    /// A control group for the command, whose members the kernel kills at once.
    ControlGroup,
    /// A PID namespace for the command, which the kernel ends with the supervisor.
    PidNamespace,
}

/// `guardian`, `cgroup` or `pidns`.
impl fmt::Display for Level {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Guardian => "guardian",
            Self::ControlGroup => "cgroup",
            Self::PidNamespace => "pidns",
        })
    }
}

/// The level that a caller asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// The best level that changes nothing for the command. In a PID namespace, its processes have other
    /// numbers.
    Auto,
    /// This level. If the machine refuses it, nothing is started.
    Exactly(Level),
}
