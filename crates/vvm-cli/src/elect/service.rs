//! [`HookService`]: the hooks of one leadership. The record is released when the on-loss hook has ended.

use super::{hook_error::HookError, hooks::Hooks};
use crate::{announce::say_text, leadership::Leadership};
use async_trait::async_trait;
use ielections::{Holder, Loss};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use vvm_host::status::{HostStatus, Role, WhyStopping};
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
    /// Why the last on-loss hook failed, if it did: the machine may not be demoted.
    pub(super) loss_failed: Arc<Mutex<Option<HookError>>>,
    pub(super) status: Arc<HostStatus>,
}

impl HookService {
    /// Returns why the last on-loss hook failed, if it did.
    pub(super) fn loss_failure(&self) -> Option<HookError> {
        self.loss_failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs the on-loss hook, and records for status and history how it ended.
    async fn lose(&self, slot: u32, loss: Option<&Loss>, led: &Result<(), HookError>) {
        let name = &self.name;
        let lost = loss.map(|loss| format!("no longer leading: {loss}; ")).unwrap_or_default();
        say_text!("{name} slot {slot}: {lost}running the on-loss hook");
        let outcome = self.hooks.lose().await;
        let why = match (led, loss) {
            (Err(failure), _) if *failure != HookError::Overtaken => format!("the on-lead hook {failure}"),
            (_, Some(loss)) => WhyStopping::Lost(loss.clone()).to_string(),
            (_, None) => self.why_stopping(),
        };
        match &outcome {
            Ok(()) => {
                say_text!("{name} slot {slot}: the on-loss hook has succeeded");
                if led.is_err() {
                    self.status.work_ended(why);
                }
            }
            // The thread has printed it.
            Err(failure) => self.status.work_ended(format!("{why}; the on-loss hook {failure}")),
        }
        *self.loss_failed.lock().unwrap_or_else(PoisonError::into_inner) = outcome.err();
    }

    /// Returns why this leadership ends.
    fn why_stopping(&self) -> String {
        match self.status.role() {
            Role::Stopping { why, .. } => why.to_string(),
            role => role.to_string(),
        }
    }
}

#[async_trait]
impl Service<ElectionKey> for HookService {
    fn name(&self) -> &str {
        "hooks"
    }

    async fn start(self: Box<Self>, cx: ServiceContext<ElectionKey>) -> Result<Work, BoxError> {
        let leadership = Leadership::new(&self.name, &self.holder, &cx.slot, &cx.standing);
        say_text!("{leadership}");
        let environment = leadership.environment(std::env::vars_os(), self.withheld);
        let led = tokio::select! {
            biased;
            led = self.hooks.lead(&leadership, environment) => led,
            // The next order kills the hook.
            () = cx.stop.cancelled() => Ok(()),
        };
        Ok(Box::pin(async move {
            match &led {
                Ok(()) => cx.stop.cancelled().await,
                Err(failure) => {
                    // The first one counts.
                    let _ = self.failed.set(failure.clone());
                }
            }
            self.lose(leadership.slot, cx.standing.loss(), &led).await;
            Ok(())
        }))
    }
}
