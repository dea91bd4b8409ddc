//! The clock that stands still until it is advanced, and the one order in which it wakes its sleepers.

use std::{
    collections::BTreeMap,
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};
use vvm_clock::{Clock, Instant, Sleep};

/// A clock that moves only when told. Clones share it.
///
/// A sleep becomes a *sleeper* when it is first polled, and is one until the clock reaches its deadline or it
/// is dropped. Sleepers are woken in the order of their deadlines, those of one deadline in the order in
/// which they became sleepers: the same calls wake in the same order, always. They are woken on the thread
/// that advances, which holds no lock then, so a waker may sleep on, advance or drop anything.
///
/// # Advancing when everything is idle
/// [`advance_to_next`](Self::advance_to_next) belongs where nothing can run any more: in the loop of a
/// hand-written executor, or in the `on_thread_park` hook of a current-thread tokio runtime:
///
/// ```
/// # use {vvm_clock::Clock, std::time::Duration, testing_time::MockClock};
/// let clock = MockClock::new();
/// let runtime = tokio::runtime::Builder::new_current_thread()
///     .on_thread_park({
///         let clock = clock.clone();
///         move || _ = clock.advance_to_next()
///     })
///     .build()?;
/// // A day passes at once.
/// runtime.block_on(clock.sleep(Duration::from_secs(86_400)));
/// assert_eq!(clock.now().as_nanos(), 86_400_000_000_000);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// A runtime is idle also while it waits for a socket, another thread or the machine's time. Use the hook
/// only where nothing comes from outside.
#[derive(Clone, Default)]
pub struct MockClock(Arc<Mutex<Timeline>>);

struct Timeline {
    now: Instant,
    sleepers: BTreeMap<(Instant, u64), Waker>,
    registrations: u64,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { now: Instant::ORIGIN, sleepers: BTreeMap::new(), registrations: 0 }
    }
}

impl MockClock {
    /// A clock that shows its origin.
    pub fn new() -> Self {
        Self::default()
    }

    /// A clock that shows `now`.
    pub fn starting_at(now: Instant) -> Self {
        Self(Arc::new(Mutex::new(Timeline { now, ..Timeline::default() })))
    }

    /// Lets `span` pass, and wakes whoever that is due for.
    ///
    /// The clock moves in one step: a task woken on the way sees the end of the span. Where each is to run at
    /// its own deadline, [`advance_to_next`](Self::advance_to_next) goes there one by one.
    pub fn advance(&self, span: Duration) {
        self.pass(|now, _| Some(now.after(span)));
    }

    /// Moves to `instant`, and wakes whoever that is due for. Does nothing when `instant` has passed.
    pub fn advance_to(&self, instant: Instant) {
        self.pass(|_, _| Some(instant));
    }

    /// Moves to the earliest deadline, wakes all who wait for that one, and says where the clock is now.
    /// `None`, and nothing moves, when nobody waits for a deadline that ever comes.
    pub fn advance_to_next(&self) -> Option<Instant> {
        self.pass(|_, next| next)
    }

    /// How many sleeps have been polled, are not due and have not been dropped.
    pub fn sleepers(&self) -> usize {
        self.lock().sleepers.len()
    }

    /// The earliest deadline that somebody waits for; [`Instant::NEVER`] is none.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.lock().next_deadline()
    }

    /// Moves to where `target` says, knowing the present and the next deadline. Both are looked at under the
    /// lock that moves, so that of two who advance at once neither moves back.
    fn pass(&self, target: impl FnOnce(Instant, Option<Instant>) -> Option<Instant>) -> Option<Instant> {
        let (now, due) = {
            let mut timeline = self.lock();
            let target = target(timeline.now, timeline.next_deadline())?;
            timeline.now = timeline.now.max(target);
            (timeline.now, timeline.take_due())
        };
        due.into_iter().for_each(Waker::wake);
        Some(now)
    }

    /// No foreign code runs under the lock, so poison carries no information.
    fn lock(&self) -> MutexGuard<'_, Timeline> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Timeline {
    fn next_deadline(&self) -> Option<Instant> {
        let (&(deadline, _), _) = self.sleepers.first_key_value()?;
        (deadline != Instant::NEVER).then_some(deadline)
    }

    fn take_due(&mut self) -> Vec<Waker> {
        let mut due = Vec::new();
        while let Some(entry) = self.sleepers.first_entry()
            && entry.key().0 <= self.now
        {
            due.push(entry.remove());
        }
        due
    }
}

