//! [`Next`]: whether a host campaigns again, and after which pause.

use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};
use vvm_clock::Clock;

/// What a host does after a campaign has ended.
#[derive(Debug)]
pub enum Next {
    /// It ends.
    Stop,
    /// It campaigns again after a pause. A stop ends the pause and the host.
    CampaignAgain(Pause),
}

/// The time between two campaigns.
pub enum Pause {
    /// So long.
    For(Duration),
    /// Until this is ready. A stop drops it.
    Until(Pin<Box<dyn Future<Output = ()> + Send>>),
}

impl Next {
    /// Campaigns again after `pause`.
    pub fn campaign_after(pause: Duration) -> Self {
        Self::CampaignAgain(Pause::For(pause))
    }

    /// Campaigns again once `condition` is ready. A stop drops it.
    pub fn campaign_when(condition: impl Future<Output = ()> + Send + 'static) -> Self {
        Self::CampaignAgain(Pause::Until(Box::pin(condition)))
    }
}

impl Pause {
    /// Waits until the pause is over.
    ///
    /// # Cancel safety
    /// May be dropped at will.
    pub(super) async fn over(self, clock: &Arc<dyn Clock>) {
        match self {
            Self::For(duration) if duration.is_zero() => {}
            Self::For(duration) => clock.sleep(duration).await,
            Self::Until(condition) => condition.await,
        }
    }
}

impl fmt::Debug for Pause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::For(duration) => write!(out, "For({duration:?})"),
            Self::Until(_) => out.write_str("Until(..)"),
        }
    }
}
