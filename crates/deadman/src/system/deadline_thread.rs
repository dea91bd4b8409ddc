//! [`DeadlineThread`]: a thread that waits for a deadline, and acts when it is due.
//!
//! Moving the deadline later needs no system call: the thread notices it when its old alarm goes off.

use super::signals;
use crate::Subject;
use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};
use vvm_clock::{Alarm, Instant, SystemClock};

#[derive(Debug)]
pub(super) struct DeadlineThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    alarm: Alarm,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    deadline: Option<(Instant, Subject)>,
    /// When the alarm goes off. Never later than the deadline.
    alarm_at: Option<Instant>,
    ended: bool,
}

impl DeadlineThread {
    /// Starts the thread. When the deadline is due, it calls `act` once and ends. No deadline can be set
    /// while `act` runs.
    ///
    /// # Errors
    /// Fails if the process is out of threads or file descriptors.
    pub(super) fn start(name: &str, act: impl Fn(Instant, &Subject) + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared { alarm: Alarm::new()?, state: Mutex::default() });
        let thread = thread::Builder::new().name(name.into()).spawn({
            let shared = Arc::clone(&shared);
            move || {
                signals::block_all();
                shared.wait_and_act(act);
            }
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Calls `set_other_layer`, and replaces the deadline if that succeeds. The lock is held for both, so the
    /// thread does not act in between.
    ///
    /// # Errors
    /// The error of `set_other_layer`. The deadline is then unchanged.
    pub(super) fn set(
        &self,
        deadline: Option<(Instant, &Subject)>,
        set_other_layer: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut state = self.shared.state();
        set_other_layer()?;
        state.deadline = deadline.map(|(at, subject)| (at, subject.clone()));
        if let Some((at, _)) = deadline
            && state.alarm_at.is_none_or(|alarm_at| at < alarm_at)
        {
            state.alarm_at = Some(at);
            self.shared.alarm.set(at);
        }
        Ok(())
    }
}

impl Shared {
    fn wait_and_act(&self, act: impl Fn(Instant, &Subject)) {
        loop {
            self.alarm.wait();
            let mut state = self.state();
            if state.ended {
                return;
            }
            // The lock is held while `act` runs, so that no renewal moves the deadline after this comparison.
            if let Some((at, subject)) = &state.deadline
                && *at <= SystemClock::read()
            {
                return act(*at, subject);
            }
            state.alarm_at = state.deadline.as_ref().map(|(at, _)| *at);
            if let Some(at) = state.alarm_at {
                self.alarm.set(at);
            }
        }
    }

    /// Ignores poison, because every step leaves the state consistent.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DeadlineThread {
    /// Ends the thread only if there is no deadline (I4).
    fn drop(&mut self) {
        {
            let mut state = self.shared.state();
            if state.deadline.is_some() {
                return;
            }
            state.ended = true;
            self.shared.alarm.set(Instant::ORIGIN);
        }
        if let Some(thread) = self.thread.take() {
            // Without a deadline it never calls `act`, so it does not panic.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::mpsc, time::Duration};

    const HOUR: Duration = Duration::from_secs(3600);

    /// Ends a test that hangs.
    const AT_MOST: Duration = Duration::from_secs(5);

    fn subject() -> Subject {
        Subject { key: "payroll".into(), holder: "here".into(), epoch: 1 }
    }

    fn from_now(span: Duration) -> Instant {
        SystemClock::read().after(span)
    }

    /// Returns a thread, and its acts: the deadline and the time.
    fn thread() -> (DeadlineThread, mpsc::Receiver<(Instant, Instant)>) {
        let (acts, acted) = mpsc::channel();
        let act = move |at, _: &Subject| acts.send((at, SystemClock::read())).unwrap();
        (DeadlineThread::start("deadline", act).unwrap(), acted)
    }

    fn set(thread: &DeadlineThread, deadline: Option<Instant>) {
        let subject = subject();
        thread.set(deadline.map(|at| (at, &subject)), || Ok(())).unwrap();
    }

    #[test]
    fn acts_at_the_deadline_and_not_before() {
        let (thread, acted) = thread();
        let deadline = from_now(Duration::from_millis(20));
        set(&thread, Some(deadline));
        let (at, when) = acted.recv_timeout(AT_MOST).unwrap();
        assert_eq!(at, deadline);
        assert!(when >= deadline);
    }

    #[test]
    fn earlier_deadline_sets_the_alarm_and_a_later_one_does_not() {
        let (thread, acted) = thread();
        let (early, late) = (from_now(Duration::from_millis(30)), from_now(Duration::from_millis(60)));
        set(&thread, Some(from_now(HOUR)));
        set(&thread, Some(early));
        set(&thread, Some(late));
        let alarm_at = thread.shared.state().alarm_at;
        assert!(alarm_at == Some(early) || SystemClock::read() >= early);
        let (at, when) = acted.recv_timeout(AT_MOST).unwrap();
        assert_eq!(at, late);
        assert!(when >= late);
    }

    #[test]
    fn failure_of_the_other_layer_keeps_the_deadline() {
        let (thread, acted) = thread();
        let deadline = from_now(Duration::from_millis(20));
        set(&thread, Some(deadline));
        let subject = subject();
        let refused = thread.set(Some((from_now(HOUR), &subject)), || Err(io::Error::other("refused")));
        assert!(refused.is_err());
        assert_eq!(acted.recv_timeout(AT_MOST).unwrap().0, deadline);
    }

    #[test]
    fn thread_dropped_without_a_deadline_is_joined() {
        let (thread, acted) = thread();
        set(&thread, Some(from_now(HOUR)));
        set(&thread, None);
        drop(thread);
        assert!(acted.try_recv() == Err(mpsc::TryRecvError::Disconnected), "the thread was not joined");
    }

    #[test]
    fn thread_dropped_with_a_deadline_acts() {
        let (thread, acted) = thread();
        let deadline = from_now(Duration::from_millis(20));
        set(&thread, Some(deadline));
        drop(thread);
        assert_eq!(acted.recv_timeout(AT_MOST).unwrap().0, deadline);
    }

    #[test]
    fn no_deadline_can_be_set_while_the_thread_acts() {
        let (in_act, act_began) = mpsc::channel();
        let (may_end, end) = mpsc::channel::<()>();
        let act = move |_, _: &Subject| {
            in_act.send(()).unwrap();
            end.recv().unwrap();
        };
        let thread = DeadlineThread::start("deadline", act).unwrap();
        set(&thread, Some(from_now(Duration::from_millis(5))));
        act_began.recv_timeout(AT_MOST).unwrap();
        assert!(thread.shared.state.try_lock().is_err());
        may_end.send(()).unwrap();
        set(&thread, None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn deadline_thread_has_every_signal_blocked_that_can_be() {
        let (report, reported) = mpsc::channel();
        let act = move |_, _: &Subject| {
            report.send(std::fs::read_to_string("/proc/thread-self/status").unwrap()).unwrap();
        };
        let thread = DeadlineThread::start("deadline", act).unwrap();
        set(&thread, Some(SystemClock::read()));
        let status = reported.recv().unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        let blocked = u64::from_str_radix(mask.trim(), 16).unwrap();
        for signal in 1..=libc::SIGRTMAX() {
            // The C library reserves 32 and 33.
            let exempt = [libc::SIGKILL, libc::SIGSTOP, 32, 33].contains(&signal);
            assert!(exempt || blocked & (1 << (signal - 1)) != 0, "signal {signal} is not blocked");
        }
    }
}
