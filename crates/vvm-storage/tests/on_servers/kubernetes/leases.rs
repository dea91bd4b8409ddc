use super::{fresh, kubectl, open, try_kubectl, url};
use ielections::{
    DocumentVersion, Entry, Epoch, Fence, Holder, Incarnation, Slot, Ttl, Vacant, Version, WriteError,
};
use serde_json::Value;
use std::{num::NonZeroU32, sync::Arc, time::Duration};
use vvm_storage::{
    ClusterName, CurrentState, ElectionsTtlStorage, KEY_PREFIX_VVM_LEADER, Partition, Step, StepOutcome,
    SysVvmStorage as _, cells::Cells, kubernetes::LeaseStorage,
};

const TTL: Duration = Duration::from_millis(2_500);

fn entry(epoch: u64, write: u64) -> Entry {
    let holder = Holder::new("host-1").unwrap();
    Entry { holder, ttl: Ttl::new(TTL).unwrap(), ..ielections::testing::entry(7, write, epoch) }
}

fn held(entry: &Entry) -> Slot {
    Slot::Held { entry: entry.clone(), proven_age: None }
}

fn vacant(last_epoch: u64) -> Slot {
    Slot::Vacant(Vacant { last_epoch: Epoch::new(last_epoch).ok() })
}

struct Scene {
    name: String,
    slot: Partition,
    storage: Arc<Cells<LeaseStorage>>,
}

impl Scene {
    async fn new() -> Self {
        let (name, storage) = (fresh(), Arc::new(open(&url()).await));
        let elections = ElectionsTtlStorage::new(Arc::clone(&storage) as _);
        elections.settle_slot_count(&ClusterName::from(&*name), NonZeroU32::MIN).await.unwrap();
        let slot = [&[KEY_PREFIX_VVM_LEADER], name.as_bytes(), &[0, 0, 0, 1]].concat();
        Self { name, slot: Partition::from_bytes(slot), storage }
    }

    async fn led() -> (Self, Entry) {
        let (scene, entry) = (Self::new().await, entry(5, 1));
        assert_eq!(scene.claim(&vacant(0), &entry).await.unwrap(), StepOutcome::Applied);
        (scene, entry)
    }

    async fn claim(&self, from: &Slot, entry: &Entry) -> Result<StepOutcome, WriteError> {
        self.storage.commit(self.slot.clone(), Step::claim(from, entry)).await
    }

    async fn renew(&self, from: &Entry, to: &Entry) -> Result<StepOutcome, WriteError> {
        self.storage.commit(self.slot.clone(), Step::renew(from, to)).await
    }

    async fn read(&self) -> Slot {
        self.storage.read(self.slot.clone()).await.unwrap()
    }

    fn lease(&self) -> Value {
        serde_json::from_str(&kubectl(&["get", "lease", &self.name, "-o", "json"])).unwrap()
    }

    fn spec(&self) -> Value {
        self.lease()["spec"].take()
    }

    fn patch(&self, spec: &str) {
        let patch = format!(r#"{{"spec":{spec}}}"#);
        kubectl(&["patch", "lease", &self.name, "--type=merge", "-p", &patch]);
    }
}

/// What client-go writes when it takes a Lease over.
const FOREIGN: &str = r#"{"holderIdentity":"client-go","leaseDurationSeconds":15,"leaseTransitions":9,
    "acquireTime":"2031-01-01T00:00:00.000000Z","renewTime":"2031-01-01T00:00:00.000000Z"}"#;

