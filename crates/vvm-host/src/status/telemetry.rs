//! [`Telemetry`]: what was counted since the process began. Counters only ever rise, and counting never
//! waits.

use super::Histogram;
use ielections::{Loss, ReadError, WriteError};
use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// What was counted so far.
#[derive(Debug, Default)]
pub(crate) struct Telemetry {
    renewals: Histogram,
    leaderships: AtomicU64,
    take_overs: AtomicU64,
    failures: [[AtomicU64; Failure::ALL.len()]; Call::ALL.len()],
    losses: [AtomicU64; LOSSES.len()],
}

/// Which kind of call to the storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    Read,
    Write,
}

/// How a call failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// A read was not answered with anything, as the driver says.
    Unavailable,
    /// A write was certainly not applied.
    NotApplied,
    /// Nobody knows whether a write was applied.
    Unknown,
    /// Refused for good.
    Fatal,
    /// Not the same storage any more.
    Replaced,
    /// Not answered within the time that an attempt has.
    NoAnswer,
}

/// The reasons for a loss, as they are called in metrics and JSON.
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

/// What a loss is called in metrics and JSON. None for what is no loss: a leadership that we ended ourselves.
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
    /// Renewals that the storage confirmed, each by how long that took from the moment when it was sent.
    pub(crate) fn renewals(&self) -> &Histogram {
        &self.renewals
    }

    /// How many leaderships there were.
    pub(crate) fn leaderships(&self) -> u64 {
        self.leaderships.load(Relaxed)
    }

    /// How many records of others were taken over, because nobody had renewed them.
    pub(crate) fn take_overs(&self) -> u64 {
        self.take_overs.load(Relaxed)
    }

    /// How many calls failed, for each kind of call and failure.
    pub(crate) fn failures(&self) -> impl Iterator<Item = (Call, Failure, u64)> {
        let of = move |call: Call| {
            Failure::ALL.into_iter().filter(move |failure| failure.befalls(call)).map(move |failure| {
                let count = self.failures[call as usize][failure as usize].load(Relaxed);
                (call, failure, count)
            })
        };
        Call::ALL.into_iter().flat_map(of)
    }

    /// How many leaderships were lost, for each reason.
    pub(crate) fn losses(&self) -> impl Iterator<Item = (&'static str, u64)> {
        LOSSES.into_iter().zip(self.losses.iter().map(|count| count.load(Relaxed)))
    }

    /// A renewal was confirmed, so long after it was sent.
    pub(super) fn renewed(&self, latency: Duration) {
        self.renewals.record(latency);
    }

    /// A record of somebody else was taken over.
    pub(crate) fn took_over(&self) {
        self.take_overs.fetch_add(1, Relaxed);
    }

    pub(super) fn led(&self) {
        self.leaderships.fetch_add(1, Relaxed);
    }

    pub(super) fn failed(&self, call: Call, failure: Failure) {
        self.failures[call as usize][failure as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn lost(&self, loss: &Loss) {
        if let Some(count) = loss_place(loss).and_then(|place| self.losses.get(place)) {
            count.fetch_add(1, Relaxed);
        }
    }
}

impl Call {
    const ALL: [Self; 2] = [Self::Read, Self::Write];

    /// What it is called in metrics and JSON.
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

    /// What it is called in metrics and JSON.
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

    fn befalls(self, call: Call) -> bool {
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
