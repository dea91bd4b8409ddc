//! [`Epoch`]: the fencing token.

use std::{fmt, num::NonZeroU64, time::Duration};

/// A fencing token, strictly larger for each new leadership of a key, across expiry, release and restart
/// (I2).
///
/// At most `i64::MAX`, the largest number that every supported database stores (CQL `bigint`, SQLite
/// `INTEGER`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(NonZeroU64);

/// The number is not an epoch: zero, or above `i64::MAX`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0} is not an epoch: it must be between 1 and 9223372036854775807")]
pub struct EpochOutOfRange(pub u64);

impl Epoch {
    /// The largest epoch. With one leadership each millisecond it lasts for 292 million years.
    pub const MAX: u64 = i64::MAX as u64;

    /// # Errors
    /// When `number` is zero or above [`Epoch::MAX`].
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

    /// Formats an epoch for messages: `epoch 5`, or `no epoch`.
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
}
