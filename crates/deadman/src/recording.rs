//! A trigger for tests and simulations: writes down what it would have ended, on any clock.

use crate::{Subject, Trigger};
use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use vvm_clock::{Clock, Instant};

/// Records instead of killing.
///
/// Nothing runs by itself: whoever moves the clock calls [`check`](Self::check) after each step. A deadline
/// that passed before it was replaced has fired, whether or not anybody looked in time: the system's trigger
/// would not have waited for a look either.
///
/// On the clock of the code under test, advancing that clock brings deadlines about; on an isolated clock,
/// which deadlines are not meant on, only its owner does.
#[derive(Debug)]
pub struct RecordingTrigger {
    clock: Arc<dyn Clock>,
    record: Mutex<Record>,
}

#[derive(Debug, Default)]
struct Record {
    earliest: Option<(Instant, Subject)>,
    /// Whether `earliest` is among `fired`.
    has_fired: bool,
    fired: Vec<(Instant, Subject)>,
    calls: usize,
    failing: bool,
}

impl RecordingTrigger {
    /// A trigger whose deadlines are meant on `clock`.
    pub fn on(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { clock, record: Mutex::default() })
    }

    /// Fires what is due; whether that was anything. The same deadline fires once.
    pub fn check(&self) -> bool {
        let now = self.clock.now();
        self.record().fire_due(now)
    }

    /// What has fired: each deadline, and whose it was, in order.
    pub fn fired(&self) -> Vec<(Instant, Subject)> {
        self.record().fired.clone()
    }

    /// The deadline in force, fired or not.
    pub fn earliest(&self) -> Option<(Instant, Subject)> {
        self.record().earliest.clone()
    }

    /// How often the set of deadlines has called, successfully or not: what would have been system calls.
    pub fn calls(&self) -> usize {
        self.record().calls
    }

    /// From now on, whether setting a deadline fails. A failed call leaves the deadline that was in force.
    pub fn fail(&self, failing: bool) {
        self.record().failing = failing;
    }

    /// Nothing foreign runs under the lock, so poison carries no information.
    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Record {
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
            return Err(io::Error::other("told to fail"));
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
    use testing_time::{IsolatedClock, MockClock};

    const SECOND: Duration = Duration::from_secs(1);

    fn subject(epoch: u64) -> Subject {
        Subject { key: "payroll".into(), holder: "here".into(), epoch }
    }

    #[test]
    fn a_deadline_fires_when_it_comes_and_once() {
        let clock = MockClock::new();
        let trigger = RecordingTrigger::on(Arc::new(clock.clone()));
        let deadman = Deadman::with_trigger(trigger.clone());
        let at = clock.now().after(SECOND);
        let _armed = deadman.arm(subject(1), at).unwrap();
        clock.advance(SECOND - Duration::from_nanos(1));
        assert!(!trigger.check());
        clock.advance(Duration::from_nanos(1));
        assert!(trigger.check());
        assert!(!trigger.check());
        assert_eq!(trigger.fired(), [(at, subject(1))]);
        assert_eq!(trigger.earliest(), Some((at, subject(1))));
    }

    #[test]
    fn a_deadline_that_passed_unseen_has_fired_when_it_is_replaced() {
        let clock = MockClock::new();
        let trigger = RecordingTrigger::on(Arc::new(clock.clone()));
        let deadman = Deadman::with_trigger(trigger.clone());
        let first = clock.now().after(SECOND);
        let armed = deadman.arm(subject(1), first).unwrap();
        let _other = deadman.arm(subject(2), first.after(SECOND)).unwrap();
        clock.advance(SECOND);
        deadman.disarm(armed);
        assert_eq!(trigger.fired(), [(first, subject(1))]);
        clock.advance(SECOND);
        assert!(trigger.check());
        assert_eq!(trigger.fired().len(), 2);
    }

    #[test]
    fn on_an_isolated_clock_a_tests_clock_fires_nothing() {
        let (test, killer) = (MockClock::new(), IsolatedClock::new());
        let trigger = RecordingTrigger::on(Arc::new(killer.view()));
        let deadman = Deadman::with_trigger(trigger.clone());
        let _armed = deadman.arm(subject(1), test.now().after(SECOND)).unwrap();
        test.advance(SECOND * 3600);
        assert!(!trigger.check());
        killer.advance(SECOND);
        assert!(trigger.check());
    }
}
