use async_trait::async_trait;
use ielections::{Claim, Epoch, Holder, Incarnation, Slot, Ttl, TtlStorage as _, Vacant, WriteError};
use std::{num::NonZeroU32, sync::Arc, time::Duration};
use vvm_clock::SystemClock;
use vvm_storage::{
    Ask, ClusterName, ElectionKey, ElectionsTtlStorage, OperatorRequests, Partition, SlotNumber, Stage,
    StageChange, Step, StepDown, StepOutcome, SysVvmStorage, mem::MemDatabase, testing::Layer,
};

const FIRST_CHANCE: Ttl = match Ttl::new(Duration::from_millis(2_500)) {
    Ok(ttl) => ttl,
    Err(_) => panic!("two and a half seconds are a TTL"),
};

fn cluster() -> ClusterName {
    "payroll".into()
}

fn key(slot: u32) -> ElectionKey {
    ElectionKey { cluster: cluster(), slot: SlotNumber::new(NonZeroU32::new(slot).unwrap()) }
}

fn ask(number: u8) -> Ask {
    Ask { incarnation: Incarnation::from_bytes([number; 16]), since_unix_epoch: Duration::from_millis(1_700) }
}

fn epoch(number: u64) -> Epoch {
    Epoch::new(number).unwrap()
}

fn holder(name: &str) -> Holder {
    Holder::new(name).unwrap()
}

fn storage() -> ElectionsTtlStorage {
    ElectionsTtlStorage::new(MemDatabase::new(Arc::new(SystemClock::start().unwrap())).open())
}

#[tokio::test]
async fn first_pause_is_kept_until_it_is_resumed() {
    let storage = storage();
    assert_eq!(storage.requests(&cluster()).await.unwrap(), OperatorRequests::default());
    let (first, is_ours) = storage.pause(&cluster(), &holder("alice: upgrade"), ask(1)).await.unwrap();
    assert!(is_ours);
    assert_eq!((first.by(), first.since_unix_epoch()), ("alice: upgrade", Duration::from_millis(1_700)));
    assert_eq!((first.author(), first.reason()), ("alice", Some("upgrade")));
    let (second, is_ours) = storage.pause(&cluster(), &holder("bob"), ask(2)).await.unwrap();
    assert_eq!((&second, is_ours), (&first, false));
    assert_eq!(storage.requests(&cluster()).await.unwrap().pause, Some(first.clone()));
    assert_eq!(storage.scan_with_requests(&cluster(), &[]).await.unwrap().1.pause, Some(first.clone()));
    assert_eq!(storage.requests(&"another".into()).await.unwrap(), OperatorRequests::default());

    assert!(storage.resume(&cluster(), &first).await.unwrap());
    assert!(!storage.resume(&cluster(), &first).await.unwrap());
    assert_eq!(storage.requests(&cluster()).await.unwrap(), OperatorRequests::default());
    // Resuming an earlier pause does not resume a later one.
    let (third, is_ours) = storage.pause(&cluster(), &holder("bob"), ask(3)).await.unwrap();
    assert!(is_ours && third.since_unix_epoch() > first.since_unix_epoch());
    assert!(!storage.resume(&cluster(), &first).await.unwrap());
    assert_eq!(storage.requests(&cluster()).await.unwrap().pause, Some(third));
}

async fn asked(storage: &ElectionsTtlStorage, to: Option<&str>, number: u8) -> StepDown {
    let to = to.map(holder);
    let asked = storage.ask_step_down(&key(2), epoch(7), to.as_ref(), FIRST_CHANCE, ask(number)).await;
    let StageChange::Done(asked) = asked.unwrap() else { panic!("not asked for") };
    asked
}

#[tokio::test]
async fn step_down_keeps_its_contents_from_stage_to_stage() {
    let storage = storage();
    let request = asked(&storage, Some("the next one"), 1).await;
    assert_eq!((request.stage, request.to.as_ref()), (Stage::Asked, Some(&holder("the next one"))));
    assert_eq!(request.first_chance(), FIRST_CHANCE.get());
    assert!(request.is_about(key(2).slot, Some(epoch(7))));
    assert!(!request.is_about(key(1).slot, Some(epoch(7))) && !request.is_about(key(2).slot, Some(epoch(8))));
    assert!(!request.is_about(key(2).slot, None));

    let mut present = request;
    for stage in [Stage::Accepted, Stage::Begun] {
        let moved = storage.advance_step_down(&cluster(), &present, stage).await.unwrap();
        let StageChange::Done(moved) = moved else { panic!("{moved:?}") };
        assert_eq!((moved.stage, &moved.to, moved.of), (stage, &present.to, present.of));
        assert_eq!(storage.requests(&cluster()).await.unwrap().step_down, Some(moved.clone()));
        present = moved;
    }
    storage.remove_step_down(&cluster(), &present).await.unwrap();
    assert_eq!(storage.requests(&cluster()).await.unwrap(), OperatorRequests::default());
}

