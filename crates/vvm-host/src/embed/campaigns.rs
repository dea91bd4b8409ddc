//! Campaigning, leading, and doing so again after a loss.

use super::{Ended, HostSettings, OnLoss, Services};
use crate::{
    situation::{Situation, WhyStopping},
    storage_watch::WatchedStorage,
};
use async_trait::async_trait;
use ielections::{Env, Holder, elections};
use std::{fmt, sync::Arc};
use tokio_util::sync::CancellationToken;
use vvm_orch::{BoxError, Problem, Service, ServiceContext, Vvm, VvmConfig, Work};
use vvm_storage::{ClusterName, ElectionKey, SlotNumber};

/// What every campaign of a host is made with.
pub(super) struct Campaigns {
    pub(super) settings: HostSettings,
    pub(super) holder: Holder,
    pub(super) env: Env,
    pub(super) situation: Arc<Situation>,
    pub(super) storage: Arc<WatchedStorage>,
    pub(super) stop: CancellationToken,
}

impl HostSettings {
    pub(super) fn cluster(&self) -> ClusterName {
        ClusterName::from(self.name.as_str())
    }
}

impl Campaigns {
    /// One after the other, until one of them ends for good.
    ///
    /// # Cancel safety
    /// Dropping it shuts down without waiting.
    pub(super) async fn run(&self, mut services: impl FnMut() -> Services + Send) -> Ended {
        loop {
            let ended = self.campaign(services()).await;
            let is_loss = matches!(ended, Ended::Problem(Problem::Lost(_)));
            if !is_loss || self.settings.on_loss == OnLoss::Exit || self.stop.is_cancelled() {
                return ended;
            }
            tracing::warn!(name = self.settings.name, %ended, "campaigning again");
        }
    }

    /// One campaign, and the leadership that it may come to, until all of it has ended.
    async fn campaign(&self, mut services: Services) -> Ended {
        let Self { settings, situation, .. } = self;
        let cluster = settings.cluster();
        let slots =
            SlotNumber::all(settings.slots).map(|slot| ElectionKey { cluster: cluster.clone(), slot });
        let mut config = VvmConfig::new(slots.collect(), self.holder.clone(), &self.env);
        config.stop_timeout = settings.stop_timeout;
        services.insert(0, Box::new(Noted(Arc::clone(situation))));
        let elections = elections(Arc::clone(&self.storage) as Arc<_>, self.env.clone());
        situation.campaigns();
        let vvm = Vvm::provide(config, elections, services).launch(settings.ttl, settings.acquisition);
        let watching = async {
            if vvm.leading().await.is_ok() {
                situation.works();
            }
            vvm.problem().await
        };
        let problem = tokio::select! {
            biased;
            problem = watching => problem,
            () = self.stop.cancelled() => None,
        };
        situation.stops(match &problem {
            Some(Problem::Lost(loss)) => WhyStopping::Lost(loss.clone()),
            Some(_) => WhyStopping::WorkEnded,
            None => WhyStopping::Asked,
        });
        let stopped = vvm.shutdown().await;
        problem.or(stopped.err()).map_or(Ended::Stopped, Ended::Problem)
    }
}

impl fmt::Debug for Campaigns {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Campaigns").field("settings", &self.settings).field("holder", &self.holder).finish()
    }
}

/// The first service of all: what is led is known before anything starts.
struct Noted(Arc<Situation>);

#[async_trait]
impl Service<ElectionKey> for Noted {
    fn name(&self) -> &str {
        "situation"
    }

    async fn start(self: Box<Self>, cx: ServiceContext<ElectionKey>) -> Result<Work, BoxError> {
        self.0.starts(cx.slot.slot.get().get(), cx.standing);
        Ok(Box::pin(async move {
            cx.stop.cancelled().await;
            Ok(())
        }))
    }
}
