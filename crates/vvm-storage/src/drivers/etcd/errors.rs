use crate::{drivers::errors, opening::OpenError};
use ielections::{ReadError, WriteError};

#[derive(Debug, thiserror::Error)]
pub(super) enum DriverError {
    /// No connection could be made, or no login: the request was not sent.
    #[error(transparent)]
    NotConnected(#[from] OpenError),
    /// The member refused the request before it proposed it, and may accept another one.
    #[error("etcd did not begin: {0}")]
    NotBegun(String),
    #[error("etcd did not begin: {0}; the next request logs in again")]
    LoginExpired(String),
    /// The member refused the request, and so it will until an operator acts.
    #[error("etcd refuses it: {0}")]
    Refused(String),
    /// It may have been applied, or may still be.
    #[error("etcd did not answer whether it was applied: {0}")]
    Unanswered(String),
    /// The storage is another one than when it was opened.
    #[error(
        "{0}: another leader may be at work. Find out what replaced the storage, run `vvm init-storage` if \
         it is empty, and start this process again"
    )]
    Replaced(&'static str),
    #[error(transparent)]
    Damaged(#[from] DecodeError),
    #[error(transparent)]
    Closed(#[from] errors::HandleClosed),
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "below the prefix is a value that no election wrote: {0}. Stop all candidates, and find out what writes \
     there"
)]
pub(super) struct DecodeError(String);

impl DecodeError {
    pub(super) fn new(what: impl ToString) -> Self {
        Self(what.to_string())
    }

    /// A refusal although what stands is what was expected.
    pub(super) fn not_shown() -> Self {
        Self::new("a write was refused, and no value is in its way")
    }
}

/// How a call ended that brought no message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum CallError {
    NotSent(String),
    Disconnected(String),
    Broken(String),
    Status { code: i32, message: String },
}

impl From<CallError> for DriverError {
    /// (I7) Only a status that is given before a proposal, or instead of its application, is certain.
    fn from(error: CallError) -> Self {
        let (code, message) = match error {
            CallError::NotSent(why) => return Self::NotBegun(why),
            CallError::Disconnected(why) | CallError::Broken(why) => return Self::Unanswered(why),
            CallError::Status { code, message } => (code, message),
        };
        let says = |part| message.contains(part);
        match code {
            // The login's rights have changed since: compared when it is applied, and then it is not.
            3 if says("revision of auth store is old") => Self::LoginExpired(message),
            3 if says("user name is empty") => {
                Self::Refused(format!("{message}; it requires a login: add user=NAME"))
            }
            3 | 12 => Self::Refused(message),
            7 => Self::Refused(format!(
                "{message}; the user needs a role that reads and writes the prefix: etcdctl role grant-permission ROLE \
                 --prefix=true readwrite PREFIX/"
            )),
            // "database space exceeded" may come with a write that was applied, "too many requests" not.
            8 if says("too many requests") => Self::NotBegun(message),
            9 if says("not supported for learner") => Self::NotBegun(message),
            16 => Self::LoginExpired(message),
            _ => Self::Unanswered(format!("{message} (gRPC status {code})")),
        }
    }
}

impl DriverError {
    /// Whether the member is as good as any other for the next request.
    pub(super) fn leaves_connection_usable(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::LoginExpired(_))
    }

    pub(super) fn of_opening(self) -> OpenError {
        match self {
            Self::NotConnected(error) => error,
            Self::Refused(_) | Self::Damaged(_) => OpenError::refused(self.to_string()),
            other => OpenError::passing(other.to_string()),
        }
    }

    pub(super) fn of_write(self) -> WriteError {
        match self {
            // The members were accepted when the storage was opened. A password or a certificate is replaced on
            // both sides, one after the other.
            Self::NotConnected(_) | Self::NotBegun(_) | Self::LoginExpired(_) => {
                WriteError::NotApplied(self.into())
            }
            Self::Unanswered(_) => WriteError::Unknown(self.into()),
            Self::Replaced(_) => WriteError::Replaced(self.into()),
            // A damaged value comes with a refusal alone.
            Self::Refused(_) | Self::Damaged(_) | Self::Closed(_) => WriteError::Fatal(self.into()),
        }
    }

    pub(super) fn of_read(self) -> ReadError {
        errors::of_read(self.of_write())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_certain_only_if_nothing_can_have_been_applied() {
        let outcome = |code, message: &str| {
            let error = CallError::Status { code, message: message.to_owned() };
            errors::kinds::of_write(&DriverError::from(error).of_write())
        };
        let table = [
            (2, "", "Unknown"),
            (3, "etcdserver: duplicate key given in txn request", "Fatal"),
            (3, "etcdserver: revision of auth store is old", "NotApplied"),
            (3, "etcdserver: user name is empty", "Fatal"),
            (4, "context deadline exceeded", "Unknown"),
            (7, "etcdserver: permission denied", "Fatal"),
            (8, "etcdserver: mvcc: database space exceeded", "Unknown"),
            (8, "etcdserver: too many requests", "NotApplied"),
            (9, "etcdserver: rpc not supported for learner", "NotApplied"),
            (9, "etcdserver: not leader", "Unknown"),
            (12, "unknown service etcdserverpb.KV", "Fatal"),
            (14, "etcdserver: request timed out", "Unknown"),
            (14, "etcdserver: leader changed", "Unknown"),
            (15, "etcdserver: corrupt cluster", "Unknown"),
            (16, "etcdserver: invalid auth token", "NotApplied"),
        ];
        for (code, message, expected) in table {
            assert_eq!(outcome(code, message), expected, "{code} {message}");
        }
        let broken = CallError::Broken(String::new());
        assert!(matches!(DriverError::from(broken).of_write(), WriteError::Unknown(_)));
        let unsent = CallError::NotSent(String::new());
        assert!(matches!(DriverError::from(unsent).of_write(), WriteError::NotApplied(_)));
    }
}
