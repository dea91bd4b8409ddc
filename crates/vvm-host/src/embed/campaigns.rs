//! Campaigning, leading, and doing so again after a loss.

use super::{Ended, HostSettings, OnLoss, Services};
use crate::{
    requests::{Demand, Gate, Heeding},
    situation::{Situation, WhyStopping},
};
use async_trait::async_trait;
use ielections::{Env, Holder, Layer as _, Timing, Ttl, elections};
use std::{fmt, sync::Arc};
use tokio::sync::SetOnce;
use tokio_util::sync::CancellationToken;
use vvm_orch::{BoxError, Problem, Service, ServiceContext, Vvm, VvmConfig, Work};
use vvm_storage::{ClusterName, ElectionKey, SlotNumber};

/// What every campaign of a host is made with.
pub(super) struct Campaigns {
    pub(super) settings: HostSettings,
    pub(super) holder: Holder,
    pub(super) env: Env,
    pub(super) situation: Arc<Situation>,
    pub(super) gate: Arc<Gate>,
    pub(super) stop: CancellationToken,
}

impl HostSettings {
    pub(super) fn cluster(&self) -> ClusterName {
        ClusterName::from(self.name.as_str())
    }
}

/// What came of one campaign.
enum Course {
    /// This.
    Ended(Ended),
    /// An operator asked for the leadership. All has stopped, and the record is released.
    GivenUp(Demand),
}

impl Campaigns {
    /// One after the other, until one of them ends for good.
    ///
    /// # Cancel safety
    /// Dropping it shuts down without waiting.
    pub(super) async fn run(&self, mut services: impl FnMut() -> Services + Send) -> Ended {
        loop {
            let course = self.campaign(services()).await;
            let name = &self.settings.name;
            match course {
                Course::GivenUp(_) if self.stop.is_cancelled() => return Ended::Stopped,
                Course::GivenUp(demand) => tracing::info!(name, %demand, "given up; campaigning again"),
                Course::Ended(ended) => {
                    let is_loss = matches!(ended, Ended::Problem(Problem::Lost(_)));
                    if !is_loss || self.settings.on_loss == OnLoss::Exit || self.stop.is_cancelled() {
                        return ended;
                    }
                    tracing::warn!(name, %ended, "campaigning again");
                }
            }
        }
    }

    /// One campaign, and the leadership that it may come to, until all of it has ended.
    async fn campaign(&self, mut services: Services) -> Course {
        let Self { settings, situation, gate, .. } = self;
        let cluster = settings.cluster();
        let slots =
            SlotNumber::all(settings.slots).map(|slot| ElectionKey { cluster: cluster.clone(), slot });
        let mut config = VvmConfig::new(slots.collect(), self.holder.clone(), &self.env);
        config.stop_timeout = settings.stop_timeout;
        let demand = Arc::new(SetOnce::new());
        let preface = Preface {
            situation: Arc::clone(situation),
            gate: Arc::clone(gate),
            ttl: settings.ttl,
            demand: Arc::clone(&demand),
        };
        services.insert(0, Box::new(preface));
        let elections = elections(Arc::clone(gate).into_storage(), self.env.clone());
        situation.campaigns();
        let vvm = Vvm::provide(config, elections, services).launch(settings.ttl, settings.acquisition);
        let over = CancellationToken::new();
        let heeding = Heeding { candidate: situation.candidate(), clock: &self.env.clock, gate, over: &over };
        let heeding = async {
            if let Some((_, asked)) = heeding.run(&vvm).await {
                // The first reason stands.
                let _ = demand.set(asked);
            }
        };
        let watching = async {
            if vvm.leading().await.is_ok() {
                situation.works();
            }
            vvm.problem().await
        };
        let course_of_things = async {
            let problem = tokio::select! {
                biased;
                problem = watching => problem,
                () = self.stop.cancelled() => None,
                _ = demand.wait() => None,
            };
            over.cancel();
            situation.stops(match (&problem, demand.get()) {
                (Some(Problem::Lost(loss)), _) => WhyStopping::Lost(loss.clone()),
                (_, Some(demand)) => WhyStopping::GivenUp(demand.to_string().into()),
                (Some(_), None) => WhyStopping::WorkEnded,
                (None, None) => WhyStopping::Asked,
            });
            let stopped = vvm.shutdown().await;
            problem.or(stopped.err())
        };
        let (problem, ()) = tokio::join!(course_of_things, heeding);
        match (problem, demand.get()) {
            // The preface's own refusal, before anything was started.
            (None | Some(Problem::StartFailed { .. }), Some(demand)) => Course::GivenUp(demand.clone()),
            (Some(problem), _) => Course::Ended(Ended::Problem(problem)),
            (None, None) => Course::Ended(Ended::Stopped),
        }
    }
}

impl fmt::Debug for Campaigns {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Campaigns").field("settings", &self.settings).field("holder", &self.holder).finish()
    }
}

/// The first service of all: what is led is known, and that nobody has paused it, before anything starts.
struct Preface {
    situation: Arc<Situation>,
    gate: Arc<Gate>,
    ttl: Ttl,
    demand: Arc<SetOnce<Demand>>,
}

/// Nothing was started, because it was to be stopped already.
#[derive(Debug, thiserror::Error)]
#[error("told to stop before anything was started")]
struct ToldToStop;

#[async_trait]
impl Service<ElectionKey> for Preface {
    fn name(&self) -> &str {
        "preface"
    }

    async fn start(self: Box<Self>, cx: ServiceContext<ElectionKey>) -> Result<Work, BoxError> {
        self.situation.starts(cx.slot.slot.get().get(), cx.standing);
        // As long as an acquisition counts as fresh.
        let (patience, pause) = (self.ttl.get() / 4, Timing::of(self.ttl).retry_pause());
        tokio::select! {
            biased;
            () = cx.stop.cancelled() => return Err(ToldToStop.into()),
            answer = self.gate.may_work(patience, pause) => {
                if let Err(demand) = answer {
                    // The first reason stands.
                    let _ = self.demand.set(demand.clone());
                    return Err(demand.into());
                }
            }
        }
        Ok(Box::pin(async move {
            cx.stop.cancelled().await;
            Ok(())
        }))
    }
}
