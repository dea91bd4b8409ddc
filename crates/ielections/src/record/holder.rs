//! [`Holder`]: the name of a leader, for people.

use std::{fmt, sync::Arc};

/// Address or host name of a leader, at most 255 bytes. Never an identity: another process can have the same
/// address. Records are identified by their [`Version`](crate::Version).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder(Arc<str>);

/// The holder name is longer than 255 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a holder name of {0} bytes is too long: at most 255")]
pub struct HolderTooLong(pub usize);

impl Holder {
    /// The longest name, in bytes: a DNS name's limit (RFC 1035).
    pub const MAX_BYTES: usize = 255;

    /// # Errors
    /// When `name` has more than [`Holder::MAX_BYTES`] bytes.
    pub fn new(name: impl Into<Arc<str>>) -> Result<Self, HolderTooLong> {
        let name = name.into();
        if name.len() > Self::MAX_BYTES {
            return Err(HolderTooLong(name.len()));
        }
        Ok(Self(name))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name, shared.
    pub fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", &*self.0)
    }
}
