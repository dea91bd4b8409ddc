//! The vocabulary of the protocol: the leadership record, its parts, and the states of a slot.

use std::{fmt, num::NonZeroU64, str::FromStr, sync::Arc, time::Duration};
use vvm_clock::DisplayDuration;

/// A leadership record, as one write left it.
///
/// It has its writer's TTL. An observer must wait for that one: an observer that waits for its own TTL takes
/// over from a live leader with a longer one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Entry {
    /// The name of the leader, for people. Never an identity.
    pub holder: Holder,
    /// Identifies the write. Equal versions mean the same write.
    pub version: Version,
    /// How long after its write an observer must wait before taking over.
    pub ttl: Ttl,
    /// The fencing token: constant over renewals, larger for each new leadership of the key.
    pub epoch: Epoch,
}

impl Entry {
    /// Identifies the acquisition attempt of this record.
    pub fn incarnation(&self) -> Incarnation {
        self.version.incarnation
    }

    /// Returns the record that a renewal writes: the same leadership with a new version.
    #[must_use]
    pub fn renewed(&self, version: Version) -> Self {
        Self { version, ..self.clone() }
    }

    /// Whether `other` is the same write: the condition of a renewal or take-over.
    pub fn is_same_write(&self, other: &Self) -> bool {
        self.version == other.version && self.epoch == other.epoch
    }

    /// Whether it belongs to this leadership, in any version: the condition of a release.
    pub fn is_of(&self, incarnation: Incarnation, epoch: Epoch) -> bool {
        self.incarnation() == incarnation && self.epoch == epoch
    }

    /// Orders the records of one slot by age: a smaller one was written earlier.
    pub fn age_order(&self) -> (Epoch, u64) {
        (self.epoch, self.version.write)
    }
}

/// A slot without a record. Its epoch survives every release.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Vacant {
    /// The epoch of the last leadership; `None` if there was none.
    pub last_epoch: Option<Epoch>,
}

/// The state of a slot. Two with the same record or last epoch are equal: a proven age depends on reader and moment.
#[derive(Clone, Debug)]
pub enum Slot {
    /// Never led, or released. A slot with an *expired* record stays `Held` until a candidate takes it over (I5).
    Vacant(Vacant),
    /// The slot has a record, whether or not its leader is alive.
    Held {
        /// The record.
        entry: Entry,
        /// The record was written at least this long ago. Only if the driver can *prove* it without wall clocks (same
        /// process, or same boot and time namespace). With `None` an observer counts from its first read.
        proven_age: Option<Duration>,
    },
}

impl Slot {
    /// The record, if the slot has one.
    pub fn entry(&self) -> Option<&Entry> {
        match self {
            Self::Held { entry, .. } => Some(entry),
            Self::Vacant(_) => None,
        }
    }

    /// Whether the slot is as `expected` by a claim: the same last epoch if vacant, the same write if held.
    pub fn is_as_expected(&self, expected: &Self) -> bool {
        match (self, expected) {
            (Self::Vacant(stands), Self::Vacant(expected)) => stands == expected,
            (Self::Held { entry: stands, .. }, Self::Held { entry: expected, .. }) => {
                stands.is_same_write(expected)
            }
            (Self::Vacant(_), Self::Held { .. }) | (Self::Held { .. }, Self::Vacant(_)) => false,
        }
    }

    /// The largest epoch this slot has had.
    pub fn last_epoch(&self) -> Option<Epoch> {
        match self {
            Self::Held { entry, .. } => Some(entry.epoch),
            Self::Vacant(vacant) => vacant.last_epoch,
        }
    }
}

impl PartialEq for Slot {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Vacant(vacant), Self::Vacant(other)) => vacant == other,
            (Self::Held { entry, .. }, Self::Held { entry: other, .. }) => entry == other,
            (Self::Vacant(_), Self::Held { .. }) | (Self::Held { .. }, Self::Vacant(_)) => false,
        }
    }
}

impl Eq for Slot {}

impl fmt::Display for Slot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held { entry, .. } => write!(out, "held by {} under epoch {}", entry.holder, entry.epoch),
            Self::Vacant(Vacant { last_epoch: Some(epoch) }) => write!(out, "vacant, last epoch {epoch}"),
            Self::Vacant(Vacant { last_epoch: None }) => out.write_str("vacant, never led"),
        }
    }
}

