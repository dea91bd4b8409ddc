//! [`DriverError`]: which failure of a request is which error of the contract. Each driver maps its server's codes.

use crate::{drivers::errors, opening::OpenError};
use ielections::{ReadError, Ttl, WriteError};
use std::{io, time::Duration};

#[derive(Debug, thiserror::Error)]
pub(crate) enum DriverError {
    /// No connection could be made: nothing was sent.
    #[error(transparent)]
    NotConnected(#[from] OpenError),
    /// A login that can't be completed. Only while a connection is made.
    #[error("{0}")]
    Login(String),
    /// The connection broke. While a connection is made, nothing was sent.
    #[error("the connection broke: {0}")]
    Broken(io::Error),
    /// Nothing was written, and a later attempt may succeed.
    #[error("the database did not carry it out: {0}")]
    RolledBack(String),
    /// Nothing was written, and nothing will be until an operator acts.
    #[error("the database refuses it: {0}. Check grants and tables")]
    Refused(String),
    /// Nothing was written, because the login lacks a right, which may be given back.
    #[error("this login lacks a right: {0}. `vvm init-storage` with it names the grants that are missing")]
    Denied(String),
    /// The tables are not there. They were when the storage was opened.
    #[error(
        "the tables are gone: find out who dropped them before `vvm init-storage` creates them again ({0})"
    )]
    NoTables(String),
    #[error("the database did not answer whether it was applied: {0}")]
    Unanswered(String),
    /// It was applied here. Whether a standby has it is unknown.
    #[error("committed, but the wait for the synchronous standby was cancelled: {0}")]
    NotReplicated(String),
    #[error(
        "the database failed over, was restored or created anew: another leader may be at work. The slot can be \
         claimed again after the largest TTL"
    )]
    OtherHistory,
    #[error(transparent)]
    Damaged(#[from] DecodeError),
    /// The claim's TTL is beyond the bound that is waited for after a fail-over.
    #[error(
        "a TTL of {ttl} is longer than this storage allows, {most}: choose a shorter one, or run `vvm \
         init-storage` with max_ttl={}s in the URL",
        ttl.get().as_secs_f64().ceil()
    )]
    TtlTooLong { ttl: Ttl, most: Ttl },
    /// The claim's epoch would be far from those that the server makes after a fail-over.
    #[error(transparent)]
    ClockIsFar(#[from] ClockIsFar),
    #[error(transparent)]
    Closed(#[from] errors::HandleClosed),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "this machine's clock is {:.1} h {direction} the server's: epochs would not rise after a fail-over. \
     Correct the clock that is wrong", difference.as_secs_f64() / 3600.0
)]
pub(crate) struct ClockIsFar {
    pub(super) difference: Duration,
    pub(super) direction: &'static str,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a table of sysvvm has a row that no election wrote: {0}. Stop all candidates, and find out what writes there"
)]
pub(crate) struct DecodeError(String);

impl DecodeError {
    pub(crate) fn of(what: impl ToString) -> Self {
        Self(what.to_string())
    }

    pub(crate) fn not_shown() -> Self {
        Self::of("a write was refused, and no row is in its way")
    }
}

impl DriverError {
    pub(crate) fn into_write_error(self) -> WriteError {
        match self {
            // It was accepted at opening. Passwords, certificates and rights are replaced on both sides, clocks corrected.
            Self::NotConnected(_) | Self::RolledBack(_) | Self::Denied(_) | Self::ClockIsFar(_) => {
                WriteError::NotApplied(self.into())
            }
            Self::Unanswered(_) | Self::Broken(_) | Self::NotReplicated(_) => {
                WriteError::Unknown(self.into())
            }
            Self::OtherHistory | Self::NoTables(_) => WriteError::Replaced(self.into()),
            // A damaged row comes with a refusal alone.
            Self::Login(_)
            | Self::Refused(_)
            | Self::Damaged(_)
            | Self::TtlTooLong { .. }
            | Self::Closed(_) => WriteError::Fatal(self.into()),
        }
    }

    pub(crate) fn into_open_error(self) -> OpenError {
        match self {
            Self::NotConnected(error) => error,
            Self::Login(_) | Self::Refused(_) | Self::Denied(_) | Self::NoTables(_) | Self::Damaged(_) => {
                OpenError::refused(self.to_string())
            }
            other => OpenError::passing(other.to_string()),
        }
    }

    /// Of a request before a write that was then not sent.
    pub(crate) fn into_unsent_error(self) -> WriteError {
        match self.into_write_error() {
            WriteError::Unknown(cause) | WriteError::Replaced(cause) => WriteError::NotApplied(cause),
            error => error,
        }
    }

    pub(crate) fn into_read_error(self) -> ReadError {
        errors::of_read(self.into_write_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_connection_ends_an_opening_and_is_tried_again_later() {
        let refused = || DriverError::from(OpenError::refused("the password is wrong"));
        assert!(!refused().into_open_error().is_passing());
        let error = refused().into_write_error();
        assert!(matches!(&error, WriteError::NotApplied(cause) if cause.to_string().contains("password")));
        assert!(matches!(refused().into_read_error(), ReadError::Unavailable(_)));
    }
}
