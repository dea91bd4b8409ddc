use std::time::Duration;

/// Readings of the machine's clocks at about one moment, each as a time since that clock's zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Readings {
    /// Time since boot with suspends: the clock of [`SystemClock`](crate::SystemClock).
    pub boot: Duration,
    /// Time since boot without suspends. NTP adjusts the rate of this clock and of `boot`.
    pub monotonic: Duration,
    /// Time since boot without suspends, at the rate of the hardware: NTP does not adjust it.
    pub raw: Duration,
    /// Time since 1970-01-01 UTC.
    pub wall: Duration,
    /// The time between the first and the last reading: two fields can be compared only up to this.
    pub spread: Duration,
}

impl Readings {
    /// Reads the clocks.
    pub fn take() -> Self {
        use rustix::time::{ClockId, Timespec, clock_gettime};
        let since_zero = |time: Timespec| {
            let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
            // A date before 1970 becomes zero. The other clocks are never negative.
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
        // A thread may be preempted between two readings, so the closest of several trials counts.
        (1..TRIALS).fold(once(), |best, _| {
            let next = once();
            if next.spread < best.spread { next } else { best }
        })
    }

    /// Returns how long the machine was suspended since its boot. Wrong by up to `spread`.
    pub fn suspended(&self) -> Duration {
        let suspended = self.boot.saturating_sub(self.monotonic);
        // A smaller difference comes from reading the clocks one after the other.
        if suspended <= self.spread.max(SHORTEST_SUSPEND) { Duration::ZERO } else { suspended }
    }
}

const TRIALS: u32 = 5;

const SHORTEST_SUSPEND: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_clocks_advance() {
        let first = Readings::take();
        std::thread::sleep(Duration::from_millis(20));
        let second = Readings::take();
        let least = Duration::from_millis(19);
        assert!(second.boot - first.boot >= least && second.monotonic - first.monotonic >= least);
        assert!(second.raw - first.raw >= least, "{first:?}, {second:?}");
        // The machine is not suspended during its tests.
        assert_eq!(first.suspended(), second.suspended());
        assert!(second.wall > Duration::from_secs(1_600_000_000), "{second:?}");
    }

    #[test]
    fn suspend_is_the_difference_of_the_two_clocks() {
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
        // `monotonic` is read last, so it may be ahead.
        let last = Duration::from_nanos(100_000_000_200);
        assert_eq!(Readings { monotonic: last, ..readings }.suspended(), Duration::ZERO);
    }
}
