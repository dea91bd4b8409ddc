//! Whether the storage works, as the answers to this host's calls show it.

use super::{Call, HostStatus, millis};
use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use vvm_clock::Instant;

#[derive(Debug, Default)]
pub(super) struct StorageHealth {
    /// The last failure, until the storage answers.
    pub(super) last: Option<Arc<str>>,
    /// The failure of the last claim or renewal, until one is answered, or another process has written.
    pub(super) write: Option<Arc<str>>,
    reads_failed: u32,
    writes_failed: u32,
    /// Since when calls fail, and when that was logged last.
    since: Option<Instant>,
    pub(super) logged_at: Option<Instant>,
}

/// How many calls in a row must fail before it is logged. Single calls may fail and are repeated.
const FAILURES_IN_A_ROW: u32 = 2;

const REMINDER: Duration = Duration::from_secs(60);

impl StorageHealth {
    fn logs(&mut self, now: Instant) -> Option<Instant> {
        let since = *self.since.get_or_insert(now);
        let is_due = self.logged_at.is_none_or(|at| at.until(now) >= REMINDER);
        is_due.then(|| self.logged_at = Some(now)).map(|()| since)
    }

    pub(super) fn writes_work(&mut self) {
        (self.write, self.writes_failed) = (None, 0);
    }

    pub(super) fn is_over(&mut self) -> bool {
        if self.reads_failed.max(self.writes_failed) == 0 {
            self.since = None;
        }
        self.reads_failed.max(self.writes_failed) < FAILURES_IN_A_ROW && self.logged_at.take().is_some()
    }

    fn in_a_row(&mut self, call: Call) -> &mut u32 {
        match call {
            Call::Read => &mut self.reads_failed,
            Call::Write => &mut self.writes_failed,
        }
    }
}

impl HostStatus {
    /// Returns why the storage does not work: its failure since its last answer, or that of the last claim or renewal.
    pub(crate) fn storage_problem(&self) -> Option<Arc<str>> {
        let problem = self.storage.lock();
        problem.last.clone().or_else(|| problem.write.clone())
    }

    /// Returns what is wrong with the storage and for how long, for a line about a candidate that waits.
    pub fn storage_trouble(&self) -> Option<String> {
        let (reason, since) = (self.storage_problem()?, self.storage.lock().since);
        let age = Age(since.map_or(Duration::ZERO, |since| since.until(self.clock.now())));
        Some(format!("trouble with the storage{age}: {reason}"))
    }

    /// Records an answer. Logs it if a failure was logged, and no kind of calls fails any more. An answered write shows
    /// that reads work, too: it compares. A read shows no more than reads, unless they had failed beside the writes:
    /// then the storage was away, and is back. A candidate writes only when a slot is free: perhaps never.
    pub(crate) fn storage_answered(&self, call: Call) {
        self.answered_at.fetch_max(self.clock.now().as_nanos(), Ordering::Relaxed);
        let mut problem = self.storage.lock();
        problem.last = None;
        if call == Call::Write || problem.reads_failed > 0 {
            problem.writes_work();
        }
        problem.reads_failed = 0;
        let is_over = problem.is_over();
        drop(problem);
        self.log_if(is_over);
    }

    pub(super) fn log_if(&self, is_over: bool) {
        if is_over {
            let name = self.candidate.name.as_str();
            log!(info, event = "storage_works_again", name, "{name}: the storage works again");
        }
    }

    /// Records a failure, and logs the first that is not a single one. A candidate that waits for ever would
    /// otherwise not report a full disk or a server that is down.
    pub(crate) fn storage_failed(&self, call: Call, failure: &str, error: &dyn fmt::Display) {
        self.telemetry.failed(call, failure);
        let reason = Arc::<str>::from(error.to_string());
        let mut problem = self.storage.lock();
        problem.last = Some(Arc::clone(&reason));
        if call == Call::Write {
            problem.write = Some(reason);
        }
        let now = self.clock.now();
        problem.since.get_or_insert(now);
        let in_a_row = problem.in_a_row(call);
        *in_a_row = in_a_row.saturating_add(1);
        let logs = (*in_a_row >= FAILURES_IN_A_ROW).then(|| problem.logs(now)).flatten();
        drop(problem);
        if let Some(since) = logs {
            let (name, call, lasting) = (self.candidate.name.as_str(), call.word(), since.until(now));
            let (age, lasting_ms) = (Age(lasting), millis(lasting));
            log!(
                warn, event = "storage_trouble", name, call, failure, lasting_ms, reason = %error,
                "{name}: trouble with the storage{age}: {error}; trying again"
            );
        }
    }

    /// Records that the storage could not be opened, and logs the first such failure.
    pub(crate) fn storage_not_opened(&self, error: &dyn fmt::Display) {
        let mut problem = self.storage.lock();
        problem.last = Some(error.to_string().into());
        let now = self.clock.now();
        let logs = problem.logs(now);
        drop(problem);
        if let Some(since) = logs {
            let (name, lasting) = (self.candidate.name.as_str(), since.until(now));
            let (age, lasting_ms) = (Age(lasting), millis(lasting));
            log!(
                warn, event = "storage_trouble", name, call = "open", lasting_ms, reason = %error,
                "{name}: {error}; trying again{age}"
            );
        }
    }
}

/// ` for 65 s`; nothing below a second.
struct Age(Duration);

impl fmt::Display for Age {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        if seconds == 0 { Ok(()) } else { write!(out, " for {seconds} s") }
    }
}
