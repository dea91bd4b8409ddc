//! [`OperatorRequests`]: records by which an operator pauses a name, or has a leader step down. A request is a small
//! record in a partition of its own, which the verbs of leader records move: it is claimed when it is made, renewed for
//! each stage, and released at its end. The text of a step-down's record is `v2 SLOT EPOCH LIFETIME_MS STANDBY`.

use crate::key::SlotNumber;
use ielections::{
    Entry, Epoch, Holder, Incarnation, Slot, Ttl, Version,
    record::{EpochOutOfRange, HolderTooLong},
};
use std::{
    num::NonZeroU32,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use vvm_clock::Instant;

/// The requests of operators to one cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OperatorRequests {
    /// No member may lead.
    pub pause: Option<Pause>,
    /// One leader shall step down.
    pub step_down: Option<StepDown>,
}

/// A pause: no member of the cluster may lead until an operator resumes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pause {
    entry: Entry,
}

/// The identity of a request, and when it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// Random, and fresh for every attempt: tells one request from another.
    pub incarnation: Incarnation,
    /// The operator's wall clock, since 1970. For display only.
    pub since_unix_epoch: Duration,
}

impl Pause {
    /// Returns the operator and the reason. For display only.
    pub fn by(&self) -> &str {
        self.entry.holder.as_str()
    }

    /// Returns the operator alone.
    pub fn author(&self) -> &str {
        self.by().split_once(": ").map_or(self.by(), |(author, _)| author)
    }

    /// Returns the reason, if the operator gave one.
    pub fn reason(&self) -> Option<&str> {
        self.by().split_once(": ").map(|(_, reason)| reason)
    }

    /// Returns the time of the pause, since 1970 on the operator's wall clock. For display only.
    pub fn since_unix_epoch(&self) -> Duration {
        wall_time(&self.entry)
    }

    /// Whether `ask` made this pause.
    pub fn is(&self, ask: Ask) -> bool {
        self.entry.incarnation() == ask.incarnation
    }

    pub(crate) fn entry(by: &Holder, last: Option<Epoch>, ask: Ask) -> Result<Entry, EpochOutOfRange> {
        // The TTL of a pause is not used.
        request(by.clone(), Ttl::DEFAULT, last, ask)
    }

    pub(crate) fn standing(&self) -> &Entry {
        &self.entry
    }

    /// Returns the pause in `slot`. A pause has no format number: whatever a later version writes beside it,
    /// a held record is a pause to every version.
    pub(crate) fn from_slot(slot: &Slot) -> Option<Self> {
        slot.entry().map(|entry| Self { entry: entry.clone() })
    }
}

/// Its epoch follows the wall clock, as every epoch does, and so shows when the request was made.
fn request(text: Holder, ttl: Ttl, last: Option<Epoch>, ask: Ask) -> Result<Entry, EpochOutOfRange> {
    let version = Version { incarnation: ask.incarnation, write: 0 };
    Ok(Entry { holder: text, version, ttl, epoch: Epoch::following(last, ask.since_unix_epoch)? })
}

fn wall_time(entry: &Entry) -> Duration {
    Duration::from_millis(entry.epoch.get())
}

const FORMAT: u32 = 2;

/// One leader shall stop its work and release its slot, once. A cluster has at most one; a later one replaces it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepDown {
    /// The slot to release.
    pub slot: SlotNumber,
    /// The epoch of the leadership to end. Every other leadership ignores the request.
    pub of: Epoch,
    /// The standby that shall lead next; `None` for any but the one that steps down.
    pub to: Option<Holder>,
    /// How far it has come.
    pub stage: Stage,
    lifetime: Duration,
    entry: Entry,
}

/// How far a step-down has come. Each stage is one write that compares the stage before, and stages only
/// advance. So an operator that has withdrawn a request knows that the leader has not begun and never will.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// The operator has made the request.
    Asked,
    /// A standby has answered: the one that shall lead next, or any.
    Accepted,
    /// The leader stops its work.
    Begun,
    /// The operator has withdrawn the request before the leader began.
    Withdrawn,
}

/// The outcome of advancing a step-down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StageChange {
    /// It was advanced, and is now this.
    Done(StepDown),
    /// Another process was faster. This stands there, if it is a step-down.
    Overtaken(Option<StepDown>),
}

impl StepDown {
    /// The longest name of a standby that a request has room for, in bytes.
    pub const MAX_TO_BYTES: usize = Holder::MAX_BYTES - "v2 4294967295 9223372036854775807 4294967295 ".len();

