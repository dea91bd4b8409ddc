//! Claims whose outcome nobody heard (I7), and those that nobody waits for any more.

use super::{ElectionsTestSuite, Scene, scene::refusal};
use crate::{
    AcquireError, AcquireTimeout,
    testing::mock::{Fault, Verb},
};
use std::time::Duration;

/// Read back, and not waited out like somebody else's.
/// Shows I7.
pub async fn a_claim_whose_answer_was_lost_is_found(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage) = scene.faulty().await;
    storage.fail_next(Verb::InsertIfNotExist, Fault::LostAnswer);
    let began = scene.now();
    let leadership = scene.lead(&process, "first").await;
    assert!(scene.now() < began.after(scene.percent(10) + scene.slack));
    assert_eq!(storage.counts().lost_answers, 1);
    assert_eq!(scene.slot().await.entry().unwrap().incarnation(), leadership.incarnation());
    leadership.release().await;
}

/// It lands after it was read back in vain: then the next attempt is refused, and shows it.
pub async fn a_claim_that_lands_late_is_found(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage) = scene.faulty().await;
    storage.fail_next(Verb::InsertIfNotExist, Fault::Late(scene.percent(1)));
    let began = scene.now();
    let leadership = scene.lead(&process, "first").await;
    assert!(scene.now() < began.after(scene.percent(20) + scene.slack));
    assert_eq!(storage.counts().landed_late, 1);
    assert_eq!(scene.slot().await.entry().unwrap().incarnation(), leadership.incarnation());
    leadership.release().await;
}

/// Overtaken by the attempt after it, and by that one's release: the ghost of a claim leads nothing.
pub async fn a_claim_that_was_overtaken_lands_on_nothing(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage) = scene.faulty().await;
    storage.fail_next(Verb::InsertIfNotExist, Fault::HeldBack);
    let leadership = scene.lead(&process, "first").await;
    let epoch = leadership.epoch();
    leadership.release().await;
    assert_eq!(storage.under_way(), 1);
    storage.land_late().await;
    assert_eq!((storage.counts().refused_late, storage.counts().landed_late), (1, 0));
    let slot = scene.slot().await;
    assert_eq!((slot.entry(), slot.last_epoch()), (None, Some(epoch)));
}

/// A take-over is a claim as well.
pub async fn a_take_over_whose_answer_was_lost_is_found(scene: &Scene<impl ElectionsTestSuite>) {
    let dead = scene.process().await;
    let lost = scene.lead(&dead, "dead").await;
    dead.crash();
    drop(lost);
    let (process, storage) = scene.faulty().await;
    storage.fail_next(Verb::TakeOver, Fault::LostAnswer);
    let began = scene.now();
    let leadership = scene.lead(&process, "second").await;
    assert!(scene.now() < began.after(scene.ttl.get() + scene.poll() + scene.percent(10) + scene.slack));
    assert_eq!(storage.counts().lost_answers, 1);
    leadership.release().await;
}

/// What was confirmed long after it was sent is renewed before work starts on it (I3).
pub async fn a_claim_confirmed_late_is_renewed_before_it_counts(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage) = scene.faulty().await;
    storage.fail_next(Verb::InsertIfNotExist, Fault::LostAnswer);
    storage.fail_always(Verb::Get, Fault::LostRequest);
    let healing = async {
        scene.pass(scene.percent(30)).await;
        storage.heal();
    };
    let (leadership, ()) = futures_util::future::join(scene.lead(&process, "late"), healing).await;
    assert_eq!(storage.counts().lost_answers, 1);
    assert!(storage.counts().calls[&Verb::CompareAndSwap] >= 1, "not renewed");
    let sent_at = scene.sent_at(leadership.standing(), scene.ttl);
    let slot = scene.slot().await;
    assert!(slot.entry().unwrap().version.write >= 1);
    assert!(sent_at.after(scene.percent(25) + scene.slack) >= scene.now(), "a stale claim");
    leadership.release().await;
}

/// A candidate that gives up deletes what it may have left.
pub async fn an_abandoned_claim_is_deleted(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage) = scene.faulty().await;
    storage.fail_next(Verb::InsertIfNotExist, Fault::LostAnswer);
    storage.fail_always(Verb::Get, Fault::LostRequest);
    let candidacy = scene.patient("hasty", AcquireTimeout::Within(Duration::ZERO));
    let refused = refusal(process.elections.acquire(candidacy).await);
    assert!(matches!(refused, AcquireError::TimedOut { last_failure: Some(_) }), "{refused:?}");
    assert_eq!(storage.counts().lost_answers, 1);
    process.elections.cleanup().await;
    assert_eq!(scene.slot().await.entry(), None, "left to expire");
    assert_eq!(process.deadman.armed(), 0);
}

/// However often.
pub async fn claims_that_are_not_applied_are_tried_again(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage) = scene.faulty().await;
    for _ in 0..3 {
        storage.fail_next(Verb::InsertIfNotExist, Fault::NotApplied);
    }
    let leadership = scene.lead(&process, "stubborn").await;
    assert_eq!(storage.counts().not_applied, 3);
    leadership.release().await;
}

/// With what the storage said.
pub async fn a_storage_that_refuses_for_good_ends_a_campaign(scene: &Scene<impl ElectionsTestSuite>) {
    for verb in [Verb::Scan, Verb::InsertIfNotExist] {
        let (process, storage) = scene.faulty().await;
        storage.fail_next(verb, Fault::Fatal);
        let refused = refusal(process.elections.acquire(scene.candidacy("refused")).await);
        assert!(matches!(refused, AcquireError::Refused(_)), "{refused:?}");
        assert_eq!(process.deadman.armed(), 0);
    }
    assert_eq!(scene.slot().await.entry(), None);
}

/// No deadline, no leadership: the record goes back (I4).
pub async fn a_leadership_without_a_deadman_is_none(scene: &Scene<impl ElectionsTestSuite>) {
    let process = scene.process().await;
    process.trigger.fail(true);
    let refused = refusal(process.elections.acquire(scene.candidacy("unguarded")).await);
    assert!(matches!(refused, AcquireError::Deadman(_)), "{refused:?}");
    process.elections.cleanup().await;
    assert_eq!(scene.slot().await.entry(), None);
}
