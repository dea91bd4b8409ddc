//! Releases: the renewal ends, the deadman is disarmed, the record is deleted (I6).

use super::{ElectionsTestSuite, Scene};
use crate::{
    Loss, ReleaseOutcome,
    testing::mock::{Fault, Verb},
};

/// The slot is vacant, no deadline is armed, and no renewal follows.
pub async fn a_release_leaves_only_the_epoch(scene: &Scene<impl ElectionsTestSuite>) {
    let process = scene.process().await;
    let leadership = scene.lead(&process, "leader").await;
    let (epoch, standing) = (leadership.epoch(), leadership.standing().clone());
    assert_eq!(leadership.release().await, ReleaseOutcome::Released);
    assert_eq!((process.deadman.armed(), process.trigger.earliest()), (0, None));
    assert_eq!(standing.loss(), Some(&Loss::HandedBack));
    let slot = scene.slot().await;
    assert_eq!((slot.entry(), slot.last_epoch()), (None, Some(epoch)));
    scene.pass(scene.percent(50)).await;
    assert_eq!(scene.slot().await, slot);
}

/// The delete is repeated, and a vacant slot with the same epoch confirms it.
pub async fn a_release_with_lost_answer_is_confirmed(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage) = scene.faulty().await;
    let leadership = scene.lead(&process, "leader").await;
    storage.fail_next(Verb::CompareAndDelete, Fault::LostAnswer);
    assert_eq!(leadership.release().await, ReleaseOutcome::Released);
    assert_eq!(storage.counts().lost_answers, 1);
    assert_eq!(scene.slot().await.entry(), None);
}

/// The work has stopped, so the deadman is disarmed. The record expires.
pub async fn a_release_without_the_storage_disarms(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage) = scene.faulty().await;
    let leadership = scene.lead(&process, "leader").await;
    storage.fail_always(Verb::CompareAndDelete, Fault::Hang);
    let began = scene.now();
    assert_eq!(leadership.release().await, ReleaseOutcome::LeftToExpire);
    // Three attempts of 0.1 TTL, 0.05 TTL apart.
    assert!(scene.now() <= began.after(scene.percent(40) + scene.slack));
    assert_eq!(process.deadman.armed(), 0);
    assert!(scene.slot().await.entry().is_some());
    storage.lose_all();
    storage.heal();
    let successor = scene.lead(&process, "successor").await;
    successor.release().await;
}

/// A renewal must not be applied after the delete.
pub async fn a_release_waits_for_the_renewal_in_flight(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage) = scene.faulty().await;
    let leadership = scene.lead(&process, "leader").await;
    storage.fail_always(Verb::CompareAndSwap, Fault::SlowRequest(scene.percent(5)));
    scene.until(|| storage.under_way() > 0).await;
    assert_eq!(leadership.release().await, ReleaseOutcome::Released);
    assert_eq!((storage.under_way(), storage.counts().landed_late), (0, 0));
    assert_eq!(scene.slot().await.entry(), None);
}
