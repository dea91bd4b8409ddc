use crate::database::{Database, Forged, MemCells};
use ielections::{
    DocumentVersion, DocumentWrite, Entry, Epoch, Fence, Holder, ReadError, Slot, Ttl, TtlStorage as _,
    Vacant, WriteError, testing,
};
use std::{
    num::NonZeroU32,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};
use vvm_storage::{
    ClusterName, CurrentState, ElectionKey, ElectionsTtlStorage, KEY_PREFIX_PAUSE, KEY_PREFIX_STEP_DOWN,
    KEY_PREFIX_VVM_LEADER, Partition, SlotNumber, Step, StepOutcome, SysVvmStorage as _, cells::Cells,
};

struct Scene {
    database: Arc<Database>,
    cells: Arc<Cells<MemCells>>,
}

const NEVER_LED: Slot = Slot::Vacant(Vacant { last_epoch: None });

impl Scene {
    fn new() -> Self {
        let database = Arc::<Database>::default();
        Self { cells: Arc::new(Cells::new(database.open())), database }
    }

    fn another(&self) -> Cells<MemCells> {
        Cells::new(self.database.open())
    }

    async fn led(&self) -> Entry {
        let entry = entry(1, 0);
        applied(&self.cells, Step::claim(&NEVER_LED, &entry)).await;
        entry
    }

    async fn settled() -> Self {
        let scene = Self::new();
        let elections = ElectionsTtlStorage::new(Arc::clone(&scene.cells) as _);
        elections.settle_slot_count(&ClusterName::from("payroll"), NonZeroU32::MIN).await.unwrap();
        scene
    }

    fn requests(&self) -> (usize, usize) {
        (self.database.reads.load(SeqCst), self.database.writes.load(SeqCst))
    }
}

async fn applied(cells: &Cells<MemCells>, step: Step) {
    assert_eq!(cells.commit(slot(), step).await.unwrap(), StepOutcome::Applied);
}

fn slot() -> Partition {
    Partition::from_bytes([&[KEY_PREFIX_VVM_LEADER][..], b"payroll", &[0, 0, 0, 1]].concat())
}

fn key() -> ElectionKey {
    ElectionKey { cluster: ClusterName::from("payroll"), slot: SlotNumber::new(NonZeroU32::MIN) }
}

fn entry(epoch: u64, write: u64) -> Entry {
    ielections::testing::entry(7, write, epoch)
}

fn fence(after: u64) -> Fence {
    let Entry { epoch, version, .. } = entry(1, 0);
    Fence { epoch, incarnation: version.incarnation, after: DocumentVersion::from_stored(after) }
}

fn put(id: &str, bytes: usize) -> DocumentWrite {
    testing::put(id, vec![b'x'; bytes])
}

#[tokio::test]
async fn renewal_is_one_write_and_no_read() {
    let scene = Scene::new();
    let held = scene.led().await;
    let (reads, writes) = scene.requests();
    applied(&scene.cells, Step::renew(&held, &entry(1, 1))).await;
    assert_eq!(scene.requests(), (reads, writes + 1));
}

#[tokio::test]
async fn look_at_a_request_that_was_never_made_is_one_read() {
    let scene = Scene::settled().await;
    let request = Partition::from_bytes([&[KEY_PREFIX_STEP_DOWN][..], b"payroll"].concat());
    let (reads, writes) = scene.requests();
    assert_eq!(scene.cells.peek(&[request]).await.unwrap(), [NEVER_LED]);
    assert_eq!(scene.requests(), (reads + 1, writes));
}

async fn led_before(scene: &Scene) -> Slot {
    let Entry { version, epoch, .. } = scene.led().await;
    applied(&scene.cells, Step::release(version.incarnation, epoch)).await;
    Slot::Vacant(Vacant { last_epoch: Some(epoch) })
}

#[tokio::test]
async fn claim_after_a_look_is_one_write_and_no_read() {
    let scene = Scene::settled().await;
    let vacant = led_before(&scene).await;
    assert_eq!(scene.cells.peek(&[slot()]).await.unwrap(), std::slice::from_ref(&vacant));
    let (reads, writes) = scene.requests();
    applied(&scene.cells, Step::claim(&vacant, &entry(2, 0))).await;
    assert_eq!(scene.requests(), (reads, writes + 1));
}

