//! Claims with an unknown outcome (I7), and claims of a candidate that gave up.

use super::{ElectionsTestSuite, Scene, scene::refusal};
use crate::{
    AcquireError, AcquireTimeout,
    testing::mock::{Fault, Verb},
};
use std::time::Duration;

/// The candidate reads its record back, and does not wait for it to expire.
/// Shows I7.
pub async fn a_claim_with_lost_answer_is_confirmed_by_read_back(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage) = scene.faulty().await;
    storage.fail_next(Verb::InsertIfNotExist, Fault::LostAnswer);
    let began = scene.now();
    let leadership = scene.lead(&process, "first").await;
    assert!(scene.now() < began.after(scene.percent(10) + scene.slack));
    assert_eq!(storage.counts().lost_answers, 1);
    assert_eq!(scene.slot().await.entry().unwrap().incarnation(), leadership.incarnation());
    leadership.release().await;
}

/// It is applied after the read-back. The next attempt is refused, and the refusal shows it.
pub async fn a_claim_applied_late_is_confirmed_by_the_next_attempt(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage) = scene.faulty().await;
    storage.fail_next(Verb::InsertIfNotExist, Fault::Late(scene.percent(1)));
    let began = scene.now();
    let leadership = scene.lead(&process, "first").await;
    assert!(scene.now() < began.after(scene.percent(20) + scene.slack));
    assert_eq!(storage.counts().landed_late, 1);
    assert_eq!(scene.slot().await.entry().unwrap().incarnation(), leadership.incarnation());
    leadership.release().await;
}

/// It arrives after the next attempt and the release.
pub async fn a_claim_that_arrives_after_the_release_is_refused(scene: &Scene<impl ElectionsTestSuite>) {
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

/// As for a claim of a vacant slot.
pub async fn a_take_over_with_lost_answer_is_confirmed_by_read_back(scene: &Scene<impl ElectionsTestSuite>) {
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

/// A claim that is confirmed long after its send is renewed before work starts (I3).
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

/// A candidate that gives up deletes the record that it may have written.
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

/// Any number of times.
pub async fn claims_that_are_not_applied_are_tried_again(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage) = scene.faulty().await;
    for _ in 0..3 {
        storage.fail_next(Verb::InsertIfNotExist, Fault::NotApplied);
    }
    let leadership = scene.lead(&process, "stubborn").await;
    assert_eq!(storage.counts().not_applied, 3);
    leadership.release().await;
}

/// The error has the reason of the storage.
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

/// The acquisition fails, and the record is released (I4).
pub async fn acquisition_without_a_deadman_fails(scene: &Scene<impl ElectionsTestSuite>) {
    let process = scene.process().await;
    process.trigger.fail(true);
    let refused = refusal(process.elections.acquire(scene.candidacy("unguarded")).await);
    assert!(matches!(refused, AcquireError::Deadman(_)), "{refused:?}");
    process.elections.cleanup().await;
    assert_eq!(scene.slot().await.entry(), None);
}