#[tokio::test(flavor = "multi_thread")]
async fn lease_shows_holder_duration_renewals_and_claims() {
    let (scene, first) = Scene::led().await;
    let claimed = scene.spec();
    assert_eq!(claimed["holderIdentity"], "host-1");
    assert_eq!(claimed["leaseDurationSeconds"], 3, "2.5 s, rounded up");
    assert_eq!(claimed["leaseTransitions"], 1);
    assert_eq!(claimed["acquireTime"], claimed["renewTime"]);
    let wide = kubectl(&["get", "lease", &scene.name]);
    println!("{wide}");
    assert!(wide.contains("HOLDER") && wide.contains("host-1"), "{wide}");
    let mut last = claimed["renewTime"].as_str().unwrap().to_owned();
    let mut stands = first;
    for write in 2..6 {
        let next = entry(5, write);
        assert_eq!(scene.renew(&stands, &next).await.unwrap(), StepOutcome::Applied);
        let spec = scene.spec();
        let renewed = spec["renewTime"].as_str().unwrap().to_owned();
        assert!(renewed > last, "{renewed} after {last}");
        assert_eq!(spec["acquireTime"], claimed["acquireTime"]);
        assert_eq!(spec["leaseTransitions"], 1);
        (last, stands) = (renewed, next);
    }
    let released =
        scene.storage.commit(scene.slot.clone(), Step::release(stands.incarnation(), stands.epoch)).await;
    assert_eq!(released.unwrap(), StepOutcome::Applied);
    let spec = scene.spec();
    assert_eq!((&spec["holderIdentity"], &spec["leaseDurationSeconds"]), (&"".into(), &1.into()));
    assert_eq!(scene.claim(&vacant(5), &entry(6, 1)).await.unwrap(), StepOutcome::Applied);
    assert_eq!(scene.spec()["leaseTransitions"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_annotations_and_owners_of_others_are_kept() {
    let (scene, first) = Scene::led().await;
    kubectl(&["label", "lease", &scene.name, "team=payroll"]);
    kubectl(&["annotate", "lease", &scene.name, "example.com/note=kept"]);
    let owner =
        r#"{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"b"}]}}"#;
    kubectl(&["patch", "lease", &scene.name, "--type=merge", "-p", owner]);
    // Composed from the tag of the claim: refused once, and composed anew.
    assert_eq!(scene.renew(&first, &entry(5, 2)).await.unwrap(), StepOutcome::Applied);
    let metadata = scene.lease()["metadata"].take();
    assert_eq!(metadata["labels"]["team"], "payroll");
    assert_eq!(metadata["labels"]["vvm/name"], *scene.name);
    assert_eq!(metadata["annotations"]["example.com/note"], "kept");
    assert_eq!(metadata["ownerReferences"][0]["uid"], "b");
    let documents = scene.storage.fence_state(&scene.slot).await.unwrap();
    assert_eq!(documents.slot, held(&entry(5, 2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn leader_whose_lease_was_deleted_is_replaced_and_the_slot_waits() {
    let (scene, first) = Scene::led().await;
    kubectl(&["delete", "lease", &scene.name]);
    let error = scene.renew(&first, &entry(5, 2)).await.unwrap_err();
    assert!(matches!(error, WriteError::Replaced(_)), "{error:?}");
    assert!(error.to_string().contains("deleted while it was held"), "{error}");
    assert!(try_kubectl(&["get", "lease", &scene.name], "").is_err(), "the renewal created it again");
    // A placeholder, which the next candidate finds.
    let stands = scene.read().await;
    let placeholder = stands.entry().unwrap();
    assert!(placeholder.epoch > first.epoch && placeholder.ttl == first.ttl, "{placeholder:?}");
    let another = open(&url()).await;
    let claim = another.commit(scene.slot.clone(), Step::claim(&vacant(0), &entry(6, 1))).await.unwrap();
    assert_eq!(claim, StepOutcome::Refused(CurrentState::Slot(stands)));
    assert!(scene.spec()["holderIdentity"].as_str().unwrap().contains("the record was deleted"));
}

#[tokio::test(flavor = "multi_thread")]
async fn candidate_whose_claim_meets_a_deletion_finds_what_stands() {
    let (scene, first) = Scene::led().await;
    // The handle composes the claim from what it has written itself, so the deletion comes between look and claim.
    kubectl(&["delete", "lease", &scene.name]);
    let entry =
        Entry { version: Version { incarnation: Incarnation::from_bytes([8; 16]), write: 1 }, ..entry(6, 1) };
    let claimed = scene.storage.commit(scene.slot.clone(), Step::claim(&held(&first), &entry)).await.unwrap();
    let stands = scene.read().await;
    assert!(stands.entry().unwrap().epoch > first.epoch, "{stands:?}");
    assert_eq!(claimed, StepOutcome::Refused(CurrentState::Slot(stands)));
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_of_the_same_name_and_another_object_replaces_the_leader() {
    let (scene, first) = Scene::led().await;
    let mut copy = scene.lease();
    kubectl(&["delete", "lease", &scene.name]);
    for unique in ["uid", "resourceVersion", "creationTimestamp"] {
        copy["metadata"].as_object_mut().unwrap().remove(unique);
    }
    try_kubectl(&["create", "-f", "-"], &copy.to_string()).unwrap();
    let error = scene.renew(&first, &entry(5, 2)).await.unwrap_err();
    assert!(matches!(error, WriteError::Replaced(_)), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_holder_is_observed_by_its_spec_and_no_fence_stands_on_it() {
    let (scene, first) = Scene::led().await;
    scene.patch(FOREIGN);
    let stands = scene.read().await;
    let foreign = stands.entry().unwrap().clone();
    assert_eq!((foreign.holder.as_str(), foreign.ttl.get()), ("client-go", Duration::from_secs(15)));
    assert!(foreign.epoch > first.epoch && foreign.incarnation() != first.incarnation());
    assert_eq!(
        scene.renew(&first, &entry(5, 2)).await.unwrap(),
        StepOutcome::Refused(CurrentState::Slot(stands.clone()))
    );
    let fence = Fence { epoch: first.epoch, incarnation: first.incarnation(), after: DocumentVersion::NONE };
    let refused = scene.storage.commit(scene.slot.clone(), Step::batch(&fence, &[])).await.unwrap();
    assert_eq!(refused, StepOutcome::Refused(CurrentState::Nothing));
    scene.patch(r#"{"renewTime":"2031-01-01T00:00:02.000000Z"}"#);
    let renewed = scene.read().await;
    assert!(renewed.entry().unwrap().is_of(foreign.incarnation(), foreign.epoch));
    assert!(renewed.entry().unwrap().version != foreign.version);
    let claim = scene.claim(&stands, &entry(9, 1)).await.unwrap();
    assert_eq!(claim, StepOutcome::Refused(CurrentState::Slot(renewed)), "claimed by an old view");
}

#[tokio::test(flavor = "multi_thread")]
async fn slot_is_claimed_after_a_foreign_holder_with_a_later_epoch() {
    let (scene, first) = Scene::led().await;
    let released =
        scene.storage.commit(scene.slot.clone(), Step::release(first.incarnation(), first.epoch)).await;
    assert_eq!(released.unwrap(), StepOutcome::Applied);
    scene.patch(FOREIGN);
    let stands = scene.read().await;
    assert_eq!(stands.last_epoch(), Epoch::new(6).ok());
    assert_eq!(scene.claim(&stands, &entry(7, 1)).await.unwrap(), StepOutcome::Applied);
    assert_eq!(scene.read().await, held(&entry(7, 1)));
    let spec = scene.spec();
    assert_eq!(spec["leaseTransitions"], 10, "counted on");
    let renewed = spec["renewTime"].as_str().unwrap();
    assert!(renewed > "2031-01-01T00:00:00.000000Z", "{renewed}: the wall clock is before the foreign one");
}

#[tokio::test(flavor = "multi_thread")]
async fn record_of_ours_that_was_overwritten_delays_the_next_claim() {
    let (scene, first) = Scene::led().await;
    // Taken over and released again: our leader may not have noticed.
    scene.patch(r#"{"holderIdentity":"","leaseDurationSeconds":1}"#);
    let claim = scene.claim(&vacant(6), &entry(7, 1)).await.unwrap();
    let StepOutcome::Refused(CurrentState::Slot(stands)) = claim else { panic!("{claim:?}") };
    let placeholder = stands.entry().unwrap();
    assert!(placeholder.epoch > entry(6, 1).epoch && placeholder.ttl == first.ttl, "{placeholder:?}");
}
