//! [`AcquireTimeout::UntilLeaderSeen`](crate::AcquireTimeout::UntilLeaderSeen): a campaign that ends when a
//! live leader is seen, but not because of a dead leader's record. Cron jobs must run again after a crash.

use super::{ElectionsTestSuite, Scene, scene::refusal};
use crate::{
    AcquireError, AcquireTimeout,
    testing::mock::{Fault, Verb},
};

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
    assert!(scene.now() >= sent_at.after(scene.ttl.get()));
    leadership.release().await;
    drop(dead);
}

/// The storage does not answer, or refuses every claim (I10).
/// Shows I10.
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
    assert_eq!(storage.counts().not_applied, 2);
    drop(dead);
}