/// As Cassandra may, if another node finishes the transaction.
#[derive(Debug)]
struct RefusesWhatIsApplied(Arc<dyn SysVvmStorage>);

#[async_trait]
impl Layer for RefusesWhatIsApplied {
    fn beneath(&self) -> &dyn SysVvmStorage {
        &*self.0
    }

    async fn commit(&self, at: Partition, step: Step) -> Result<StepOutcome, WriteError> {
        self.0.commit(at.clone(), step).await?;
        Ok(StepOutcome::Refused(self.0.read(at).await.unwrap().into()))
    }
}

#[tokio::test]
async fn request_that_a_refusal_shows_is_made() {
    let beneath = MemDatabase::new(Arc::new(SystemClock::start().unwrap())).open();
    let storage = ElectionsTtlStorage::new(Arc::new(RefusesWhatIsApplied(beneath)).into_storage());
    let request = asked(&storage, None, 1).await;
    assert_eq!(storage.requests(&cluster()).await.unwrap().step_down, Some(request));
}

/// An operator whose request was withdrawn relies on it: the leader never begins.
#[tokio::test]
async fn withdrawn_step_down_can_not_begin_and_a_begun_one_can_not_be_withdrawn() {
    let storage = storage();
    let request = asked(&storage, None, 1).await;
    let withdrawn = storage.advance_step_down(&cluster(), &request, Stage::Withdrawn).await.unwrap();
    let StageChange::Done(withdrawn) = withdrawn else { panic!("{withdrawn:?}") };
    let begun = storage.advance_step_down(&cluster(), &request, Stage::Begun).await.unwrap();
    assert_eq!(begun, StageChange::Overtaken(Some(withdrawn)));

    let request = asked(&storage, None, 2).await;
    let StageChange::Done(begun) =
        storage.advance_step_down(&cluster(), &request, Stage::Begun).await.unwrap()
    else {
        panic!("not begun")
    };
    let withdrawn = storage.advance_step_down(&cluster(), &request, Stage::Withdrawn).await.unwrap();
    assert_eq!(withdrawn, StageChange::Overtaken(Some(begun)));
}

#[tokio::test]
async fn later_step_down_replaces_an_earlier_one_for_good() {
    let storage = storage();
    let earlier = asked(&storage, Some("a"), 1).await;
    let later = asked(&storage, None, 2).await;
    assert_eq!(later.to, None);
    let begun = storage.advance_step_down(&cluster(), &earlier, Stage::Begun).await.unwrap();
    assert_eq!(begun, StageChange::Overtaken(Some(later.clone())));
    storage.remove_step_down(&cluster(), &earlier).await.unwrap();
    assert_eq!(storage.requests(&cluster()).await.unwrap().step_down, Some(later));
}

#[tokio::test]
async fn leader_records_and_requests_do_not_change_each_other() {
    let storage = storage();
    let entry = ielections::testing::entry(9, 0, 7);
    let claimed = storage.insert_if_not_exist(&key(2), Vacant::default(), &entry).await.unwrap();
    assert_eq!(claimed, Claim::Claimed);
    let request = asked(&storage, None, 1).await;
    let (pause, _) = storage.pause(&cluster(), &holder("alice"), ask(2)).await.unwrap();
    let (slots, requests) = storage.scan_with_requests(&cluster(), &[key(1), key(2), key(3)]).await.unwrap();
    assert_eq!(slots.iter().map(Slot::entry).collect::<Vec<_>>(), [None, Some(&entry), None]);
    let found = OperatorRequests { pause: Some(pause.clone()), step_down: Some(request.clone()) };
    assert_eq!(requests, found);
    storage.resume(&cluster(), &pause).await.unwrap();
    storage.remove_step_down(&cluster(), &request).await.unwrap();
    assert_eq!(storage.get(&key(2)).await.unwrap().entry(), Some(&entry));
    storage.compare_and_delete(&key(2), entry.incarnation(), entry.epoch).await.unwrap();
    assert_eq!(storage.requests(&cluster()).await.unwrap(), OperatorRequests::default());
}
