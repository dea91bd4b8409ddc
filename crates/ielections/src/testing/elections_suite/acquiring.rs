#![allow(missing_docs, reason = "the name of a case says what it shows")]

use super::{
    ElectionsTestSuite, Scene,
    running::rise,
    scene::{none_landed, refusal},
};
use crate::{
    AcquireError, AcquireTimeout, Candidacy, Loss, ReleaseOutcome, Terms, Ttl,
    testing::mock::{Fault, Verb},
};
use futures_util::future::{Either, join, select};
use std::{pin::pin, time::Duration};

/// At once, with the deadman armed for it (I4).
pub async fn a_free_slot_is_led_at_once(scene: &Scene<impl ElectionsTestSuite>) {
    let process = scene.process().await;
    let began = scene.now();
    let (key, leadership) = process.elections.acquire(scene.candidacy("first")).await.unwrap();
    assert!(scene.now() <= began.after(scene.percent(10) + scene.slack));
    assert_eq!(key, scene.key(0));
    let slot = scene.slot().await;
    let entry = slot.entry().unwrap();
    assert_eq!((entry.holder.as_str(), entry.ttl), ("first", scene.ttl));
    assert_eq!((entry.epoch, entry.incarnation()), (leadership.epoch(), leadership.incarnation()));
    let (kill_at, subject) = process.trigger.earliest().unwrap();
    assert_eq!(kill_at, leadership.standing().kill_at());
    assert_eq!((subject.epoch, &*subject.holder), (leadership.epoch().get(), "first"));
    assert!(kill_at <= scene.timing.kill_at(scene.now()));
    assert_eq!(leadership.release().await, ReleaseOutcome::Released);
}

pub async fn a_second_candidate_waits_and_wins_after_the_release(scene: &Scene<impl ElectionsTestSuite>) {
    let (first, second) = (scene.process().await, scene.process().await);
    let leadership = scene.lead(&first, "first").await;
    let mut waiting = pin!(scene.lead(&second, "second"));
    scene.leads_alone(&leadership, &mut waiting, scene.percent(150)).await;
    assert_eq!(second.deadman.armed(), 0);
    let epoch = leadership.epoch();
    assert_eq!(leadership.release().await, ReleaseOutcome::Released);
    let released = scene.now();
    let successor = waiting.await;
    assert!(scene.now() <= released.after(scene.poll() + scene.slack));
    rise(&[epoch, successor.epoch()]);
    assert_eq!((first.deadman.armed(), second.deadman.armed()), (0, 1));
    successor.release().await;
}

pub async fn a_candidate_with_zero_timeout_reads_once(scene: &Scene<impl ElectionsTestSuite>) {
    let (first, second) = (scene.process().await, scene.process().await);
    let leadership =
        first.elections.acquire(scene.patient("first", AcquireTimeout::Within(Duration::ZERO))).await;
    let leadership = leadership.unwrap().1;
    let began = scene.now();
    let outcome =
        second.elections.acquire(scene.patient("second", AcquireTimeout::Within(Duration::ZERO))).await;
    assert!(matches!(refusal(outcome), AcquireError::TimedOut { .. }));
    assert!(scene.now() <= began.after(scene.percent(10) + scene.slack));
    leadership.release().await;
}

pub async fn a_candidate_gives_up_in_time(scene: &Scene<impl ElectionsTestSuite>) {
    let (first, second) = (scene.process().await, scene.process().await);
    let leadership = scene.lead(&first, "first").await;
    let began = scene.now();
    let patience = scene.percent(60);
    let outcome = second.elections.acquire(scene.patient("second", AcquireTimeout::Within(patience))).await;
    assert!(matches!(refusal(outcome), AcquireError::TimedOut { .. }));
    scene.not_before(began.after(patience), "gave up");
    assert!(scene.now() <= began.after(patience + scene.percent(10) + scene.slack));
    leadership.release().await;
}

