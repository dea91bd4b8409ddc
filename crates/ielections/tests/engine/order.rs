//! The order of calls of storage, randomness and wall clock. The mocks fail on every other call.

use crate::{Bench, TTL, candidacy, lead, on};
use async_trait::async_trait;
use ielections::{
    Candidacy, Claim, Delete, Elections, Entropy, Entry, Env, Epoch, Holder, Incarnation, Limits, ReadError,
    ReleaseOutcome, Slot, Swap, Terms, TokioSpawn, Ttl, TtlStorage, Vacant, WriteError,
    testing::mock::{Fault, Verb},
};
use mockall::{Sequence, mock, predicate::eq};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use testing_time::MockClock;
use vvm_clock::{Clock, WallClock};
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

#[test]
fn hint_makes_every_campaign_read_at_once() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let leaders = [lead(&process, 0).await, lead(&process, 1).await];
        let waiting = [process.elections.acquire(candidacy(0)), process.elections.acquire(candidacy(1))];
        let course = async {
            bench.clock.sleep(Duration::from_secs(10)).await;
            for leader in leaders {
                assert_eq!(leader.release().await, ReleaseOutcome::Released);
            }
            let told_at = bench.clock.now();
            process.elections.look_now();
            told_at
        };
        let (told_at, led) = tokio::join!(course, futures_util::future::join_all(waiting));
        assert!(bench.clock.now().since(told_at) <= Terms::HINT_GAP);
        for (_, leadership) in led.into_iter().map(Result::unwrap) {
            leadership.release().await;
        }
    });
}

/// The standby of a live leader reads a few times in each TTL, and still leads right after a hint.
#[test]
fn standby_reads_less_often_while_hints_follow_releases() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let leader = lead(&process, 0).await;
        let course = async {
            let mut reads = [0; 2];
            for hints in [false, true] {
                bench.probe.hints.store(hints, Ordering::SeqCst);
                bench.clock.sleep(TTL).await;
                let before = bench.probe.count(Verb::Scan);
                bench.clock.sleep(TTL * 10).await;
                reads[usize::from(hints)] = bench.probe.count(Verb::Scan) - before;
            }
            let [polls, reads] = reads;
            assert!(polls >= 200 && reads <= 55, "{polls} reads without hints, {reads} with");
            assert_eq!(leader.release().await, ReleaseOutcome::Released);
            process.elections.look_now();
            bench.clock.now()
        };
        let (told_at, led) = tokio::join!(course, process.elections.acquire(candidacy(0)));
        assert!(bench.clock.now().since(told_at) <= Terms::HINT_GAP);
        led.unwrap().1.release().await;
    });
}

/// Neither storage calls nor commands pile up (I11).
/// Shows I11.
#[test]
fn flood_of_hints_costs_fifty_reads_a_second() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        let _leader = lead(&process, 0).await;
        let flood = async {
            bench.clock.sleep(Duration::from_secs(1)).await;
            let before = bench.probe.count(Verb::Scan);
            for _ in 0..2000 {
                for _ in 0..10 {
                    process.elections.look_now();
                }
                bench.clock.sleep(Duration::from_millis(1)).await;
            }
            bench.probe.count(Verb::Scan) - before
        };
        let looks = tokio::select! {
            biased;
            looks = flood => looks,
            _ = process.elections.acquire(candidacy(0)) => panic!("two leaders"),
        };
        assert!((90..=110).contains(&looks), "{looks} looks in two seconds");
    });
}

/// Its claim is in flight and is settled first.
#[test]
fn hint_to_a_withdrawn_campaign_has_no_effect() {
    let bench = Bench::new();
    on(&bench.clock, async {
        let process = bench.process();
        bench.faulty.fail_always(Verb::InsertIfNotExist, Fault::SlowAnswer(Duration::from_millis(300)));
        let mut waiting = Box::pin(process.elections.acquire(candidacy(0)));
        tokio::select! {
            biased;
            _ = &mut waiting => panic!("led at once"),
            () = bench.until(|| bench.probe.count(Verb::InsertIfNotExist) > 0) => {}
        }
        drop(waiting);
        for _ in 0..10 {
            process.elections.look_now();
            bench.clock.sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(bench.probe.count(Verb::CompareAndDelete), 0, "before it was answered");
        bench.until(|| bench.probe.count(Verb::CompareAndDelete) > 0).await;
        process.elections.cleanup().await;
        process.elections.look_now();
    });
}
