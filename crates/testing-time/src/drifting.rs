//! A view of a mock clock that runs at a rate of its own: what two machines' clocks are to each other (I1
//! assumes that their rates differ by at most 10 %).

use crate::MockClock;
use vvm_clock::{Clock, Instant, Sleep};

/// How fast a clock runs beside another, in whole parts per million, so that the same steps always give the
/// same readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u32);

impl Rate {
    /// As fast as the clock underneath.
    pub const SAME: Self = Self(1_000_000);

    /// Stands still: a stopped clock, outside of what I1 assumes, for tests of the fence (I2).
    pub const STOPPED: Self = Self(0);

    /// `parts` nanoseconds pass here while a million pass underneath: 900,000 is 10 % slow, 1,100,000 is 10 %
    /// fast.
    pub const fn parts_per_million(parts: u32) -> Self {
        Self(parts)
    }

    /// What has passed here, in whole nanoseconds, when `beneath` have passed underneath.
    const fn scaled(self, beneath: u64) -> u64 {
        saturated(beneath as u128 * self.0 as u128 / Self::SAME.0 as u128)
    }

    /// The fewest nanoseconds underneath after which `here` have passed here; `u64::MAX` when they never
    /// will.
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

/// A mock clock seen at another rate and from another origin. Clones share the clock underneath, which alone
/// moves.
///
/// A sleep ends at the first moment underneath at which this view shows its deadline: never early on its own
/// scale, and never a nanosecond later than it must.
#[derive(Clone, Debug)]
pub struct DriftingClock {
    beneath: MockClock,
    rate: Rate,
    /// One moment, on both scales.
    began: Instant,
    showed: Instant,
}

impl DriftingClock {
    /// A view that shows `reading` at this moment, and runs at `rate` from here.
    pub fn new(beneath: MockClock, rate: Rate, reading: Instant) -> Self {
        Self { began: beneath.now(), showed: reading, beneath, rate }
    }

    /// The clock underneath.
    pub fn beneath(&self) -> &MockClock {
        &self.beneath
    }

    /// What this view shows when the clock underneath shows `beneath`.
    fn shown_at(&self, beneath: Instant) -> Instant {
        let passed = self.rate.scaled(beneath.as_nanos().saturating_sub(self.began.as_nanos()));
        Instant::from_nanos(self.showed.as_nanos().saturating_add(passed))
    }

    /// The first moment underneath at which this view shows `reading`.
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
    fn runs_at_its_rate_from_its_reading() {
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
    fn sleepers_are_those_of_the_clock_beneath() {
        let beneath = MockClock::new();
        let slow = DriftingClock::new(beneath.clone(), Rate::parts_per_million(900_000), Instant::ORIGIN);
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let mut sleep = slow.sleep(Duration::from_secs(9));
        assert!(sleep.as_mut().poll(&mut cx).is_pending());
        assert_eq!(beneath.advance_to_next(), Some(Instant::ORIGIN.after(Duration::from_secs(10))));
        assert!(sleep.as_mut().poll(&mut cx).is_ready());
    }

    #[test]
    fn a_deadline_that_never_comes_is_none_underneath() {
        let view = |rate| DriftingClock::new(MockClock::new(), rate, Instant::ORIGIN);
        assert_eq!(view(Rate::parts_per_million(2_000_000)).when(Instant::NEVER), Instant::NEVER);
        assert_eq!(view(Rate::STOPPED).when(Instant::from_nanos(1)), Instant::NEVER);
        assert_eq!(view(Rate::STOPPED).when(Instant::ORIGIN), Instant::ORIGIN);
    }

    proptest! {
        /// There and back: a sleep ends when its deadline shows, and not while an earlier reading shows.
        #[test]
        fn a_sleep_is_never_early_and_never_later_than_it_must(
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
            prop_assert!(view.now() < deadline, "late: {:?} shows a nanosecond before", view.now());
            beneath.advance_to(ends);
            prop_assert!(view.now() >= deadline, "early: {:?} shows at the end", view.now());
        }

        /// However large the numbers: readings never go back, and nothing overflows.
        #[test]
        fn readings_never_go_back(began: u64, showed: u64, rate: u32, mut moments in prop::array::uniform2(any::<u64>())) {
            moments.sort_unstable();
            let beneath = MockClock::starting_at(Instant::from_nanos(began));
            let view = DriftingClock::new(beneath, Rate::parts_per_million(rate), Instant::from_nanos(showed));
            let [early, late] = moments.map(Instant::from_nanos);
            prop_assert!(view.shown_at(early) <= view.shown_at(late));
            prop_assert!(view.when(early) <= view.when(late));
        }
    }
}
