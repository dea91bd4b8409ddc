//! The gate on a storage in memory and a clock that only the test moves.

use super::*;
use ielections::{Incarnation, Ttl, Version};
use std::num::NonZeroU32;
use testing_time::MockClock;
use vvm_storage::{Advanced, Ask, ElectionsTtlStorage, mem::MemDatabase};

const FIRST_CHANCE: Duration = Duration::from_secs(3);

struct Scene {
    clock: MockClock,
    /// As an operator reaches it.
    storage: ElectionsTtlStorage,
    gate: Gate,
}

fn key() -> ElectionKey {
    ElectionKey { cluster: "payroll".into(), slot: SlotNumber::new(NonZeroU32::MIN) }
}

fn ask() -> Ask {
    Ask { incarnation: Incarnation::from_bytes([3; 16]), since_unix_epoch: Duration::from_secs(1) }
}

impl Scene {
    /// A candidate of this name, for a slot that was released after epoch 1.
    async fn of(holder: &str) -> Self {
        let clock = MockClock::new();
        let time: Arc<dyn Clock> = Arc::new(clock.clone());
        let database = MemDatabase::new(Arc::clone(&time));
        let open = || ElectionsTtlStorage::new(database.open());
        let lookout = Arc::new(Lookout::of(Arc::new(open()), key().cluster));
        let behind = Arc::clone(&lookout).into_storage();
        let neighbours = Neighbours::alone(Arc::clone(&time));
        let gate = Gate::before(behind, lookout, neighbours, Holder::new(holder).unwrap(), time);
        let scene = Self { clock, storage: open(), gate };
        let first = entry(1);
        scene.storage.insert_if_not_exist(&key(), Vacant::default(), &first).await.unwrap();
        scene.storage.compare_and_delete(&key(), first.incarnation(), first.epoch).await.unwrap();
        scene.gate.scan(&[key()]).await.unwrap();
        scene
    }

    /// What came of a claim, in words.
    async fn claim(&self) -> Result<Claim, String> {
        let vacant = Vacant { last_epoch: Some(entry(1).epoch) };
        match self.gate.insert_if_not_exist(&key(), vacant, &entry(2)).await {
            Ok(claim) => Ok(claim),
            Err(WriteError::NotApplied(cause)) => Err(cause.to_string()),
            Err(error) => panic!("{error}"),
        }
    }

    /// A request as far as the leader's beginning to stop. What is only asked for holds nobody back.
    async fn begun(&self, to: Option<&str>) {
        let to = to.map(|to| Holder::new(to).unwrap());
        let (of, first_chance) = (entry(1).epoch, Ttl::new(FIRST_CHANCE).unwrap());
        let mut stands =
            self.storage.ask_step_down(&key(), of, to.as_ref(), first_chance, ask()).await.unwrap();
        for stage in [Stage::Accepted, Stage::Begun] {
            self.gate.scan(&[key()]).await.unwrap();
            assert!(stage == Stage::Begun || self.gate.pass(key().slot, Some(of)).is_ok());
            let Advanced::Done(request) = &stands else { panic!("{stands:?}") };
            stands = self.storage.advance_step_down(&key().cluster, request, stage).await.unwrap();
        }
        self.gate.scan(&[key()]).await.unwrap();
    }
}

fn entry(epoch: u64) -> Entry {
    Entry {
        holder: Holder::new("x").unwrap(),
        version: Version { incarnation: Incarnation::from_bytes([epoch as u8; 16]), write: 0 },
        ttl: Ttl::DEFAULT,
        epoch: Epoch::new(epoch).unwrap(),
    }
}

/// The gate goes by what the last scan saw; the check after the claim does not.
#[tokio::test]
async fn a_claim_that_slips_through_before_the_pause_is_seen_does_not_lead_to_work() {
    let scene = Scene::of("a").await;
    let second = Duration::from_secs(1);
    assert_eq!(scene.gate.may_work(second, second).await, Ok(()));
    let alice = Holder::new("alice").unwrap();
    let (pause, _) = scene.storage.pause(&key().cluster, &alice, ask()).await.unwrap();
    assert_eq!(scene.claim().await, Ok(Claim::Claimed));
    let refused = Err(Demand::Paused { by: "alice".into() });
    assert_eq!(scene.gate.may_work(second, second).await, refused);
    scene.storage.resume(&key().cluster, &pause).await.unwrap();
    assert_eq!(scene.gate.may_work(second, second).await, Ok(()));
}

#[tokio::test]
async fn nobody_claims_while_a_pause_is_seen() {
    let scene = Scene::of("a").await;
    let alice = Holder::new("alice: upgrade").unwrap();
    let (pause, _) = scene.storage.pause(&key().cluster, &alice, ask()).await.unwrap();
    scene.gate.scan(&[key()]).await.unwrap();
    assert_eq!(scene.claim().await, Err("paused by alice: upgrade".into()));
    scene.storage.resume(&key().cluster, &pause).await.unwrap();
    scene.gate.scan(&[key()]).await.unwrap();
    assert_eq!(scene.claim().await, Ok(Claim::Claimed));
}

/// Without an answer nobody knows whether it is paused.
#[tokio::test]
async fn without_a_storage_nobody_works() {
    let scene = Scene::of("a").await;
    scene.gate.close().await;
    let second = Duration::from_secs(1);
    let (mut asked, clock) = (Box::pin(scene.gate.may_work(second, second)), scene.clock.clone());
    let answer = loop {
        tokio::select! {
            biased;
            answer = &mut asked => break answer,
            () = tokio::task::yield_now() => clock.advance(second),
        }
    };
    assert!(matches!(answer, Err(Demand::PauseUnseen { .. })), "{answer:?}");
}

/// For so long, counted from when it would have claimed.
#[tokio::test]
async fn who_is_not_named_holds_back_and_who_is_does_not() {
    let other = Scene::of("a").await;
    other.begun(Some("b")).await;
    other.clock.advance(FIRST_CHANCE * 10);
    assert_eq!(other.claim().await, Err("b has the first chance".into()));
    other.clock.advance(FIRST_CHANCE - Duration::from_millis(1));
    assert_eq!(other.claim().await, Err("b has the first chance".into()));
    other.clock.advance(Duration::from_millis(1));
    assert_eq!(other.claim().await, Ok(Claim::Claimed));

    let named = Scene::of("b").await;
    named.begun(Some("b")).await;
    assert_eq!(named.claim().await, Ok(Claim::Claimed));
}

#[tokio::test]
async fn without_a_name_only_who_gave_up_holds_back() {
    let other = Scene::of("a").await;
    other.begun(None).await;
    assert_eq!(other.claim().await, Ok(Claim::Claimed));

    let former = Scene::of("a").await;
    former.gate.others_first(key().slot, entry(1).epoch, FIRST_CHANCE);
    assert_eq!(former.claim().await, Err("others have the first chance".into()));
    former.clock.advance(FIRST_CHANCE);
    assert_eq!(former.claim().await, Ok(Claim::Claimed));

    // After another leadership it is nobody's turn.
    let later = Scene::of("a").await;
    later.gate.others_first(key().slot, Epoch::new(7).unwrap(), FIRST_CHANCE);
    assert_eq!(later.claim().await, Ok(Claim::Claimed));
}
