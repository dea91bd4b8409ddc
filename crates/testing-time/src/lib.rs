//! Clocks that tests and simulations move by hand.
//!
//! ```
//! use std::time::Duration;
//! use testing_time::MockClock;
//! use vvm_clock::Clock;
//!
//! let clock = MockClock::new();
//! let deadline = clock.now().after(Duration::from_secs(3600));
//! let _sleep = clock.sleep_until(deadline);
//! clock.advance(Duration::from_secs(3600));
//! assert_eq!(clock.now(), deadline);
//! ```
//!
//! Nothing here reads the machine's time or starts a thread, so equal inputs give equal runs.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

use std::{
    collections::BTreeMap,
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};
use vvm_clock::{Clock, Instant, Sleep, WallClock};

/// A clock that a test advances. Clones share it.
///
/// A sleep becomes a *sleeper* at its first poll, and remains one until its deadline or its drop. The clock wakes
/// sleepers in the order of their deadlines, and for equal deadlines in the order of their first polls, so equal calls
/// give equal orders. It wakes them on the thread that advances, without a lock: a waker may use the clock.
///
/// # Advancing when all tasks are idle
/// Call [`advance_to_next`](Self::advance_to_next) when no task can run: in the loop of your own executor, or in the
/// `on_thread_park` hook of a current-thread tokio runtime:
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
/// A runtime also parks for a socket, another thread or the machine's time: only for tests that wait for none of these.
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
    /// Returns a clock that shows its origin.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a clock that shows `now`.
    pub fn starting_at(now: Instant) -> Self {
        Self(Arc::new(Mutex::new(Timeline { now, ..Timeline::default() })))
    }

    /// Advances by `span` in one step, and wakes the sleepers that are due: each sees the end of the span.
    /// [`advance_to_next`](Self::advance_to_next) stops at each deadline.
    pub fn advance(&self, span: Duration) {
        self.advance_by_rule(|now, _| Some(now.after(span)));
    }

    /// Advances to `instant`, and wakes the sleepers that are due. Does nothing if `instant` has passed.
    pub fn advance_to(&self, instant: Instant) {
        self.advance_by_rule(|_, _| Some(instant));
    }

    /// Advances to the earliest deadline, wakes its sleepers, and returns the new time. Returns `None`, and
    /// does nothing, if there is no sleeper with a deadline before [`Instant::NEVER`].
    pub fn advance_to_next(&self) -> Option<Instant> {
        self.advance_by_rule(|_, next| next)
    }

    /// Returns the number of sleepers.
    pub fn sleepers(&self) -> usize {
        self.lock().sleepers.len()
    }

    /// Advances to the instant that `target` returns for the current time and the next deadline. One lock covers
    /// the call and the move, so that two threads that advance at once never move the clock back.
    fn advance_by_rule(
        &self,
        target: impl FnOnce(Instant, Option<Instant>) -> Option<Instant>,
    ) -> Option<Instant> {
        let (now, due) = {
            let mut timeline = self.lock();
            let target = target(timeline.now, timeline.next_deadline())?;
            timeline.now = timeline.now.max(target);
            (timeline.now, timeline.take_due())
        };
        due.into_iter().for_each(Waker::wake);
        Some(now)
    }

    /// Ignores poison, because no foreign code runs under the lock.
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
        // Cloned before the lock and dropped after it: both may run foreign code.
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
            // Outside the lock: dropping a waker may drop a task, and with it another sleep of this clock.
            drop(waker);
        }
    }
}

/// A clock that only its owner can advance, so that a kill deadline on it does not fire when the test advances its own.
/// Not `Clone`; [`view`](Self::view) gives read access. Once it is dropped, the time of its views never changes again.
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
}

impl Clock for IsolatedView {
    fn now(&self) -> Instant {
        self.0.now()
    }

    fn sleep_until(&self, deadline: Instant) -> Sleep {
        self.0.sleep_until(deadline)
    }
}

/// A wall clock that can be set forwards and back. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct MockWallClock(Arc<Mutex<Duration>>);

impl MockWallClock {
    /// Returns a clock that shows 1970-01-01 UTC. A new epoch then depends only on the stored one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the clock.
    pub fn set(&self, since_unix_epoch: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = since_unix_epoch;
    }
}

impl WallClock for MockWallClock {
    fn since_unix_epoch(&self) -> Duration {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::Weak,
        task::{Context, Wake, Waker},
    };

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

    struct Fixture {
        clock: MockClock,
        notes: Arc<Mutex<Vec<(&'static str, u64)>>>,
    }
    impl Fixture {
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
    fn sleep_ends_at_its_deadline_and_not_a_nanosecond_before() {
        let fixture = Fixture::new();
        let mut sleep = fixture.sleeper(10, "a");
        fixture.clock.advance(Duration::from_nanos(9));
        assert!(fixture.poll(&mut sleep, "a").is_pending());
        assert_eq!(fixture.notes(), []);
        fixture.clock.advance(Duration::from_nanos(1));
        assert!(fixture.poll(&mut sleep, "a").is_ready());
        assert_eq!(fixture.notes(), [("a", 10)]);
    }

