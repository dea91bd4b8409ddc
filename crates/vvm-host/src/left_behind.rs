//! [`LeftBehind`]: the leadership of a process that died, and its release by the process that has proof.
//! [`HostEnd`]: the end of that process as its guardian sees it, and whether the guardian releases the record.

use crate::{history, storage_inspector::StorageInspector};
use ielections::{Delete, Epoch, Incarnation, Slot, Timing, Ttl, TtlStorage as _, WriteError};
use std::time::Duration;
use vvm_clock::Instant;
use vvm_storage::{ElectionKey, SlotNumber};

/// Learns of each claim before it is sent, and when no record of the host is left (`Host::report_claims`).
pub(crate) type OnClaim = Box<dyn Fn(Option<LeftBehind>) + Send + Sync>;

/// The record that a process leaves behind if it dies: of its leadership, or of a claim whose outcome is unknown. The
/// caller has proof that nothing of it works any more (I6). Each claim has an incarnation and an epoch of its own, and
/// the release names both, so it changes no record of another leadership (I2). What the dead process had sent is
/// refused afterwards: a renewal names a version that is gone, a batch a fence that has fallen, a claim an earlier
/// epoch (I7). A claim that still is in the network when the release finds no record of it may be applied later.
/// Nothing works under that record, and it expires by its TTL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeftBehind {
    /// The slot that it led.
    pub slot: SlotNumber,
    /// Its fencing token.
    pub epoch: Epoch,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The TTL of its record.
    pub ttl: Ttl,
}

impl LeftBehind {
    /// Writes to the history `how` the leadership ended, then releases the record. The leadership was claimed at
    /// `since`, on this machine's clock, which does not jump: its end counts from there. Tries again while the storage
    /// does not answer. Fails if it refuses for good, or still at `until`. Returns whether the slot is vacant by this
    /// release: the process may have released it itself, or another one may lead. Dropped, the record is released or not.
    pub async fn release(
        &self,
        storage: &StorageInspector,
        how: &str,
        (since, until): (Instant, Instant),
    ) -> Result<bool, WriteError> {
        let Self { slot, epoch, incarnation, ttl } = *self;
        let key = ElectionKey { cluster: storage.cluster.clone(), slot };
        let clock = &storage.clock;
        if let Some(documents) = storage.storage.documents() {
            let lasted = clock.now().since(since);
            // Afterwards the fence would refuse it.
            tokio::select! {
                biased;
                () = history::write_end_of(documents, &key, (epoch, incarnation), (how, lasted)) => {}
                () = clock.sleep(history::end_timeout(ttl)) => {}
            }
        }
        let pause = Timing::new(ttl).retry_pause();
        let may_repeat = || clock.now().after(pause) < until;
        let mut may_have_released = false;
        loop {
            match storage.storage.compare_and_delete(&key, incarnation, epoch).await {
                Ok(Delete::Deleted) => return Ok(true),
                Ok(Delete::Mismatch(Slot::Vacant(vacant))) => {
                    return Ok(may_have_released && vacant.last_epoch == Some(epoch));
                }
                Ok(Delete::Mismatch(_)) => return Ok(false),
                // A second release of one leadership changes nothing.
                Err(WriteError::Unknown(_)) if may_repeat() => may_have_released = true,
                Err(WriteError::NotApplied(_)) if may_repeat() => {}
                Err(refusal) => return Err(refusal),
            }
            clock.sleep(pause).await;
        }
    }
}

/// The longest that a release may delay the end of `vvm`: a history entry and a deletion, with some retries.
/// With a slower storage, the next leader waits for the rest of the TTL.
const LIMIT: Duration = Duration::from_secs(5);

/// How a host ended, on the guardian's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostEnd {
    /// Whether every descendant is proven to have ended.
    pub proven: bool,
    /// Whether it ended in an orderly way: then it has released the record itself, or had a reason not to.
    pub orderly: bool,
    /// When it was reaped.
    pub reaped_at: Instant,
    /// The last kill deadline of the leadership that it leaves behind.
    pub deadline: Option<Instant>,
}

