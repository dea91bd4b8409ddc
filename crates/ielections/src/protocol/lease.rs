//! [`Lease`]: a record that is held, and renewed or lost.

use crate::{
    Entry, Loss, ReadError, Slot, Swap, Timing, Version, WriteError,
    storage::Cause,
    timing::{Jitter, SupportPeriod},
};
use std::{sync::Arc, time::Duration};
use vvm_clock::Instant;

/// A held record, and the attempts to renew it. Five rules keep I1 on the leader's side:
///
/// 1. Validity counts from the send of the attempt that was confirmed (I3), never from its answer.
/// 2. An unknown outcome is resolved by version, by read-back or by the next attempt's answer (I7).
/// 3. The loss instant is `sent + 0.65 TTL`, even while a call is in flight.
/// 4. A record other than one of our own writes is a loss at once, and so is a replaced storage.
/// 5. Loss is final: no later answer revives a lease.
#[derive(Clone, Hash, Debug)]
pub struct Lease {
    timing: Timing,
    /// Limits of calls and pauses between them: those of the TTL, or of the support period while a successor is named.
    calls: Timing,
    held: Entry,
    /// When the write that was confirmed last was sent (I3).
    confirmed_sent_at: Instant,
    attempts: Attempts,
    phase: LeasePhase,
    last_write: u64,
    tried: u32,
    last_failure: Option<Arc<str>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum LeasePhase {
    Waiting(Instant),
    Queued,
    Renewing,
    ReadingBack,
    Lost,
}

/// An event of a lease.
#[derive(Debug)]
pub enum LeaseEvent {
    /// The instant of the last step has come.
    Woken,
    /// The next renewal is due now, to withdraw a successor. One in flight goes on, and the next follows its answer.
    Due,
    /// A request may go out now.
    MaySend,
    /// The renewal was answered.
    Renewed(Result<Swap, WriteError>),
    /// The read-back was answered.
    Read(Result<Slot, ReadError>),
    /// A read by another part of the program showed another record, or none, in the slot of this lease.
    Shown(Slot),
    /// A call of another part of the program showed that the storage was replaced.
    Replaced(Arc<str>),
}

/// The next step of a lease.
#[derive(Debug)]
pub enum LeaseStep {
    /// Do nothing; deliver `Woken` at that instant.
    Sleep(Instant),
    /// Deliver `MaySend` as soon as a request may go out, and `Woken` at this instant in any case.
    Send(Instant),
    /// Call `compare_and_swap` now, for at most `timeout`; deliver `Woken` at `loss_at` in any case.
    Renew {
        /// The version to replace.
        held: Entry,
        /// The record to write.
        entry: Entry,
        /// Bound of the call.
        timeout: Duration,
        /// When the lease is lost.
        loss_at: Instant,
    },
    /// Call `get` now, for at most `timeout`; deliver `Woken` at `loss_at` in any case.
    ReadBack {
        /// Bound of the call.
        timeout: Duration,
        /// When the lease is lost.
        loss_at: Instant,
    },
    /// A renewal sent at `sent_at` is confirmed; deliver `Woken` at `wake_at`.
    Confirmed {
        /// The instant from which validity counts (I3).
        sent_at: Instant,
        /// The version that the confirmation shows, whichever attempt wrote it: the only proof of a withdrawal (N4).
        version: Version,
        /// The next renewal.
        wake_at: Instant,
    },
    /// The lease is lost. This is its last step.
    Lost(Loss),
    /// The lease was lost before.
    Over,
}

impl Lease {
    /// A lease on `held`, whose write was sent at `sent_at` and confirmed. Takes `Woken` at [`Lease::wake_at`].
    pub fn begin(held: Entry, sent_at: Instant, jitter: Jitter) -> Self {
        let timing = Timing::new(held.ttl);
        Self {
            timing,
            calls: timing,
            last_write: held.version.write,
            held,
            confirmed_sent_at: sent_at,
            attempts: Attempts::default(),
            phase: LeasePhase::Waiting(timing.renew_at(sent_at, jitter)),
            tried: 0,
            last_failure: None,
        }
    }

