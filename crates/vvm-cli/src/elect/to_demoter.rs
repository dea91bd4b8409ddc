//! [`ToDemoter`]: the messages of `vvm elect` to its demoter.

use crate::notes::Leading;
use rustix::process::Pid;
use vvm_clock::Instant;

/// A message. The demoter acts on the last ones when its sender is dead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ToDemoter {
    /// A claim is about to be sent. `None`: the storage has no record of this host.
    Claim(Option<Leading>),
    /// The kill deadline.
    Deadline(Option<Instant>),
    /// The hooks of this leadership follow.
    Leading(Leading),
    /// A hook is about to be started.
    Starts(Hook),
    /// It runs in this process, which leads a group.
    Runs(Hook, Pid),
    /// It has ended, and whether with success.
    Ended(Hook, bool),
}

/// A hook.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hook {
    OnLead,
    OnLoss,
}

/// The length of a message: its kind and four numbers.
pub(super) const LENGTH: usize = 40;

impl Hook {
    fn of(number: u64) -> Option<Self> {
        [Self::OnLead, Self::OnLoss].into_iter().find(|hook| *hook as u64 == number)
    }
}

impl ToDemoter {
    pub(super) fn to_bytes(self) -> [u8; LENGTH] {
        let (kind, [a, b, c, d]) = match self {
            Self::Claim(claim) => (0, claim.map_or([0; 4], Leading::words)),
            Self::Deadline(None) => (1, [0; 4]),
            Self::Deadline(Some(at)) => (1, [1, at.as_nanos(), 0, 0]),
            Self::Leading(leading) => (2, leading.words()),
            Self::Starts(hook) => (3, [hook as u64, 0, 0, 0]),
            Self::Runs(hook, process) => {
                (4, [hook as u64, u64::from(process.as_raw_pid().unsigned_abs()), 0, 0])
            }
            Self::Ended(hook, success) => (5, [hook as u64, u64::from(success), 0, 0]),
        };
        let mut bytes = [0; LENGTH];
        for (place, word) in bytes.chunks_exact_mut(8).zip([kind, a, b, c, d]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(super) fn of_bytes(bytes: &[u8; LENGTH]) -> Option<Self> {
        let mut words = [0; 5];
        for (word, place) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(place.try_into().ok()?);
        }
        let [kind, first, second, ..] = words;
        let leading = || Leading::of_words([words[1], words[2], words[3], words[4]]);
        Some(match kind {
            0 => Self::Claim(leading()),
            1 => Self::Deadline((first == 1).then(|| Instant::from_nanos(second))),
            2 => Self::Leading(leading()?),
            3 => Self::Starts(Hook::of(first)?),
            4 => Self::Runs(Hook::of(first)?, Pid::from_raw(i32::try_from(second).ok()?)?),
            5 => Self::Ended(Hook::of(first)?, second == 1),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ielections::{Epoch, Incarnation};

    #[test]
    fn every_message_survives_its_bytes() {
        let incarnation = Incarnation::from_bytes(std::array::from_fn(|place| place as u8));
        let leading = Leading { slot: u32::MAX, epoch: Epoch::new(Epoch::MAX).unwrap(), incarnation };
        let mut messages = vec![
            ToDemoter::Claim(None),
            ToDemoter::Claim(Some(leading)),
            ToDemoter::Deadline(None),
            ToDemoter::Deadline(Some(Instant::NEVER)),
            ToDemoter::Leading(leading),
        ];
        for hook in [Hook::OnLead, Hook::OnLoss] {
            messages.extend([ToDemoter::Starts(hook), ToDemoter::Runs(hook, rustix::process::getpid())]);
            messages.extend([true, false].map(|success| ToDemoter::Ended(hook, success)));
        }
        for message in messages {
            assert_eq!(ToDemoter::of_bytes(&message.to_bytes()), Some(message));
        }
        assert_eq!(ToDemoter::of_bytes(&[9; LENGTH]), None);
    }
}
