//! Messages of the host to its guardian, which keeps them for the end or forwards them to a service manager.

use crate::leadership::Leadership;
use ielections::{Epoch, Incarnation};
use rustix::process::Signal;
use std::fmt;
use vvm_containment::Note;
use vvm_host::operate::LeftBehind;

/// A message to the guardian.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ToGuardian {
    /// A claim is about to be sent, for this leadership. `None`: the storage has no record of this host. The
    /// guardian has the record released if the host dies.
    Claim(Option<Leading>),
    /// A leadership began. The guardian reports it if the host dies.
    Leading(Leading),
    /// The keeper has died, so the host can't prove that the command has ended, and releases nothing. The
    /// guardian can, once it has no child left.
    Unproven,
    /// For a service manager.
    State(HostState),
    /// The last message: how `vvm` is to end.
    Farewell(Farewell),
}

/// A leadership, or one that is claimed.
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
            ToGuardian::Leading(leading) => (0, leading.words()),
            ToGuardian::Claim(claim) => (4, claim.map_or([0; 4], Leading::words)),
            ToGuardian::Farewell(Farewell::Exit(status)) => (1, [u64::from(status), 0, 0, 0]),
            ToGuardian::Farewell(Farewell::DieOf(signal)) => {
                (2, [u64::from(signal.as_raw().unsigned_abs()), 0, 0, 0])
            }
            ToGuardian::Unproven => (5, [0; 4]),
            // No epoch is 0.
            ToGuardian::State(HostState { activity, leading }) => {
                let (slot, epoch) = leading.map_or((0, 0), |(slot, epoch)| (slot, epoch.get()));
                (3, [u64::from(slot), epoch, activity as u64, 0])
            }
        };
        Self { kind, words }
    }
}

impl From<LeftBehind> for Leading {
    fn from(record: LeftBehind) -> Self {
        let LeftBehind { slot, epoch, incarnation, .. } = record;
        Self { slot: slot.get().get(), epoch, incarnation }
    }
}

impl From<&Leadership> for Leading {
    fn from(leadership: &Leadership) -> Self {
        let Leadership { slot, epoch, incarnation, .. } = *leadership;
        Self { slot, epoch, incarnation }
    }
}

impl Leading {
    pub(crate) fn words(self) -> [u64; 4] {
        let number = u128::from_le_bytes(*self.incarnation.as_bytes());
        [u64::from(self.slot), self.epoch.get(), number as u64, (number >> 64) as u64]
    }

    /// Returns `None` if the epoch is 0.
    pub(crate) fn of_words([slot, epoch, low, high]: [u64; 4]) -> Option<Self> {
        let number = u128::from(low) | u128::from(high) << 64;
        Some(Self {
            slot: u32::try_from(slot).ok()?,
            epoch: Epoch::new(epoch).ok()?,
            incarnation: Incarnation::from_bytes(number.to_le_bytes()),
        })
    }
}

impl ToGuardian {
    /// Returns `None` for a message of another version.
    pub(crate) fn read(note: Note) -> Option<Self> {
        let [first, second, third, _] = note.words;
        let leading = || Some((u32::try_from(first).ok()?, Epoch::new(second).ok()?));
        Some(match note.kind {
            0 => Self::Leading(Leading::of_words(note.words)?),
            1 => Self::Farewell(Farewell::Exit(u8::try_from(first).ok()?)),
            2 => Self::Farewell(Farewell::DieOf(Signal::from_named_raw(i32::try_from(first).ok()?)?)),
            3 => {
                let (activity, ..) = *ACTIVITIES.get(usize::try_from(third).ok()?)?;
                Self::State(HostState { activity, leading: leading() })
            }
            4 => Self::Claim(Leading::of_words(note.words)),
            5 => Self::Unproven,
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
        let leading = Leading { slot: u32::MAX, epoch, incarnation };
        let mut messages = vec![
            ToGuardian::Leading(leading),
            ToGuardian::Claim(Some(leading)),
            ToGuardian::Claim(None),
            ToGuardian::Unproven,
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
        assert_eq!(ToGuardian::read(Note { kind: 6, words: [0; 4] }), None);
        assert_eq!(ToGuardian::read(Note { kind: 3, words: [0, 0, 7, 0] }), None);
    }
}
