//! The hooks as a service of the orchestrator: the record is released only after the on-loss hook has ended.

use super::Shared;
use crate::{announce::say, worker::environment::Leadership};
use async_trait::async_trait;
use std::sync::Arc;
use vvm_orch::{BoxError, Service, ServiceContext, Work};
use vvm_storage::ElectionKey;

/// The hooks of one leadership.
#[derive(Debug)]
pub(super) struct HookService(pub(super) Arc<Shared>);

#[async_trait]
impl Service<ElectionKey> for HookService {
    fn name(&self) -> &str {
        "hooks"
    }

    async fn start(self: Box<Self>, cx: ServiceContext<ElectionKey>) -> Result<Work, BoxError> {
        let Self(shared) = *self;
        let leadership = Leadership {
            name: shared.args.name.clone(),
            slot: cx.slot.slot.get().get(),
            epoch: cx.standing.epoch(),
            holder: shared.holder.clone(),
            incarnation: cx.standing.incarnation(),
        };
        let Leadership { name, slot, epoch, holder, .. } = &leadership;
        say!("{name} slot {slot}: leading, epoch {epoch}, as {holder}");
        let withheld = vvm_storage::url::credentials(&shared.args.storage);
        let environment = leadership.environment(std::env::vars_os(), withheld);
        let led = tokio::select! {
            biased;
            led = shared.hooks.lead(environment) => led,
            // The next order kills it.
            () = cx.stop.cancelled() => Ok(()),
        };
        Ok(Box::pin(async move {
            match led {
                Ok(()) => cx.stop.cancelled().await,
                Err(failure) => {
                    // The first stands.
                    let _ = shared.failed.set(failure);
                }
            }
            let Leadership { name, slot, .. } = &leadership;
            let why = cx.standing.loss().map(|loss| format!(": {loss}")).unwrap_or_default();
            say!("{name} slot {slot}: leading no longer{why}");
            shared.hooks.lose().await;
            Ok(())
        }))
    }
}
