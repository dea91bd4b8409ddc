//! [`SystemClock`]: `CLOCK_BOOTTIME`, and one thread that wakes all sleepers of a clock. The clock does not use the
//! async runtime's timers: tokio's follow `CLOCK_MONOTONIC`, which stops during suspend. It does not use a timerfd for
//! each sleeper, because a thousand sleepers would then need a thousand file descriptors (I11).

use crate::{Clock, Instant, Sleep};
use rustix::{
    io::Errno,
    time::{
        ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
        timerfd_create, timerfd_settime,
    },
};
use std::{
    collections::BTreeMap,
    fmt, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    thread::{self, JoinHandle},
    time::Duration,
};

/// The machine's monotonic clock, `CLOCK_BOOTTIME`, which counts suspend. Clones share one thread, which ends with the
/// last clone and the last sleep (I9).
#[derive(Clone)]
pub struct SystemClock(Arc<Owner>);

impl SystemClock {
    /// Starts the clock's thread. Fails if the process is out of file descriptors or threads.
    pub fn start() -> io::Result<Self> {
        let shared =
            Arc::new(SharedSleepers { alarm: Alarm::new()?, sleepers: Mutex::new(Sleepers::default()) });
        let thread = thread::Builder::new().name("clock".into()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.run()
        })?;
        Ok(Self(Arc::new(Owner { shared, thread: Some(thread) })))
    }

    /// Blocks this thread for `span`, for programs without an async runtime.
    pub fn block_for(span: Duration) {
        thread::sleep(span);
    }

    /// Returns the current time without starting a clock.
    pub fn read() -> Instant {
        now()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        now()
    }

    fn sleep_until(&self, deadline: Instant) -> Sleep {
        Box::pin(SystemSleep { owner: Arc::clone(&self.0), deadline, id: None })
    }
}

impl fmt::Debug for SystemClock {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SystemClock({:?}, {} sleepers)", now(), self.0.shared.lock().wakers.len())
    }
}

struct Owner {
    shared: Arc<SharedSleepers>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.alarm.set(Instant::ORIGIN);
        let Some(thread) = self.thread.take() else { return };
        // A waker on the clock's thread may drop the last sleep, and a thread can't join itself.
        if thread.thread().id() != thread::current().id() {
            // An error means that a waker panicked on the thread. Nothing is left to clean up then.
            drop(thread.join());
        }
    }
}

struct SharedSleepers {
    alarm: Alarm,
    sleepers: Mutex<Sleepers>,
}

#[derive(Default)]
struct Sleepers {
    wakers: BTreeMap<(Instant, u64), Waker>,
    next_id: u64,
    /// The time of the alarm, if it is set. A sleep with a later deadline then needs no system call.
    armed: Option<Instant>,
    stopping: bool,
}

impl SharedSleepers {
    /// Ignores poison, because a waker that panics leaves the map consistent.
    fn lock(&self) -> MutexGuard<'_, Sleepers> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        loop {
            self.alarm.wait();
            let mut due = Vec::new();
            {
                let mut sleepers = self.lock();
                if sleepers.stopping {
                    return;
                }
                let now = now();
                while let Some(entry) = sleepers.wakers.first_entry()
                    && entry.key().0 <= now
                {
                    due.push(entry.remove());
                }
                sleepers.armed = sleepers.wakers.first_key_value().map(|(key, _)| key.0);
                if let Some(earliest) = sleepers.armed {
                    self.alarm.set(earliest);
                }
            }
            due.into_iter().for_each(Waker::wake);
        }
    }
}

struct SystemSleep {
    owner: Arc<Owner>,
    deadline: Instant,
    id: Option<u64>,
}

impl Future for SystemSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if now() >= self.deadline {
            return Poll::Ready(());
        }
        let this = &mut *self;
        // Cloned before the lock and dropped after it: both may run foreign code that uses this clock.
        let waker = cx.waker().clone();
        let mut sleepers = this.owner.shared.lock();
        let id = *this.id.get_or_insert_with(|| {
            sleepers.next_id += 1;
            sleepers.next_id
        });
        let replaced = sleepers.wakers.insert((this.deadline, id), waker);
        if sleepers.armed.is_none_or(|armed| this.deadline < armed) {
            sleepers.armed = Some(this.deadline);
            this.owner.shared.alarm.set(this.deadline);
        }
        drop(sleepers);
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for SystemSleep {
    fn drop(&mut self) {
        // The alarm stays set: a needless wake-up is cheaper than a system call for each finished wait.
        if let Some(id) = self.id {
            let waker = self.owner.shared.lock().wakers.remove(&(self.deadline, id));
            // Outside the lock: dropping a waker may drop a task, and with it another sleep of this clock.
            drop(waker);
        }
    }
}

