//! How it goes on the way between a contender and its servers.

use std::time::Duration;

/// The weather on the way of one contender.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Weather {
    pub(crate) path: Path,
    /// How probable it is that the outcome of a write is forged.
    pub(crate) forged: f64,
}

/// What becomes of connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Path {
    /// Open.
    Clear,
    /// They are cut, and new ones refused.
    Cut,
    /// Answers come late: up to so long.
    Slow(Duration),
    /// Nothing arrives in either direction, before the silence is over; then all of it does.
    Silent,
}

impl Weather {
    pub(crate) const CLEAR: Self = Self { path: Path::Clear, forged: 0.0 };

    pub(crate) const fn path(path: Path) -> Self {
        Self { path, ..Self::CLEAR }
    }

    pub(crate) const fn forging(forged: f64) -> Self {
        Self { forged, ..Self::CLEAR }
    }
}
