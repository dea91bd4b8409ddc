//! Makes, reads, advances and removes requests of operators. The module `operator_requests` has their contents.

use super::{BeyondLimits, ElectionsTtlStorage};
use crate::{
    key::{ClusterName, ElectionKey, Partition},
    operator_requests::{Ask, OperatorRequests, Pause, Stage, StageChange, StepDown},
    step::{Step, StepOutcome},
    sysvvm::unsent,
};
use ielections::{Entry, Epoch, Holder, ReadError, Slot, Ttl, WriteError};

impl ElectionsTtlStorage {
    /// Returns the present requests to the cluster; linearizable.
    pub async fn requests(&self, cluster: &ClusterName) -> Result<OperatorRequests, ReadError> {
        let [pause, step_down] = self.request_partitions(cluster).map_err(|e| ReadError::Fatal(e.into()))?;
        let pause = Pause::from_slot(&self.sysvvm.read(pause).await?);
        let step_down = StepDown::from_slot(&self.sysvvm.read(step_down).await?);
        Ok(OperatorRequests { pause, step_down })
    }

    /// Returns the present pause, if there is one; linearizable.
    pub async fn standing_pause(&self, cluster: &ClusterName) -> Result<Option<Pause>, ReadError> {
        let at = self.check_partition(cluster.pause_partition()).map_err(|e| ReadError::Fatal(e.into()))?;
        Ok(Pause::from_slot(&self.sysvvm.read(at).await?))
    }

    /// Returns the slots, in the order of `keys`, and the requests to the cluster. It is one scan, and may be as stale.
    pub async fn scan_with_requests(
        &self,
        cluster: &ClusterName,
        keys: &[ElectionKey],
    ) -> Result<(Vec<Slot>, OperatorRequests), ReadError> {
        let mut seen = vec![None; keys.len()];
        let (requests, outcome) = self.scan_some_with_requests(cluster, keys, &mut seen).await;
        outcome?;
        // Without an error, nothing is missing.
        Ok((seen.into_iter().flatten().collect(), requests.unwrap_or_default()))
    }

    /// As [`scan_with_requests`](Self::scan_with_requests), of several clusters in one scan.
    pub async fn scan_clusters_with_requests(
        &self,
        clusters: &[(&ClusterName, Vec<ElectionKey>)],
    ) -> Result<Vec<(Vec<Slot>, OperatorRequests)>, ReadError> {
        let mut partitions = Vec::new();
        for (cluster, keys) in clusters {
            for key in keys {
                partitions.push(self.for_read(key)?);
            }
            partitions.extend(self.request_partitions(cluster).map_err(|e| ReadError::Fatal(e.into()))?);
        }
        let mut seen = self.peek_all(&partitions).await?.into_iter();
        let found = clusters.iter().map(|(_, keys)| {
            let slots = seen.by_ref().take(keys.len()).collect();
            let (pause, step_down) = (seen.next(), seen.next());
            let pause = pause.as_ref().and_then(Pause::from_slot);
            (slots, OperatorRequests { pause, step_down: step_down.as_ref().and_then(StepDown::from_slot) })
        });
        Ok(found.collect())
    }

    /// Reads slots as [`scan_some`](ielections::TtlStorage::scan_some) does, and in the same scan the requests to the
    /// cluster: `None`, with an error, if they were not read. Dropped, it leaves in `seen` what was read.
    pub async fn scan_some_with_requests(
        &self,
        cluster: &ClusterName,
        keys: &[ElectionKey],
        seen: &mut [Option<Slot>],
    ) -> (Option<OperatorRequests>, Result<(), ReadError>) {
        let partitions = keys.iter().map(|key| self.for_read(key)).collect::<Result<Vec<_>, _>>();
        let requests = self.request_partitions(cluster).map_err(|e| ReadError::Fatal(e.into()));
        let partitions = match partitions.and_then(|slots| Ok((slots, requests?))) {
            // The slots come first. If a driver reads in order, a caller that sees a released slot also sees
            // the request that led to its release.
            Ok((mut partitions, requests)) => {
                partitions.extend(requests);
                partitions
            }
            Err(refusal) => return (None, Err(refusal)),
        };
        let mut read = HandedOver { all: vec![None; partitions.len()], seen };
        let outcome = self.peek_some(&partitions, &mut read.all).await;
        let requests = match &read.all[keys.len()..] {
            [Some(pause), Some(step_down)] => Some(OperatorRequests {
                pause: Pause::from_slot(pause),
                step_down: StepDown::from_slot(step_down),
            }),
            _ => None,
        };
        (requests, outcome)
    }

    /// Pauses the cluster, unless it is paused. Returns the present pause, and whether it is this one.
    pub async fn pause(
        &self,
        cluster: &ClusterName,
        by: &Holder,
        ask: Ask,
    ) -> Result<(Pause, bool), WriteError> {
        let at = self.checked(cluster.pause_partition(), by)?;
        let found = self.sysvvm.read(at.clone()).await.map_err(unsent)?;
        if let Some(stands) = Pause::from_slot(&found) {
            return Ok((stands, false));
        }
        let entry = Pause::entry(by, found.last_epoch(), ask).map_err(|e| WriteError::Fatal(e.into()))?;
        let claimed = self.sysvvm.commit(at, Step::claim(&found, &entry)).await?;
        let Some(stands) = claimed.refusal()? else {
            self.announce(cluster).await;
            return Ok((paused(Slot::Held { entry, proven_age: None })?, true));
        };
        // Another operator was faster.
        paused(stands).map(|pause| (pause, false))
    }

