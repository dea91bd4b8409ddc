//! [`State`]: the state of a process at its deadline.

use clap::ValueEnum;
use serde::Serialize;
use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum State {
    /// It waits.
    Idle,
    /// Every thread of its async runtime spins and never yields.
    Spinning,
    /// Every thread of its async runtime, and its main thread, are in a system call that does not return.
    Blocked,
    /// It was stopped with SIGSTOP, so none of its threads runs.
    Stopped,
    /// Its async runtime waits for a storage that does not answer.
    StorageHung,
}

impl State {
    pub(crate) const ALL: [Self; 5] =
        [Self::Idle, Self::Spinning, Self::Blocked, Self::Stopped, Self::StorageHung];

    /// Returns whether a process in this state writes signs of life, which show when it last ran.
    pub(crate) fn leaves_signs(self) -> bool {
        self == Self::Spinning
    }

    /// Returns how many processes in this state can run at once. A spinning one takes every processor.
    pub(crate) fn at_a_time(self) -> usize {
        match self {
            Self::Spinning => 1,
            Self::Idle | Self::Blocked | Self::Stopped | Self::StorageHung => 4,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::Idle => "idle",
            Self::Spinning => "spinning on all runtime threads",
            Self::Blocked => "blocked in a system call",
            Self::Stopped => "stopped with SIGSTOP",
            Self::StorageHung => "storage hung",
        })
    }
}