const NANOS_PER_SECOND: u64 = 1_000_000_000;

fn now() -> Instant {
    let time = clock_gettime(ClockId::Boottime);
    Instant::from_nanos(time.tv_sec as u64 * NANOS_PER_SECOND + time.tv_nsec as u64)
}

/// A timer on the clock of [`SystemClock`] that one thread waits for and any thread may
/// set. It is a timerfd, closed on exec, and readable once it has gone off.
#[derive(Debug)]
pub struct Alarm(OwnedFd);

impl Alarm {
    /// Returns an alarm that is not set. Fails if the process is out of file descriptors.
    pub fn new() -> io::Result<Self> {
        Ok(Self(timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?))
    }

    /// Sets the alarm, and replaces the previous setting, also for a thread that waits already.
    pub fn set(&self, deadline: Instant) {
        // Zero would disarm. The first nanosecond after boot is in the past, too.
        let nanos = deadline.as_nanos().clamp(1, i64::MAX as u64);
        let value =
            Timespec { tv_sec: (nanos / NANOS_PER_SECOND) as i64, tv_nsec: (nanos % NANOS_PER_SECOND) as _ };
        let never_again = Timespec { tv_sec: 0, tv_nsec: 0 };
        let outcome = timerfd_settime(
            &self.0,
            TimerfdTimerFlags::ABSTIME,
            &Itimerspec { it_interval: never_again, it_value: value },
        );
        // The descriptor is valid and the value in range; there is no other error (timerfd_settime(2)).
        debug_assert!(outcome.is_ok(), "{outcome:?}");
    }

    /// Waits until the alarm goes off, once for each setting. May return early: compare the clock with the deadline.
    pub fn wait(&self) {
        let mut expirations = [0_u8; 8];
        while rustix::io::read(&self.0, &mut expirations) == Err(Errno::INTR) {}
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Wake;

    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    fn block_on(mut future: impl Future<Output = ()> + Unpin) {
        let waker = Arc::new(Unpark(thread::current())).into();
        while Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending() {
            thread::park();
        }
    }

    #[test]
    fn earlier_sleep_is_not_delayed_by_a_later_one() {
        let clock = SystemClock::start().unwrap();
        let mut late = clock.sleep(Duration::from_secs(3600));
        assert!(late.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let before = clock.now();
        block_on(clock.sleep(Duration::from_millis(5)));
        assert!(clock.now().since(before) < Duration::from_secs(3600));
    }

    /// Shows I9.
    #[test]
    fn dropped_sleep_leaves_no_waker() {
        let clock = SystemClock::start().unwrap();
        let mut sleep = clock.sleep(Duration::from_secs(3600));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(clock.0.shared.lock().wakers.len(), 1);
        drop(sleep);
        assert_eq!(clock.0.shared.lock().wakers.len(), 0);
    }

    struct Holder(#[expect(dead_code, reason = "held for its drop")] Mutex<Sleep>);
    impl Wake for Holder {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn replaced_waker_may_drop_another_sleep() {
        let clock = SystemClock::start().unwrap();
        let mut held = clock.sleep(Duration::from_secs(3600));
        assert!(held.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let mut sleep = clock.sleep(Duration::from_secs(3600));
        let holder = Arc::new(Holder(Mutex::new(held))).into();
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&holder)).is_pending());
        drop(holder);
        assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(clock.0.shared.lock().wakers.len(), 1);
    }

    /// Shows I9.
    #[test]
    fn dropping_the_last_clock_joins_its_thread() {
        let clock = SystemClock::start().unwrap();
        let shared = Arc::downgrade(&clock.0.shared);
        drop(clock);
        assert!(shared.upgrade().is_none(), "the thread still has the clock");
    }
}