#[tokio::test]
async fn claim_of_a_slot_that_was_claimed_after_the_look_is_refused() {
    let scene = Scene::settled().await;
    let vacant = led_before(&scene).await;
    let another = scene.another();
    for candidate in [&*scene.cells, &another] {
        assert_eq!(candidate.peek(&[slot()]).await.unwrap(), std::slice::from_ref(&vacant));
    }
    applied(&another, Step::claim(&vacant, &entry(2, 0))).await;
    let stands = Slot::Held { entry: entry(2, 0), proven_age: None };
    assert_eq!(
        scene.cells.commit(slot(), Step::claim(&vacant, &entry(2, 1))).await.unwrap(),
        StepOutcome::Refused(CurrentState::Slot(stands))
    );
}

/// Shows I5.
#[tokio::test]
async fn claim_of_a_cell_that_was_deleted_after_the_look_is_refused_with_a_placeholder() {
    let scene = Scene::settled().await;
    let vacant = led_before(&scene).await;
    let candidate = scene.another();
    candidate.peek(&[slot()]).await.unwrap();
    applied(&scene.cells, Step::claim(&vacant, &entry(2, 0))).await;
    scene.database.delete(&slot());
    let refused = candidate.commit(slot(), Step::claim(&NEVER_LED, &entry(3, 0))).await.unwrap();
    let StepOutcome::Refused(CurrentState::Slot(Slot::Held { entry: placeholder, .. })) = &refused else {
        panic!("{refused:?}")
    };
    assert!(placeholder.epoch > entry(2, 0).epoch && placeholder.ttl == entry(2, 0).ttl, "{placeholder:?}");
}

#[tokio::test]
async fn stale_look_of_a_leader_does_not_cost_its_renewal_a_read() {
    let scene = Scene::settled().await;
    scene.database.freeze_looks();
    let held = scene.led().await;
    // The look is behind what this handle has written, so a read follows.
    let stands = Slot::Held { entry: held.clone(), proven_age: None };
    assert_eq!(scene.cells.peek(&[slot()]).await.unwrap(), [stands]);
    let (reads, writes) = scene.requests();
    applied(&scene.cells, Step::renew(&held, &entry(1, 1))).await;
    assert_eq!(scene.requests(), (reads, writes + 1));
}

#[tokio::test]
async fn write_answered_without_a_tag_is_followed_by_a_read() {
    let scene = Scene::new();
    let held = scene.led().await;
    let (reads, _) = scene.requests();
    scene.database.forge(Forged::WithoutTag);
    applied(&scene.cells, Step::renew(&held, &entry(1, 1))).await;
    applied(&scene.cells, Step::renew(&entry(1, 1), &entry(1, 2))).await;
    assert_eq!(scene.requests().0, reads + 1);
}

#[tokio::test]
async fn refusal_shows_the_present_state_and_never_a_cached_one() {
    let scene = Scene::new();
    let held = scene.led().await;
    let another = scene.another();
    let taken = entry(2, 0);
    let observed = Slot::Held { entry: held.clone(), proven_age: None };
    applied(&another, Step::claim(&observed, &taken)).await;
    let stands = Slot::Held { entry: taken, proven_age: None };
    let renewal = scene.cells.commit(slot(), Step::renew(&held, &entry(1, 1))).await.unwrap();
    assert_eq!(renewal, StepOutcome::Refused(CurrentState::Slot(stands)));
    assert_eq!(
        scene.cells.commit(slot(), Step::batch(&fence(0), &[])).await.unwrap(),
        StepOutcome::Refused(CurrentState::Nothing)
    );
}