pub async fn a_candidacy_for_no_slot_is_refused(scene: &Scene<impl ElectionsTestSuite>) {
    let process = scene.process().await;
    let candidacy = Candidacy { slots: Vec::new(), terms: scene.terms("candidate") };
    assert!(matches!(refusal(process.elections.acquire(candidacy).await), AcquireError::NoSlots));
}

/// The storage states its shortest TTL. [`Ttl`] itself refuses shorter ones than [`Ttl::MIN`].
pub async fn a_ttl_too_short_for_the_storage_is_refused(scene: &Scene<impl ElectionsTestSuite>) {
    let storage = scene.suite.open().await;
    let least = storage.limits().min_ttl;
    storage.close().await;
    let Ok(ttl) = Ttl::new(least.saturating_sub(Duration::from_nanos(1))) else {
        assert!(least <= Ttl::MIN, "{least:?} is no TTL");
        return;
    };
    let (process, storage) = scene.faulty().await;
    let terms = Terms { ttl, ..scene.terms("candidate") };
    let candidacy = Candidacy { slots: vec![scene.key(0)], terms };
    let refused = refusal(process.elections.acquire(candidacy).await);
    assert!(matches!(refused, AcquireError::TtlTooShort { least: stated, .. } if stated == least));
    assert!(storage.log().is_empty());
}

/// The candidate reads its record back, and does not wait for it to expire. Shows I7.
pub async fn a_claim_with_lost_answer_is_confirmed_by_read_back(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage) = scene.faulty().await;
    storage.fail_next(Verb::InsertIfNotExist, Fault::LostAnswer);
    let began = scene.now();
    let leadership = scene.lead(&process, "first").await;
    assert!(scene.now() < began.after(scene.percent(10) + scene.slack));
    assert_eq!(storage.struck(Fault::LostAnswer), 1);
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
    storage.fail_next(Verb::InsertIfNotExist, Fault::Late(Duration::MAX));
    let leadership = scene.lead(&process, "first").await;
    let epoch = leadership.epoch();
    leadership.release().await;
    assert_eq!(storage.under_way(), 1);
    storage.land_late().await;
    none_landed(&storage);
    assert_eq!(storage.counts().refused_late, 1);
    let slot = scene.slot().await;
    assert_eq!((slot.entry(), slot.last_epoch()), (None, Some(epoch)));
}

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
    assert_eq!(storage.struck(Fault::LostAnswer), 1);
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
    assert_eq!(storage.struck(Fault::LostAnswer), 1);
    assert!(storage.count(Verb::CompareAndSwap) >= 1, "not renewed");
    let sent_at = scene.sent_at(leadership.standing(), scene.ttl);
    let slot = scene.slot().await;
    assert!(slot.entry().unwrap().version.write >= 1);
    assert!(sent_at.after(scene.percent(25) + scene.slack) >= scene.now(), "a stale claim");
    leadership.release().await;
}

pub async fn an_abandoned_claim_is_deleted(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage) = scene.faulty().await;
    storage.fail_next(Verb::InsertIfNotExist, Fault::LostAnswer);
    storage.fail_always(Verb::Get, Fault::LostRequest);
    let candidacy = scene.patient("hasty", AcquireTimeout::Within(Duration::ZERO));
    let refused = refusal(process.elections.acquire(candidacy).await);
    assert!(matches!(refused, AcquireError::TimedOut { last_failure: Some(_) }), "{refused:?}");
    assert_eq!(storage.struck(Fault::LostAnswer), 1);
    process.elections.cleanup().await;
    assert_eq!(scene.slot().await.entry(), None, "left to expire");
    assert_eq!(process.deadman.armed(), 0);
}

pub async fn claims_that_are_not_applied_are_tried_again(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage) = scene.faulty().await;
    for _ in 0..3 {
        storage.fail_next(Verb::InsertIfNotExist, Fault::NotApplied);
    }
    let leadership = scene.lead(&process, "stubborn").await;
    assert_eq!(storage.struck(Fault::NotApplied), 3);
    leadership.release().await;
}

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

