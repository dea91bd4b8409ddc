//! The reads of a request's progress, in a race with the hand-over.

use super::*;
use crate::liveness::tests::record;
use async_trait::async_trait;
use futures_util::future::BoxFuture;
use std::{
    fmt,
    num::NonZeroU32,
    sync::{Arc, Mutex},
};
use vvm_clock::SystemClock;
use vvm_storage::{ClusterName, Partition, SysVvmStorage, mem::MemDatabase, testing::Layer};

/// Runs a future before one of the reads.
struct Interleaved {
    beneath: Arc<dyn SysVvmStorage>,
    before: Mutex<(u32, Option<BoxFuture<'static, ()>>)>,
}

impl fmt::Debug for Interleaved {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.beneath.fmt(out)
    }
}

#[async_trait]
impl Layer for Interleaved {
    fn beneath(&self) -> &dyn SysVvmStorage {
        &*self.beneath
    }

    async fn read(&self, at: Partition) -> Result<Slot, ReadError> {
        let due = {
            let mut before = self.before.lock().unwrap();
            before.0 = before.0.wrapping_sub(1);
            if before.0 == 0 { before.1.take() } else { None }
        };
        if let Some(due) = due {
            due.await;
        }
        self.beneath.read(at).await
    }
}

/// The former order of the reads called a hand-over between two of them a loss.
#[tokio::test]
async fn handover_before_any_of_the_reads_is_never_a_loss() {
    for number in 1..=4 {
        let clock = Arc::new(SystemClock::start().unwrap());
        let beneath: Arc<dyn SysVvmStorage> = MemDatabase::new(clock).open();
        let storage = Arc::new(ElectionsTtlStorage::new(Arc::clone(&beneath)));
        let key = ElectionKey { cluster: ClusterName::from("a"), slot: SlotNumber::new(NonZeroU32::MIN) };
        let (former, next) = (record("former", 1, 1), record("next", 2, 1));
        storage.insert_if_not_exist(&key, Default::default(), &former).await.unwrap();
        let asked = storage.ask_step_down(&key, former.epoch, None, Ttl::DEFAULT, new_ask()).await;
        let Ok(Advanced::Done(request)) = asked else { panic!("{asked:?}") };
        let (of, at, stands, leader) = (storage, key.clone(), request.clone(), former.clone());
        let handover = Box::pin(async move {
            of.advance_step_down(&at.cluster, &stands, Stage::Begun).await.unwrap();
            of.compare_and_delete(&at, leader.incarnation(), leader.epoch).await.unwrap();
            let vacant = ielections::Vacant { last_epoch: Some(leader.epoch) };
            of.insert_if_not_exist(&at, vacant, &next).await.unwrap();
        });
        let interleaved = Interleaved { beneath, before: Mutex::new((number, Some(handover))) };
        let storage = ElectionsTtlStorage::new(Arc::new(interleaved).into_storage());
        let found = progress(&storage, &key, former.epoch, &request).await.unwrap();
        // Three reads: a hand-over after them is seen by the next look.
        let expected = if number < 4 { Progress::Begun } else { Progress::Stands(request) };
        assert_eq!(found, expected, "before read {number}");
    }
}
