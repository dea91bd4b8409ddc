//! Watches as hints.

use super::{
    failures::{program, ready},
    fresh,
    hint_suite::{Scene, hints_suite},
    url,
};
use servers::etcd::Cluster;

hints_suite!(url(&fresh("etcd")));

#[tokio::test(flavor = "multi_thread")]
async fn end_of_a_watch_is_a_hint_and_watching_goes_on() {
    let mut cluster = Cluster::start(&program(), 1).unwrap();
    let url = format!("etcd://{}/vvm", cluster.addresses());
    drop(ready(&url).await);
    let scene = Scene::on(&url).await;
    cluster.members()[0].kill().unwrap();
    assert!(scene.is_hinted().await, "the end");
    assert!(!scene.listens(), "polls until it watches again");
    cluster.members()[0].restart().unwrap();
    assert!(scene.is_hinted().await, "the next watch");
    scene.claimed(1).await;
    scene.released(1).await;
    assert!(scene.is_hinted().await, "the release");
}
