//! [`Requests`]: what an operator asks of those who campaign and lead: to pause a name, to step down from a
//! slot.
//!
//! A request is a small record in a partition of its own, which every driver can hold, because it is moved by
//! the verbs of leader records: claimed when it is asked for, renewed when it gets on, released when it is
//! over. Nothing ends it but a write, and whoever may lead may make one.
//!
//! What lives here: the words, and how they stand in a record. The calls are `ElectionsTtlStorage`'s; what
//! follows from a request is for the host to do.

use crate::SlotNumber;
use ielections::{Entry, Epoch, Holder, Incarnation, Slot, Ttl, Version};
use std::{num::NonZeroU32, time::Duration};

/// What is asked of a cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Requests {
    /// Nobody shall lead.
    pub pause: Option<Pause>,
    /// One leader shall step down.
    pub step_down: Option<StepDown>,
}

/// Nobody shall lead in this cluster until the pause is taken back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pause {
    entry: Entry,
}

/// One leader shall stop its work and release its slot, once.
///
/// There is at most one in a cluster; a later one replaces it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepDown {
    /// From which slot.
    pub slot: SlotNumber,
    /// Under which epoch it is led. A request says nothing about any other leadership, so one that was left
    /// behind does no harm.
    pub of: Epoch,
    /// Who shall come next; `None` for anybody but who steps down.
    pub to: Option<Holder>,
    /// How far it has come.
    pub stage: Stage,
    entry: Entry,
}

/// How far a step-down has come. It only ever goes on to a later stage, each time by one write that compares
/// the one before: so whoever withdraws a request knows that the leader has not begun, and never will.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// By the operator.
    Asked,
    /// The standby that shall come next is there.
    Accepted,
    /// The leader stops its work.
    Begun,
    /// By the operator, before it began: it is as if it had never been asked for.
    Withdrawn,
}

/// Who asks, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// Random, and fresh for every attempt: it tells one request from another.
    pub incarnation: Incarnation,
    /// The wall clock's time, for people.
    pub since_unix_epoch: Duration,
}

/// What came of moving a step-down on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Advanced {
    /// It stands there now.
    Done(StepDown),
    /// Somebody else was faster; this is what stands there, if it is a step-down.
    Overtaken(Option<StepDown>),
}

impl Pause {
    /// Who paused, and why: for people.
    pub fn by(&self) -> &str {
        self.entry.holder.as_str()
    }

    /// When, on the wall clock of who paused, since 1970: for people.
    pub fn since_unix_epoch(&self) -> Duration {
        wall(&self.entry)
    }

    /// Whether it is the one that was asked for with these.
    pub fn is(&self, ask: Ask) -> bool {
        self.entry.incarnation() == ask.incarnation
    }

    pub(crate) fn entry(
        by: &Holder,
        last: Option<Epoch>,
        ask: Ask,
    ) -> Result<Entry, ielections::record::EpochOutOfRange> {
        // Nothing counts a pause's TTL.
        request(by.clone(), Ttl::DEFAULT, last, ask)
    }

    pub(crate) fn standing(&self) -> &Entry {
        &self.entry
    }

    pub(crate) fn of(slot: &Slot) -> Option<Self> {
        slot.entry().map(|entry| Self { entry: entry.clone() })
    }
}

impl StepDown {
    /// The longest name of a standby that a request has room for, in bytes.
    pub const MAX_TO_BYTES: usize = Holder::MAX_BYTES - "4294967295 9223372036854775807 ".len();

    /// Which request this is.
    pub fn incarnation(&self) -> Incarnation {
        self.entry.incarnation()
    }

    /// How long those who shall not come next hold back, each from when it would have claimed the slot.
    pub fn first_chance(&self) -> Duration {
        self.entry.ttl.get()
    }

    /// When it was asked for, on the wall clock of who did, since 1970: for people.
    pub fn since_unix_epoch(&self) -> Duration {
        wall(&self.entry)
    }

    /// Whether it is about this leadership.
    pub fn is_about(&self, slot: SlotNumber, epoch: Option<Epoch>) -> bool {
        self.slot == slot && Some(self.of) == epoch
    }