impl HostEnd {
    /// Returns when a release begins, after `quiet_time`, and when it is given up. `None` if there is no
    /// proof (I6), after an orderly end, and if the lease ends before.
    pub fn release_window(&self, now: Instant, ttl: Ttl, quiet_time: Duration) -> Option<(Instant, Instant)> {
        if !self.proven || self.orderly {
            return None;
        }
        let from = now.max(self.reaped_at.after(quiet_time));
        let until = from.after(LIMIT).min(self.lease_ends(ttl));
        (from < until).then_some((from, until))
    }

    /// Returns when the lease ends: then another process may lead. It is a fifth of the TTL after the kill deadline.
    fn lease_ends(&self, ttl: Ttl) -> Instant {
        self.deadline.map_or(Instant::NEVER, |deadline| deadline.after(ttl.get() / 5))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        history::HistoryWriter,
        status::tests::{in_steps, key, record},
    };
    use async_trait::async_trait;
    use ielections::{Candidacy, Elections, Entry, Holder, Terms, Vacant, Version, testing::env};
    use parking_lot::Mutex;
    use std::sync::Arc;
    use testing_time::MockClock;
    use vvm_clock::Clock;
    use vvm_storage::{
        ElectionsTtlStorage, Partition, Step, StepOutcome, SysVvmStorage, mem::MemDatabase, testing::Layer,
    };

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Lost {
        Request,
        Answer,
    }

    #[derive(Debug)]
    struct LossyStorage {
        storage: Arc<dyn SysVvmStorage>,
        next: Mutex<Vec<Lost>>,
    }

    #[async_trait]
    impl Layer for LossyStorage {
        fn beneath(&self) -> &dyn SysVvmStorage {
            &*self.storage
        }

        async fn commit(&self, at: Partition, step: Step) -> Result<StepOutcome, WriteError> {
            let is_release = matches!(step, Step::Release { .. });
            let lost = if is_release { self.next.lock().pop() } else { None };
            if lost != Some(Lost::Request) {
                let done = self.storage.commit(at, step).await;
                if lost.is_none() {
                    return done;
                }
            }
            Err(WriteError::Unknown("no answer".into()))
        }
    }

    struct Scene {
        clock: MockClock,
        lossy: Arc<LossyStorage>,
        storage: StorageInspector,
        other: Arc<ElectionsTtlStorage>,
    }

    impl Scene {
        fn new() -> Self {
            let clock = MockClock::new();
            let time: Arc<dyn Clock> = Arc::new(clock.clone());
            let database = MemDatabase::new(Arc::clone(&time));
            let lossy = Arc::new(LossyStorage { storage: database.open(), next: Mutex::default() });
            let own = ElectionsTtlStorage::new(Arc::clone(&lossy).into_storage());
            let storage = StorageInspector::on_storage(own, "payroll", time);
            Self { clock, lossy, storage, other: Arc::new(ElectionsTtlStorage::new(database.open())) }
        }

        async fn release(&self, entry: &Entry) -> bool {
            self.release_until(entry, Instant::NEVER).await.unwrap()
        }

        async fn release_until(&self, entry: &Entry, until: Instant) -> Result<bool, WriteError> {
            let (slot, epoch, incarnation, ttl) = (key().slot, entry.epoch, entry.incarnation(), entry.ttl);
            let ticket = LeftBehind { slot, epoch, incarnation, ttl };
            let release = ticket.release(&self.storage, "its host was killed", (self.clock.now(), until));
            in_steps(&self.clock, Duration::from_millis(100), release).await
        }

        async fn slot(&self) -> Slot {
            self.other.get(&key()).await.unwrap()
        }
    }

