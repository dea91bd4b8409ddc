//! Passing signals to the command. Only its parent may: until that one reaps it, its number names no other
//! process.

use crate::{processes::group_of, signals::ForwardedSignal};
use rustix::{
    io,
    process::{Pid, kill_process, kill_process_group},
};

/// A hold on the command, for its parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChildHandle {
    pub(crate) pid: Pid,
    pub(crate) group: Group,
}

/// The process group that the command was started in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Group {
    /// One that it leads. All of it gets the signals.
    Own,
    /// The terminal's, whose number is none where it belongs to a PID namespace above.
    Terminal(Option<Pid>),
}

impl ChildHandle {
    /// Passes a signal on, unless the command has it already.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn pass_on(&self, ForwardedSignal { signal, delivered }: ForwardedSignal) -> io::Result<()> {
        // A terminal signals a group, which the command may have left.
        let stayed = matches!(self.group, Group::Terminal(group) if group_of(self.pid) == group);
        match self.group {
            _ if delivered && stayed => Ok(()),
            Group::Terminal(_) => kill_process(self.pid, signal),
            Group::Own => kill_process_group(self.pid, signal),
        }
    }
}
