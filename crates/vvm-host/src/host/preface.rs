//! The first service of each leadership: records it, checks for a pause, and writes the history.

use super::StopRequested;
use crate::{
    history::{HistoryWriter, end_timeout},
    host_storage::HostStorage,
    requests::{Demand, may_work},
    status::HostStatus,
};
use async_trait::async_trait;
use ielections::Timing;
use std::sync::Arc;
use tokio::sync::SetOnce;
use vvm_orch::{BoxError, Service, ServiceContext, Work};
use vvm_storage::ElectionKey;

/// Starts before every other service, and stops after them.
pub(super) struct Preface {
    pub(super) status: Arc<HostStatus>,
    pub(super) storage: Arc<HostStorage>,
    pub(super) demand: Arc<SetOnce<Demand>>,
}

#[async_trait]
impl Service<ElectionKey> for Preface {
    fn name(&self) -> &str {
        "preface"
    }

    async fn start(self: Box<Self>, cx: ServiceContext<ElectionKey>) -> Result<Work, BoxError> {
        let Self { status, storage, demand } = *self;
        let (clock, ttl) = (Arc::clone(&status.clock), status.candidate.ttl);
        status.starts(cx.slot.slot.get().get(), cx.standing.clone());
        storage.leads(&cx.slot, &cx.standing, ttl);
        // As long as an acquisition counts as fresh.
        let (timeout, retry_pause) = (ttl.get() / 4, Timing::of(ttl).retry_pause());
        tokio::select! {
            biased;
            () = cx.stop.cancelled() => return Err(StopRequested.into()),
            answer = may_work(&storage, &clock, timeout, retry_pause) => {
                if let Err(refused) = answer {
                    // The first reason stands.
                    let _ = demand.set(refused.clone());
                    return Err(refused.into());
                }
            }
        }
        let history = {
            let holder = status.candidate.holder.as_str();
            HistoryWriter::new(&cx.standing, holder, &clock, &status.unwritten_ends)
        };
        Ok(Box::pin(async move {
            // The other services do not wait for this write.
            tokio::select! {
                biased;
                () = cx.stop.cancelled() => {}
                () = async {
                    history.write_start().await;
                    cx.stop.cancelled().await;
                } => {}
            }
            // Every other service has stopped. After the release the fence would refuse this write.
            status.stops_if_lost(&cx.standing);
            let how = status.how_work_ended();
            history.write_end(&how, end_timeout(ttl)).await;
            Ok(())
        }))
    }
}
