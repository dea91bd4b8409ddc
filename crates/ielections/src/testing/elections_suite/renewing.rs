#![allow(missing_docs, reason = "the name of a case says what it shows")]
use super::{ElectionsTestSuite, Process, Scene, scene::none_landed};
use crate::{
    Candidacy, Leadership, Loss, ReleaseOutcome, Slot, Terms, Ttl,
    testing::mock::{Fault, Verb},
};
use futures_util::future::select_all;
use std::{pin::pin, time::Duration};
use vvm_clock::Instant;

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
    assert!(storage.struck(Fault::SlowAnswer(delay)) >= 3);
    leadership.release().await;
}

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

/// The read-back finds the version that the attempt wrote. Shows I7.
pub async fn a_renewal_with_lost_answer_is_confirmed_by_read_back(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage, leadership) = scene.faulty_leader().await;
    storage.fail_always(Verb::CompareAndSwap, Fault::LostAnswer);
    for _ in 0..5 {
        renewed(scene, &process, &leadership).await;
    }
    assert!(storage.struck(Fault::LostAnswer) >= 5);
    storage.heal();
    leadership.release().await;
}

/// The read-back finds the old version. The refusal of the next attempt shows that this one was applied.
pub async fn a_renewal_applied_late_is_confirmed_by_the_next_attempt(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage, leadership) = scene.faulty_leader().await;
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
    let (process, storage, leadership) = scene.faulty_leader().await;
    let delay = scene.timing.attempt_timeout() + scene.percent(2);
    storage.fail_next(Verb::CompareAndSwap, Fault::SlowRequest(delay));
    let seen_at = renewed(scene, &process, &leadership).await;
    let sent_at = scene.sent_at(leadership.standing(), scene.ttl);
    assert!(sent_at.after(delay) <= seen_at, "counted from another attempt");
    assert_eq!(storage.counts().landed_late, 1);
    assert!(storage.count(Verb::CompareAndSwap) >= 2);
    leadership.release().await;
}

/// It arrives after the next attempt and the release.
pub async fn a_renewal_that_arrives_after_the_release_is_refused(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage, leadership) = scene.faulty_leader().await;
    storage.fail_next(Verb::CompareAndSwap, Fault::Late(Duration::MAX));
    renewed(scene, &process, &leadership).await;
    leadership.release().await;
    assert_eq!(storage.under_way(), 1);
    storage.land_late().await;
    none_landed(&storage);
    assert_eq!(storage.counts().refused_late, 1);
    assert_eq!(scene.slot().await.entry(), None);
}

/// The read-back finds the old record, with the same incarnation and another version. Shows I7.
pub async fn a_lost_renewal_is_not_confirmed_by_the_record_before_it(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage, leadership) = scene.faulty_leader().await;
    let kill_at = leadership.standing().kill_at();
    storage.fail_always(Verb::CompareAndSwap, Fault::LostRequest);
    let loss = leadership.lost().await;
    assert!(matches!(loss, Loss::StorageUnreachable { last_failure: Some(_) }), "{loss:?}");
    assert_eq!(leadership.standing().kill_at(), kill_at, "confirmed by a record that was never written");
    assert_eq!(process.trigger.earliest().unwrap().0, kill_at);
    assert!(storage.struck(Fault::LostRequest) >= 3, "too few attempts");
    storage.heal();
    leadership.release().await;
}

/// The outage ends before the loss.
pub async fn a_short_outage_costs_no_leadership(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage, leadership) = scene.faulty_leader().await;
    let faults = [Fault::NotApplied, Fault::LostRequest, Fault::Fatal];
    for fault in faults {
        storage.fail_next(Verb::CompareAndSwap, fault);
    }
    renewed(scene, &process, &leadership).await;
    assert_eq!(faults.map(|fault| storage.struck(fault)), [1, 1, 1]);
    leadership.release().await;
}