    /// How long a request is valid until the leader begins. An operator's command waits at most 15 s for each answer
    /// (standby, leader) and withdraws the request then.
    pub const LIFETIME: Duration = Duration::from_secs(30);

    /// Returns the identity of this request.
    pub fn incarnation(&self) -> Incarnation {
        self.entry.incarnation()
    }

    /// How long other candidates hold back, each counted from its first claim that is refused.
    pub fn first_chance(&self) -> Duration {
        self.entry.ttl.get()
    }

    /// How long an observer heeds it until the leader has begun: see [`RequestExpiry`].
    pub fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// Returns the time of the request, since 1970 on the operator's wall clock. For display only.
    pub fn since_unix_epoch(&self) -> Duration {
        wall_time(&self.entry)
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
        let (lifetime, to) = (Self::LIFETIME.as_millis(), to.map_or("", Holder::as_str));
        let text = format!("v{FORMAT} {slot} {of} {lifetime} {to}");
        Ok(request(Holder::new(text)?, first_chance, last, ask)?)
    }

    pub(crate) fn at(&self, stage: Stage) -> Entry {
        self.entry.renewed(Version { write: stage.number(), ..self.entry.version })
    }

    pub(crate) fn standing(&self) -> &Entry {
        &self.entry
    }

    /// Returns the step-down in `slot`. `None` if the slot is vacant, or its record is not one of a format
    /// that this version knows: such a request has no effect here.
    pub(crate) fn from_slot(slot: &Slot) -> Option<Self> {
        let entry = slot.entry()?;
        let mut parts = entry.holder.as_str().strip_prefix("v2 ")?.splitn(4, ' ');
        let number = SlotNumber::new(parts.next()?.parse::<NonZeroU32>().ok()?);
        let of = Epoch::new(parts.next()?.parse().ok()?).ok()?;
        let lifetime = Duration::from_millis(parts.next()?.parse::<u32>().ok()?.into());
        let to = Some(parts.next()?).filter(|to| !to.is_empty());
        let to = to.map(Holder::new).transpose().ok()?;
        let stage = Stage::from_number(entry.version.write)?;
        Some(Self { slot: number, of, to, stage, lifetime, entry: entry.clone() })
    }

    /// Fails if a later version of this program has written the request in `slot`: it must not be replaced.
    pub(crate) fn check_format(slot: &Slot) -> Result<(), UnknownFormat> {
        let text = slot.entry().and_then(|entry| entry.holder.as_str().strip_prefix('v'));
        match text.and_then(|text| text.split(' ').next()?.parse().ok()) {
            Some(found) if found > FORMAT => Err(UnknownFormat { found }),
            _ => Ok(()),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the step-down request that stands has format {found}, and this program knows format {FORMAT}: use the \
     version of vvm that made it"
)]
pub(crate) struct UnknownFormat {
    found: u32,
}

#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum StepDownRefused {
    #[error("the name of the standby is too long: at most {} bytes", StepDown::MAX_TO_BYTES)]
    To(#[from] HolderTooLong),
    #[error(transparent)]
    Epoch(#[from] EpochOutOfRange),
}

/// Reads bytes as the text of a step-down request. Returns whether they are one. For tests of damaged input.
#[cfg(feature = "testing")]
pub fn decodes(bytes: &[u8]) -> bool {
    let ask = Ask { incarnation: Incarnation::from_bytes([1; 16]), since_unix_epoch: Duration::ZERO };
    let text = str::from_utf8(bytes).ok().and_then(|text| Holder::new(text).ok());
    let entry = text.and_then(|text| request(text, Ttl::DEFAULT, None, ask).ok());
    let slot = entry.map(|entry| Slot::Held { entry, proven_age: None });
    slot.is_some_and(|slot| StepDown::check_format(&slot).is_ok() & StepDown::from_slot(&slot).is_some())
}

impl Stage {
    const ALL: [Self; 4] = [Self::Asked, Self::Accepted, Self::Begun, Self::Withdrawn];

    /// Returns the number of the write that sets this stage: the same from every writer, so no stage has two versions.
    const fn number(self) -> u64 {
        match self {
            Self::Asked => 0,
            Self::Accepted => 1,
            Self::Begun => 2,
            Self::Withdrawn => 3,
        }
    }

    fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.number() == number)
    }
}

/// Finds step-down requests that one process has seen for longer than their lifetime.
///
/// The command that made a request may be killed and leave it behind. Without an expiry, a standby of the
/// named holder that starts hours later would depose the leader. Age counts on the observer's own clock from
/// its first look at the request, whatever stage it reaches later: wall clocks of two machines may differ.
/// A request whose leader has begun does not expire.
#[derive(Debug, Default)]
pub struct RequestExpiry {
    seen: Mutex<Option<(Incarnation, Instant)>>,
}