    /// The record as last confirmed.
    pub fn held(&self) -> &Entry {
        &self.held
    }

    /// When the write that was confirmed last was sent.
    pub fn confirmed_sent_at(&self) -> Instant {
        self.confirmed_sent_at
    }

    /// When to deliver `Woken` next.
    pub fn wake_at(&self) -> Instant {
        match self.phase {
            LeasePhase::Waiting(until) => until.min(self.loss_at()),
            LeasePhase::Queued | LeasePhase::Renewing | LeasePhase::ReadingBack => self.loss_at(),
            LeasePhase::Lost => Instant::NEVER,
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.phase, LeasePhase::Waiting(_))
    }

    /// Limits every later call by `period`, or by the TTL again. When to renew stays a matter of the TTL.
    pub(super) fn limit_calls(&mut self, period: Option<SupportPeriod>) {
        self.calls = period.map_or(self.timing, Timing::support);
    }

    /// How many attempts may have been applied without an answer.
    pub(super) fn unresolved(&self) -> usize {
        self.attempts.0.len()
    }

    pub(super) fn last_write(&self) -> u64 {
        self.last_write
    }

    /// Numbers every later attempt `least` or higher.
    pub(super) fn number_from(&mut self, least: u64) {
        self.last_write = self.last_write.max(least.saturating_sub(1));
    }

    /// Ends the lease for a reason of its caller. As after a loss, no later answer revives it.
    pub fn end(&mut self) {
        self.phase = LeasePhase::Lost;
    }

    /// Returns the next step. `jitter` is used if a renewal is confirmed.
    pub fn on(&mut self, now: Instant, event: LeaseEvent, jitter: Jitter) -> LeaseStep {
        if self.phase == LeasePhase::Lost {
            return LeaseStep::Over;
        }
        match event {
            LeaseEvent::Woken => self.woken(now),
            LeaseEvent::Due => {
                if let LeasePhase::Waiting(until) = &mut self.phase {
                    *until = now.min(*until);
                }
                self.woken(now)
            }
            LeaseEvent::MaySend if self.phase == LeasePhase::Queued => self.send(now),
            LeaseEvent::MaySend => self.woken(now),
            LeaseEvent::Renewed(outcome) => self.handle_renewal(now, outcome, jitter),
            LeaseEvent::Read(outcome) => self.read(now, outcome, jitter),
            LeaseEvent::Shown(slot) if self.is_ours(&slot) => self.woken(now),
            LeaseEvent::Shown(slot) => self.resolve(now, &slot, jitter),
            LeaseEvent::Replaced(cause) => self.lose(Loss::StorageReplaced { cause }),
        }
    }

    fn loss_at(&self) -> Instant {
        self.timing.loss_at(self.confirmed_sent_at)
    }

    fn is_ours(&self, slot: &Slot) -> bool {
        slot.entry().is_some_and(|entry| entry.is_of(self.held.incarnation(), self.held.epoch))
    }

    fn woken(&mut self, now: Instant) -> LeaseStep {
        if now >= self.loss_at() {
            return self.out_of_time();
        }
        match self.phase {
            LeasePhase::Waiting(until) if now < until => LeaseStep::Sleep(until),
            LeasePhase::Waiting(_) | LeasePhase::Queued => self.queue(),
            LeasePhase::Renewing | LeasePhase::ReadingBack | LeasePhase::Lost => {
                LeaseStep::Sleep(self.loss_at())
            }
        }
    }

    fn queue(&mut self) -> LeaseStep {
        self.phase = LeasePhase::Queued;
        LeaseStep::Send(self.loss_at())
    }

