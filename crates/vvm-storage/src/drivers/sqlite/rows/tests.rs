//! How rows are kept: synced, and within what room there is.

use super::{super::SqliteStorage, *};
use crate::SysVvmStorage;
use ielections::WriteError;

const VACANT: Slot = Slot::Vacant(Vacant { last_epoch: None });

fn entry() -> Entry {
    Entry {
        holder: Holder::new("somebody").unwrap(),
        version: Version { incarnation: Incarnation::from_bytes([1; 16]), write: 0 },
        ttl: Ttl::DEFAULT,
        epoch: Epoch::new(1).unwrap(),
    }
}

fn partition(number: u32) -> Partition {
    Partition::from_bytes(number.to_be_bytes())
}

async fn limit_pages(storage: &SqliteStorage, pages: u32) {
    let set = move |rows: &Rows<'_>| Ok(rows.connection.pragma_update(None, "max_page_count", pages)?);
    storage.lane.write(set).await.unwrap();
}

#[tokio::test]
async fn a_full_database_takes_no_more_loses_nothing_and_goes_on_with_room() {
    let folder = tempfile::TempDir::new().unwrap();
    let storage = SqliteStorage::open(&folder.path().join("elections.db")).await.unwrap();
    limit_pages(&storage, 8).await;
    let mut claimed = 0;
    let error = loop {
        match storage.claim(&partition(claimed), &VACANT, &entry()).await {
            Ok(outcome) => assert_eq!(outcome, Claim::Claimed),
            Err(error) => break error,
        }
        claimed += 1;
    };
    assert!(matches!(error, WriteError::NotApplied(_)), "{error:?}");
    assert!(error.to_string().contains("the disk is full: make room"), "{error}");
    // In one transaction with one that does not fit, what needs no room is written.
    let renewed = entry().renewed(entry().version.next());
    let (first, next) = (partition(0), partition(claimed));
    let (from, old) = (VACANT, entry());
    let (refused, swapped) =
        tokio::join!(biased; storage.claim(&next, &from, &old), storage.renew(&first, &old, &renewed));
    assert!(matches!(refused, Err(WriteError::NotApplied(_))), "{refused:?}");
    assert_eq!(swapped.unwrap(), Swap::Swapped);
    for number in 1..claimed {
        assert_eq!(storage.read(&partition(number)).await.unwrap().entry(), Some(&old));
    }
    assert_eq!(storage.read(&first).await.unwrap().entry(), Some(&renewed));

    limit_pages(&storage, u32::MAX - 1).await;
    assert_eq!(storage.claim(&next, &from, &old).await.unwrap(), Claim::Claimed);
}

#[tokio::test]
async fn every_commit_is_synced_to_a_write_ahead_log() {
    const FULL: i64 = 2;
    let folder = tempfile::TempDir::new().unwrap();
    let storage = SqliteStorage::open(&folder.path().join("elections.db")).await.unwrap();
    let pragmas = |rows: &Rows<'_>| {
        let synchronous: i64 = rows.connection.pragma_query_value(None, "synchronous", |row| row.get(0))?;
        let mode: String = rows.connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
        Ok((synchronous, mode))
    };
    assert_eq!(storage.lane.write(pragmas).await.unwrap(), (FULL, "wal".to_owned()));
}

/// Between the check that begins a transaction and its commit.
#[tokio::test]
async fn a_write_to_a_file_that_is_replaced_before_its_commit_is_none() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("elections.db");
    let storage = SqliteStorage::open(&path).await.unwrap();
    let replaced = move |_: &Rows<'_>| {
        std::fs::remove_file(&path).unwrap();
        Ok(())
    };
    let outcome = storage.lane.write(replaced).await;
    assert!(matches!(outcome, Err(WriteError::Replaced(_))), "{outcome:?}");
}
