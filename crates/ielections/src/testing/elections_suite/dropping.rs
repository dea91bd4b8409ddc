//! Leaderships that are dropped instead of handed back, and candidacies that are dropped.

use super::{ElectionsTestSuite, Process, Scene};
use crate::{
    Loss, Slot,
    testing::mock::{Fault, Verb},
};
use std::{pin::pin, time::Duration};

/// Work may still run: the deadline stays, renewal ends, and other candidates wait for the TTL (I4).
pub async fn a_dropped_leadership_stays_armed_and_is_not_renewed(scene: &Scene<impl ElectionsTestSuite>) {
    let (first, second) = (scene.process().await, scene.process().await);
    let leadership = scene.lead(&first, "dropped").await;
    let standing = leadership.standing().clone();
    let kill_at = standing.kill_at();
    drop(leadership);
    assert_eq!(standing.lost().await, Loss::Dropped);
    let record = scene.slot().await.entry().cloned();
    scene.pass(scene.percent(60)).await;
    assert_eq!(scene.slot().await.entry().cloned(), record, "renewed, or deleted");
    assert_eq!((first.deadman.armed(), first.trigger.earliest().unwrap().0), (1, kill_at));
    let successor = scene.lead(&second, "successor").await;
    assert!(scene.now() >= scene.sent_at(&standing, scene.ttl).after(scene.ttl.get()));
    assert_eq!(first.deadman.armed(), 1, "disarmed by a drop");
    assert!(first.trigger.check() || !first.trigger.fired().is_empty(), "it would be dead by now");
    successor.release().await;
}

/// Checks that no record and no deadline is left: at once, or within a TTL if a call was in flight.
async fn nothing_is_left<Suite: ElectionsTestSuite>(scene: &Scene<Suite>, process: &Process<Suite::Key>) {
    let began = scene.now();
    while process.deadman.armed() > 0 || !matches!(scene.slot().await, Slot::Vacant(_)) {
        assert!(scene.now() <= began.after(scene.ttl.get() + scene.slack), "left behind");
        scene.pass(scene.percent(1)).await;
    }
    // A claim that was in flight would show by now.
    scene.pass(scene.percent(20)).await;
    assert!(matches!(scene.slot().await, Slot::Vacant(_)), "claimed after the drop");
    assert_eq!(process.deadman.armed(), 0);
}

/// Also if the slot becomes free afterwards.
pub async fn a_dropped_candidacy_acquires_nothing(scene: &Scene<impl ElectionsTestSuite>) {
    let (first, second) = (scene.process().await, scene.process().await);
    let leadership = scene.lead(&first, "first").await;
    let mut waiting = Box::pin(scene.lead(&second, "second"));
    assert!(scene.waits(&mut waiting, scene.percent(20)).await);
    drop(waiting);
    leadership.release().await;
    nothing_is_left(scene, &second).await;
}

/// The record of the claim in flight is deleted.
pub async fn a_candidacy_dropped_during_its_claim_leaves_no_record(scene: &Scene<impl ElectionsTestSuite>) {
    for fault in
        [Fault::SlowRequest(scene.percent(5)), Fault::SlowAnswer(scene.percent(5)), Fault::LostAnswer]
    {
        let (process, storage) = scene.faulty().await;
        storage.fail_always(Verb::InsertIfNotExist, fault);
        storage.fail_always(Verb::Get, Fault::LostRequest);
        let claimed = || storage.counts().calls.contains_key(&Verb::InsertIfNotExist);
        let mut waiting = Box::pin(scene.lead(&process, "dropped"));
        while !claimed() {
            assert!(scene.waits(&mut waiting, scene.ttl.get() / 500).await);
        }
        drop(waiting);
        nothing_is_left(scene, &process).await;
    }
}

/// The slot was won and the deadman armed, and the caller did not receive the answer.
pub async fn a_candidacy_dropped_at_its_success_leaves_no_record(scene: &Scene<impl ElectionsTestSuite>) {
    let process = scene.process().await;
    let mut waiting = Box::pin(scene.lead(&process, "dropped"));
    // Polled once, and then never again.
    assert!(scene.waits(&mut waiting, Duration::ZERO).await);
    scene.until(|| process.deadman.armed() > 0).await;
    drop(waiting);
    nothing_is_left(scene, &process).await;
    let mut again = pin!(scene.lead(&process, "again"));
    assert!(!scene.waits(&mut again, scene.percent(50) + scene.slack).await, "the slot was kept");
}
