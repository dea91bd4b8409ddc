//! `Leadership::run`: the work gets a stop token, and the leadership is handed back when it has ended (I6).

use super::{ElectionsTestSuite, Scene};
use crate::{
    Loss, ReleaseOutcome,
    testing::mock::{Fault, Verb},
};
use futures_util::future::join;

/// `run` returns the output of the work.
pub async fn work_that_ends_hands_back(scene: &Scene<impl ElectionsTestSuite>) {
    let process = scene.process().await;
    let leadership = scene.lead(&process, "leader").await;
    let epoch = leadership.epoch();
    let ran = leadership.run(async |_stop, standing| standing.epoch()).await;
    assert_eq!((ran.output, ran.loss, ran.release), (epoch, None, ReleaseOutcome::Released));
    assert_eq!(process.deadman.armed(), 0);
}

/// The record stands while the work stops.
pub async fn run_cancels_the_work_and_waits_for_it(scene: &Scene<impl ElectionsTestSuite>) {
    let process = scene.process().await;
    let leadership = scene.lead(&process, "leader").await;
    let incarnation = leadership.incarnation();
    let running = leadership.run(async |stop, _standing| {
        stop.cancelled().await;
        scene.pass(scene.percent(130)).await;
        scene.slot().await.entry().map(crate::Entry::incarnation)
    });
    let closing = async {
        scene.pass(scene.percent(5)).await;
        process.elections.cleanup().await;
    };
    let (ran, ()) = join(running, closing).await;
    assert_eq!(ran.output, Some(incarnation), "released while work runs");
    assert_eq!((ran.loss, ran.release), (Some(Loss::Closing), ReleaseOutcome::Released));
    assert_eq!(scene.slot().await.entry(), None);
}

/// The deadline stays until the work has stopped.
pub async fn a_loss_cancels_the_work_at_once(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage) = scene.faulty().await;
    let leadership = scene.lead(&process, "leader").await;
    let sent_at = scene.sent_at(leadership.standing(), scene.ttl);
    storage.fail_always(Verb::CompareAndSwap, Fault::Hang);
    let ran = leadership
        .run(async |stop, standing| {
            stop.cancelled().await;
            assert!(scene.now() <= scene.timing.loss_at(sent_at).after(scene.slack));
            assert!(standing.loss().is_some());
            assert_eq!(process.deadman.armed(), 1, "disarmed while work runs");
        })
        .await;
    assert!(matches!(ran.loss, Some(Loss::StorageUnreachable { .. })), "{:?}", ran.loss);
    assert_eq!(process.deadman.armed(), 0);
}
