//! [`IsolatedClock`]: a clock that only its owner advances. A kill deadline on it does not fire when a test
//! advances its own clock by an hour.

use crate::MockClock;
use std::time::Duration;
use vvm_clock::{Clock, Instant, Sleep};

/// A clock that only its owner can advance. Not `Clone`; [`view`](Self::view) gives read access. Once it is
/// dropped, the time of its views never changes again.
#[derive(Debug, Default)]
pub struct IsolatedClock(MockClock);

/// Read access to an [`IsolatedClock`]. Clones share it.
#[derive(Clone, Debug)]
pub struct IsolatedView(MockClock);

impl IsolatedClock {
    /// Returns a clock that shows its origin.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a clock that shows `now`.
    pub fn starting_at(now: Instant) -> Self {
        Self(MockClock::starting_at(now))
    }

    /// Returns the clock for the code under test.
    pub fn view(&self) -> IsolatedView {
        IsolatedView(self.0.clone())
    }

    /// As [`MockClock::advance`].
    pub fn advance(&self, span: Duration) {
        self.0.advance(span);
    }

    /// As [`MockClock::advance_to`].
    pub fn advance_to(&self, instant: Instant) {
        self.0.advance_to(instant);
    }

    /// As [`MockClock::advance_to_next`].
    pub fn advance_to_next(&self) -> Option<Instant> {
        self.0.advance_to_next()
    }

    /// As [`MockClock::sleepers`].
    pub fn sleepers(&self) -> usize {
        self.0.sleepers()
    }

    /// As [`MockClock::next_deadline`].
    pub fn next_deadline(&self) -> Option<Instant> {
        self.0.next_deadline()
    }
}

impl Clock for IsolatedView {
    fn now(&self) -> Instant {
        self.0.now()
    }

    fn sleep_until(&self, deadline: Instant) -> Sleep {
        self.0.sleep_until(deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Waker};

    #[test]
    fn only_the_owner_advances_the_clock() {
        let killer = IsolatedClock::new();
        let (view, test) = (killer.view(), MockClock::new());
        let mut sleep = view.sleep(Duration::from_secs(1));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(sleep.as_mut().poll(&mut cx).is_pending());
        test.advance(Duration::from_secs(3600));
        assert!(sleep.as_mut().poll(&mut cx).is_pending());
        assert_eq!((view.now(), killer.sleepers()), (Instant::ORIGIN, 1));
        assert_eq!(killer.advance_to_next(), Some(Instant::ORIGIN.after(Duration::from_secs(1))));
        assert!(sleep.as_mut().poll(&mut cx).is_ready());
    }
}
