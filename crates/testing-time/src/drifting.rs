//! [`DriftingClock`]: a view of a mock clock at another rate, as the clocks of two machines have (I1).

use crate::MockClock;
use vvm_clock::{Clock, Instant, Sleep};

/// The rate of a clock relative to another, in whole parts per million, so that results are exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u32);

impl Rate {
    /// The rate of the underlying clock.
    pub const SAME: Self = Self(1_000_000);

    /// A stopped clock. It violates the assumption of I1, for tests of the fence (I2).
    pub const STOPPED: Self = Self(0);

    /// Returns the rate at which `parts` nanoseconds pass for a million of the underlying clock: 900,000 is
    /// 10 % slow, 1,100,000 is 10 % fast.
    pub const fn parts_per_million(parts: u32) -> Self {
        Self(parts)
    }

    /// Returns the nanoseconds that pass at this rate in `beneath` nanoseconds of the underlying clock.
    const fn scaled(self, beneath: u64) -> u64 {
        saturated(beneath as u128 * self.0 as u128 / Self::SAME.0 as u128)
    }

    /// Returns the fewest nanoseconds of the underlying clock in which `here` pass at this rate; `u64::MAX`
    /// if they never do.
    const fn beneath(self, here: u64) -> u64 {
        if here == 0 {
            return 0;
        }
        if self.0 == 0 {
            return u64::MAX;
        }
        saturated((here as u128 * Self::SAME.0 as u128).div_ceil(self.0 as u128))
    }
}

const fn saturated(nanos: u128) -> u64 {
    if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 }
}

/// A mock clock seen at another rate and from another origin. Clones share the underlying clock.
///
/// A sleep ends at the first instant of the underlying clock at which this view shows the deadline.
#[derive(Clone, Debug)]
pub struct DriftingClock {
    beneath: MockClock,
    rate: Rate,
    /// One instant on both scales.
    began: Instant,
    showed: Instant,
}

impl DriftingClock {
    /// Returns a view that shows `reading` now, and runs at `rate`.
    pub fn new(beneath: MockClock, rate: Rate, reading: Instant) -> Self {
        Self { began: beneath.now(), showed: reading, beneath, rate }
    }

    /// Returns the underlying clock.
    pub fn beneath(&self) -> &MockClock {
        &self.beneath
    }

    /// Returns this view's time when the underlying clock shows `beneath`.
    fn shown_at(&self, beneath: Instant) -> Instant {
        let passed = self.rate.scaled(beneath.as_nanos().saturating_sub(self.began.as_nanos()));
        Instant::from_nanos(self.showed.as_nanos().saturating_add(passed))
    }

    /// Returns the first instant of the underlying clock at which this view shows `reading`.
    fn when(&self, reading: Instant) -> Instant {
        if reading == Instant::NEVER {
            return Instant::NEVER;
        }
        let wait = self.rate.beneath(reading.as_nanos().saturating_sub(self.showed.as_nanos()));
        Instant::from_nanos(self.began.as_nanos().saturating_add(wait))
    }
}

impl Clock for DriftingClock {
    fn now(&self) -> Instant {
        self.shown_at(self.beneath.now())
    }

    fn sleep_until(&self, deadline: Instant) -> Sleep {
        self.beneath.sleep_until(self.when(deadline))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    #[test]
    fn view_starts_at_its_reading_and_runs_at_its_rate() {
        let beneath = MockClock::starting_at(Instant::from_nanos(7));
        let reading = Instant::from_nanos(1_000);
        let slow = DriftingClock::new(beneath.clone(), Rate::parts_per_million(900_000), reading);
        let fast = DriftingClock::new(beneath.clone(), Rate::parts_per_million(1_100_000), reading);
        let stopped = DriftingClock::new(beneath.clone(), Rate::STOPPED, reading);
        beneath.advance(Duration::from_secs(10));
        assert_eq!(slow.now().since(reading), Duration::from_secs(9));
        assert_eq!(fast.now().since(reading), Duration::from_secs(11));
        assert_eq!(stopped.now(), reading);
    }

    #[test]
    fn sleepers_belong_to_the_underlying_clock() {
        let beneath = MockClock::new();
        let slow = DriftingClock::new(beneath.clone(), Rate::parts_per_million(900_000), Instant::ORIGIN);
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let mut sleep = slow.sleep(Duration::from_secs(9));
        assert!(sleep.as_mut().poll(&mut cx).is_pending());
        assert_eq!(beneath.advance_to_next(), Some(Instant::ORIGIN.after(Duration::from_secs(10))));
        assert!(sleep.as_mut().poll(&mut cx).is_ready());
    }

    #[test]
    fn deadline_that_never_comes_is_never_on_the_underlying_clock() {
        let view = |rate| DriftingClock::new(MockClock::new(), rate, Instant::ORIGIN);
        assert_eq!(view(Rate::parts_per_million(2_000_000)).when(Instant::NEVER), Instant::NEVER);
        assert_eq!(view(Rate::STOPPED).when(Instant::from_nanos(1)), Instant::NEVER);
        assert_eq!(view(Rate::STOPPED).when(Instant::ORIGIN), Instant::ORIGIN);
    }

    proptest! {
        #[test]
        fn sleep_ends_at_the_first_instant_that_shows_its_deadline(
            began in 0..u64::MAX / 4,
            showed in 0..u64::MAX / 4,
            wait in 1..u64::MAX / 4,
            rate in 500_000_u32..2_000_000,
        ) {
            let rate = Rate::parts_per_million(rate);
            let beneath = MockClock::starting_at(Instant::from_nanos(began));
            let view = DriftingClock::new(beneath.clone(), rate, Instant::from_nanos(showed));
            let deadline = Instant::from_nanos(showed + wait);
            let ends = view.when(deadline);
            prop_assume!(ends != Instant::NEVER);
            beneath.advance_to(ends.before(Duration::from_nanos(1)));
            prop_assert!(view.now() < deadline, "late: {:?} a nanosecond before the end", view.now());
            beneath.advance_to(ends);
            prop_assert!(view.now() >= deadline, "early: {:?} at the end", view.now());
        }

        #[test]
        fn readings_never_go_back_or_overflow(
            began: u64,
            showed: u64,
            rate: u32,
            mut moments in prop::array::uniform2(any::<u64>()),
        ) {
            moments.sort_unstable();
            let beneath = MockClock::starting_at(Instant::from_nanos(began));
            let view = DriftingClock::new(beneath, Rate(rate), Instant::from_nanos(showed));
            let [early, late] = moments.map(Instant::from_nanos);
            prop_assert!(view.shown_at(early) <= view.shown_at(late));
            prop_assert!(view.when(early) <= view.when(late));
        }
    }
}
