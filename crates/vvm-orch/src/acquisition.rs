//! How long a launched VVM campaigns before it gives up.

use ielections::AcquireTimeout;
use std::time::Duration;

/// How long to campaign.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acquisition {
    /// For so long; [`Duration::ZERO`] is one look, and a claim if that finds an opening.
    Within(Duration),
    /// Until a slot is won or the VVM is shut down.
    Forever,
    /// Until every slot was seen to have a live leader, which can take one TTL; at most 1.4 TTL of a storage
    /// that is of no use.
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
