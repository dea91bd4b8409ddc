//! [`HookService`]: the hooks of one leadership. The record is released when the on-loss hook has ended.

use super::{hook_error::HookError, hooks::Hooks};
use crate::{announce::say_text, leadership::Leadership};
use async_trait::async_trait;
use ielections::Holder;
use std::sync::{Arc, OnceLock};
use vvm_orch::{BoxError, Service, ServiceContext, Work};
use vvm_storage::ElectionKey;

/// Runs the hooks.
#[derive(Clone, Debug)]
pub(super) struct HookService {
    pub(super) name: String,
    pub(super) holder: Holder,
    /// Variables that hooks do not get.
    pub(super) withheld: &'static [&'static str],
    pub(super) hooks: Arc<Hooks>,
    /// Why the first on-lead hook failed, if one did.
    pub(super) failed: Arc<OnceLock<HookError>>,
}

#[async_trait]
impl Service<ElectionKey> for HookService {
    fn name(&self) -> &str {
        "hooks"
    }

    async fn start(self: Box<Self>, cx: ServiceContext<ElectionKey>) -> Result<Work, BoxError> {
        let Self { name, holder, withheld, hooks, failed } = *self;
        let leadership = Leadership::new(&name, &holder, &cx.slot, &cx.standing);
        say_text!("{leadership}");
        let environment = leadership.environment(std::env::vars_os(), withheld);
        let led = tokio::select! {
            biased;
            led = hooks.lead(environment) => led,
            // The next order kills the hook.
            () = cx.stop.cancelled() => Ok(()),
        };
        Ok(Box::pin(async move {
            match led {
                Ok(()) => cx.stop.cancelled().await,
                Err(failure) => {
                    // The first one counts.
                    let _ = failed.set(failure);
                }
            }
            let why = cx.standing.loss().map(|loss| format!(": {loss}")).unwrap_or_default();
            say_text!("{name} slot {}: no longer leading{why}", leadership.slot);
            hooks.lose().await;
            Ok(())
        }))
    }
}
