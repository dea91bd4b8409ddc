//! A try that gives up once it knows that somebody leads, and not before: cron jobs must run again after a crash.

use super::{ElectionsTestSuite, Scene, scene::refusal};
use crate::{AcquireError, Patience};

/// Within a TTL: by then a live leader was seen to renew.
pub async fn a_try_gives_up_on_a_live_leader(scene: &Scene<impl ElectionsTestSuite>) {
    let (first, second) = (scene.process().await, scene.process().await);
    let leadership = scene.lead(&first, "first").await;
    let began = scene.now();
    let outcome = second.elections.acquire(scene.patient("second", Patience::UntilLeaderSeen)).await;
    let AcquireError::LeaderSeen { leader } = refusal(outcome) else {
        panic!("gave up for another reason");
    };
    assert_eq!(leader.unwrap().as_str(), "first");
    assert!(scene.now() <= began.after(scene.ttl.get() + scene.slack));
    assert_eq!(leadership.standing().loss(), None);
    leadership.release().await;
}

/// A record alone is no leader.
pub async fn a_try_takes_over_from_a_dead_leader(scene: &Scene<impl ElectionsTestSuite>) {
    let (first, second) = (scene.process().await, scene.process().await);
    let dead = scene.lead(&first, "dead").await;
    let sent_at = scene.sent_at(dead.standing(), scene.ttl);
    first.crash();
    let candidacy = scene.patient("second", Patience::UntilLeaderSeen);
    let (_, leadership) = second.elections.acquire(candidacy).await.unwrap();
    assert!(scene.now() >= sent_at.after(scene.ttl.get()));
    leadership.release().await;
    drop(dead);
}
