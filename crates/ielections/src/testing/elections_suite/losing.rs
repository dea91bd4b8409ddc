//! Losses: when they are noticed, and which deadline remains (I3, I4).

use super::{ElectionsTestSuite, Scene};
use crate::{
    Loss, ReleaseOutcome,
    testing::mock::{Fault, Verb},
};

/// With a call in flight, the loss is at 0.65 TTL and the deadline at 0.8 TTL after the last confirmed send.
/// Shows I10.
pub async fn a_hung_storage_costs_the_leadership_in_time(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage) = scene.faulty().await;
    let leadership = scene.lead(&process, "leader").await;
    let sent_at = scene.sent_at(leadership.standing(), scene.ttl);
    storage.fail_always(Verb::CompareAndSwap, Fault::Hang);
    storage.fail_always(Verb::Get, Fault::Hang);
    let loss = leadership.lost().await;
    assert!(matches!(loss, Loss::StorageUnreachable { .. }), "{loss:?}");
    let loss_at = scene.timing.loss_at(sent_at);
    assert!(scene.now() >= loss_at, "lost too early");
    assert!(scene.now() <= loss_at.after(scene.slack), "lost too late");
    assert_eq!(process.trigger.earliest().unwrap().0, scene.timing.kill_at(sent_at));
    assert!(storage.counts().hung >= 2, "too few attempts");
    storage.lose_all();
    storage.heal();
    assert_eq!(leadership.release().await, ReleaseOutcome::Released);
    assert_eq!(process.deadman.armed(), 0);
}

/// Its process ends before another one can lead.
pub async fn work_that_does_not_stop_is_ended_at_the_deadline(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage) = scene.faulty().await;
    let leadership = scene.lead(&process, "leader").await;
    storage.fail_always(Verb::CompareAndSwap, Fault::Hang);
    storage.fail_always(Verb::Get, Fault::Hang);
    leadership.lost().await;
    let kill_at = scene.timing.kill_at(scene.sent_at(leadership.standing(), scene.ttl));
    assert!(process.trigger.fired().is_empty());
    scene.clock.sleep_until(kill_at).await;
    process.trigger.check();
    let fired = process.trigger.fired();
    assert_eq!(fired.len(), 1);
    assert_eq!((fired[0].0, fired[0].1.epoch), (kill_at, leadership.epoch().get()));
    process.crash();
    drop(leadership);
}

/// The next renewal shows the other record. The work has just the time to stop.
pub async fn a_stolen_record_is_a_loss_at_once(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage) = scene.faulty().await;
    let leadership = scene.lead(&process, "leader").await;
    let kill_at = leadership.standing().kill_at();
    let thief = scene.foreign_record(leadership.epoch());
    storage.tamper(&scene.key(0), thief.clone()).await.unwrap();
    let tampered = scene.now();
    let loss = leadership.lost().await;
    let noticed = scene.now();
    assert_eq!(loss, Loss::Stolen { by: Box::new(thief.clone()) });
    assert!(noticed <= tampered.after(scene.percent(26) + scene.slack));
    let tightened = process.trigger.earliest().unwrap().0;
    assert!(tightened <= kill_at && tightened <= noticed.after(scene.timing.stopping()));
    assert_eq!(leadership.release().await, ReleaseOutcome::AlreadyGone);
    assert_eq!(process.deadman.armed(), 0);
    assert_eq!(scene.slot().await.entry(), Some(&thief), "the record of another leader was released");
}

/// Deleted by hand, or forgotten by the storage.
pub async fn a_vanished_record_is_a_loss_at_once(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage) = scene.faulty().await;
    let leadership = scene.lead(&process, "leader").await;
    storage.wipe(&scene.key(0)).await.unwrap();
    let wiped = scene.now();
    assert_eq!(leadership.lost().await, Loss::Vanished);
    assert!(scene.now() <= wiped.after(scene.percent(26) + scene.slack));
    assert!(process.trigger.earliest().unwrap().0 <= scene.now().after(scene.timing.stopping()));
    assert_eq!(leadership.release().await, ReleaseOutcome::AlreadyGone);
    assert_eq!(process.deadman.armed(), 0);
}

/// Another process may lead already in the new storage. A hand-back still tries to delete the record.
/// Shows I1.
pub async fn a_storage_that_was_replaced_is_a_loss_at_once(scene: &Scene<impl ElectionsTestSuite>) {
    for verb in [Verb::CompareAndSwap, Verb::Get] {
        let (process, storage) = scene.faulty().await;
        let leadership = scene.lead(&process, "leader").await;
        let sent_at = scene.sent_at(leadership.standing(), scene.ttl);
        // A read-back follows a renewal without an answer.
        storage.fail_next(Verb::CompareAndSwap, Fault::LostRequest);
        storage.fail_next(verb, Fault::Replaced);
        let loss = leadership.lost().await;
        assert!(matches!(loss, Loss::StorageReplaced { .. }), "{verb:?}: {loss:?}");
        // At the latest by the second attempt, which follows a pause.
        assert!(scene.now() <= sent_at.after(scene.percent(31) + scene.slack), "{verb:?}");
        assert!(process.trigger.earliest().unwrap().0 <= scene.now().after(scene.timing.stopping()));
        assert_eq!(leadership.release().await, ReleaseOutcome::Released);
        assert_eq!(process.deadman.armed(), 0);
        assert_eq!(scene.slot().await.entry(), None);
    }
}
