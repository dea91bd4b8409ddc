//! [`Ttl`]: how long a record stands without renewal.

use std::{fmt, time::Duration};
use vvm_clock::Span;

/// The leadership duration: fixed for the life of a leadership and written into its record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(Duration);

/// The duration can't be a TTL.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a TTL of {} is out of range: between 100ms and 24h", Span(*.0))]
pub struct TtlOutOfRange(pub Duration);

impl Ttl {
    /// The default of the reference (`DefaultLeadershipDurationSeconds`).
    pub const DEFAULT: Self = Self(Duration::from_secs(20));

    /// Below this, scheduling delays of an ordinary machine (tens of milliseconds) exceed the margins of
    /// [`Timing`](crate::Timing). A driver may need more ([`Limits::min_ttl`](crate::Limits)).
    pub const MIN: Duration = Duration::from_millis(100);

    /// Above this, a crash would leave a slot without a leader for too long.
    pub const MAX: Duration = Duration::from_secs(24 * 3600);

    /// # Errors
    /// When `duration` is below [`Ttl::MIN`] or above [`Ttl::MAX`].
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
        Span(self.0).fmt(out)
    }
}
