//! Deadlines that are missed on purpose, and a punctual program on a busy machine.

use crate::{Attempt, probes};
use std::{
    fmt,
    panic::{self, AssertUnwindSafe},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};

/// The verdicts of some attempts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// The bound was kept.
    pub passed: usize,
    /// The bound was missed by no more than the machine was late.
    pub inconclusive: usize,
    /// The bound was missed by more.
    pub failed: usize,
}

/// Misses a deadline by 30 %.
pub fn late(attempts: usize, bound: Duration) -> Tally {
    tally(attempts, |attempt| {
        let since = SystemClock::read();
        let happens_at = since.after(bound.mul_f64(1.3));
        attempt.within("the planted end", bound, since, || SystemClock::read() >= happens_at).is_ok()
    })
}

/// Runs forty processes one after the other, within `bound` times their usual time.
pub fn punctual(attempts: usize, usual: Duration, bound: f64) -> Tally {
    tally(attempts, |attempt| {
        let since = SystemClock::read();
        run_chain();
        attempt.took("a chain of processes", usual.mul_f64(bound), since).is_ok()
    })
}

/// Returns the time of that chain now, the median of `times`.
pub fn usual(times: usize) -> Duration {
    let mut took = (0..times).map(|_| took(SystemClock::read())).collect::<Vec<_>>();
    took.sort_unstable();
    took.get(times / 2).copied().unwrap_or_default()
}

fn took(since: Instant) -> Duration {
    run_chain();
    SystemClock::read().since(since)
}

fn run_chain() {
    let mut chain = Command::new("sh");
    chain.args(["-c", "i=0; while [ $i -lt 40 ]; do (sh -c :); i=$((i + 1)); done"]).stdin(Stdio::null());
    let status = chain.status();
    assert!(status.as_ref().is_ok_and(|status| status.success()), "{status:?}");
}

/// Runs `act` while so many threads spin on each processor.
pub fn loaded<T>(loops: usize, act: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    let result = thread::scope(|scope| {
        for processor in probes::processors().flat_map(|processor| std::iter::repeat_n(processor, loops)) {
            let over = &over;
            scope.spawn(move || {
                probes::pin(processor);
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let result = panic::catch_unwind(AssertUnwindSafe(act));
        over.store(true, Ordering::Relaxed);
        result
    });
    result.unwrap_or_else(|panic| panic::resume_unwind(panic))
}

/// Counts the verdicts. An attempt that fails panics.
fn tally(attempts: usize, mut attempt: impl FnMut(&Attempt) -> bool) -> Tally {
    let mut tally = Tally::default();
    for _ in 0..attempts {
        let this = Attempt::begin();
        match panic::catch_unwind(AssertUnwindSafe(|| attempt(&this))) {
            Ok(true) => tally.passed += 1,
            Ok(false) => tally.inconclusive += 1,
            Err(_) => tally.failed += 1,
        }
    }
    tally
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, inconclusive, failed } = self;
        write!(out, "{passed:3} passed, {inconclusive:3} inconclusive, {failed:3} failed")
    }
}