    /// Removes the pause; `false` if it was removed before.
    pub async fn resume(&self, cluster: &ClusterName, pause: &Pause) -> Result<bool, WriteError> {
        let at = self.checked_partition(cluster.pause_partition())?;
        let stands = pause.standing();
        let done = self.sysvvm.commit(at, Step::release(stands.incarnation(), stands.epoch)).await?;
        self.announce(cluster).await;
        Ok(done == StepOutcome::Applied)
    }

    /// Asks the leader of `key` under the epoch `of` to step down. Replaces an earlier request. `first_chance`: how
    /// long the other candidates defer to `to`; without `to`, how long the old leader defers to all others. Fails, too,
    /// if `to` has more than [`StepDown::MAX_TO_BYTES`] bytes.
    pub async fn ask_step_down(
        &self,
        key: &ElectionKey,
        of: Epoch,
        to: Option<&Holder>,
        first_chance: Ttl,
        ask: Ask,
    ) -> Result<StageChange, WriteError> {
        let at = self.checked_partition(key.cluster.step_down_partition())?;
        let found = self.sysvvm.read(at.clone()).await.map_err(unsent)?;
        StepDown::check_format(&found).map_err(|e| WriteError::Fatal(e.into()))?;
        let entry = StepDown::entry((key.slot, of, to), first_chance, found.last_epoch(), ask)
            .map_err(|e| WriteError::Fatal(e.into()))?;
        self.check_text(&entry.holder)?;
        let mut claimed = self.sysvvm.commit(at, Step::claim(&found, &entry)).await?;
        // A refusal by Cassandra may show our own claim.
        if claimed.clone().refusal()?.is_some_and(|stands| stands.entry() == Some(&entry)) {
            claimed = StepOutcome::Applied;
        }
        self.advanced(&key.cluster, claimed, entry).await
    }

    /// Advances a step-down, if it is unchanged.
    pub async fn advance_step_down(
        &self,
        cluster: &ClusterName,
        request: &StepDown,
        stage: Stage,
    ) -> Result<StageChange, WriteError> {
        let at = self.checked_partition(cluster.step_down_partition())?;
        let entry = request.at(stage);
        let renewed = self.sysvvm.commit(at, Step::renew(request.standing(), &entry)).await?;
        self.advanced(cluster, renewed, entry).await
    }

    /// Removes a step-down at any stage. A request that replaced it stays.
    pub async fn remove_step_down(
        &self,
        cluster: &ClusterName,
        request: &StepDown,
    ) -> Result<(), WriteError> {
        let at = self.checked_partition(cluster.step_down_partition())?;
        let stands = request.standing();
        self.sysvvm.commit(at, Step::release(stands.incarnation(), stands.epoch)).await.map(drop)
    }

    async fn advanced(
        &self,
        cluster: &ClusterName,
        done: StepOutcome,
        entry: Entry,
    ) -> Result<StageChange, WriteError> {
        if let Some(stands) = done.refusal()? {
            return Ok(StageChange::Overtaken(StepDown::from_slot(&stands)));
        }
        self.announce(cluster).await;
        let request = StepDown::from_slot(&Slot::Held { entry, proven_age: None });
        Ok(request.map_or(StageChange::Overtaken(None), StageChange::Done))
    }

    fn request_partitions(&self, cluster: &ClusterName) -> Result<[Partition; 2], BeyondLimits> {
        let checked = |partition| self.check_partition(partition);
        Ok([checked(cluster.pause_partition())?, checked(cluster.step_down_partition())?])
    }

    pub(super) fn checked(&self, partition: Partition, text: &Holder) -> Result<Partition, WriteError> {
        self.check_text(text)?;
        self.checked_partition(partition)
    }

    fn checked_partition(&self, partition: Partition) -> Result<Partition, WriteError> {
        self.check_partition(partition).map_err(|e| WriteError::Fatal(e.into()))
    }

    fn check_text(&self, text: &Holder) -> Result<(), WriteError> {
        self.check_holder(text).map_err(|e| WriteError::Fatal(e.into()))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("another operator paused and resumed at the same moment: try again")]
struct PausedAndResumed;

fn paused(slot: Slot) -> Result<Pause, WriteError> {
    Pause::from_slot(&slot).ok_or_else(|| WriteError::NotApplied(PausedAndResumed.into()))
}

/// What a scan has read, which goes to `seen` when this is dropped, so also when the scan is.
struct HandedOver<'scan> {
    all: Vec<Option<Slot>>,
    seen: &'scan mut [Option<Slot>],
}

impl Drop for HandedOver<'_> {
    fn drop(&mut self) {
        for (seen, read) in self.seen.iter_mut().zip(&mut self.all) {
            if read.is_some() {
                *seen = read.take();
            }
        }
    }
}
