//! [`Acquisition`]: how long a VVM campaigns before it gives up.

use ielections::AcquireTimeout;
use std::time::Duration;

/// How long a VVM campaigns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acquisition {
    /// For this long. [`Duration::ZERO`] means one look, and a claim if a slot is open.
    Within(Duration),
    /// Until a slot is acquired or the VVM is shut down.
    Forever,
    /// Until every slot is seen to have a live leader, which can take one TTL. If the storage does not
    /// answer, for 1.4 TTL.
    UntilLeaderSeen,
}

impl Acquisition {
    /// The default of the reference (`DefaultLeadershipAcquisitionDuration`).
    pub const DEFAULT: Self = Self::Within(Duration::from_secs(120));

    pub(crate) fn timeout(self) -> AcquireTimeout {
        match self {
            Self::Within(duration) => AcquireTimeout::Within(duration),
            Self::Forever => AcquireTimeout::Forever,
            Self::UntilLeaderSeen => AcquireTimeout::UntilLeaderSeen,
        }
    }
}

impl Default for Acquisition {
    fn default() -> Self {
        Self::DEFAULT
    }
}