    fn send(&mut self, now: Instant) -> LeaseStep {
        if now >= self.loss_at() {
            return self.out_of_time();
        }
        self.last_write += 1;
        self.tried += 1;
        let version = Version { write: self.last_write, ..self.held.version };
        let entry = self.held.renewed(version);
        self.attempts.push(Attempt { entry: entry.clone(), sent_at: now });
        self.phase = LeasePhase::Renewing;
        LeaseStep::Renew {
            held: self.held.clone(),
            entry,
            timeout: self.calls.attempt_timeout(),
            loss_at: self.loss_at(),
        }
    }

    fn handle_renewal(
        &mut self,
        now: Instant,
        outcome: Result<Swap, WriteError>,
        jitter: Jitter,
    ) -> LeaseStep {
        match outcome {
            Ok(Swap::Swapped) => match self.attempts.take_last() {
                Some(attempt) => self.confirmed(now, attempt, jitter),
                None => self.pause(now),
            },
            Ok(Swap::Mismatch(slot)) => self.resolve(now, &slot, jitter),
            Err(WriteError::NotApplied(cause)) => {
                self.attempts.discard_last();
                self.failed(cause.to_string());
                self.pause(now)
            }
            // The operator may correct credentials or schema in time. Giving up early has no advantage.
            Err(WriteError::Fatal(cause)) => {
                self.attempts.discard_last();
                self.failed(cause.to_string());
                self.pause(now)
            }
            Err(WriteError::Unknown(cause)) => {
                self.failed(cause.to_string());
                self.read_back(now)
            }
            Err(WriteError::Replaced(cause)) => self.replaced(&cause),
        }
    }

    /// Reads back within the rest of the attempt's time. If none is left, the next attempt's answer resolves this one.
    fn read_back(&mut self, now: Instant) -> LeaseStep {
        let deadline = self.attempts.last().map(|last| last.sent_at.after(self.calls.attempt_timeout()));
        let left = deadline.map_or(Duration::ZERO, |deadline| now.until(deadline));
        if left.is_zero() || now >= self.loss_at() {
            return self.pause(now);
        }
        self.phase = LeasePhase::ReadingBack;
        LeaseStep::ReadBack { timeout: left, loss_at: self.loss_at() }
    }

    fn read(&mut self, now: Instant, outcome: Result<Slot, ReadError>, jitter: Jitter) -> LeaseStep {
        match outcome {
            Ok(slot) => self.resolve(now, &slot, jitter),
            Err(ReadError::Unavailable(cause) | ReadError::Fatal(cause)) => {
                self.failed(cause.to_string());
                self.pause(now)
            }
            Err(ReadError::Replaced(cause)) => self.replaced(&cause),
        }
    }

    fn replaced(&mut self, cause: &Cause) -> LeaseStep {
        self.lose(Loss::StorageReplaced { cause: cause.to_string().into() })
    }

    /// Handles a linearizable answer (I7). One of our writes confirms that attempt, from *its* send. The
    /// version that we held is undecided, since the attempt may still be applied. Everything else is a loss: a record
    /// of ours that is neither was replaced before, by one of our writes.
    fn resolve(&mut self, now: Instant, slot: &Slot, jitter: Jitter) -> LeaseStep {
        if let Some(attempt) = self.attempts.shown_by(slot).cloned() {
            return self.confirmed(now, attempt, jitter);
        }
        match slot {
            Slot::Held { entry, .. } if entry.is_same_write(&self.held) => self.pause(now),
            slot if slot.last_epoch() < Some(self.held.epoch) || self.is_ours(slot) => {
                self.lose(Loss::EpochWentBack { held: self.held.epoch, found: slot.last_epoch() })
            }
            Slot::Held { entry, .. } => self.lose(Loss::Stolen { by: Box::new(entry.clone()) }),
            Slot::Vacant(_) => self.lose(Loss::Vanished),
        }
    }

