//! Epochs rise, for every end of the leadership before (I2).

use super::{ElectionsTestSuite, Scene};
use crate::ReleaseOutcome;
use std::sync::atomic::{AtomicUsize, Ordering};

/// After a release, after a crash, and after the storage was closed and opened again.
pub async fn epochs_rise_over_release_expiry_and_reopening(scene: &Scene<impl ElectionsTestSuite>) {
    let mut epochs = Vec::new();
    let process = scene.process().await;
    for _ in 0..2 {
        let leadership = scene.lead(&process, "same").await;
        epochs.push(leadership.epoch());
        assert_eq!(leadership.release().await, ReleaseOutcome::Released);
    }
    let crashing = scene.lead(&process, "same").await;
    epochs.push(crashing.epoch());
    process.crash();
    drop(crashing);

    let storage = scene.suite.open().await;
    let reopened = super::Process::start(storage.clone(), scene.clock.clone());
    let leadership = scene.lead(&reopened, "same").await;
    epochs.push(leadership.epoch());
    leadership.release().await;
    reopened.elections.cleanup().await;
    storage.close().await;

    let process = scene.process().await;
    let leadership = scene.lead(&process, "same").await;
    epochs.push(leadership.epoch());
    leadership.release().await;
    assert!(epochs.is_sorted_by(|earlier, later| earlier < later), "{epochs:?}");
}

/// Eight candidates, each leads once: never two at a time, and each under a larger epoch than all before.
pub async fn eight_leaders_in_turn_have_rising_epochs(scene: &Scene<impl ElectionsTestSuite>) {
    let mut processes = Vec::new();
    for _ in 0..8 {
        processes.push(scene.process().await);
    }
    let leading = AtomicUsize::new(0);
    let epochs = std::sync::Mutex::new(Vec::new());
    let turns = processes.iter().enumerate().map(|(at, process)| {
        let (leading, epochs) = (&leading, &epochs);
        async move {
            let leadership = scene.lead(process, &format!("candidate {at}")).await;
            assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0, "two leaders");
            epochs.lock().unwrap().push(leadership.epoch());
            scene.pass(scene.percent(5)).await;
            leading.fetch_sub(1, Ordering::SeqCst);
            leadership.release().await;
        }
    });
    futures_util::future::join_all(turns).await;
    let epochs = epochs.into_inner().unwrap();
    assert_eq!(epochs.len(), 8);
    assert!(epochs.is_sorted_by(|earlier, later| earlier < later), "{epochs:?}");
}