    #[test]
    fn sleepers_wake_by_deadline_and_then_by_first_poll() {
        let fixture = Fixture::new();
        let _sleeps = [(30, "c"), (10, "a1"), (20, "b"), (10, "a2"), (40, "d")]
            .map(|(deadline, name)| fixture.sleeper(deadline, name));
        fixture.clock.advance_to(Instant::from_nanos(30));
        assert_eq!(fixture.notes(), [("a1", 30), ("a2", 30), ("b", 30), ("c", 30)]);
        assert_eq!(fixture.clock.sleepers(), 1);
    }

    #[test]
    fn second_poll_keeps_the_order_and_replaces_the_waker() {
        let fixture = Fixture::new();
        let mut first = fixture.sleeper(10, "old");
        let _second = fixture.sleeper(10, "second");
        assert!(fixture.poll(&mut first, "new").is_pending());
        assert_eq!(fixture.clock.sleepers(), 2);
        fixture.clock.advance_to(Instant::from_nanos(10));
        assert_eq!(fixture.notes(), [("new", 10), ("second", 10)]);
    }

    #[test]
    fn advance_to_next_stops_at_each_deadline_and_after_the_last() {
        let fixture = Fixture::new();
        let _sleeps = [fixture.sleeper(20, "b"), fixture.sleeper(10, "a"), fixture.sleeper(10, "a")];
        assert_eq!(fixture.clock.advance_to_next(), Some(Instant::from_nanos(10)));
        assert_eq!(fixture.notes(), [("a", 10), ("a", 10)]);
        assert_eq!(fixture.clock.advance_to_next(), Some(Instant::from_nanos(20)));
        assert_eq!(fixture.clock.advance_to_next(), None);
        assert_eq!(fixture.clock.now(), Instant::from_nanos(20));
    }

    #[test]
    fn sleeper_without_an_end_does_not_move_the_clock() {
        let fixture = Fixture::new();
        let _sleep = fixture.sleeper(Instant::NEVER.as_nanos(), "never");
        assert_eq!(fixture.clock.advance_to_next(), None);
        assert_eq!((fixture.clock.now(), fixture.clock.sleepers()), (Instant::ORIGIN, 1));
    }

    #[test]
    fn dropped_sleep_is_no_sleeper_and_the_clock_never_goes_back() {
        let fixture = Fixture::new();
        drop(fixture.sleeper(10, "a"));
        assert_eq!(fixture.clock.sleepers(), 0);
        fixture.clock.advance_to(Instant::from_nanos(50));
        fixture.clock.advance_to(Instant::from_nanos(10));
        assert_eq!(fixture.clock.now(), Instant::from_nanos(50));
    }

    /// Drops a sleep when it is woken or dropped, which must happen outside the clock's lock.
    struct Holder(#[expect(dead_code, reason = "held for its drop")] Mutex<Option<Sleep>>);
    impl Wake for Holder {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn wakers_are_woken_replaced_and_dropped_outside_the_lock() {
        let fixture = Fixture::new();
        let holding = || {
            let holder = Arc::new(Holder(Mutex::new(Some(fixture.sleeper(99, "held")))));
            (Arc::downgrade(&holder), Waker::from(holder))
        };
        let gone = |holder: Weak<Holder>| assert!(holder.upgrade().is_none());

        let mut sleep = fixture.clock.sleep_until(Instant::from_nanos(10));
        let (holder, waker) = holding();
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        assert!(fixture.poll(&mut sleep, "other").is_pending());
        gone(holder);

        let (holder, waker) = holding();
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        fixture.clock.advance_to(Instant::from_nanos(10));
        gone(holder);

        let mut sleep = fixture.clock.sleep_until(Instant::from_nanos(20));
        let (holder, waker) = holding();
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        drop(sleep);
        gone(holder);
        assert_eq!(fixture.clock.sleepers(), 0);
    }

    #[test]
    fn only_the_owner_advances_the_clock() {
        let killer = IsolatedClock::new();
        let (view, test) = (killer.view(), MockClock::new());
        let mut sleep = view.sleep(Duration::from_secs(1));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(sleep.as_mut().poll(&mut cx).is_pending());
        test.advance(Duration::from_secs(3600));
        assert!(sleep.as_mut().poll(&mut cx).is_pending());
        assert_eq!(view.now(), Instant::ORIGIN);
        assert_eq!(killer.advance_to_next(), Some(Instant::ORIGIN.after(Duration::from_secs(1))));
        assert!(sleep.as_mut().poll(&mut cx).is_ready());
    }
}