    fn confirmed(&mut self, now: Instant, attempt: Attempt, jitter: Jitter) -> LeaseStep {
        self.held = attempt.entry;
        self.attempts.settle();
        // Attempts are confirmed in the order they were sent, so this never moves back.
        self.confirmed_sent_at = attempt.sent_at;
        if now >= self.loss_at() {
            return self.out_of_time();
        }
        self.tried = 0;
        self.last_failure = None;
        let wake_at = self.timing.renew_at(attempt.sent_at, jitter);
        self.phase = LeasePhase::Waiting(wake_at);
        LeaseStep::Confirmed { sent_at: attempt.sent_at, version: self.held.version, wake_at }
    }

    fn failed(&mut self, cause: String) {
        self.last_failure = Some(cause.into());
    }

    fn pause(&mut self, now: Instant) -> LeaseStep {
        if now >= self.loss_at() {
            return self.out_of_time();
        }
        let until = now.after(self.calls.retry_pause()).min(self.loss_at());
        self.phase = LeasePhase::Waiting(until);
        LeaseStep::Sleep(until)
    }

    /// Ends the lease at the loss instant. If no attempt was made, this process did not run.
    fn out_of_time(&mut self) -> LeaseStep {
        if self.tried == 0 && self.last_failure.is_none() && !matches!(self.phase, LeasePhase::Queued) {
            return self.lose(Loss::Suspended);
        }
        let last_failure = self.last_failure.take();
        self.lose(Loss::StorageUnreachable { last_failure })
    }

    fn lose(&mut self, loss: Loss) -> LeaseStep {
        self.phase = LeasePhase::Lost;
        LeaseStep::Lost(loss)
    }
}

#[cfg(feature = "testing")]
impl Lease {
    /// Hands on every instant and version, to be shifted and renumbered.
    pub fn rebase(&mut self, to: &mut dyn super::Rebase) {
        super::rebase_write(self.held.incarnation(), &mut self.last_write, to);
        to.entry(&mut self.held);
        to.since(&mut self.confirmed_sent_at);
        self.attempts.rebase(to);
        if let LeasePhase::Waiting(until) = &mut self.phase {
            to.until(until);
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Attempt {
    pub(super) entry: Entry,
    /// The instant just before it was sent. Only the confirmation of this attempt counts from it (I3).
    pub(super) sent_at: Instant,
}

/// Attempts that all replace the same state of a slot, so at most one of them can be applied. Only the *version* of an
/// attempt confirms it: the record that a lost renewal should have replaced has its incarnation, too (I7).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Attempts(Vec<Attempt>);

impl Attempts {
    pub(super) fn push(&mut self, attempt: Attempt) {
        self.0.push(attempt);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn last(&self) -> Option<&Attempt> {
        self.0.last()
    }

    /// The attempt that was sent last was applied.
    pub(super) fn take_last(&mut self) -> Option<Attempt> {
        self.0.pop()
    }

    /// It was not applied and never will be.
    pub(super) fn discard_last(&mut self) {
        self.0.pop();
    }

    /// Removes all attempts: one was confirmed, or the slot has changed so that none can be applied any more.
    pub(super) fn settle(&mut self) {
        // `clear` would keep the capacity that an outage needed (I11).
        self.0 = Vec::new();
    }

    /// Returns the attempt whose record stands in `slot`, if there is one.
    pub(super) fn shown_by(&self, slot: &Slot) -> Option<&Attempt> {
        let entry = slot.entry()?;
        self.0.iter().find(|attempt| attempt.entry.is_same_write(entry))
    }

    #[cfg(feature = "testing")]
    pub(super) fn rebase(&mut self, to: &mut dyn super::Rebase) {
        for attempt in &mut self.0 {
            to.entry(&mut attempt.entry);
            to.since(&mut attempt.sent_at);
        }
    }

    pub(super) fn into_entries(self) -> impl Iterator<Item = Entry> {
        self.0.into_iter().map(|attempt| attempt.entry)
    }
}
