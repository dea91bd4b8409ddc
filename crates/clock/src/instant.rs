//! A point on one clock's time line. No wall-clock form, no arithmetic that could go wrong silently.

use std::{fmt, time::Duration};

/// A point in time, in nanoseconds since an origin of the clock's own choosing.
///
/// For [`SystemClock`](crate::SystemClock) on Linux the origin is boot, so that values compare between
/// processes of one boot and one time namespace; for every other clock they mean nothing outside it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The clock's origin.
    pub const ORIGIN: Self = Self(0);

    /// A later point than every other: a deadline that never comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// The point `nanos` nanoseconds after the clock's origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The point `span` later; [`Instant::NEVER`] when that is past the end of time (584 years).
    #[must_use]
    pub const fn after(self, span: Duration) -> Self {
        let nanos = span.as_nanos();
        if nanos > (u64::MAX - self.0) as u128 {
            return Self::NEVER;
        }
        Self(self.0 + nanos as u64)
    }

    /// The point `span` earlier; the origin when that is before it.
    #[must_use]
    pub const fn before(self, span: Duration) -> Self {
        let nanos = span.as_nanos();
        if nanos > self.0 as u128 {
            return Self::ORIGIN;
        }
        Self(self.0 - nanos as u64)
    }

    /// The last point not after this one that lies a multiple of `grain` after the clock's origin; this one
    /// when `grain` is zero.
    #[must_use]
    pub const fn floor(self, grain: Duration) -> Self {
        let nanos = grain.as_nanos();
        if nanos == 0 {
            return self;
        }
        if nanos > self.0 as u128 {
            return Self::ORIGIN;
        }
        Self(self.0 - self.0 % nanos as u64)
    }

    /// How long from here until `later`; zero when `later` has passed.
    pub const fn until(self, later: Self) -> Duration {
        Duration::from_nanos(later.0.saturating_sub(self.0))
    }

    /// How long from `earlier` until here; zero when `earlier` is still to come.
    pub const fn since(self, earlier: Self) -> Duration {
        earlier.until(self)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NEVER => out.write_str("never"),
            Self(nanos) => write!(out, "@{:?}", Duration::from_nanos(nanos)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Instant::from_nanos(5).before(Duration::from_nanos(6)), Instant::ORIGIN);
        assert_eq!(Instant::from_nanos(5).after(Duration::MAX), Instant::NEVER);
        assert_eq!(Instant::NEVER.after(Duration::from_nanos(1)), Instant::NEVER);
    }

    #[test]
    fn until_and_since_are_zero_the_wrong_way_round() {
        let early = Instant::from_nanos(10);
        let late = early.after(Duration::from_secs(1));
        assert_eq!(early.until(late), Duration::from_secs(1));
        assert_eq!(late.until(early), Duration::ZERO);
        assert_eq!(late.since(early), Duration::from_secs(1));
    }

    #[test]
    fn a_floor_is_a_multiple_of_its_grain_and_not_later() {
        let floor = |nanos, grain| Instant::from_nanos(nanos).floor(Duration::from_nanos(grain)).as_nanos();
        assert_eq!([floor(29, 10), floor(30, 10), floor(9, 10)], [20, 30, 0]);
        assert_eq!(floor(29, 0), 29);
        assert_eq!(Instant::from_nanos(29).floor(Duration::MAX), Instant::ORIGIN);
    }
}
