//! What the host tells its guardian, which keeps it for the end or passes it to a service manager.

use ielections::{Epoch, Incarnation};
use rustix::process::Signal;
use std::fmt;
use vvm_containment::Note;

/// What the host tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ToGuardian {
    /// A leadership began: what the guardian reports if the host can't any more.
    Leading(Leading),
    /// What the host does now, for a service manager.
    Stands(Stands),
    /// The last note: how `vvm` is to end.
    Farewell(Farewell),
}

/// A leadership.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Leading {
    pub(crate) slot: u32,
    pub(crate) epoch: Epoch,
    pub(crate) incarnation: Incarnation,
}

/// How `vvm` is to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Farewell {
    /// With this exit status.
    Exit(u8),
    /// Of this signal, as the command did.
    DieOf(Signal),
}

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

fn note<const N: usize>(kind: u8, content: [u64; N]) -> Note {
    let mut words = [0; 4];
    words[..N].copy_from_slice(&content);
    Note { kind, words }
}

impl From<ToGuardian> for Note {
    fn from(told: ToGuardian) -> Self {
        match told {
            ToGuardian::Leading(Leading { slot, epoch, incarnation }) => {
                let number = u128::from_le_bytes(*incarnation.as_bytes());
                note(0, [u64::from(slot), epoch.get(), number as u64, (number >> 64) as u64])
            }
            ToGuardian::Farewell(Farewell::Exit(status)) => note(1, [u64::from(status)]),
            ToGuardian::Farewell(Farewell::DieOf(signal)) => {
                note(2, [u64::from(signal.as_raw().unsigned_abs())])
            }
            ToGuardian::Stands(Stands::Waiting) => note(3, []),
            ToGuardian::Stands(Stands::Leading { slot, epoch }) => note(4, [u64::from(slot), epoch.get()]),
            ToGuardian::Stands(Stands::Stopping { slot, epoch, for_good }) => {
                note(5, [u64::from(slot), epoch.get(), u64::from(for_good)])
            }
            ToGuardian::Stands(Stands::Ended) => note(6, []),
            ToGuardian::Stands(Stands::Idling { slot, epoch, restarts }) => {
                note(7, [u64::from(slot), epoch.get(), u64::from(restarts)])
            }
        }
    }
}

impl ToGuardian {
    /// `None` for a note of another version.
    pub(crate) fn read(note: Note) -> Option<Self> {
        let [first, second, third, fourth] = note.words;
        let leadership = || Some((u32::try_from(first).ok()?, Epoch::new(second).ok()?));
        Some(match note.kind {
            0 => {
                let (slot, epoch) = leadership()?;
                let number = u128::from(third) | u128::from(fourth) << 64;
                let incarnation = Incarnation::from_bytes(number.to_le_bytes());
                Self::Leading(Leading { slot, epoch, incarnation })
            }
            1 => Self::Farewell(Farewell::Exit(u8::try_from(first).ok()?)),
            2 => Self::Farewell(Farewell::DieOf(Signal::from_named_raw(i32::try_from(first).ok()?)?)),
            3 => Self::Stands(Stands::Waiting),
            4 => leadership().map(|(slot, epoch)| Self::Stands(Stands::Leading { slot, epoch }))?,
            5 => {
                let (slot, epoch) = leadership()?;
                Self::Stands(Stands::Stopping { slot, epoch, for_good: third != 0 })
            }
            6 => Self::Stands(Stands::Ended),
            7 => {
                let (slot, epoch) = leadership()?;
                Self::Stands(Stands::Idling { slot, epoch, restarts: third != 0 })
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_note_survives_its_words() {
        let incarnation = Incarnation::from_bytes(std::array::from_fn(|place| place as u8));
        let epoch = Epoch::new(17).unwrap();
        for told in [
            ToGuardian::Leading(Leading {
                slot: u32::MAX,
                epoch: Epoch::new(Epoch::MAX).unwrap(),
                incarnation,
            }),
            ToGuardian::Stands(Stands::Waiting),
            ToGuardian::Stands(Stands::Leading { slot: 7, epoch }),
            ToGuardian::Stands(Stands::Stopping { slot: 7, epoch, for_good: true }),
            ToGuardian::Stands(Stands::Stopping { slot: 7, epoch, for_good: false }),
            ToGuardian::Stands(Stands::Ended),
            ToGuardian::Stands(Stands::Idling { slot: 7, epoch, restarts: true }),
            ToGuardian::Stands(Stands::Idling { slot: 7, epoch, restarts: false }),
            ToGuardian::Farewell(Farewell::Exit(255)),
            ToGuardian::Farewell(Farewell::DieOf(Signal::INT)),
        ] {
            assert_eq!(ToGuardian::read(told.into()), Some(told));
        }
        assert_eq!(ToGuardian::read(Note { kind: 8, words: [0; 4] }), None);
    }
}
