use super::{client, first_database, fresh_database, url};
use crate::hint_suite::{Scene, hints_suite};
use ielections::TtlStorage as _;
use tokio_postgres::Client;

const OURS: &str = "FROM pg_stat_activity WHERE application_name = 'vvm' AND datname = current_database()";

hints_suite!(url(&first_database()));

async fn alone() -> (Scene, Client) {
    let database = fresh_database().await;
    (Scene::on(&url(&database)).await, client(&database).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn standby_that_looks_and_listens_has_one_connection() {
    let (scene, client) = alone().await;
    for epoch in 1..10 {
        scene.claimed(epoch).await;
        let (looks, hint) = tokio::join!(
            async {
                for _ in 0..20 {
                    scene.standby.scan(&[scene.key()]).await.unwrap();
                }
                scene.released(epoch).await;
                scene.standby.scan(&[scene.key()]).await.unwrap()
            },
            scene.is_hinted(),
        );
        assert!(hint && looks[0].entry().is_none(), "{looks:?}");
    }
    let connections = client.query_one(&format!("SELECT count(*) {OURS}"), &[]).await.unwrap();
    assert_eq!(connections.get::<_, i64>(0), 2, "one of the leader, one of the standby");
}

#[tokio::test(flavor = "multi_thread")]
async fn candidate_that_begins_to_look_and_to_listen_at_once_has_one_connection() {
    let database = fresh_database().await;
    let (scene, client) = (Scene::without_hints(&url(&database)).await, client(&database).await);
    let look = async || scene.standby.scan(&[scene.key()]).await.unwrap();
    assert!(tokio::join!(look(), scene.is_hinted()).1);
    let held =
        async || client.query_one(&format!("SELECT count(*) {OURS}"), &[]).await.unwrap().get::<_, i64>(0);
    assert_eq!(held().await, 2, "one of the leader, one of the candidate");
    // Two looks at once take a second one, which is closed when it was not needed for some seconds.
    tokio::join!(look(), look());
    let until_closed = async {
        while held().await > 2 {
            look().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), until_closed).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn end_of_the_connection_is_a_hint_and_listening_begins_anew() {
    let (scene, client) = alone().await;
    let listening = "FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()";
    let end = format!("SELECT pg_terminate_backend(pid) {listening}");
    let (ended, hint) = tokio::join!(client.execute(&end, &[]), scene.is_hinted());
    assert!(ended.unwrap() == 1 && hint);
    assert!(!scene.listens(), "polls until it listens again");
    assert!(scene.is_hinted().await);
    scene.claimed(1).await;
    scene.released(1).await;
    assert!(scene.is_hinted().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn flood_and_lies_harm_nothing() {
    let (scene, client) = alone().await;
    let listening =
        "SELECT query FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()";
    let channel: String = client.query_one(listening, &[]).await.unwrap().get(0);
    let channel = channel.replace("LISTEN ", "");
    let lies = async || {
        for lie in 0..2000 {
            client.batch_execute(&format!("SELECT pg_notify('{channel}', '{lie}')")).await.unwrap();
        }
    };
    scene.is_not_harmed_by(lies).await;
}
