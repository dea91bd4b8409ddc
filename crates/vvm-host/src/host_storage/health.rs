//! [`StorageHealth`]: logs once when the storage begins to fail and once when it works again, and records
//! every answer in the host's status. A candidate that waits for ever would otherwise not report a full disk
//! or a server that is down.

use crate::status::{Call, Failure, HostStatus, NO_ANSWER};
use ielections::{Slot, Version};
use parking_lot::Mutex;
use std::{fmt, sync::Arc};
use tokio_util::sync::CancellationToken;
use vvm_clock::Instant;
use vvm_storage::ElectionKey;

/// How many calls in a row must fail before it is logged. Single calls may fail and are repeated.
const FAILURES_IN_A_ROW: u32 = 2;

/// Watches the calls of one host.
pub(super) struct StorageHealth {
    pub(super) status: Arc<HostStatus>,
    /// Cancelled when the host is to end.
    stop: CancellationToken,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    reads_failed: u32,
    writes_failed: u32,
    is_logged: bool,
    /// The last renewal whose outcome is unknown, and when it was sent.
    unknown: Option<(Version, Instant)>,
}

impl StorageHealth {
    pub(super) fn new(status: Arc<HostStatus>, stop: CancellationToken) -> Self {
        Self { status, stop, seen: Mutex::default() }
    }

    /// Waits for `answer` and records it.
    ///
    /// # Cancel safety
    /// A call that is dropped counts as unanswered, unless the host is to end.
    pub(super) async fn watch<T, E: Failure>(
        &self,
        call: Call,
        answer: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        self.counts(call);
        let mut unanswered = Unanswered(Some((self, call)));
        let outcome = answer.await;
        unanswered.0 = None;
        match &outcome {
            Ok(_) => self.worked(call),
            Err(error) => self.failed(call, error.word(), error),
        }
        outcome
    }

    /// Counts a call, which need not be watched: that of a leader for requests, whose failures show in the
    /// renewals.
    pub(super) fn counts(&self, call: Call) {
        self.status.telemetry.calls(call).inc();
    }

    /// Records what a slot contains, by a read that may show a renewal whose answer was lost.
    pub(super) fn found(&self, key: &ElectionKey, found: &Slot) {
        let shown = |version| found.entry().is_some_and(|entry| entry.version == version);
        let confirmed = self.seen.lock().unknown.take_if(|(version, _)| shown(*version));
        if let Some((_, sent_at)) = confirmed {
            self.status.renewed(sent_at);
        }
        self.status.saw(key, found);
    }

    /// Records a renewal that is about to be sent. Its outcome is unknown until it is answered.
    pub(super) fn renewal_is_sent(&self, version: Version) -> Instant {
        let sent_at = self.status.clock.now();
        self.seen.lock().unknown = Some((version, sent_at));
        sent_at
    }

    /// Records that the renewal sent at `sent_at` is confirmed.
    pub(super) fn renewed(&self, sent_at: Instant) {
        self.seen.lock().unknown = None;
        self.status.renewed(sent_at);
    }

    fn worked(&self, call: Call) {
        self.status.storage_answered(call);
        let mut seen = self.seen.lock();
        *seen.failed(call) = 0;
        let works = seen.reads_failed < FAILURES_IN_A_ROW && seen.writes_failed < FAILURES_IN_A_ROW;
        if seen.is_logged && works {
            seen.is_logged = false;
            let name = &self.status.candidate.name;
            let event = "storage_works_again";
            tracing::info!(target: "vvm", event, name, "{name}: the storage works again");
        }
    }

    fn failed(&self, call: Call, failure: &str, error: &dyn fmt::Display) {
        self.status.storage_failed(call, failure, error);
        let mut seen = self.seen.lock();
        let in_a_row = seen.failed(call);
        *in_a_row = in_a_row.saturating_add(1);
        if *in_a_row >= FAILURES_IN_A_ROW && !seen.is_logged {
            seen.is_logged = true;
            let (name, call) = (&self.status.candidate.name, call.word());
            tracing::warn!(
                target: "vvm", event = "storage_trouble", name, call, failure, reason = %error,
                "{name}: trouble with the storage: {error}; trying again"
            );
        }
    }
}

impl Seen {
    fn failed(&mut self, call: Call) -> &mut u32 {
        match call {
            Call::Read => &mut self.reads_failed,
            Call::Write => &mut self.writes_failed,
        }
    }
}

/// Records a failure when it is dropped: a call is dropped unanswered when its time is over.
struct Unanswered<'call>(Option<(&'call StorageHealth, Call)>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some((health, call)) = self.0.filter(|(health, _)| !health.stop.is_cancelled()) {
            health.failed(call, NO_ANSWER, &"it does not answer");
        }
    }
}
