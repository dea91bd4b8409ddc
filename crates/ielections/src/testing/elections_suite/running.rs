//! `Leadership::run`: the work is told, is waited for, and only then is the leadership handed back (I6).

use super::{ElectionsTestSuite, Scene};
use crate::{
    Loss, ReleaseOutcome,
    testing::mock::{Fault, Verb},
};
use futures_util::future::join;

/// What it returns is returned.
pub async fn work_that_ends_hands_back(scene: &Scene<impl ElectionsTestSuite>) {
    let process = scene.process().await;
    let leadership = scene.lead(&process, "leader").await;
    let epoch = leadership.epoch();
    let ran = leadership.run(async |_stop, standing| standing.epoch()).await;
    assert_eq!((ran.output, ran.loss, ran.release), (epoch, None, ReleaseOutcome::Released));
    assert_eq!(process.deadman.armed(), 0);
}

/// The record stands for as long as the work takes to stop.
pub async fn work_is_told_to_stop_and_waited_for(scene: &Scene<impl ElectionsTestSuite>) {
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
    assert_eq!(ran.output, Some(incarnation), "released under live work");
    assert_eq!((ran.loss, ran.release), (Some(Loss::Closing), ReleaseOutcome::Released));
    assert_eq!(scene.slot().await.entry(), None);
}

/// And its deadline stands until it has stopped.
pub async fn work_that_lost_its_leadership_is_told_at_once(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage) = scene.faulty().await;
    let leadership = scene.lead(&process, "leader").await;
    let sent_at = scene.sent_at(leadership.standing(), scene.ttl);
    storage.fail_always(Verb::CompareAndSwap, Fault::Hang);
    let ran = leadership
        .run(async |stop, standing| {
            stop.cancelled().await;
            assert!(scene.now() <= scene.timing.loss_at(sent_at).after(scene.slack));
            assert!(standing.loss().is_some());
            assert_eq!(process.deadman.armed(), 1, "disarmed under live work");
        })
        .await;
    assert!(matches!(ran.loss, Some(Loss::StorageUnreachable { .. })), "{:?}", ran.loss);
    assert_eq!(process.deadman.armed(), 0);
}