    pub(crate) fn entry(
        (slot, of, to): (SlotNumber, Epoch, Option<&Holder>),
        first_chance: Ttl,
        last: Option<Epoch>,
        ask: Ask,
    ) -> Result<Entry, StepDownRefused> {
        let text = format!("{slot} {of} {}", to.map_or("", Holder::as_str));
        Ok(request(Holder::new(text)?, first_chance, last, ask)?)
    }

    /// The record at a later stage.
    pub(crate) fn at(&self, stage: Stage) -> Entry {
        self.entry.renewed(Version { write: stage.number(), ..self.entry.version })
    }

    pub(crate) fn standing(&self) -> &Entry {
        &self.entry
    }

    /// `None` also for what a later version of this program may have put there.
    pub(crate) fn of(slot: &Slot) -> Option<Self> {
        let entry = slot.entry()?;
        let mut parts = entry.holder.as_str().splitn(3, ' ');
        let number = SlotNumber::new(parts.next()?.parse::<NonZeroU32>().ok()?);
        let of = Epoch::new(parts.next()?.parse().ok()?).ok()?;
        let to = Some(parts.next()?).filter(|to| !to.is_empty());
        let to = to.map(Holder::new).transpose().ok()?;
        let stage = Stage::of(entry.version.write)?;
        Some(Self { slot: number, of, to, stage, entry: entry.clone() })
    }
}

/// A step-down that can't be written down.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum StepDownRefused {
    #[error("the name of the standby is too long: at most {} bytes", StepDown::MAX_TO_BYTES)]
    To(#[from] ielections::record::HolderTooLong),
    #[error(transparent)]
    Epoch(#[from] ielections::record::EpochOutOfRange),
}

impl Stage {
    const ALL: [Self; 4] = [Self::Asked, Self::Accepted, Self::Begun, Self::Withdrawn];

    /// Which write of its record a stage is: whoever writes it, it is the same write, and no stage has two.
    const fn number(self) -> u64 {
        match self {
            Self::Asked => 0,
            Self::Accepted => 1,
            Self::Begun => 2,
            Self::Withdrawn => 3,
        }
    }

    fn of(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.number() == number)
    }
}

/// The epoch of a request follows the wall clock like every epoch, which tells when it was made.
fn request(
    text: Holder,
    ttl: Ttl,
    last: Option<Epoch>,
    ask: Ask,
) -> Result<Entry, ielections::record::EpochOutOfRange> {
    let version = Version { incarnation: ask.incarnation, write: 0 };
    Ok(Entry { holder: text, version, ttl, epoch: Epoch::following(last, ask.since_unix_epoch)? })
}

fn wall(entry: &Entry) -> Duration {
    Duration::from_millis(entry.epoch.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_fits_and_one_more_byte_does_not() {
        let slot = SlotNumber::new(NonZeroU32::MAX);
        let of = Epoch::new(Epoch::MAX).unwrap();
        let ask = Ask { incarnation: Incarnation::from_bytes([1; 16]), since_unix_epoch: Duration::ZERO };
        let entry = |bytes| {
            let to = Holder::new("x".repeat(bytes)).unwrap();
            StepDown::entry((slot, of, Some(&to)), Ttl::DEFAULT, None, ask)
        };
        let found =
            StepDown::of(&Slot::Held { entry: entry(StepDown::MAX_TO_BYTES).unwrap(), proven_age: None });
        assert_eq!(found.unwrap().to.unwrap().as_str().len(), StepDown::MAX_TO_BYTES);
        assert!(matches!(entry(StepDown::MAX_TO_BYTES + 1), Err(StepDownRefused::To(_))));
    }

    #[test]
    fn what_is_no_step_down_is_none() {
        let ask = Ask { incarnation: Incarnation::from_bytes([1; 16]), since_unix_epoch: Duration::ZERO };
        for text in ["", "1", "1 2", "0 2 a", "1 0 a", "one 2 a", "1 two a"] {
            let entry = request(Holder::new(text).unwrap(), Ttl::DEFAULT, None, ask).unwrap();
            assert_eq!(StepDown::of(&Slot::Held { entry, proven_age: None }), None, "{text:?}");
        }
    }
}
