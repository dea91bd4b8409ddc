use super::url;
use crate::{
    driver::{TTL, described, fresh, led, many_create, renewed},
    hint_suite::hints_suite,
    is_refused, says,
};
use vvm_storage::{OpenErrorKind, StepOutcome, etcd::EtcdStorage, init_storage};

hints_suite!(url(&fresh("etcd")));

#[tokio::test(flavor = "multi_thread")]
async fn prefix_that_is_not_ready_is_refused_with_the_way_out() {
    is_refused(&url(&fresh("etcd")), OpenErrorKind::Missing, &["vvm init-storage"]).await;
    let says = ["no etcd answers at 127.0.0.1:1"];
    is_refused("etcd://127.0.0.1:1/vvm", OpenErrorKind::Passing, &says).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn prefix_with_keys_of_another_program_is_refused() {
    let prefix = fresh("etcd");
    // Another storage below it is as foreign as anything else.
    init_storage(&url(&format!("{prefix}/inner"))).await.unwrap();
    says(&init_storage(&url(&prefix)).await.unwrap_err(), &["another program", "another prefix"]);
    is_refused(&url(&prefix), OpenErrorKind::Missing, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_may_create_at_once_and_again() {
    many_create(&url(&fresh("etcd"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn member_that_is_down_is_passed_over() {
    let url = url(&fresh("etcd")).replace("etcd://", "etcd://127.0.0.1:1,");
    init_storage(&url).await.unwrap();
    let storage = EtcdStorage::open(&url).await.unwrap();
    let (at, held) = led(&storage, TTL).await;
    assert_eq!(renewed(&storage, &at, &held, 2).await.unwrap(), StepOutcome::Applied);
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_is_described() {
    let described = described(&url(&fresh("etcd"))).await;
    assert!(described.software.as_deref().unwrap().starts_with("etcd 3."), "{described:?}");
    assert!(described.setting("revision").is_some() && described.setting("quota").is_some());
}
