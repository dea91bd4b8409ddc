//! After a crash: no candidate leads before the dead leader's record has stood for its TTL (I1, I5), and then
//! one does.

use super::{ElectionsTestSuite, Process, Scene};
use crate::{Candidacy, Leadership, Terms, Ttl};
use futures_util::future::select_all;
use std::{pin::pin, time::Duration};
use vvm_clock::Instant;

/// A leader that crashed after its claim. Returns when the claim was sent.
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

/// Not before its TTL since the send, and at most a TTL and a poll after the first read.
pub async fn a_dead_leader_is_followed_after_its_ttl(scene: &Scene<impl ElectionsTestSuite>) {
    let (_dead, sent_at) = dead_leader(scene, scene.ttl).await;
    let process = scene.process().await;
    let began = scene.now();
    let successor = scene.lead(&process, "successor").await;
    assert!(scene.now() >= sent_at.after(scene.ttl.get()), "took over too early");
    assert!(scene.now() <= began.after(scene.ttl.get() + scene.poll() + scene.slack));
    successor.release().await;
}

/// The TTL of the record counts, not the observer's own.
/// Shows I5.
pub async fn an_observer_waits_the_ttl_of_the_writer(scene: &Scene<impl ElectionsTestSuite>) {
    let long = Ttl::new(scene.ttl.get() * 2).unwrap();
    let (_dead, sent_at) = dead_leader(scene, long).await;
    let process = scene.process().await;
    let began = scene.now();
    let successor = scene.lead(&process, "impatient").await;
    assert!(scene.now() >= sent_at.after(long.get()), "took over from a leader that may live");
    assert!(scene.now() <= began.after(long.get() + scene.poll() + scene.slack));
    successor.release().await;
}

/// However long a candidate observes it.
/// Shows I1.
pub async fn a_leader_that_renews_is_never_followed(scene: &Scene<impl ElectionsTestSuite>) {
    let (first, second) = (scene.process().await, scene.process().await);
    let leadership = scene.lead(&first, "first").await;
    let mut waiting = pin!(scene.lead(&second, "second"));
    for _ in 0..6 {
        assert!(scene.waits(&mut waiting, scene.percent(50)).await, "two leaders");
        assert_eq!(leadership.standing().loss(), None);
        assert!(leadership.remaining() > Duration::ZERO);
    }
    leadership.release().await;
    waiting.await.release().await;
}

/// Exactly one of those that waited, through any handle.
pub async fn one_of_many_candidates_follows(scene: &Scene<impl ElectionsTestSuite>) {
    let (_dead, sent_at) = dead_leader(scene, scene.ttl).await;
    let mut processes = Vec::new();
    for _ in 0..4 {
        processes.push(scene.process().await);
    }
    let campaigns = processes.iter().map(|process| Box::pin(scene.lead(process, "candidate")));
    let (leadership, winner, mut others): (Leadership, _, _) = select_all(campaigns).await;
    assert!(scene.now() >= sent_at.after(scene.ttl.get()), "took over too early");
    for waiting in &mut others {
        assert!(scene.waits(waiting, scene.percent(25)).await, "two leaders");
    }
    let armed: Vec<usize> = processes.iter().map(|process| process.deadman.armed()).collect();
    assert_eq!((armed.iter().sum::<usize>(), armed[winner]), (1, 1));
    leadership.release().await;
}
