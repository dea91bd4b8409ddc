use std::{fmt, time::Duration};

/// A point in time, in nanoseconds since the clock's origin.
///
/// The origin of [`SystemClock`](crate::SystemClock) on Linux is the boot, so its values can be compared
/// between processes in one time namespace. Values of other clocks have no meaning outside the clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The clock's origin.
    pub const ORIGIN: Self = Self(0);

    /// The latest point: a deadline that never comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// Returns the point `nanos` nanoseconds after the clock's origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the clock's origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the point `span` later; [`Instant::NEVER`] on overflow (584 years).
    #[must_use]
    pub const fn after(self, span: Duration) -> Self {
        let nanos = span.as_nanos();
        if nanos > (u64::MAX - self.0) as u128 {
            return Self::NEVER;
        }
        Self(self.0 + nanos as u64)
    }

    /// Returns the point `span` earlier, or the origin if that is later.
    #[must_use]
    pub const fn before(self, span: Duration) -> Self {
        let nanos = span.as_nanos();
        if nanos > self.0 as u128 {
            return Self::ORIGIN;
        }
        Self(self.0 - nanos as u64)
    }

    /// Rounds down to a multiple of `grain` since the clock's origin. Changes nothing if `grain` is zero.
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

    /// Returns the time from here until `later`; zero if `later` is earlier.
    pub const fn until(self, later: Self) -> Duration {
        Duration::from_nanos(later.0.saturating_sub(self.0))
    }

    /// Returns the time from `earlier` until here; zero if `earlier` is later.
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

/// Formats a duration for messages: `20s`, `1.5s`, `50ms`, `300µs`. Rounds to a thousandth of the unit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DisplayDuration(pub Duration);

impl fmt::Display for DisplayDuration {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let (unit, name) = match nanos {
            1_000_000_000.. => (1_000_000_000, "s"),
            1_000_000.. => (1_000_000, "ms"),
            _ => (1_000, "µs"),
        };
        let thousandths = (nanos * 1_000 + unit / 2) / unit;
        let (whole, rest) = (thousandths / 1_000, thousandths % 1_000);
        // Without an allocation, because the deadman formats it while the allocator may be locked.
        match rest {
            0 => write!(out, "{whole}{name}"),
            _ if rest % 100 == 0 => write!(out, "{whole}.{}{name}", rest / 100),
            _ if rest % 10 == 0 => write!(out, "{whole}.{:02}{name}", rest / 10),
            _ => write!(out, "{whole}.{rest:03}{name}"),
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
    fn until_and_since_are_zero_for_swapped_instants() {
        let early = Instant::from_nanos(10);
        let late = early.after(Duration::from_secs(1));
        assert_eq!(early.until(late), Duration::from_secs(1));
        assert_eq!(late.until(early), Duration::ZERO);
        assert_eq!(late.since(early), Duration::from_secs(1));
    }

    #[test]
    fn floor_is_a_multiple_of_its_grain_and_not_later() {
        let floor = |nanos, grain| Instant::from_nanos(nanos).floor(Duration::from_nanos(grain)).as_nanos();
        assert_eq!([floor(29, 10), floor(30, 10), floor(9, 10)], [20, 30, 0]);
        assert_eq!(floor(29, 0), 29);
        assert_eq!(Instant::from_nanos(29).floor(Duration::MAX), Instant::ORIGIN);
    }

    #[test]
    fn duration_is_shown_in_its_unit_without_trailing_zeros() {
        let shown = |nanos| DisplayDuration(Duration::from_nanos(nanos)).to_string();
        assert_eq!(shown(0), "0µs");
        assert_eq!(shown(300_000), "300µs");
        assert_eq!(shown(50_000_000), "50ms");
        assert_eq!(shown(1_234_567), "1.235ms");
        assert_eq!(shown(1_500_000_000), "1.5s");
        assert_eq!(shown(20_000_000_000), "20s");
        assert_eq!(shown(86_400_000_000_000), "86400s");
    }
}