/// Within a TTL: by then a live leader has renewed.
pub async fn a_try_gives_up_on_a_live_leader(scene: &Scene<impl ElectionsTestSuite>) {
    let (first, second) = (scene.process().await, scene.process().await);
    let leadership = scene.lead(&first, "first").await;
    let began = scene.now();
    let outcome = second.elections.acquire(scene.patient("second", AcquireTimeout::UntilLeaderSeen)).await;
    let AcquireError::LeaderSeen { leader } = refusal(outcome) else {
        panic!("gave up for another reason");
    };
    assert_eq!(leader.unwrap().as_str(), "first");
    assert!(scene.now() <= began.after(scene.ttl.get() + scene.slack));
    assert_eq!(leadership.standing().loss(), None);
    leadership.release().await;
}

/// A record alone is no evidence of a live leader.
pub async fn a_try_takes_over_from_a_dead_leader(scene: &Scene<impl ElectionsTestSuite>) {
    let (first, second) = (scene.process().await, scene.process().await);
    let dead = scene.lead(&first, "dead").await;
    let sent_at = scene.sent_at(dead.standing(), scene.ttl);
    first.crash();
    let candidacy = scene.patient("second", AcquireTimeout::UntilLeaderSeen);
    let (_, leadership) = second.elections.acquire(candidacy).await.unwrap();
    scene.not_before(sent_at.after(scene.ttl.get()), "took over");
    leadership.release().await;
    drop(dead);
}

/// The storage does not answer, or refuses every claim (I10). Shows I10.
pub async fn a_try_gives_up_on_an_unusable_storage(scene: &Scene<impl ElectionsTestSuite>) {
    for (verb, fault) in [
        (Verb::Scan, Fault::Hang),
        (Verb::Scan, Fault::NotApplied),
        (Verb::InsertIfNotExist, Fault::NotApplied),
        (Verb::InsertIfNotExist, Fault::LostRequest),
    ] {
        let (process, storage) = scene.faulty().await;
        storage.fail_always(verb, fault);
        let began = scene.now();
        let outcome = process.elections.acquire(scene.patient("try", AcquireTimeout::UntilLeaderSeen)).await;
        let AcquireError::TimedOut { last_failure: Some(_) } = refusal(outcome) else {
            panic!("{verb:?}, {fault:?}: gave up for another reason");
        };
        let took = scene.now().since(began);
        assert!(took >= scene.timing.outage(), "{verb:?}, {fault:?}: gave up after {took:?}");
        // The time-outs of the first and the last call, and the pause before the last.
        let bound = scene.timing.outage() + scene.percent(25) + scene.slack;
        assert!(took <= bound, "{verb:?}, {fault:?}: only after {took:?}");
        storage.lose_all();
        process.elections.cleanup().await;
    }
}

/// After an outage a try still waits for the whole TTL of a dead leader.
pub async fn a_try_continues_after_a_short_outage(scene: &Scene<impl ElectionsTestSuite>) {
    let (first, (second, storage)) = (scene.process().await, scene.faulty().await);
    let mut dead = scene.candidacy("dead");
    dead.terms.ttl = crate::Ttl::new(scene.ttl.get() * 2).unwrap();
    let (_, dead) = first.elections.acquire(dead).await.unwrap();
    first.crash();
    storage.fail_next(Verb::Scan, Fault::NotApplied);
    let candidacy = scene.patient("second", AcquireTimeout::UntilLeaderSeen);
    let more_trouble = async {
        scene.pass(scene.timing.outage() + scene.percent(20)).await;
        storage.fail_next(Verb::Scan, Fault::NotApplied);
    };
    let (acquired, ()) = tokio::join!(second.elections.acquire(candidacy), more_trouble);
    acquired.unwrap().1.release().await;
    assert_eq!(storage.struck(Fault::NotApplied), 2);
    drop(dead);
}

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
    let (_process, storage, leadership) = scene.faulty_leader().await;
    storage.fail_next(Verb::CompareAndDelete, Fault::LostAnswer);
    assert_eq!(leadership.release().await, ReleaseOutcome::Released);
    assert_eq!(storage.struck(Fault::LostAnswer), 1);
    assert_eq!(scene.slot().await.entry(), None);
}

