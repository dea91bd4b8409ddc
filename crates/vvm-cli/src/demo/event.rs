//! [`Event`]: one thing that happened on the stage, when, and to whom. Everything that is shown or judged is made of these.

use crate::terminal_view::Colour;
use ielections::Epoch;
use rustix::process::Pid;
use std::fmt;
use vvm_clock::Instant;
use vvm_containment::Ended;

/// A candidate: the place of one `vvm run` after another, as a machine that is started again after a crash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Lane {
    A,
    B,
    C,
}

impl Lane {
    /// From top to bottom.
    pub(crate) const ALL: [Self; 3] = [Self::A, Self::B, Self::C];

    /// The lane whose holder is called so.
    pub(crate) fn of_holder(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|lane| lane.name() == name)
    }

    /// Its colour on a terminal.
    pub(crate) fn colour(self) -> Colour {
        match self {
            Self::A => Colour::Teal,
            Self::B => Colour::Violet,
            Self::C => Colour::Orange,
        }
    }

    /// What it is called, in the record too.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
        }
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// One thing that happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    pub(crate) at: Instant,
    pub(crate) lane: Lane,
    pub(crate) what: What,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    /// A `vvm run` was started; it has this number.
    Started(Pid),
    /// The record names it, under a new epoch.
    Elected(Epoch),
    /// The record of this epoch has a new version.
    Renewed(Epoch),
    /// The record of this epoch is gone: handed back.
    Released(Epoch),
    /// The first line of a worker.
    WorkBegan(Epoch, Pid),
    /// The last line of a worker.
    WorkEnded(Epoch, Pid),
    /// `kill -9` of guardian, host and worker at once.
    Crashed,
    /// SIGTERM to the guardian.
    AskedToStop,
    /// SIGSTOP to the host.
    HostStopped,
    /// When the host stopped for ever had to be dead; known only afterwards.
    Deadline,
    /// The host stopped for ever is dead.
    HostDied,
    /// The `vvm run` is gone, and whatever it had started.
    Left(Ended),
}

impl What {
    /// The name in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Started(_) => "started",
            Self::Elected(_) => "elected",
            Self::Renewed(_) => "renewed",
            Self::Released(_) => "released",
            Self::WorkBegan(..) => "work_began",
            Self::WorkEnded(..) => "work_ended",
            Self::Crashed => "crashed",
            Self::AskedToStop => "asked_to_stop",
            Self::HostStopped => "host_stopped",
            Self::Deadline => "deadline",
            Self::HostDied => "host_died",
            Self::Left(_) => "left",
        }
    }

    /// The epoch that it is about.
    pub(crate) fn epoch(self) -> Option<Epoch> {
        match self {
            Self::Elected(epoch)
            | Self::Renewed(epoch)
            | Self::Released(epoch)
            | Self::WorkBegan(epoch, _)
            | Self::WorkEnded(epoch, _) => Some(epoch),
            _ => None,
        }
    }

    /// The process that it is about.
    pub(crate) fn process(self) -> Option<Pid> {
        match self {
            Self::Started(process) | Self::WorkBegan(_, process) | Self::WorkEnded(_, process) => {
                Some(process)
            }
            _ => None,
        }
    }
}

/// A sentence.
impl fmt::Display for Event {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lane = self.lane;
        match self.what {
            What::Started(guardian) => write!(out, "{lane} is started (vvm run, process {guardian})"),
            What::Elected(epoch) => write!(out, "{lane} leads, epoch {epoch}"),
            What::Renewed(_) => write!(out, "{lane} renews"),
            What::Released(_) => write!(out, "{lane} has handed back: the record is free"),
            What::WorkBegan(_, worker) => write!(out, "{lane}'s worker begins (process {worker})"),
            What::WorkEnded(_, worker) => write!(out, "{lane}'s worker has written its last line ({worker})"),
            What::Crashed => write!(out, "kill -9 of {lane}'s guardian, host and worker, as in a crash"),
            What::AskedToStop => write!(out, "SIGTERM to {lane}: please stop"),
            What::HostStopped => write!(out, "SIGSTOP to {lane}'s host: it hangs, its worker goes on"),
            What::Deadline => write!(out, "{lane}'s deadline: 0.8 TTL after its last renewal was sent"),
            What::HostDied => write!(out, "the kernel has ended {lane}'s host, which could do nothing"),
            What::Left(ended) => write!(out, "{lane} {ended}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_a_lane_and_a_stranger_is_none() {
        for lane in Lane::ALL {
            assert_eq!(Lane::of_holder(&lane.to_string()), Some(lane));
        }
        assert_eq!(Lane::of_holder("somebody:1"), None);
    }
}
