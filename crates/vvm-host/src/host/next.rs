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
pub struct Pause(Length);

enum Length {
    For(Duration),
    Until(Pin<Box<dyn Future<Output = ()> + Send>>),
}

impl Next {
    /// Campaigns again after `pause`.
    pub fn campaign_after(pause: Duration) -> Self {
        Self::CampaignAgain(Pause(Length::For(pause)))
    }

    /// Campaigns again once `condition` is ready. A stop drops it.
    pub fn campaign_when(condition: impl Future<Output = ()> + Send + 'static) -> Self {
        Self::CampaignAgain(Pause(Length::Until(Box::pin(condition))))
    }
}

impl Pause {
    /// Waits until the pause is over.
    ///
    /// # Cancel safety
    /// May be dropped at will.
    pub(super) async fn over(self, clock: &Arc<dyn Clock>) {
        match self.0 {
            Length::For(duration) if duration.is_zero() => {}
            Length::For(duration) => clock.sleep(duration).await,
            Length::Until(condition) => condition.await,
        }
    }
}

impl fmt::Debug for Pause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Length::For(duration) => write!(out, "Pause(for {duration:?})"),
            Length::Until(_) => out.write_str("Pause(until a condition)"),
        }
    }
}