#[tokio::test]
async fn renewal_beside_a_batch_of_another_handle_is_composed_anew() {
    let scene = Scene::new();
    let held = scene.led().await;
    // The cell has another tag now, and the record is the same.
    let batch = scene.another();
    applied(&batch, Step::batch(&fence(0), &[put("a", 1)])).await;
    applied(&scene.cells, Step::renew(&held, &entry(1, 1))).await;
    assert!(
        scene.cells.document(&slot(), &testing::id("a")).await.unwrap().is_some(),
        "the renewal keeps the documents"
    );
}

#[tokio::test]
async fn refusals_without_end_are_not_applied() {
    let scene = Scene::new();
    let held = scene.led().await;
    (0..100).for_each(|_| scene.database.forge(Forged::Refused));
    let renewal = scene.cells.commit(slot(), Step::renew(&held, &entry(1, 1))).await;
    assert!(matches!(renewal, Err(WriteError::NotApplied(_))), "{renewal:?}");
}

/// Shows I7.
#[tokio::test]
async fn unknown_outcome_is_returned_and_not_repeated() {
    for (forged, applied) in [(Forged::AnswerLost, true), (Forged::Lost, false)] {
        let scene = Scene::new();
        let held = scene.led().await;
        let (_, writes) = scene.requests();
        scene.database.forge(forged);
        let renewal = scene.cells.commit(slot(), Step::renew(&held, &entry(1, 1))).await;
        assert!(matches!(renewal, Err(WriteError::Unknown(_))), "{renewal:?}");
        assert_eq!(scene.requests().1, writes + 1);
        let stands = if applied { entry(1, 1) } else { held };
        assert_eq!(scene.cells.read(slot()).await.unwrap().entry(), Some(&stands));
    }
}

#[tokio::test]
async fn value_of_another_key_is_refused() {
    let scene = Scene::new();
    scene.led().await;
    let other = Partition::from_bytes(*b"\x01other\0\0\0\x01");
    scene.database.put(&other, &scene.database.value(&slot()).unwrap());
    let read = scene.cells.read(other).await;
    assert!(
        matches!(&read, Err(ReadError::Fatal(cause)) if cause.to_string().contains("keys apart")),
        "{read:?}"
    );
}

#[tokio::test]
async fn full_cell_refuses_a_batch_and_no_claim() {
    let scene = Scene::new();
    let held = scene.led().await;
    let limits = scene.cells.document_limits().unwrap();
    let mut after = 0;
    // To the last hundred bytes.
    for bytes in [limits.max_body_bytes, 64 << 10, 8 << 10, 1 << 10, 100] {
        let refusal = loop {
            let batch = [put(&after.to_string(), bytes)];
            match scene.cells.commit(slot(), Step::batch(&fence(after), &batch)).await {
                Ok(outcome) => assert_eq!(outcome, StepOutcome::Applied),
                Err(refusal) => break refusal,
            }
            after += 1;
        };
        let WriteError::Fatal(cause) = refusal else { panic!("{refusal}") };
        assert!(cause.to_string().contains("keep less"), "{cause}");
    }
    applied(&scene.cells, Step::renew(&held, &entry(1, 1))).await;
    let Entry { version, epoch, .. } = held;
    applied(&scene.cells, Step::release(version.incarnation, epoch)).await;
    let long = Entry { holder: Holder::new("\u{1}".repeat(255)).unwrap(), ..entry(2, 0) };
    let vacant = Slot::Vacant(Vacant { last_epoch: Some(epoch) });
    applied(&scene.cells, Step::claim(&vacant, &long)).await;
    assert_eq!(scene.cells.fence_state(&slot()).await.unwrap().last, DocumentVersion::from_stored(after));
}

/// Shows I2.
#[tokio::test]
async fn damaged_count_of_batches_is_refused() {
    let scene = Scene::settled().await;
    scene.led().await;
    let value = String::from_utf8(scene.database.value(&slot()).unwrap().to_vec()).unwrap();
    let storage = ElectionsTtlStorage::new(Arc::new(scene.another()));
    for count in [i64::MAX as u64, u64::MAX] {
        let damaged = value.replace("\"batches\":0", &format!("\"batches\":{count}"));
        scene.database.put(&slot(), &damaged.into());
        let documents = storage.documents().unwrap();
        let state = documents.fence_state(&key()).await;
        assert!(
            matches!(&state, Err(ReadError::Fatal(why)) if why.to_string().contains("damaged")),
            "{state:?}"
        );
        let batch = documents.write_documents(&key(), &fence(count), &[put("a", 1)]).await;
        assert!(matches!(batch, Err(WriteError::Fatal(_))), "{batch:?}");
    }
}