impl Clock for MockClock {
    fn now(&self) -> Instant {
        self.lock().now
    }

    fn sleep_until(&self, deadline: Instant) -> Sleep {
        Box::pin(MockSleep { clock: self.clone(), deadline, registration: None })
    }
}

impl fmt::Debug for MockClock {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let timeline = self.lock();
        out.debug_struct("MockClock")
            .field("now", &timeline.now)
            .field("sleepers", &timeline.sleepers.len())
            .field("next", &timeline.next_deadline())
            .finish()
    }
}

struct MockSleep {
    clock: MockClock,
    deadline: Instant,
    registration: Option<u64>,
}

impl Future for MockSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        // Cloned before and dropped after the lock is held: both may run foreign code.
        let waker = cx.waker().clone();
        let replaced = {
            let mut timeline = this.clock.lock();
            if timeline.now >= this.deadline {
                return Poll::Ready(());
            }
            let registration = *this.registration.get_or_insert_with(|| {
                timeline.registrations += 1;
                timeline.registrations
            });
            timeline.sleepers.insert((this.deadline, registration), waker)
        };
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for MockSleep {
    fn drop(&mut self) {
        if let Some(registration) = self.registration {
            let waker = self.clock.lock().sleepers.remove(&(self.deadline, registration));
            // Outside the lock: a waker's drop may drop a task, and with it another sleep of this clock.
            drop(waker);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::Weak, task::Wake};

    /// Notes its name when woken, together with what the clock shows then.
    struct Note {
        name: &'static str,
        clock: MockClock,
        notes: Arc<Mutex<Vec<(&'static str, u64)>>>,
    }
    impl Wake for Note {
        fn wake(self: Arc<Self>) {
            let now = self.clock.now().as_nanos();
            self.notes.lock().unwrap().push((self.name, now));
        }
    }

    struct Bench {
        clock: MockClock,
        notes: Arc<Mutex<Vec<(&'static str, u64)>>>,
    }
    impl Bench {
        fn new() -> Self {
            Self { clock: MockClock::new(), notes: Arc::default() }
        }
        fn poll(&self, sleep: &mut Sleep, name: &'static str) -> Poll<()> {
            let note = Note { name, clock: self.clock.clone(), notes: Arc::clone(&self.notes) };
            sleep.as_mut().poll(&mut Context::from_waker(&Arc::new(note).into()))
        }
        fn sleeper(&self, deadline: u64, name: &'static str) -> Sleep {
            let mut sleep = self.clock.sleep_until(Instant::from_nanos(deadline));
            assert!(self.poll(&mut sleep, name).is_pending());
            sleep
        }
        fn notes(&self) -> Vec<(&'static str, u64)> {
            std::mem::take(&mut self.notes.lock().unwrap())
        }
    }

    #[test]
    fn a_sleep_ends_at_its_deadline_and_not_a_nanosecond_before() {
        let bench = Bench::new();
        let mut sleep = bench.sleeper(10, "a");
        bench.clock.advance(Duration::from_nanos(9));
        assert!(bench.poll(&mut sleep, "a").is_pending());
        assert_eq!(bench.notes(), []);
        bench.clock.advance(Duration::from_nanos(1));
        assert!(bench.poll(&mut sleep, "a").is_ready());
        assert_eq!(bench.notes(), [("a", 10)]);
    }

    #[test]
    fn wakes_by_deadline_and_then_by_registration() {
        let bench = Bench::new();
        let _sleeps = [(30, "c"), (10, "a1"), (20, "b"), (10, "a2"), (40, "d")]
            .map(|(deadline, name)| bench.sleeper(deadline, name));
        bench.clock.advance_to(Instant::from_nanos(30));
        assert_eq!(bench.notes(), [("a1", 30), ("a2", 30), ("b", 30), ("c", 30)]);
        assert_eq!(bench.clock.sleepers(), 1);
    }

    #[test]
    fn polling_again_keeps_the_place_and_takes_the_new_waker() {
        let bench = Bench::new();
        let mut first = bench.sleeper(10, "old");
        let _second = bench.sleeper(10, "second");
        assert!(bench.poll(&mut first, "new").is_pending());
        assert_eq!(bench.clock.sleepers(), 2);
        bench.clock.advance_to(Instant::from_nanos(10));
        assert_eq!(bench.notes(), [("new", 10), ("second", 10)]);
    }

    #[test]
    fn next_goes_deadline_by_deadline_and_stops_when_nobody_waits() {
        let bench = Bench::new();
        let _sleeps = [bench.sleeper(20, "b"), bench.sleeper(10, "a"), bench.sleeper(10, "a")];
        assert_eq!(bench.clock.next_deadline(), Some(Instant::from_nanos(10)));
        assert_eq!(bench.clock.advance_to_next(), Some(Instant::from_nanos(10)));
        assert_eq!(bench.notes(), [("a", 10), ("a", 10)]);
        assert_eq!(bench.clock.advance_to_next(), Some(Instant::from_nanos(20)));
        assert_eq!(bench.clock.advance_to_next(), None);
        assert_eq!(bench.clock.now(), Instant::from_nanos(20));
    }

    #[test]
    fn a_sleeper_that_waits_for_ever_moves_nothing() {
        let bench = Bench::new();
        let _sleep = bench.sleeper(Instant::NEVER.as_nanos(), "never");
        assert_eq!(bench.clock.next_deadline(), None);
        assert_eq!(bench.clock.advance_to_next(), None);
        assert_eq!((bench.clock.now(), bench.clock.sleepers()), (Instant::ORIGIN, 1));
    }

    #[test]
    fn a_dropped_sleep_is_no_sleeper_and_the_past_is_no_target() {
        let bench = Bench::new();
        drop(bench.sleeper(10, "a"));
        assert_eq!((bench.clock.sleepers(), bench.clock.next_deadline()), (0, None));
        bench.clock.advance_to(Instant::from_nanos(50));
        bench.clock.advance_to(Instant::from_nanos(10));
        assert_eq!(bench.clock.now(), Instant::from_nanos(50));
    }

    /// Drops what it holds when it is woken or dropped: both must happen outside the clock's lock.
    struct Holder(#[expect(dead_code, reason = "held for its drop")] Mutex<Option<Sleep>>);
    impl Wake for Holder {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn wakers_are_woken_replaced_and_dropped_outside_the_lock() {
        let bench = Bench::new();
        let holding = || Arc::new(Holder(Mutex::new(Some(bench.sleeper(99, "held")))));
        let gone = |holder: Weak<Holder>| assert!(holder.upgrade().is_none());

        let mut sleep = bench.clock.sleep_until(Instant::from_nanos(10));
        let holder = holding();
        let weak = Arc::downgrade(&holder);
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&holder.into())).is_pending());
        assert!(bench.poll(&mut sleep, "other").is_pending());
        gone(weak);

        let holder = holding();
        let weak = Arc::downgrade(&holder);
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&holder.into())).is_pending());
        bench.clock.advance_to(Instant::from_nanos(10));
        gone(weak);

        let mut sleep = bench.clock.sleep_until(Instant::from_nanos(20));
        let holder = holding();
        let weak = Arc::downgrade(&holder);
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&holder.into())).is_pending());
        drop(sleep);
        gone(weak);
        assert_eq!(bench.clock.sleepers(), 0);
    }
}
