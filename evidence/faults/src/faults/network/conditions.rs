//! [`Conditions`]: the state of the network between a candidate and its servers.

use std::time::Duration;

/// The conditions for one candidate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Conditions {
    pub(crate) link: Link,
    /// The probability that the answer to a write is forged.
    pub(crate) forged: f64,
}

/// The state of the connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Link {
    /// Open.
    Open,
    /// Connections are cut, and new ones refused.
    Cut,
    /// Answers are delayed, up to this long.
    Slow(Duration),
    /// Nothing arrives in either direction until the link is open again. Then all of it arrives.
    Silent,
}

impl Conditions {
    pub(crate) const NORMAL: Self = Self { link: Link::Open, forged: 0.0 };

    pub(crate) const fn link(link: Link) -> Self {
        Self { link, ..Self::NORMAL }
    }

    pub(crate) const fn forging(forged: f64) -> Self {
        Self { forged, ..Self::NORMAL }
    }
}