    #[tokio::test]
    async fn end_is_in_the_history_before_the_record_is_released() {
        for by_host in [None, Some("paused by alice")] {
            let scene = Scene::new();
            let time: Arc<dyn Clock> = Arc::new(scene.clock.clone());
            let elections = Elections::new(Arc::clone(&scene.other) as _, env(&scene.clock));
            let terms = Terms::new(Holder::new("here").unwrap(), Ttl::DEFAULT);
            let (key, led) = elections.acquire(Candidacy { slots: vec![key()], terms }).await.unwrap();
            let at = (&scene.other, &key);
            let writer = HistoryWriter::new(at, led.standing(), "here", &time, &Arc::default());
            writer.write_start().await;
            if let Some(end) = by_host {
                writer.write_end(end, LIMIT).await;
            }
            let Slot::Held { entry, .. } = scene.slot().await else { panic!("it leads") };
            assert!(scene.release(&entry).await);
            assert_eq!(scene.slot().await, Slot::Vacant(Vacant { last_epoch: Some(entry.epoch) }));
            let history = history::read(&scene.other, &key).await.unwrap();
            assert_eq!(history[0].end.as_deref(), by_host.or(Some("its host was killed")));
        }
    }

    /// A note of the host may come late, and a guardian may release twice. Shows I2.
    #[tokio::test]
    async fn record_of_another_leadership_is_not_released() {
        let own = record(2);
        let other = record(3);
        let of_another = Version { incarnation: other.incarnation(), ..own.version };
        let others = [
            other.clone(),
            Entry { epoch: other.epoch, ..own.clone() },
            // In a storage that went back.
            Entry { version: of_another, ..own.clone() },
        ];
        for entry in others {
            let scene = Scene::new();
            scene.other.insert_if_not_exist(&key(), Vacant::default(), &entry).await.unwrap();
            assert!(!scene.release(&own).await, "{entry:?}");
            assert_eq!(scene.slot().await.entry(), Some(&entry));
        }
    }

    /// Shows I7.
    #[tokio::test]
    async fn release_with_unknown_outcome_is_repeated_until_the_slot_is_seen_vacant() {
        for lost in [Lost::Request, Lost::Answer] {
            let scene = Scene::new();
            let own = record(2);
            scene.other.insert_if_not_exist(&key(), Vacant::default(), &own).await.unwrap();
            scene.lossy.next.lock().push(lost);
            assert!(scene.release(&own).await);
            assert_eq!(scene.slot().await, Slot::Vacant(Vacant { last_epoch: Some(own.epoch) }));
            assert!(!scene.release(&own).await, "it was released before");
        }
    }

    #[tokio::test]
    async fn release_without_answers_is_given_up_in_time() {
        let scene = Scene::new();
        let own = record(2);
        scene.other.insert_if_not_exist(&key(), Vacant::default(), &own).await.unwrap();
        *scene.lossy.next.lock() = vec![Lost::Request; 100];
        let until = scene.clock.now().after(LIMIT);
        let refused = scene.release_until(&own, until).await;
        assert!(matches!(refused, Err(WriteError::Unknown(_))), "{refused:?}");
        assert!(scene.clock.now() < until);
        assert_eq!(scene.slot().await.entry(), Some(&own));
    }

    const NOW: Instant = Instant::from_nanos(100_000_000_000);

    fn window(end: HostEnd, quiet_time: u64) -> Option<(Instant, Instant)> {
        let ttl = Ttl::new(Duration::from_secs(20)).unwrap();
        end.release_window(NOW, ttl, Duration::from_secs(quiet_time))
    }

    /// Shows I6.
    #[test]
    fn record_is_released_only_with_proof_and_before_the_lease_ends() {
        let seconds = Duration::from_secs;
        let end =
            HostEnd { proven: true, orderly: false, reaped_at: NOW, deadline: Some(NOW.after(seconds(9))) };
        assert_eq!(window(end, 0), Some((NOW, NOW.after(LIMIT))));
        assert_eq!(window(HostEnd { deadline: None, ..end }, 0), Some((NOW, NOW.after(LIMIT))));
        assert_eq!(window(HostEnd { proven: false, ..end }, 0), None);
        assert_eq!(window(HostEnd { orderly: true, ..end }, 0), None);
        let at_deadline = HostEnd { deadline: Some(NOW), ..end };
        assert_eq!(window(at_deadline, 0), Some((NOW, NOW.after(seconds(4)))));
        let expired = HostEnd { deadline: Some(NOW.before(seconds(4))), ..end };
        assert_eq!(window(expired, 0), None);
        assert_eq!(window(end, 12), Some((NOW.after(seconds(12)), NOW.after(seconds(13)))));
        assert_eq!(window(end, 13), None);
    }
}
