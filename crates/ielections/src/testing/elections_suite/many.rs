//! Several slots, several candidates, several handles.

use super::{ElectionsTestSuite, Process, Scene};
use crate::{Candidacy, Leadership};
use futures_util::{StreamExt, stream::FuturesUnordered};
use std::collections::BTreeSet;

/// The name of the holder is no identity.
pub async fn the_same_holder_twice_is_two_leaders_in_turn(scene: &Scene<impl ElectionsTestSuite>) {
    let process = scene.process().await;
    let leadership = scene.lead(&process, "same").await;
    let mut waiting = Box::pin(scene.lead(&process, "same"));
    assert!(scene.waits(&mut waiting, scene.percent(150)).await, "two leaders");
    let (epoch, incarnation) = (leadership.epoch(), leadership.incarnation());
    leadership.release().await;
    let successor = waiting.await;
    assert!(successor.epoch() > epoch);
    assert_ne!(successor.incarnation(), incarnation);
    successor.release().await;
}

fn any_of<Suite: ElectionsTestSuite>(
    scene: &Scene<Suite>,
    slots: u32,
    holder: &str,
) -> Candidacy<Suite::Key> {
    Candidacy { slots: (0..slots).map(|slot| scene.key(slot)).collect(), terms: scene.terms(holder) }
}

/// Each leader has its own slot. The remaining candidate leads once a slot is free.
/// Shows I1.
pub async fn as_many_lead_as_there_are_slots(scene: &Scene<impl ElectionsTestSuite>) {
    const SLOTS: u32 = 3;
    let processes = [scene.process().await, scene.process().await];
    let mut campaigns: FuturesUnordered<_> = (0..5)
        .map(|at| {
            let candidacy = any_of(scene, SLOTS, &format!("candidate {at}"));
            processes[at % 2].elections.acquire(candidacy)
        })
        .collect();
    let mut leading = Vec::new();
    for _ in 0..SLOTS {
        leading.push(campaigns.next().await.unwrap().unwrap());
    }
    let slots: BTreeSet<_> = leading.iter().map(|(key, _)| key.clone()).collect();
    assert_eq!(slots.len(), SLOTS as usize, "one slot twice");
    assert!(scene.waits(campaigns.next(), scene.percent(125)).await, "more leaders than slots");
    let (freed, leadership) = leading.pop().unwrap();
    leadership.release().await;
    let released = scene.now();
    let (key, successor) = campaigns.next().await.unwrap().unwrap();
    assert_eq!(key, freed);
    assert!(scene.now() <= released.after(scene.poll() + scene.slack));
    drop(campaigns);
    successor.release().await;
    for (_, leadership) in leading {
        leadership.release().await;
    }
}

/// One process leads several slots, and each leadership ends separately.
pub async fn leaderships_of_one_process_end_on_their_own(scene: &Scene<impl ElectionsTestSuite>) {
    let process = scene.process().await;
    let (_, one) = process.elections.acquire(any_of(scene, 2, "same")).await.unwrap();
    let (_, other) = process.elections.acquire(any_of(scene, 2, "same")).await.unwrap();
    assert_eq!(process.deadman.armed(), 2);
    one.release().await;
    assert_eq!(process.deadman.armed(), 1);
    scene.pass(scene.percent(125)).await;
    assert_eq!(other.standing().loss(), None);
    other.release().await;
    assert_eq!((process.deadman.armed(), process.trigger.earliest()), (0, None));
}

/// Closing a handle and the elections on it does not affect other processes.
pub async fn closing_one_handle_disturbs_no_other<Suite: ElectionsTestSuite>(scene: &Scene<Suite>) {
    let (closing, staying) = (scene.suite.open().await, scene.process().await);
    let process = Process::start(closing.clone(), scene.clock.clone());
    let (_, leaving) = process.elections.acquire(any_of(scene, 2, "leaving")).await.unwrap();
    let (_, leadership): (_, Leadership) =
        staying.elections.acquire(any_of(scene, 2, "staying")).await.unwrap();
    leaving.release().await;
    process.elections.cleanup().await;
    closing.close().await;
    scene.pass(scene.percent(150)).await;
    assert_eq!(leadership.standing().loss(), None);
    leadership.release().await;
}
