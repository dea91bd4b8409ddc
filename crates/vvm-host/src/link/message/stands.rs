//! How a host stands, as its guardian hears it.

use super::{Frame, frame};
use ielections::Epoch;
use std::fmt;

/// What a host does, in a few words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stands {
    Waiting,
    Leading {
        slot: u32,
        epoch: Epoch,
    },
    /// Holds its slot, and runs no command.
    Idling {
        slot: u32,
        epoch: Epoch,
        /// Whether one is to be started again.
        restarts: bool,
    },
    Stopping {
        slot: u32,
        epoch: Epoch,
        /// Whether it is certain that no other campaign follows.
        for_good: bool,
    },
    Ended,
}

/// For people.
impl fmt::Display for Stands {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting => out.write_str("waiting for leadership"),
            Self::Leading { slot, epoch } => write!(out, "leading, slot {slot}, epoch {epoch}"),
            Self::Idling { slot, epoch, restarts: true } => {
                write!(out, "restarting, slot {slot}, epoch {epoch}: no command runs")
            }
            Self::Idling { slot, epoch, restarts: false } => {
                write!(out, "holding, slot {slot}, epoch {epoch}: no command runs")
            }
            Self::Stopping { slot, epoch, .. } => write!(out, "stopping, slot {slot}, epoch {epoch}"),
            Self::Ended => out.write_str("ended"),
        }
    }
}

/// A message of its own for each.
impl Stands {
    pub(super) fn to_frame(self) -> Frame {
        match self {
            Self::Waiting => frame(20, []),
            Self::Leading { slot, epoch } => frame(21, [u64::from(slot), epoch.get()]),
            Self::Stopping { slot, epoch, for_good } => {
                frame(22, [u64::from(slot), epoch.get(), u64::from(for_good)])
            }
            Self::Ended => frame(23, []),
            Self::Idling { slot, epoch, restarts } => {
                frame(24, [u64::from(slot), epoch.get(), u64::from(restarts)])
            }
        }
    }

    /// `None` for what is something else.
    pub(super) fn from_frame(frame: &Frame) -> Option<Self> {
        let [first, second, third, _] = frame.words;
        let leadership = || Some((u32::try_from(first).ok()?, Epoch::new(second).ok()?));
        Some(match frame.kind {
            20 => Self::Waiting,
            21 => leadership().map(|(slot, epoch)| Self::Leading { slot, epoch })?,
            22 => leadership().map(|(slot, epoch)| Self::Stopping { slot, epoch, for_good: third != 0 })?,
            23 => Self::Ended,
            24 => leadership().map(|(slot, epoch)| Self::Idling { slot, epoch, restarts: third != 0 })?,
            _ => return None,
        })
    }
}
