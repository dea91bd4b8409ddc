//! Acquiring a free slot, and waiting for a held one.

use super::{ElectionsTestSuite, Scene, scene::refusal};
use crate::{AcquireError, AcquireTimeout, Candidacy, ReleaseOutcome, Terms, Ttl};
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

/// At most a poll after the slot is free.
pub async fn a_second_candidate_waits_and_wins_after_the_release(scene: &Scene<impl ElectionsTestSuite>) {
    let (first, second) = (scene.process().await, scene.process().await);
    let leadership = scene.lead(&first, "first").await;
    let mut waiting = pin!(scene.lead(&second, "second"));
    assert!(scene.waits(&mut waiting, scene.percent(150)).await, "two leaders");
    assert_eq!(second.deadman.armed(), 0);
    let epoch = leadership.epoch();
    assert_eq!(leadership.release().await, ReleaseOutcome::Released);
    let released = scene.now();
    let successor = waiting.await;
    assert!(scene.now() <= released.after(scene.poll() + scene.slack));
    assert!(successor.epoch() > epoch);
    assert_eq!((first.deadman.armed(), second.deadman.armed()), (0, 1));
    successor.release().await;
}

/// One read, and a claim if the slot is free.
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

/// Not before its timeout, and not much later.
pub async fn a_candidate_gives_up_in_time(scene: &Scene<impl ElectionsTestSuite>) {
    let (first, second) = (scene.process().await, scene.process().await);
    let leadership = scene.lead(&first, "first").await;
    let began = scene.now();
    let patience = scene.percent(60);
    let outcome = second.elections.acquire(scene.patient("second", AcquireTimeout::Within(patience))).await;
    assert!(matches!(refusal(outcome), AcquireError::TimedOut { .. }));
    assert!(scene.now() >= began.after(patience));
    assert!(scene.now() <= began.after(patience + scene.percent(10) + scene.slack));
    leadership.release().await;
}

/// The caller must name a slot.
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
    let Ok(ttl) = Ttl::new(least - Duration::from_nanos(1)) else {
        assert_eq!(least, Ttl::MIN);
        return;
    };
    let process = scene.process().await;
    let terms = Terms { ttl, ..scene.terms("candidate") };
    let candidacy = Candidacy { slots: vec![scene.key(0)], terms };
    let refused = refusal(process.elections.acquire(candidacy).await);
    assert!(matches!(refused, AcquireError::TtlTooShort { least: stated, .. } if stated == least));
}
