//! [`RecordingTrigger`]: records deadlines instead of killing, for tests and simulations on any clock.

use crate::{Subject, Trigger};
use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use vvm_clock::{Clock, Instant};

/// Records deadlines that fire. It has no thread: call [`check`](Self::check) after each step of the clock. A deadline
/// that passes before it is replaced fires even without a check in between.
#[derive(Debug)]
pub struct RecordingTrigger {
    clock: Arc<dyn Clock>,
    record: Mutex<RecordedCalls>,
}

#[derive(Debug, Default)]
struct RecordedCalls {
    earliest: Option<(Instant, Subject)>,
    has_fired: bool,
    fired: Vec<(Instant, Subject)>,
    calls: usize,
    failing: bool,
}

impl RecordingTrigger {
    /// Returns a trigger with deadlines on `clock`.
    pub fn on(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { clock, record: Mutex::default() })
    }

    /// Fires the deadline if it is due. Returns whether it did. A deadline fires once.
    pub fn check(&self) -> bool {
        let now = self.clock.now();
        self.record().fire_due(now)
    }

    /// Returns the deadlines that have fired, in order.
    pub fn fired(&self) -> Vec<(Instant, Subject)> {
        self.record().fired.clone()
    }

    /// Returns the deadline in force, fired or not.
    pub fn earliest(&self) -> Option<(Instant, Subject)> {
        self.record().earliest.clone()
    }

    /// Returns the number of calls to set a deadline, each of which would be a system call.
    pub fn calls(&self) -> usize {
        self.record().calls
    }

    /// Makes later calls to set a deadline fail, or succeed. A failed call keeps the deadline in force.
    pub fn fail(&self, failing: bool) {
        self.record().failing = failing;
    }

    /// Ignores poison, because no foreign code runs under the lock.
    fn record(&self) -> MutexGuard<'_, RecordedCalls> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecordedCalls {
    fn fire_due(&mut self, now: Instant) -> bool {
        let Some((at, subject)) = self.earliest.as_ref().filter(|(at, _)| *at <= now && !self.has_fired)
        else {
            return false;
        };
        self.fired.push((*at, subject.clone()));
        self.has_fired = true;
        true
    }
}

impl Trigger for RecordingTrigger {
    fn set_earliest(&self, earliest: Option<(Instant, &Subject)>) -> io::Result<()> {
        let now = self.clock.now();
        let mut record = self.record();
        record.calls += 1;
        record.fire_due(now);
        if record.failing {
            return Err(io::Error::other("planted failure"));
        }
        record.earliest = earliest.map(|(at, subject)| (at, subject.clone()));
        record.has_fired = false;
        Ok(())
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Deadman;
    use std::time::Duration;
    use testing_time::MockClock;

    const SECOND: Duration = Duration::from_secs(1);

    fn subject(epoch: u64) -> Subject {
        Subject { key: "payroll".into(), holder: "here".into(), epoch }
    }

    #[test]
    fn deadline_that_passed_without_a_check_fires_when_it_is_replaced() {
        let clock = MockClock::new();
        let trigger = RecordingTrigger::on(Arc::new(clock.clone()));
        let deadman = Deadman::with_trigger(trigger.clone());
        let first = clock.now().after(SECOND);
        let armed = deadman.arm(subject(1), first).unwrap();
        let _other = deadman.arm(subject(2), first.after(SECOND)).unwrap();
        clock.advance(SECOND);
        deadman.disarm(armed);
        assert_eq!(trigger.fired(), [(first, subject(1))]);
        assert!(!trigger.check(), "the other one is not due");
        clock.advance(SECOND);
        assert!(trigger.check());
        assert!(!trigger.check(), "it fires once");
        assert_eq!(trigger.fired().len(), 2);
    }
}
