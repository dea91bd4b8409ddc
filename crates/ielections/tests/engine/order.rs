//! The order of calls of storage, randomness and wall clock. The mocks fail on every other call.

use async_trait::async_trait;
use ielections::{
    Candidacy, Claim, Delete, Elections, Entropy, Entry, Env, Epoch, Holder, Incarnation, Limits, ReadError,
    ReleaseOutcome, Slot, Swap, Terms, TokioSpawn, Ttl, TtlStorage, Vacant, WriteError,
};
use mockall::{Sequence, mock, predicate::eq};
use std::{sync::Arc, time::Duration};
use testing_time::MockClock;
use vvm_clock::WallClock;
use vvm_deadman::{Deadman, recording::RecordingTrigger};

mock! {
    #[derive(Debug)]
    Storage {}

    #[async_trait]
    impl TtlStorage<u32> for Storage {
        fn limits(&self) -> Limits;
        async fn insert_if_not_exist(
            &self,
            key: &u32,
            vacant: Vacant,
            entry: &Entry,
        ) -> Result<Claim, WriteError>;
        async fn take_over(&self, key: &u32, observed: &Entry, entry: &Entry) -> Result<Claim, WriteError>;
        async fn compare_and_swap(&self, key: &u32, held: &Entry, entry: &Entry) -> Result<Swap, WriteError>;
        async fn compare_and_delete(
            &self,
            key: &u32,
            incarnation: Incarnation,
            epoch: Epoch,
        ) -> Result<Delete, WriteError>;
        async fn get(&self, key: &u32) -> Result<Slot, ReadError>;
        async fn scan(&self, keys: &[u32]) -> Result<Vec<Slot>, ReadError>;
        async fn close(&self);
    }
}

mock! {
    #[derive(Debug)]
    Wall {}
    impl WallClock for Wall {
        fn since_unix_epoch(&self) -> Duration;
    }
}

mock! {
    #[derive(Debug)]
    Dice {}
    impl Entropy for Dice {
        fn fill(&self, bytes: &mut [u8]);
        fn next_u64(&self) -> u64;
    }
}

const LIMITS: Limits =
    Limits { min_ttl: Ttl::MIN, max_key_bytes: 4, max_value_bytes: 1 << 10, scan_batch: 8 };
const LAST: u64 = 41;
const WALL: Duration = Duration::from_millis(1_700_000_000_000);
const OURS: Incarnation = Incarnation::from_bytes([9; 16]);

/// The slot is read before it is claimed, and no call is repeated.
#[tokio::test]
async fn uncontended_leadership_costs_one_read_one_claim_and_one_delete() {
    let last_epoch = Epoch::new(LAST).ok();
    let epoch = Epoch::new(WALL.as_millis() as u64).unwrap();
    let mut storage = MockStorage::new();
    let mut order = Sequence::new();
    storage.expect_limits().return_const(LIMITS);
    storage
        .expect_scan()
        .withf(|keys| keys == [7])
        .times(1)
        .in_sequence(&mut order)
        .returning(move |_| Ok(vec![Slot::Vacant(Vacant { last_epoch })]));
    storage
        .expect_insert_if_not_exist()
        .withf(move |key, vacant, entry| {
            (*key, vacant.last_epoch, entry.epoch, entry.incarnation()) == (7, last_epoch, epoch, OURS)
        })
        .times(1)
        .in_sequence(&mut order)
        .returning(|_, _, _| Ok(Claim::Claimed));
    storage
        .expect_compare_and_delete()
        .with(eq(7), eq(OURS), eq(epoch))
        .times(1)
        .in_sequence(&mut order)
        .returning(|_, _, _| Ok(Delete::Deleted));
    // Wall time is used only for the epoch, and randomness only for incarnations and jitter.
    let mut wall = MockWall::new();
    wall.expect_since_unix_epoch().times(1).return_const(WALL);
    let mut dice = MockDice::new();
    dice.expect_fill().times(1).returning(|bytes| bytes.copy_from_slice(OURS.as_bytes()));
    dice.expect_next_u64().return_const(0_u64);

    let clock = MockClock::new();
    let trigger = RecordingTrigger::on(Arc::new(clock.clone()));
    let env = Env {
        clock: Arc::new(clock),
        wall: Arc::new(wall),
        deadman: Deadman::with_trigger(trigger),
        entropy: Arc::new(dice),
        spawn: Arc::new(TokioSpawn::on(tokio::runtime::Handle::current())),
    };
    let elections = Elections::new(Arc::new(storage), env);
    let terms = Terms::new(Holder::new("leader").unwrap(), Ttl::DEFAULT);
    let (_, leadership) = elections.acquire(Candidacy { slots: vec![7], terms }).await.unwrap();
    assert_eq!((leadership.epoch(), leadership.incarnation()), (epoch, OURS));
    assert_eq!(leadership.release().await, ReleaseOutcome::Released);
    elections.cleanup().await;
}
