//! Descriptions by the drivers that need no server. The others are tested in `scylla.rs` and `dynamodb.rs`.
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

#[cfg(any(feature = "sqlite", feature = "sled"))]
use ielections::ReadError;
#[cfg(any(feature = "mem", feature = "sqlite", feature = "sled"))]
use vvm_storage::SysVvmStorage as _;

#[cfg(feature = "mem")]
#[tokio::test]
async fn memory_has_an_empty_description() {
    let storage =
        vvm_storage::mem::MemDatabase::new(std::sync::Arc::new(testing_time::MockClock::new())).open();
    assert_eq!(storage.describe().await.unwrap(), vvm_storage::Description::default());
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn sqlite_describes_library_journal_syncs_and_file_system() {
    let folder = tempfile::tempdir().unwrap();
    let storage = vvm_storage::sqlite::SqliteStorage::open(
        &folder.path().join("leader.db"),
        vvm_storage::sqlite::OpenOptions::new().allow_overlay(),
    )
    .await
    .unwrap();
    let described = storage.describe().await.unwrap();
    assert_eq!(described.software, Some(format!("SQLite {}", rusqlite::version())));
    assert_eq!(described.setting("journal mode"), Some("wal"));
    assert_eq!(described.setting("synchronous"), Some("full"));
    let file_system = described.setting("file system").unwrap();
    // A file in memory or on overlayfs is a concern. Tests may run on either, or on a disk.
    let is_durable = !["tmpfs", "ramfs", "overlayfs"].contains(&file_system);
    assert_eq!(described.concerns.is_empty(), is_durable, "{described:?}");
    storage.close().await;
    assert!(matches!(storage.describe().await, Err(ReadError::Fatal(_))));
}

#[cfg(feature = "sled")]
#[tokio::test]
async fn sled_describes_its_library() {
    let folder = tempfile::tempdir().unwrap();
    let storage = vvm_storage::sled::SledStorage::open(&folder.path().join("leader")).await.unwrap();
    let described = storage.describe().await.unwrap();
    assert!(described.software.as_ref().unwrap().starts_with("sled 0."), "{described:?}");
    storage.close().await;
    assert!(matches!(storage.describe().await, Err(ReadError::Fatal(_))));
}
