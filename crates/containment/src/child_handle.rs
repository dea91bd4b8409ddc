//! [`ChildHandle`]: forwards signals to the command. Only for its parent: until that process reaps the
//! command, its number names no other process.

use crate::{processes::group_of, signals::ForwardedSignal};
use rustix::{
    io,
    process::{Pid, kill_process, kill_process_group},
};

/// The command, for its parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChildHandle {
    pub(crate) pid: Pid,
    pub(crate) group: Group,
}

/// The process group that the command was started in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Group {
    /// A group of its own, which gets all signals.
    Own,
    /// The terminal's group. `None` if it belongs to a PID namespace above.
    Terminal(Option<Pid>),
}

impl ChildHandle {
    /// Forwards a signal, unless the command has got it already.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn pass_on(&self, ForwardedSignal { signal, delivered }: ForwardedSignal) -> io::Result<()> {
        // The command may have left the group that the terminal signals.
        let stayed = matches!(self.group, Group::Terminal(group) if group_of(self.pid) == group);
        match self.group {
            _ if delivered && stayed => Ok(()),
            Group::Terminal(_) => kill_process(self.pid, signal),
            Group::Own => kill_process_group(self.pid, signal),
        }
    }
}