/// A fencing token, strictly larger for each new leadership of a key, across expiry, release and restart (I2).
///
/// At most `i64::MAX`, the largest number that every supported database stores (CQL `bigint`, SQLite `INTEGER`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(NonZeroU64);

/// The number is not an epoch: zero, or above `i64::MAX`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0} is not an epoch: it must be between 1 and 9223372036854775807")]
pub struct EpochOutOfRange(pub u64);

impl Epoch {
    /// The largest epoch. With one leadership each millisecond it lasts for 292 million years.
    pub const MAX: u64 = i64::MAX as u64;

    /// Fails if `number` is zero or above [`Epoch::MAX`].
    pub const fn new(number: u64) -> Result<Self, EpochOutOfRange> {
        match NonZeroU64::new(number) {
            Some(nonzero) if number <= Self::MAX => Ok(Self(nonzero)),
            _ => Err(EpochOutOfRange(number)),
        }
    }

    /// Returns the epoch of the leadership after `last`: `max(last + 1, unix milliseconds)`. The wall clock
    /// matters only after a restore from backup: it keeps epochs rising although the storage forgot some.
    ///
    /// # Errors
    /// If there is no larger epoch, which only a corrupt record can cause.
    pub fn following(last: Option<Self>, since_unix_epoch: Duration) -> Result<Self, EpochOutOfRange> {
        let counted = last.map_or(1, |epoch| epoch.get().saturating_add(1));
        let wall = u64::try_from(since_unix_epoch.as_millis()).unwrap_or(0);
        // A wall clock beyond the range is wrong and must not use up the last epoch.
        let wall = if wall < Self::MAX { wall } else { 0 };
        Self::new(counted.max(wall))
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    pub(crate) fn or_none(epoch: Option<Self>) -> impl fmt::Display {
        fmt::from_fn(move |out| match epoch {
            Some(epoch) => write!(out, "epoch {epoch}"),
            None => out.write_str("no epoch"),
        })
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "epoch {}", self.0)
    }
}

/// 128 random bits, fresh for every acquisition *attempt*.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation([u8; 16]);

impl Incarnation {
    /// From 16 random bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The 16 bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// 32 hexadecimal digits.
impl fmt::Display for Incarnation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Eight digits are enough to tell attempts apart in a log.
        self.0.iter().take(4).try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

/// The text is not 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an incarnation is 32 hexadecimal digits")]
pub struct NotAnIncarnation;

impl FromStr for Incarnation {
    type Err = NotAnIncarnation;

    fn from_str(text: &str) -> Result<Self, NotAnIncarnation> {
        // `from_str_radix` alone would accept a sign.
        if text.len() != 32 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(NotAnIncarnation);
        }
        let number = u128::from_str_radix(text, 16).map_err(|_| NotAnIncarnation)?;
        Ok(Self(number.to_be_bytes()))
    }
}

/// Identifies one write attempt. The writer chooses it before it sends, so that a read-back recognises a
/// write without an answer, and an observer sees that a record is unchanged (I7).
///
/// New for *every* attempt, also of a renewal: by the incarnation alone, a lost renewal would count as applied.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Version {
    /// The acquisition attempt.
    pub incarnation: Incarnation,
    /// The number of the write, from 0; larger for every later attempt.
    pub write: u64,
}

impl Version {
    /// The version of the attempt after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self { incarnation: self.incarnation, write: self.write + 1 }
    }
}

/// The leadership duration: fixed for the life of a leadership and written into its record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(Duration);

/// The duration can't be a TTL.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a TTL of {} is out of range: between 100ms and 24h", DisplayDuration(*.0))]
pub struct TtlOutOfRange(pub Duration);

impl Ttl {
    /// 20 s: one renewal every 5 s, and a storage may be away for 8 s before a leadership is lost.
    pub const DEFAULT: Self = Self(Duration::from_secs(20));

    /// Below this, scheduling delays of an ordinary machine (tens of milliseconds) exceed the margins of
    /// [`Timing`](crate::Timing). A driver may need more ([`Limits::min_ttl`](crate::Limits)).
    pub const MIN: Duration = Duration::from_millis(100);