/// The work has stopped, so the deadman is disarmed. The record expires.
pub async fn a_release_without_the_storage_disarms(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage, leadership) = scene.faulty_leader().await;
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
    let (_process, storage, leadership) = scene.faulty_leader().await;
    storage.fail_always(Verb::CompareAndSwap, Fault::SlowRequest(scene.percent(5)));
    scene.until(|| storage.under_way() > 0).await;
    assert_eq!(leadership.release().await, ReleaseOutcome::Released);
    assert_eq!((storage.under_way(), storage.counts().landed_late), (0, 0));
    assert_eq!(scene.slot().await.entry(), None);
}

pub async fn cleanup_ends_and_refuses_campaigns(scene: &Scene<impl ElectionsTestSuite>) {
    let (first, second) = (scene.process().await, scene.process().await);
    let leadership = scene.lead(&first, "first").await;
    let waiting = second.elections.acquire(scene.candidacy("waiting"));
    let closing = async {
        scene.pass(scene.percent(20)).await;
        second.elections.cleanup().await;
    };
    let (outcome, ()) = join(waiting, closing).await;
    assert!(matches!(refusal(outcome), AcquireError::Closing));
    let late = second.elections.acquire(scene.candidacy("late")).await;
    assert!(matches!(refusal(late), AcquireError::Closing));
    assert_eq!(second.tasks(), 0);
    leadership.release().await;
}

/// The record is renewed while work continues under it. Shows I6.
pub async fn cleanup_waits_until_work_has_stopped(scene: &Scene<impl ElectionsTestSuite>) {
    let process = scene.process().await;
    let leadership = scene.lead(&process, "leader").await;
    let mut cleanup = pin!(process.elections.cleanup());
    let mut kill_at = leadership.standing().kill_at();
    for _ in 0..4 {
        assert!(scene.waits(&mut cleanup, scene.percent(35)).await, "closed while work runs");
        assert_eq!(leadership.lost().await, Loss::Closing);
        assert_eq!(scene.slot().await.entry().unwrap().incarnation(), leadership.incarnation());
        assert!(leadership.standing().kill_at() > kill_at, "no longer renewed");
        kill_at = leadership.standing().kill_at();
        assert_eq!(process.deadman.armed(), 1);
        let late = process.elections.acquire(scene.candidacy("late"));
        let Either::Left((late, _)) = select(pin!(late), pin!(scene.pass(scene.percent(5)))).await else {
            panic!("it campaigns")
        };
        assert!(matches!(refusal(late), AcquireError::Closing));
    }
    let (handback, ()) = join(leadership.release(), cleanup).await;
    assert_eq!(handback, ReleaseOutcome::Released);
    assert_eq!(scene.slot().await.entry(), None);
    assert_eq!((process.deadman.armed(), process.tasks()), (0, 0));
}

pub async fn cleanup_may_be_called_again(scene: &Scene<impl ElectionsTestSuite>) {
    let process = scene.process().await;
    let leadership = scene.lead(&process, "leader").await;
    let handing_back = async {
        leadership.lost().await;
        leadership.release().await
    };
    let both = join(process.elections.cleanup(), process.elections.cleanup());
    let (_, handback) = join(both, handing_back).await;
    assert_eq!(handback, ReleaseOutcome::Released);
    process.elections.cleanup().await;
    assert_eq!(process.tasks(), 0);
}

/// It is neither waited for, nor deleted, nor disarmed (I4).
pub async fn cleanup_leaves_what_was_dropped(scene: &Scene<impl ElectionsTestSuite>) {
    let process = scene.process().await;
    let leadership = scene.lead(&process, "dropped").await;
    let kill_at = leadership.standing().kill_at();
    drop(leadership);
    process.elections.cleanup().await;
    assert!(scene.slot().await.entry().is_some(), "deleted while work may run");
    assert_eq!((process.deadman.armed(), process.trigger.earliest().unwrap().0), (1, kill_at));
    assert_eq!(process.tasks(), 0);
}