/// With a call in flight, the loss is at 0.65 TTL and the deadline at 0.8 TTL after the last confirmed send. Shows I10.
pub async fn a_hung_storage_costs_the_leadership_in_time(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage, leadership) = scene.faulty_leader().await;
    let sent_at = scene.sent_at(leadership.standing(), scene.ttl);
    storage.fail_always(Verb::CompareAndSwap, Fault::Hang);
    storage.fail_always(Verb::Get, Fault::Hang);
    let loss = leadership.lost().await;
    assert!(matches!(loss, Loss::StorageUnreachable { .. }), "{loss:?}");
    let loss_at = scene.timing.loss_at(sent_at);
    scene.not_before(loss_at, "lost");
    assert!(scene.now() <= loss_at.after(scene.slack), "lost too late");
    assert_eq!(process.trigger.earliest().unwrap().0, scene.timing.kill_at(sent_at));
    assert!(storage.struck(Fault::Hang) >= 2, "too few attempts");
    storage.lose_all();
    storage.heal();
    assert_eq!(leadership.release().await, ReleaseOutcome::Released);
    assert_eq!(process.deadman.armed(), 0);
}

/// Its process ends before another one can lead.
pub async fn work_that_does_not_stop_is_ended_at_the_deadline(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage, leadership) = scene.faulty_leader().await;
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
    let (process, storage, leadership) = scene.faulty_leader().await;
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
    assert_eq!(leadership.standing().kill_at(), tightened);
    assert_eq!(leadership.release().await, ReleaseOutcome::AlreadyGone);
    assert_eq!(process.deadman.armed(), 0);
    assert_eq!(scene.slot().await.entry(), Some(&thief), "the record of another leader was released");
}

pub async fn a_vanished_record_is_a_loss_at_once(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage, leadership) = scene.faulty_leader().await;
    storage.wipe(&scene.key(0)).await.unwrap();
    let wiped = scene.now();
    assert_eq!(leadership.lost().await, Loss::Vanished);
    assert!(scene.now() <= wiped.after(scene.percent(26) + scene.slack));
    assert!(process.trigger.earliest().unwrap().0 <= scene.now().after(scene.timing.stopping()));
    assert_eq!(leadership.release().await, ReleaseOutcome::AlreadyGone);
    assert_eq!(process.deadman.armed(), 0);
}

