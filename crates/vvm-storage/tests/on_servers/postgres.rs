mod encrypted;
mod failover;
mod handles;
mod hints;

use crate::driver::{Driver, all_suites_on_a_server, fresh};
use tokio_postgres::{Client, NoTls};

all_suites_on_a_server!(Driver::on_a_server(url(&first_database())).await);

fn server() -> String {
    crate::server("VVM_TEST_POSTGRES", "postgres://user@host/database", "postgres")
}

/// Requests may take as long as in `dynamodb.rs`.
const OPTIONS: &str = "request_timeout=20s&max_ttl=86400s";

fn url(database: &str) -> String {
    let server = server();
    let (place, _) = server.rsplit_once('/').unwrap();
    format!("{place}/{database}?{OPTIONS}")
}

async fn client(database: &str) -> Client {
    client_at(&url(database)).await
}

async fn client_at(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url.split('?').next().unwrap(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

fn first_database() -> String {
    server().rsplit_once('/').unwrap().1.to_owned()
}

async fn fresh_database() -> String {
    let name = fresh("database");
    client(&first_database()).await.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
    name
}

mod pooled {
    use super::{first_database, url};
    use crate::hint_suite::Scene;

    #[tokio::test(flavor = "multi_thread")]
    async fn handle_behind_a_pooler_is_not_hinted() {
        let scene = Scene::without_hints(&url(&first_database())).await;
        scene.claimed(1).await;
        assert!(!scene.is_hinted_soon().await, "it listens, on a connection that is not its own");
        assert!(!scene.listens(), "so it polls");
        scene.released(1).await;
        assert!(!scene.is_hinted_soon().await);
    }
}
