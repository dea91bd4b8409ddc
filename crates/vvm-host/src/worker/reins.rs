//! Passing signals to the command. Only its parent may: until that one reaps it, its number means nobody else.

use super::supervise::Passed;
use crate::{announce::say, processes::group_of, signals};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// A hold on the command, for its parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reins {
    pub(crate) worker: Pid,
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

impl Reins {
    /// Passes a signal on, unless the command has it already.
    pub(crate) fn pass_on(&self, Passed { signal, delivered }: Passed) {
        // A terminal signals a group, which the worker may have left.
        let stayed = matches!(self.group, Group::Terminal(group) if group_of(self.worker) == group);
        if !(delivered && stayed) {
            self.signal(signal);
        }
    }

    fn signal(&self, signal: Signal) {
        let sent = match self.group {
            Group::Terminal(_) => kill_process(self.worker, signal),
            Group::Own => kill_process_group(self.worker, signal),
        };
        if let Err(refusal) = sent {
            let name = signals::name(signal);
            say!("{name} can't be passed on to process {}: {refusal}", self.worker);
        }
    }
}
