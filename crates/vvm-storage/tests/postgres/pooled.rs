//! What differs behind a pooler that assigns connections for each transaction.

use super::{
    first_database, fresh,
    hints::{SHORT, claimed, is_hinted, released},
    url,
};
use std::sync::Arc;
use vvm_storage::{ElectionsTtlStorage, init_storage, postgres::PostgresStorage};

#[tokio::test(flavor = "multi_thread")]
async fn handle_behind_a_pooler_is_not_hinted() {
    let (name, url) = (fresh(), url(&first_database()));
    init_storage(&url).await.unwrap();
    let open = || async { ElectionsTtlStorage::new(Arc::new(PostgresStorage::open(&url).await.unwrap())) };
    let (leader, standby) = (open().await, open().await);
    claimed(&leader, &name, 1).await;
    assert!(!is_hinted(&standby, &name, SHORT).await, "it listens, on a connection that is not its own");
    assert!(!standby.listens(&name.as_str().into()), "so it polls");
    released(&leader, &name, 1).await;
    assert!(!is_hinted(&standby, &name, SHORT).await);
}
