//! What drivers that need no server say of their databases. What is said of servers is tested on servers:
//! `scylla.rs`, `dynamodb.rs`.
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

#[cfg(any(feature = "sqlite", feature = "sled"))]
use ielections::ReadError;
#[cfg(any(feature = "mem", feature = "sqlite", feature = "sled"))]
use vvm_storage::SysVvmStorage as _;

#[cfg(feature = "mem")]
#[tokio::test]
async fn memory_has_nothing_to_say() {
    let storage =
        vvm_storage::mem::MemDatabase::new(std::sync::Arc::new(testing_time::MockClock::new())).open();
    assert_eq!(storage.describe().await.unwrap(), vvm_storage::Description::default());
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_file_tells_library_journal_syncs_and_file_system() {
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
    // Tests run on a disk, or in memory, and then that is a concern.
    let is_kept = !["tmpfs", "ramfs", "overlayfs"].contains(&file_system);
    assert_eq!(described.concerns.is_empty(), is_kept, "{described:?}");
    storage.close().await;
    assert!(matches!(storage.describe().await, Err(ReadError::Fatal(_))));
}

#[cfg(feature = "sled")]
#[tokio::test]
async fn a_folder_tells_its_library() {
    let folder = tempfile::tempdir().unwrap();
    let storage = vvm_storage::sled::SledStorage::open(&folder.path().join("leader")).await.unwrap();
    let described = storage.describe().await.unwrap();
    assert!(described.software.as_ref().unwrap().starts_with("sled 0."), "{described:?}");
    storage.close().await;
    assert!(matches!(storage.describe().await, Err(ReadError::Fatal(_))));
}