impl RequestExpiry {
    /// Removes a step-down that has expired by `now` from `requests`, and returns it.
    pub fn take_expired(&self, requests: &mut OperatorRequests, now: Instant) -> Option<StepDown> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        requests.step_down.take_if(|request| {
            let same = seen.filter(|(incarnation, _)| *incarnation == request.incarnation());
            let (_, since) = *seen.insert(same.unwrap_or((request.incarnation(), now)));
            request.stage < Stage::Begun && now >= since.after(request.lifetime)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(number: u8) -> Ask {
        Ask { incarnation: Incarnation::from_bytes([number; 16]), since_unix_epoch: Duration::ZERO }
    }

    fn held(text: &str, write: u64) -> Slot {
        let entry = request(Holder::new(text).unwrap(), Ttl::DEFAULT, None, ask(1)).unwrap();
        let entry = entry.renewed(Version { write, ..entry.version });
        Slot::Held { entry, proven_age: None }
    }

    #[test]
    fn longest_name_of_a_standby_fits_and_one_more_byte_does_not() {
        let slot = SlotNumber::new(NonZeroU32::MAX);
        let of = Epoch::new(Epoch::MAX).unwrap();
        let entry = |bytes| {
            let to = Holder::new("x".repeat(bytes)).unwrap();
            StepDown::entry((slot, of, Some(&to)), Ttl::DEFAULT, None, ask(1))
        };
        // The lifetime that is written is shorter than the longest.
        let spare = "4294967295".len() - StepDown::LIFETIME.as_millis().to_string().len();
        let longest = StepDown::MAX_TO_BYTES + spare;
        let found = StepDown::from_slot(&Slot::Held { entry: entry(longest).unwrap(), proven_age: None });
        assert_eq!(found.unwrap().to.unwrap().as_str().len(), longest);
        assert!(matches!(entry(longest + 1), Err(StepDownRefused::To(_))));
    }

    #[test]
    fn malformed_step_down_is_ignored() {
        for text in [
            "",
            "v2 1",
            "v2 1 2",
            "1 2 3 a",
            "v2 0 2 3 a",
            "v2 1 0 3 a",
            "v2 one 2 3 a",
            "v2 1 two 3 a",
            "v2 1 2 a",
            "v2 1 2 -1 a",
            "v3 1 2 3 a",
        ] {
            assert_eq!(StepDown::from_slot(&held(text, 0)), None, "{text:?}");
        }
    }

    #[test]
    fn request_is_read_and_one_of_a_later_format_is_refused_by_number() {
        let request = StepDown::from_slot(&held("v2 1 7 1500 b c", 1)).unwrap();
        assert_eq!((request.lifetime(), request.to.unwrap().as_str()), (Duration::from_millis(1500), "b c"));
        assert_eq!(StepDown::check_format(&held("v2 1 7 1500 ", 0)), Ok(()));
        let refusal = StepDown::check_format(&held("v3 anything", 0)).unwrap_err().to_string();
        assert!(refusal.contains("has format 3") && refusal.contains("knows format 2"), "{refusal}");
    }

    #[test]
    fn request_left_behind_expires_for_an_observer_unless_its_leader_has_begun() {
        let expiry = RequestExpiry::default();
        let step_down = |stage: Stage| StepDown::from_slot(&held("v2 1 7 1000 b", stage.number()));
        let at = |millis| Instant::ORIGIN.after(Duration::from_millis(millis));
        let heeded = |stage, now| {
            let mut requests =
                OperatorRequests { step_down: step_down(stage), ..OperatorRequests::default() };
            let expired = expiry.take_expired(&mut requests, at(now));
            assert_ne!(requests.step_down.is_some(), expired.is_some());
            expired.is_none()
        };
        assert!(heeded(Stage::Asked, 0));
        assert!(heeded(Stage::Accepted, 999));
        assert!(!heeded(Stage::Asked, 1_000));
        assert!(!heeded(Stage::Accepted, 3_600_000), "a standby that came late does not revive it");
        assert!(heeded(Stage::Begun, 3_600_000));

        let later = request(Holder::new("v2 1 7 1000 b").unwrap(), Ttl::DEFAULT, None, ask(2)).unwrap();
        let later = StepDown::from_slot(&Slot::Held { entry: later, proven_age: None });
        let mut requests = OperatorRequests { step_down: later, ..OperatorRequests::default() };
        assert_eq!(expiry.take_expired(&mut requests, at(3_600_001)), None, "a new request counts anew");
    }
}