#[tokio::test]
async fn settled_name_has_a_cell_for_each_slot() {
    let scene = Scene::settled().await;
    assert!(scene.database.value(&slot()).is_some());
}

async fn seen(candidate: &Cells<MemCells>) -> Entry {
    let slot = candidate.peek(&[slot()]).await.unwrap().remove(0);
    slot.entry().unwrap_or_else(|| panic!("{slot:?}")).clone()
}

/// Shows I5.
#[tokio::test]
async fn deleted_cell_of_a_settled_name_is_held_by_a_placeholder_with_the_longest_ttl() {
    let scene = Scene::settled().await;
    let long = Entry { ttl: Ttl::new(Duration::from_secs(60)).unwrap(), ..entry(1, 0) };
    applied(&scene.cells, Step::claim(&NEVER_LED, &long)).await;
    scene.database.delete(&slot());

    let next = long.renewed(entry(1, 1).version);
    let renewal = scene.cells.commit(slot(), Step::renew(&long, &next)).await.unwrap();
    assert!(
        matches!(renewal, StepOutcome::Refused(CurrentState::Slot(Slot::Vacant(_)))),
        "the leader is lost: {renewal:?}"
    );

    // In a process that never saw the record.
    let placeholder = seen(&scene.another()).await;
    assert_eq!(placeholder.ttl, long.ttl);
    assert!(placeholder.epoch > long.epoch, "a standby that saw that epoch goes on");
    assert!(placeholder.holder.as_str().contains("was deleted"), "{placeholder:?}");
}

/// Shows I5. Another program makes a record of a lower epoch, as a Lease that client-go makes anew.
#[tokio::test]
async fn record_in_the_place_of_a_deleted_one_waits_for_the_longest_ttl_and_is_claimed() {
    let scene = Scene::settled().await;
    let long = Entry { ttl: Ttl::new(Duration::from_secs(60)).unwrap(), ..entry(5, 0) };
    applied(&scene.cells, Step::claim(&NEVER_LED, &long)).await;
    let value = String::from_utf8(scene.database.value(&slot()).unwrap().to_vec()).unwrap();
    let anew = |write: u64| {
        [("\"epoch\":5", "\"epoch\":1"), ("60000000000", "2000000000"), ("\"documents\":[]", DISPLACING)]
            .into_iter()
            .fold(value.replace("\"write\":0", &format!("\"write\":{write}")), |text, (from, to)| {
                assert!(text.contains(from), "{text}");
                text.replace(from, to)
            })
    };
    scene.database.put(&slot(), &anew(100).into());
    let shown = seen(&scene.cells).await;
    assert!(shown.epoch > long.epoch && shown.ttl == long.ttl, "{shown:?}");
    assert_eq!(seen(&scene.cells).await, shown, "it is observed for its TTL");
    scene.database.put(&slot(), &anew(101).into());
    let renewed = seen(&scene.cells).await;
    assert_eq!((renewed.epoch, renewed.version.write), (shown.epoch, 101));
    let observed = Slot::Held { entry: renewed, proven_age: None };
    applied(&scene.cells, Step::claim(&observed, &entry(shown.epoch.get() + 1, 0))).await;
}

const DISPLACING: &str = "\"documents\":[],\"origin\":\"displacing\"";