    /// Above this, a crash would leave a slot without a leader for too long.
    pub const MAX: Duration = Duration::from_secs(24 * 3600);

    /// Fails if `duration` is below [`Ttl::MIN`] or above [`Ttl::MAX`].
    pub const fn new(duration: Duration) -> Result<Self, TtlOutOfRange> {
        let nanos = duration.as_nanos();
        if nanos < Self::MIN.as_nanos() || nanos > Self::MAX.as_nanos() {
            return Err(TtlOutOfRange(duration));
        }
        Ok(Self(duration))
    }

    /// The duration.
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl Default for Ttl {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Debug for Ttl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl fmt::Display for Ttl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        DisplayDuration(self.0).fmt(out)
    }
}

/// Address or host name of a leader, at most 255 bytes. Never an identity: another process can have the same
/// address. Records are identified by their [`Version`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder(Arc<str>);

/// The holder name is longer than 255 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a holder name of {0} bytes is too long: at most 255")]
pub struct HolderTooLong(pub usize);

impl Holder {
    /// The longest name, in bytes: a DNS name's limit (RFC 1035).
    pub const MAX_BYTES: usize = 255;

    /// Fails if `name` has more than [`Holder::MAX_BYTES`] bytes.
    pub fn new(name: impl Into<Arc<str>>) -> Result<Self, HolderTooLong> {
        let name = name.into();
        if name.len() > Self::MAX_BYTES {
            return Err(HolderTooLong(name.len()));
        }
        Ok(Self(name))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name, shared.
    pub fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", &*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows I2.
    #[test]
    fn next_epoch_exceeds_the_stored_one_and_is_at_least_the_wall_clock() {
        let last = Epoch::new(41).unwrap();
        assert_eq!(Epoch::following(Some(last), Duration::ZERO).unwrap().get(), 42);
        assert_eq!(Epoch::following(Some(last), Duration::from_millis(7_000)).unwrap().get(), 7_000);
        assert_eq!(Epoch::following(None, Duration::ZERO).unwrap().get(), 1);
    }

    #[test]
    fn wall_clock_out_of_range_does_not_use_up_the_epochs() {
        assert_eq!(Epoch::following(None, Duration::MAX).unwrap().get(), 1);
    }

    /// Shows I2.
    #[test]
    fn largest_epoch_has_no_successor() {
        let last = Epoch::new(Epoch::MAX).unwrap();
        assert!(Epoch::following(Some(last), Duration::ZERO).is_err());
        assert!(Epoch::new(0).is_err());
    }

    #[test]
    fn slots_are_equal_whatever_age_is_proven_and_display_who_holds_them() {
        let entry = Entry {
            holder: Holder::new("a.example").unwrap(),
            version: Version { incarnation: Incarnation::from_bytes([1; 16]), write: 2 },
            ttl: Ttl::DEFAULT,
            epoch: Epoch::new(7).unwrap(),
        };
        let held = |entry: &Entry, proven_age| Slot::Held { entry: entry.clone(), proven_age };
        let slot = held(&entry, None);
        assert_eq!(slot, held(&entry, Some(Duration::from_secs(1))));
        assert_ne!(slot, held(&entry.renewed(entry.version.next()), None));
        let vacant = |last_epoch| Slot::Vacant(Vacant { last_epoch });
        assert_ne!(slot, vacant(Some(entry.epoch)));
        let shown = [slot, vacant(Some(entry.epoch)), vacant(None)].map(|slot| slot.to_string());
        assert_eq!(shown, ["held by a.example under epoch 7", "vacant, last epoch 7", "vacant, never led"]);
    }

    #[test]
    fn incarnation_is_parsed_from_what_it_displays() {
        let incarnation = Incarnation::from_bytes([0xf0; 16]);
        assert_eq!(incarnation.to_string().parse(), Ok(incarnation));
        assert_eq!("+f0".parse::<Incarnation>(), Err(NotAnIncarnation));
        assert_eq!("+0000000000000000000000000000000".parse::<Incarnation>(), Err(NotAnIncarnation));
    }
}
