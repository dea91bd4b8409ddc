//! [`Readings`]: all clocks of the machine at one moment, for whoever examines the machine. Nothing else
//! needs more than one of them.

use std::time::Duration;

/// What the machine's clocks show at about one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Readings {
    /// Since boot, suspends included: the clock of [`Clock`](crate::Clock).
    pub boot: Duration,
    /// Since boot, without suspends. What keeps the wall clock in step (NTP) corrects its rate, and that of
    /// `boot` with it.
    pub monotonic: Duration,
    /// The same as the hardware counts, corrected by nobody.
    pub raw: Duration,
    /// Since 1970-01-01 UTC.
    pub wall: Duration,
    /// From the first to the last of them that was read: as much they may be apart from one another.
    pub spread: Duration,
}

impl Readings {
    /// Reads them. `None` where the system has no such clocks (elsewhere than on Linux).
    #[cfg(target_os = "linux")]
    pub fn take() -> Option<Self> {
        use rustix::time::{ClockId, Timespec, clock_gettime};
        let since_zero = |time: Timespec| {
            let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
            // Before 1970, a wall clock can't be told; the other clocks have no time before their zero.
            Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default())
        };
        let read = |clock| since_zero(clock_gettime(clock));
        let once = || {
            let began = read(ClockId::Monotonic);
            let (boot, raw, wall) =
                (read(ClockId::Boottime), read(ClockId::MonotonicRaw), read(ClockId::Realtime));
            let monotonic = read(ClockId::Monotonic);
            Self { boot, monotonic, raw, wall, spread: monotonic.saturating_sub(began) }
        };
        // A thread that is set aside in between reads them apart.
        (0..TRIALS).map(|_| once()).min_by_key(|readings| readings.spread)
    }

    /// As on Linux.
    #[cfg(not(target_os = "linux"))]
    pub fn take() -> Option<Self> {
        None
    }

    /// How long the machine was suspended since it booted, up to the spread.
    pub fn suspended(&self) -> Duration {
        let suspended = self.boot.saturating_sub(self.monotonic);
        // They are read one after the other.
        if suspended <= self.spread.max(LEAST) { Duration::ZERO } else { suspended }
    }
}

#[cfg(target_os = "linux")]
const TRIALS: u32 = 5;

/// No suspend is shorter.
const LEAST: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn all_of_them_go_on() {
        let first = Readings::take().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let second = Readings::take().unwrap();
        let least = Duration::from_millis(19);
        assert!(second.boot - first.boot >= least && second.monotonic - first.monotonic >= least);
        assert!(second.raw - first.raw >= least, "{first:?}, {second:?}");
        // Nothing suspends a machine in the middle of its tests.
        assert_eq!(first.suspended(), second.suspended());
        assert!(second.wall > Duration::from_secs(1_600_000_000), "{second:?}");
    }

    #[test]
    fn a_suspend_is_what_one_counts_and_the_other_does_not() {
        let seconds = Duration::from_secs;
        let readings = Readings {
            boot: seconds(100),
            monotonic: seconds(70),
            raw: seconds(70),
            wall: seconds(1),
            spread: Duration::from_micros(1),
        };
        assert_eq!(readings.suspended(), seconds(30));
        assert_eq!(Readings { monotonic: seconds(100), ..readings }.suspended(), Duration::ZERO);
        // Read last, it may be ahead.
        let last = Duration::from_nanos(100_000_000_200);
        assert_eq!(Readings { monotonic: last, ..readings }.suspended(), Duration::ZERO);
    }
}