/// Shows I5: an absence has no version, so another leadership could hide between two looks.
#[tokio::test]
async fn leadership_between_two_deletions_is_not_missed() {
    let scene = Scene::settled().await;
    scene.led().await;
    scene.database.delete(&slot());
    let (one, other) = (scene.another(), scene.another());
    let first = seen(&one).await;
    assert_eq!(seen(&other).await, first);
    let led = Entry { epoch: Epoch::new(first.epoch.get() + 1).unwrap(), ..entry(2, 0) };
    let observed = Slot::Held { entry: first.clone(), proven_age: None };
    applied(&one, Step::claim(&observed, &led)).await;
    scene.database.delete(&slot());
    let refused = other.commit(slot(), Step::claim(&observed, &entry(3, 0))).await.unwrap();
    let StepOutcome::Refused(CurrentState::Slot(Slot::Held { entry: second, .. })) = &refused else {
        panic!("{refused:?}")
    };
    assert_ne!(second.version, first.version, "it has to be observed anew");
    assert_eq!(second.ttl, led.ttl);
}

#[tokio::test]
async fn process_that_only_looks_shows_a_placeholder_and_writes_none() {
    let scene = Scene::settled().await;
    let led = scene.led().await;
    scene.database.delete(&slot());
    let inspector = Cells::to_look(scene.database.open());
    let (_, writes) = scene.requests();
    let shown = seen(&inspector).await;
    assert_eq!((shown.ttl, seen(&inspector).await), (led.ttl, shown));
    assert_eq!(scene.requests().1, writes);
}

#[tokio::test]
async fn storage_that_shows_an_earlier_state_is_refused_from_then_on() {
    let scene = Scene::settled().await;
    let held = scene.led().await;
    let earlier = scene.database.value(&slot()).unwrap();
    applied(&scene.cells, Step::renew(&held, &entry(1, 1))).await;
    let later = scene.database.value(&slot()).unwrap();
    scene.database.put(&slot(), &earlier);
    let read = scene.cells.read(slot()).await;
    assert!(
        matches!(&read, Err(ReadError::Replaced(cause)) if cause.to_string().contains("unfit")),
        "{read:?}"
    );
    scene.database.put(&slot(), &later);
    let renewal = scene.cells.commit(slot(), Step::renew(&entry(1, 1), &entry(1, 2))).await;
    assert!(matches!(&renewal, Err(WriteError::Replaced(_) | WriteError::NotApplied(_))), "{renewal:?}");
    assert!(matches!(scene.cells.read(slot()).await, Err(ReadError::Replaced(_))));
}

#[tokio::test]
async fn request_that_was_made_anew_under_an_earlier_epoch_is_shown_and_leaders_go_on() {
    let scene = Scene::settled().await;
    let held = scene.led().await;
    let pause = Partition::from_bytes([&[KEY_PREFIX_PAUSE][..], b"payroll"].concat());
    let another = scene.another();
    for (handle, epoch) in [(&*scene.cells, 9), (&another, 5)] {
        let made = handle.commit(pause.clone(), Step::claim(&NEVER_LED, &entry(epoch, 0))).await;
        assert_eq!(made.unwrap(), StepOutcome::Applied);
        let shown = scene.cells.peek(std::slice::from_ref(&pause)).await.unwrap().remove(0);
        assert_eq!(shown.entry(), Some(&entry(epoch, 0)));
        let (reads, _) = scene.requests();
        scene.cells.peek(std::slice::from_ref(&pause)).await.unwrap();
        assert_eq!(scene.requests().0, reads + 1, "it is known from then on");
        scene.database.delete(&pause);
    }
    applied(&scene.cells, Step::renew(&held, &entry(1, 1))).await;
}

#[tokio::test]
async fn absent_cell_of_a_name_that_is_not_settled_is_vacant() {
    let scene = Scene::new();
    scene.led().await;
    scene.database.delete(&slot());
    assert_eq!(
        scene.another().commit(slot(), Step::claim(&NEVER_LED, &entry(2, 0))).await.unwrap(),
        StepOutcome::Applied
    );
    // By a handle that saw a record of another slot, too.
    let other = Partition::from_bytes([&[KEY_PREFIX_VVM_LEADER][..], b"payroll", &[0, 0, 0, 2]].concat());
    assert_eq!(scene.cells.read(slot()).await.unwrap().entry(), Some(&entry(2, 0)));
    assert_eq!(scene.cells.peek(&[other]).await.unwrap(), [NEVER_LED]);
}
