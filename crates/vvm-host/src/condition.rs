//! [`Condition`]: when a host may campaign.

use std::future::pending;
use tokio::sync::watch;

/// When a host may campaign. By default, always.
#[derive(Clone, Debug, Default)]
pub(crate) struct Condition(Option<watch::Receiver<bool>>);

impl Condition {
    pub(crate) fn of(holds: watch::Receiver<bool>) -> Self {
        Self(Some(holds))
    }

    pub(crate) fn holds(&self) -> bool {
        self.0.as_ref().is_none_or(|holds| *holds.borrow())
    }

    /// Waits until it holds, or holds no more. Never returns if it can't change any more.
    ///
    /// # Cancel safety
    /// May be dropped and called again at will.
    pub(crate) async fn becomes(&self, wanted: bool) {
        let changed = match &self.0 {
            Some(holds) => holds.clone().wait_for(|holds| *holds == wanted).await.is_ok(),
            None => wanted,
        };
        if !changed {
            pending::<()>().await;
        }
    }
}
