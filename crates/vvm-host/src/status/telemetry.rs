//! [`Telemetry`]: the counters of this process. Counting never waits.

use super::Histogram;
use ielections::{Loss, ReadError, WriteError};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The counters of this process.
#[derive(Debug, Default)]
pub(crate) struct Telemetry {
    /// The times from sending a renewal to its confirmation.
    pub(crate) renewals: Histogram,
    /// Leaderships of this process.
    pub(crate) leaderships: Count,
    /// Records of other leaders that were taken over because they were not renewed.
    pub(crate) take_overs: Count,
    /// How often the work was started again under the same leadership.
    pub(crate) restarts: Count,
    /// Failed checks of the work.
    pub(crate) check_failures: Count,
    /// The status plus one; zero before the first exit.
    last_exit_status: AtomicU64,
    failures: [[Count; Failure::ALL.len()]; Call::ALL.len()],
    losses: [Count; LOSSES.len()],
}

/// A counter.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Counts one more.
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// Returns the count so far.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The kind of a call to the storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    Read,
    Write,
}

/// How a call failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// The storage did not answer a read.
    Unavailable,
    /// A write was certainly not applied.
    NotApplied,
    /// A write may have been applied.
    Unknown,
    /// The storage refused for good.
    Fatal,
    /// The storage was replaced by another one.
    Replaced,
    /// There was no answer within the time of an attempt.
    NoAnswer,
}

/// The reasons for a loss, as metrics and JSON name them.
const LOSSES: [&str; 8] = [
    "stolen",
    "vanished",
    "epoch_went_back",
    "storage_replaced",
    "storage_unreachable",
    "suspended",
    "engine_ended",
    "dropped",
];

/// Returns a loss as metrics and JSON name it. `None` if this process ended its leadership itself.
pub(crate) fn loss_word(loss: &Loss) -> Option<&'static str> {
    loss_place(loss).and_then(|place| LOSSES.get(place)).copied()
}

fn loss_place(loss: &Loss) -> Option<usize> {
    Some(match loss {
        Loss::Stolen { .. } => 0,
        Loss::Vanished => 1,
        Loss::EpochWentBack { .. } => 2,
        Loss::StorageReplaced { .. } => 3,
        Loss::StorageUnreachable { .. } => 4,
        Loss::Suspended => 5,
        Loss::EngineEnded => 6,
        Loss::Dropped => 7,
        Loss::Closing | Loss::HandedBack => return None,
    })
}

impl Telemetry {
    /// Returns the exit status of the last run of the work.
    pub(crate) fn last_exit_status(&self) -> Option<u8> {
        u8::try_from(self.last_exit_status.load(Relaxed).checked_sub(1)?).ok()
    }

    /// Returns how many calls failed, for each kind of call and failure.
    pub(crate) fn failures(&self) -> impl Iterator<Item = (Call, Failure, u64)> {
        let of = move |call: Call| {
            Failure::ALL.into_iter().filter(move |failure| failure.occurs_in(call)).map(move |failure| {
                let count = self.failures[call as usize][failure as usize].get();
                (call, failure, count)
            })
        };
        Call::ALL.into_iter().flat_map(of)
    }

    /// Returns how many leaderships were lost, for each reason.
    pub(crate) fn losses(&self) -> impl Iterator<Item = (&'static str, u64)> {
        LOSSES.into_iter().zip(self.losses.iter().map(Count::get))
    }

    pub(super) fn exited(&self, status: u8) {
        self.last_exit_status.store(u64::from(status) + 1, Relaxed);
    }

    pub(super) fn failed(&self, call: Call, failure: Failure) {
        self.failures[call as usize][failure as usize].add();
    }

    pub(super) fn lost(&self, loss: &Loss) {
        if let Some(count) = loss_place(loss).and_then(|place| self.losses.get(place)) {
            count.add();
        }
    }
}

impl Call {
    const ALL: [Self; 2] = [Self::Read, Self::Write];

    /// Returns the call as metrics and JSON name it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

impl Failure {
    const ALL: [Self; 6] =
        [Self::Unavailable, Self::NotApplied, Self::Unknown, Self::Fatal, Self::Replaced, Self::NoAnswer];

    /// Returns the failure as metrics and JSON name it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::NotApplied => "not_applied",
            Self::Unknown => "unknown",
            Self::Fatal => "fatal",
            Self::Replaced => "replaced",
            Self::NoAnswer => "no_answer",
        }
    }

    fn occurs_in(self, call: Call) -> bool {
        match self {
            Self::Unavailable => call == Call::Read,
            Self::NotApplied | Self::Unknown => call == Call::Write,
            Self::Fatal | Self::Replaced | Self::NoAnswer => true,
        }
    }
}

impl From<&ReadError> for Failure {
    fn from(error: &ReadError) -> Self {
        match error {
            ReadError::Unavailable(_) => Self::Unavailable,
            ReadError::Fatal(_) => Self::Fatal,
            ReadError::Replaced(_) => Self::Replaced,
        }
    }
}

impl From<&WriteError> for Failure {
    fn from(error: &WriteError) -> Self {
        match error {
            WriteError::NotApplied(_) => Self::NotApplied,
            WriteError::Unknown(_) => Self::Unknown,
            WriteError::Fatal(_) => Self::Fatal,
            WriteError::Replaced(_) => Self::Replaced,
        }
    }
}
