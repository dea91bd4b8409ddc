//! Giving a record back: a bounded number of deletes, each safe to repeat.
//!
//! Only ever begun when the work under the leadership has stopped (I6), or none was ever started.

use crate::{Delete, Epoch, Incarnation, Slot, Timing, WriteError};
use std::{fmt, time::Duration};
use vvm_clock::Instant;

/// What became of the record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReleaseOutcome {
    /// The slot is vacant: the next candidate that looks may claim it.
    Released,
    /// The record was no longer ours.
    AlreadyGone,
    /// The storage could not be reached or refused: the record stands until its TTL has passed.
    LeftToExpire,
    /// The elections' task had ended before ([`Loss::EngineEnded`](crate::Loss)): the record stands until its
    /// TTL has passed, and **the deadline stays armed**, because nobody was left who could disarm it (I4).
    /// The process ends at it.
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

/// How often a delete is tried. Enough for a blink of the network; the TTL does the rest.
const ATTEMPTS: u32 = 3;

/// A record on its way out.
#[derive(Debug)]
pub struct Release {
    incarnation: Incarnation,
    epoch: Epoch,
    timing: Timing,
    tried: u32,
    /// An attempt went unanswered, so that a vacant slot may be our own doing.
    unresolved: bool,
}

/// What happened.
#[derive(Debug)]
pub enum ReleaseEvent {
    /// The instant asked for has come.
    Woken,
    /// A request may go out now.
    MaySend,
    /// The delete was answered.
    Deleted(Result<Delete, WriteError>),
}

/// What to do.
#[derive(PartialEq, Eq, Debug)]
pub enum ReleaseStep {
    /// Nothing until then; deliver `Woken` at that instant.
    Sleep(Instant),
    /// Deliver `MaySend` as soon as a request may go out.
    Send,
    /// Call `compare_and_delete` now, for at most `timeout`.
    Delete {
        /// Whose record.
        incarnation: Incarnation,
        /// Of which epoch.
        epoch: Epoch,
        /// Bound of the call.
        timeout: Duration,
    },
    /// Over.
    Done(ReleaseOutcome),
}

impl Release {
    /// The release of the record of `incarnation` and `epoch`. Deliver `MaySend` to begin.
    pub fn begin(incarnation: Incarnation, epoch: Epoch, timing: Timing) -> Self {
        Self { incarnation, epoch, timing, tried: 0, unresolved: false }
    }

    /// The next step.
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

    /// A slot that is vacant at our epoch after an unanswered delete was vacated by that delete.
    fn mismatch(&self, slot: &Slot) -> ReleaseOutcome {
        match slot {
            Slot::Vacant(vacant) if self.unresolved && vacant.last_epoch == Some(self.epoch) => {
                ReleaseOutcome::Released
            }
            _ => ReleaseOutcome::AlreadyGone,
        }
    }
}
