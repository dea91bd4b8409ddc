//! [`Level`]: the levels of containment.

use std::fmt;

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

/// The level that a caller requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// The best level that the command can't notice. In a PID namespace its processes have other numbers, so
    /// that level is not chosen.
    Auto,
    /// This level, or a refusal.
    Exactly(Level),
}
