//! Messages of the host to its guardian, which keeps them for the end or forwards them to a service manager.

use ielections::{Epoch, Incarnation};
use rustix::process::Signal;
use std::fmt;
use vvm_containment::Note;

/// A message to the guardian.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ToGuardian {
    /// A leadership began. The guardian reports it if the host dies.
    Leading(Leading),
    /// For a service manager.
    State(HostState),
    /// The last message: how `vvm` is to end.
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

/// The state of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HostState {
    pub(crate) activity: Activity,
    /// Slot and epoch of the leadership, if there is one.
    pub(crate) leading: Option<(u32, Epoch)>,
}

/// What a host does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Activity {
    Waiting,
    Leading,
    /// It leads, and the command is to be restarted.
    Restarting,
    /// It leads, and the command has ended.
    Holding,
    /// Another campaign may follow.
    Stopping,
    /// No other campaign follows.
    StoppingForGood,
    Ended,
}

const ACTIVITIES: [(Activity, &str, &str); 7] = [
    (Activity::Waiting, "waiting for leadership", ""),
    (Activity::Leading, "leading", ""),
    (Activity::Restarting, "restarting", ", no command runs"),
    (Activity::Holding, "holding", ", no command runs"),
    (Activity::Stopping, "stopping", ""),
    (Activity::StoppingForGood, "stopping", ""),
    (Activity::Ended, "ended", ""),
];

/// For people.
impl fmt::Display for HostState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, before, after) = ACTIVITIES[self.activity as usize];
        match self.leading {
            None => out.write_str(before),
            Some((slot, epoch)) => write!(out, "{before}: slot {slot}, epoch {epoch}{after}"),
        }
    }
}

impl From<ToGuardian> for Note {
    fn from(message: ToGuardian) -> Self {
        let (kind, words) = match message {
            ToGuardian::Leading(Leading { slot, epoch, incarnation }) => {
                let number = u128::from_le_bytes(*incarnation.as_bytes());
                (0, [u64::from(slot), epoch.get(), number as u64, (number >> 64) as u64])
            }
            ToGuardian::Farewell(Farewell::Exit(status)) => (1, [u64::from(status), 0, 0, 0]),
            ToGuardian::Farewell(Farewell::DieOf(signal)) => {
                (2, [u64::from(signal.as_raw().unsigned_abs()), 0, 0, 0])
            }
            // No epoch is 0.
            ToGuardian::State(HostState { activity, leading }) => {
                let (slot, epoch) = leading.map_or((0, 0), |(slot, epoch)| (slot, epoch.get()));
                (3, [u64::from(slot), epoch, activity as u64, 0])
            }
        };
        Self { kind, words }
    }
}

impl ToGuardian {
    /// Returns `None` for a message of another version.
    pub(crate) fn read(note: Note) -> Option<Self> {
        let [first, second, third, fourth] = note.words;
        let leading = || Some((u32::try_from(first).ok()?, Epoch::new(second).ok()?));
        Some(match note.kind {
            0 => {
                let (slot, epoch) = leading()?;
                let number = u128::from(third) | u128::from(fourth) << 64;
                let incarnation = Incarnation::from_bytes(number.to_le_bytes());
                Self::Leading(Leading { slot, epoch, incarnation })
            }
            1 => Self::Farewell(Farewell::Exit(u8::try_from(first).ok()?)),
            2 => Self::Farewell(Farewell::DieOf(Signal::from_named_raw(i32::try_from(first).ok()?)?)),
            3 => {
                let (activity, ..) = *ACTIVITIES.get(usize::try_from(third).ok()?)?;
                Self::State(HostState { activity, leading: leading() })
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_note_is_read_back() {
        let incarnation = Incarnation::from_bytes(std::array::from_fn(|place| place as u8));
        let epoch = Epoch::new(Epoch::MAX).unwrap();
        let mut messages = vec![
            ToGuardian::Leading(Leading { slot: u32::MAX, epoch, incarnation }),
            ToGuardian::Farewell(Farewell::Exit(255)),
            ToGuardian::Farewell(Farewell::DieOf(Signal::INT)),
        ];
        for (activity, ..) in ACTIVITIES {
            for leading in [None, Some((7, epoch))] {
                messages.push(ToGuardian::State(HostState { activity, leading }));
            }
        }
        for message in messages {
            assert_eq!(ToGuardian::read(message.into()), Some(message));
        }
        assert_eq!(ToGuardian::read(Note { kind: 4, words: [0; 4] }), None);
        assert_eq!(ToGuardian::read(Note { kind: 3, words: [0, 0, 7, 0] }), None);
    }
}
