//! Renewals: which ones move the deadline, and from when it counts (I3, I7).

use super::{ElectionsTestSuite, Process, Scene};
use crate::{
    Leadership, Loss,
    testing::mock::{Fault, Verb},
};
use vvm_clock::Instant;

/// Waits for a confirmed renewal. Returns when it was seen.
async fn renewed<Suite: ElectionsTestSuite>(
    scene: &Scene<Suite>,
    process: &Process<Suite::Key>,
    leadership: &Leadership,
) -> Instant {
    let before = leadership.standing().kill_at();
    scene.until(|| leadership.standing().kill_at() > before || leadership.standing().loss().is_some()).await;
    assert_eq!(leadership.standing().loss(), None);
    let seen_at = scene.now();
    // The engine moves the deadline in the same step.
    assert_eq!(process.trigger.earliest().unwrap().0, leadership.standing().kill_at());
    assert!(!process.trigger.check(), "a deadline passed");
    seen_at
}

/// The deadline counts from the send of the renewal, not from its answer.
pub async fn a_renewal_moves_the_deadline_to_its_send(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage) = scene.faulty().await;
    let delay = scene.percent(5);
    storage.fail_always(Verb::CompareAndSwap, Fault::SlowAnswer(delay));
    let leadership = scene.lead(&process, "leader").await;
    for _ in 0..3 {
        let seen_at = renewed(scene, &process, &leadership).await;
        let sent_at = scene.sent_at(leadership.standing(), scene.ttl);
        assert!(sent_at.after(delay) <= seen_at, "counted from the answer");
    }
    assert!(storage.counts().slow_answers >= 3);
    leadership.release().await;
}

/// Every quarter of a TTL.
pub async fn a_leadership_is_renewed_for_as_long_as_it_is_held(scene: &Scene<impl ElectionsTestSuite>) {
    let process = scene.process().await;
    let leadership = scene.lead(&process, "leader").await;
    let began = scene.now();
    let mut least = leadership.remaining();
    while scene.now() < began.after(scene.ttl.get() * 3) {
        least = least.min(leadership.remaining());
        scene.pass(scene.percent(2)).await;
    }
    assert_eq!(leadership.standing().loss(), None);
    // 0.8 TTL less the interval of renewals.
    assert!(least + scene.slack >= scene.percent(50), "down to {least:?}");
    assert!(scene.slot().await.entry().unwrap().version.write >= 9);
    leadership.release().await;
}

/// The read-back finds the version that the attempt wrote.
/// Shows I7.
pub async fn a_renewal_with_lost_answer_is_confirmed_by_read_back(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage) = scene.faulty().await;
    let leadership = scene.lead(&process, "leader").await;
    storage.fail_always(Verb::CompareAndSwap, Fault::LostAnswer);
    for _ in 0..5 {
        renewed(scene, &process, &leadership).await;
    }
    assert!(storage.counts().lost_answers >= 5);
    storage.heal();
    leadership.release().await;
}

/// The read-back finds the old version. The refusal of the next attempt shows that this one was applied.
pub async fn a_renewal_applied_late_is_confirmed_by_the_next_attempt(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage) = scene.faulty().await;
    let leadership = scene.lead(&process, "leader").await;
    storage.fail_next(Verb::CompareAndSwap, Fault::Late(scene.percent(2)));
    let seen_at = renewed(scene, &process, &leadership).await;
    assert_eq!(storage.counts().landed_late, 1);
    let sent_at = scene.sent_at(leadership.standing(), scene.ttl);
    assert!(sent_at.after(scene.percent(2)) <= seen_at, "counted from another attempt");
    renewed(scene, &process, &leadership).await;
    leadership.release().await;
}

/// The attempt has timed out. The next one finds its record, which counts from its own send.
pub async fn a_renewal_answered_after_its_timeout_is_confirmed_by_the_next_attempt(
    scene: &Scene<impl ElectionsTestSuite>,
) {
    let (process, storage) = scene.faulty().await;
    let leadership = scene.lead(&process, "leader").await;
    let delay = scene.timing.attempt_timeout() + scene.percent(2);
    storage.fail_next(Verb::CompareAndSwap, Fault::SlowRequest(delay));
    let seen_at = renewed(scene, &process, &leadership).await;
    let sent_at = scene.sent_at(leadership.standing(), scene.ttl);
    assert!(sent_at.after(delay) <= seen_at, "counted from another attempt");
    assert_eq!(storage.counts().landed_late, 1);
    assert!(storage.counts().calls[&Verb::CompareAndSwap] >= 2);
    leadership.release().await;
}

/// It arrives after the next attempt and the release.
pub async fn a_renewal_that_arrives_after_the_release_is_refused(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage) = scene.faulty().await;
    let leadership = scene.lead(&process, "leader").await;
    storage.fail_next(Verb::CompareAndSwap, Fault::HeldBack);
    renewed(scene, &process, &leadership).await;
    leadership.release().await;
    assert_eq!(storage.under_way(), 1);
    storage.land_late().await;
    assert_eq!((storage.counts().refused_late, storage.counts().landed_late), (1, 0));
    assert_eq!(scene.slot().await.entry(), None);
}

/// The read-back finds the old record, with the same incarnation and another version.
/// Shows I7.
pub async fn a_lost_renewal_is_not_confirmed_by_the_record_before_it(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage) = scene.faulty().await;
    let leadership = scene.lead(&process, "leader").await;
    let kill_at = leadership.standing().kill_at();
    storage.fail_always(Verb::CompareAndSwap, Fault::LostRequest);
    let loss = leadership.lost().await;
    assert!(matches!(loss, Loss::StorageUnreachable { last_failure: Some(_) }), "{loss:?}");
    assert_eq!(leadership.standing().kill_at(), kill_at, "confirmed by a record that was never written");
    assert_eq!(process.trigger.earliest().unwrap().0, kill_at);
    assert!(storage.counts().lost_requests >= 3, "too few attempts");
    storage.heal();
    leadership.release().await;
}

/// The outage ends before the loss.
pub async fn a_short_outage_costs_no_leadership(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage) = scene.faulty().await;
    let leadership = scene.lead(&process, "leader").await;
    for fault in [Fault::NotApplied, Fault::LostRequest, Fault::Fatal] {
        storage.fail_next(Verb::CompareAndSwap, fault);
    }
    renewed(scene, &process, &leadership).await;
    let counts = storage.counts();
    assert_eq!((counts.not_applied, counts.lost_requests, counts.fatal), (1, 1, 1));
    leadership.release().await;
}