/// Another process may lead already in the new storage. A hand-back still tries to delete the record. Shows I1.
pub async fn a_storage_that_was_replaced_is_a_loss_at_once(scene: &Scene<impl ElectionsTestSuite>) {
    for verb in [Verb::CompareAndSwap, Verb::Get] {
        let (process, storage, leadership) = scene.faulty_leader().await;
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
    scene.not_before(scene.sent_at(&standing, scene.ttl).after(scene.ttl.get()), "took over");
    assert_eq!(first.deadman.armed(), 1, "disarmed by a drop");
    assert!(first.trigger.check() || !first.trigger.fired().is_empty(), "it would be dead by now");
    successor.release().await;
}

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

pub async fn a_dropped_candidacy_acquires_nothing(scene: &Scene<impl ElectionsTestSuite>) {
    let (first, second) = (scene.process().await, scene.process().await);
    let leadership = scene.lead(&first, "first").await;
    let mut waiting = Box::pin(scene.lead(&second, "second"));
    assert!(scene.waits(&mut waiting, scene.percent(20)).await);
    drop(waiting);
    leadership.release().await;
    nothing_is_left(scene, &second).await;
}

pub async fn a_candidacy_dropped_during_its_claim_leaves_no_record(scene: &Scene<impl ElectionsTestSuite>) {
    for fault in
        [Fault::SlowRequest(scene.percent(5)), Fault::SlowAnswer(scene.percent(5)), Fault::LostAnswer]
    {
        let (process, storage) = scene.faulty().await;
        storage.fail_always(Verb::InsertIfNotExist, fault);
        storage.fail_always(Verb::Get, Fault::LostRequest);
        let claimed = || storage.count(Verb::InsertIfNotExist) > 0;
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
    assert!(scene.waits(&mut waiting, Duration::ZERO).await);
    scene.until(|| process.deadman.armed() > 0).await;
    drop(waiting);
    nothing_is_left(scene, &process).await;
    let mut again = pin!(scene.lead(&process, "again"));
    assert!(!scene.waits(&mut again, scene.percent(50) + scene.slack).await, "the slot was kept");
}

/// Returns the process of a leader that crashed after its claim, and when the claim was sent.
async fn dead_leader<Suite: ElectionsTestSuite>(
    scene: &Scene<Suite>,
    ttl: Ttl,
) -> (Process<Suite::Key>, Instant) {
    let process = scene.process().await;
    let terms = Terms { ttl, ..scene.terms("dead") };
    let candidacy = Candidacy { slots: vec![scene.key(0)], terms };
    let (_, leadership) = process.elections.acquire(candidacy).await.unwrap();
    let sent_at = scene.sent_at(leadership.standing(), ttl);
    process.crash();
    assert_eq!(process.deadman.armed(), 1, "a crash disarms nothing");
    drop(leadership);
    (process, sent_at)
}

pub async fn a_dead_leader_is_followed_after_its_ttl(scene: &Scene<impl ElectionsTestSuite>) {
    let (_dead, sent_at) = dead_leader(scene, scene.ttl).await;
    let process = scene.process().await;
    let began = scene.now();
    let successor = scene.lead(&process, "successor").await;
    scene.not_before(sent_at.after(scene.ttl.get()), "took over");
    assert!(scene.now() <= began.after(scene.ttl.get() + scene.poll() + scene.slack));
    successor.release().await;
}

/// The TTL of the record counts, not the observer's own. Shows I5.
pub async fn an_observer_waits_the_ttl_of_the_writer(scene: &Scene<impl ElectionsTestSuite>) {
    let long = Ttl::new(scene.ttl.get() * 2).unwrap();
    let (_dead, sent_at) = dead_leader(scene, long).await;
    let process = scene.process().await;
    let began = scene.now();
    let successor = scene.lead(&process, "impatient").await;
    scene.not_before(sent_at.after(long.get()), "took over from a leader that may live");
    assert!(scene.now() <= began.after(long.get() + scene.poll() + scene.slack));
    successor.release().await;
}

/// However long a candidate observes it. Shows I1.
pub async fn a_leader_that_renews_is_never_followed(scene: &Scene<impl ElectionsTestSuite>) {
    let (first, second) = (scene.process().await, scene.process().await);
    let leadership = scene.lead(&first, "first").await;
    let mut waiting = pin!(scene.lead(&second, "second"));
    for _ in 0..6 {
        scene.leads_alone(&leadership, &mut waiting, scene.percent(50)).await;
        assert_eq!(leadership.standing().loss(), None);
        assert!(leadership.remaining() > Duration::ZERO);
    }
    leadership.release().await;
    waiting.await.release().await;
}

pub async fn one_of_many_candidates_follows(scene: &Scene<impl ElectionsTestSuite>) {
    let (_dead, sent_at) = dead_leader(scene, scene.ttl).await;
    let mut processes = Vec::new();
    for _ in 0..4 {
        processes.push(scene.process().await);
    }
    let campaigns = processes.iter().map(|process| Box::pin(scene.lead(process, "candidate")));
    let (leadership, winner, mut others): (Leadership, _, _) = select_all(campaigns).await;
    scene.not_before(sent_at.after(scene.ttl.get()), "took over");
    for waiting in &mut others {
        scene.leads_alone(&leadership, waiting, scene.percent(25)).await;
    }
    let armed: Vec<usize> = processes.iter().map(|process| process.deadman.armed()).collect();
    assert_eq!((armed.iter().sum::<usize>(), armed[winner]), (1, 1));
    leadership.release().await;
}
