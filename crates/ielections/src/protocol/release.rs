//! [`Release`]: deletes a record in a bounded number of attempts, once its work has stopped (I6) or none was started.

use crate::{Delete, Epoch, Incarnation, Slot, Timing, WriteError};
use std::{fmt, time::Duration};
use vvm_clock::Instant;

/// The outcome of a release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReleaseOutcome {
    /// The slot is vacant: the next candidate may claim it.
    Released,
    /// The slot had another record or none.
    AlreadyGone,
    /// No delete was confirmed: the storage was out of reach or refused. The record may stand until its TTL has passed.
    LeftToExpire,
    /// The elections' task had ended before ([`Loss::EngineEnded`](crate::Loss)). The record stands until its TTL has
    /// passed, and **the deadline stays armed**, because only that task could disarm it (I4): it ends the process.
    StillArmed,
}

impl fmt::Display for ReleaseOutcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Released => "the record was released",
            Self::AlreadyGone => "the record was gone already",
            Self::LeftToExpire => "the record is left to expire",
            Self::StillArmed => "the record is left to expire, and the kill deadline stays armed",
        })
    }
}

/// How often a delete is tried. Enough for a short network failure; after that the record expires.
const ATTEMPTS: u32 = 3;

/// A record that is being deleted.
#[derive(Clone, Hash, Debug)]
pub struct Release {
    incarnation: Incarnation,
    epoch: Epoch,
    timing: Timing,
    tried: u32,
    /// An attempt had no answer, so our own delete may have vacated the slot.
    unresolved: bool,
}

/// An event of a release.
#[derive(Debug)]
pub enum ReleaseEvent {
    /// The instant of [`ReleaseStep::Sleep`] has come.
    Woken,
    /// A request may go out now.
    MaySend,
    /// The delete was answered.
    Deleted(Result<Delete, WriteError>),
}

/// The next step of a release.
#[derive(PartialEq, Eq, Debug)]
pub enum ReleaseStep {
    /// Do nothing; deliver `Woken` at that instant.
    Sleep(Instant),
    /// Deliver `MaySend` as soon as a request may go out.
    Send,
    /// Call `compare_and_delete` now, for at most `timeout`.
    Delete {
        /// The incarnation of the record.
        incarnation: Incarnation,
        /// The epoch of the record.
        epoch: Epoch,
        /// Bound of the call.
        timeout: Duration,
    },
    /// The release has ended.
    Done(ReleaseOutcome),
}

impl Release {
    /// The release of the record of `incarnation` and `epoch`. Deliver `MaySend` to begin.
    pub fn begin(incarnation: Incarnation, epoch: Epoch, timing: Timing) -> Self {
        Self { incarnation, epoch, timing, tried: 0, unresolved: false }
    }

    /// Returns incarnation and epoch of the record.
    pub fn record(&self) -> (Incarnation, Epoch) {
        (self.incarnation, self.epoch)
    }

    /// Returns the next step.
    pub fn on(&mut self, now: Instant, event: ReleaseEvent) -> ReleaseStep {
        match event {
            ReleaseEvent::Woken => ReleaseStep::Send,
            ReleaseEvent::MaySend => {
                self.tried += 1;
                ReleaseStep::Delete {
                    incarnation: self.incarnation,
                    epoch: self.epoch,
                    timeout: self.timing.attempt_timeout(),
                }
            }
            ReleaseEvent::Deleted(Ok(Delete::Deleted)) => ReleaseStep::Done(ReleaseOutcome::Released),
            ReleaseEvent::Deleted(Ok(Delete::Mismatch(slot))) => ReleaseStep::Done(self.mismatch(&slot)),
            ReleaseEvent::Deleted(Err(WriteError::Fatal(_) | WriteError::Replaced(_))) => {
                ReleaseStep::Done(ReleaseOutcome::LeftToExpire)
            }
            ReleaseEvent::Deleted(Err(error)) => {
                self.unresolved |= matches!(error, WriteError::Unknown(_));
                if self.tried >= ATTEMPTS {
                    return ReleaseStep::Done(ReleaseOutcome::LeftToExpire);
                }
                ReleaseStep::Sleep(now.after(self.timing.retry_pause()))
            }
        }
    }

    /// Gives `to` the incarnation and the epoch of the record that is deleted.
    #[cfg(feature = "testing")]
    pub fn rebase(&mut self, to: &mut dyn super::Rebase) {
        let mut record = self.record();
        super::rebase_record(&mut record, to);
        (self.incarnation, self.epoch) = record;
    }

    /// If the slot is vacant at our epoch after a delete without an answer, that delete was applied.
    fn mismatch(&self, slot: &Slot) -> ReleaseOutcome {
        match slot {
            Slot::Vacant(vacant) if self.unresolved && vacant.last_epoch == Some(self.epoch) => {
                ReleaseOutcome::Released
            }
            _ => ReleaseOutcome::AlreadyGone,
        }
    }
}
