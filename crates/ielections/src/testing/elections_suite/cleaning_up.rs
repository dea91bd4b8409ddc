//! Cleanup: no new leadership, a loss for every leader, and the end when all have handed back (I6, I9).

use super::{ElectionsTestSuite, Scene, scene::refusal};
use crate::{AcquireError, Loss, ReleaseOutcome};
use futures_util::future::join;
use std::pin::pin;

/// Both those that wait and those that begin later.
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

/// The record is renewed while work continues under it.
/// Shows I6.
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
    }
    let (handback, ()) = join(leadership.release(), cleanup).await;
    assert_eq!(handback, ReleaseOutcome::Released);
    assert_eq!(scene.slot().await.entry(), None);
    assert_eq!((process.deadman.armed(), process.tasks()), (0, 0));
}

/// Repeatedly and concurrently.
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
