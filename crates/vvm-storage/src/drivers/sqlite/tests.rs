use super::*;
use crate::{drivers::errors::kinds::of_write as kind, step::StepOutcome, sysvvm::SysVvmStorage};
use ielections::{DocumentVersion, Fence, Scan, WriteError, testing::put};
use ielections::{Entry, Vacant};
use rusqlite::ffi;
use tempfile::TempDir;

const VACANT: Slot = Slot::Vacant(Vacant { last_epoch: None });

fn entry() -> Entry {
    ielections::testing::entry(1, 0, 1)
}

fn partition(number: u32) -> Partition {
    Partition::from_bytes(number.to_be_bytes())
}

async fn opened() -> (TempDir, SqliteStorage) {
    let folder = TempDir::new().unwrap();
    let options = OpenOptions { allow_overlay: true, ..OpenOptions::default() };
    let storage = SqliteStorage::open(&folder.path().join("elections.db"), options).await.unwrap();
    (folder, storage)
}

async fn limit_pages(storage: &SqliteStorage, pages: u32) {
    let set = move |rows: &Rows<'_>| {
        rows.connection.pragma_update(None, "max_page_count", pages)?;
        Ok(StepOutcome::Applied)
    };
    storage.queue.write(set).await.unwrap();
}

#[tokio::test]
async fn full_disk_refuses_writes_keeps_records_and_recovers_with_room() {
    let (_folder, storage) = opened().await;
    limit_pages(&storage, 8).await;
    let mut claimed = 0;
    let error = loop {
        match storage.commit(partition(claimed), Step::claim(&VACANT, &entry())).await {
            Ok(outcome) => assert_eq!(outcome, StepOutcome::Applied),
            Err(error) => break error,
        }
        claimed += 1;
    };
    assert!(matches!(error, WriteError::NotApplied(_)), "{error:?}");
    assert!(error.to_string().contains("the disk is full: make room"), "{error}");
    // A write that needs no room succeeds in the same transaction as one that does not fit.
    let renewed = entry().renewed(entry().version.next());
    let (first, next) = (partition(0), partition(claimed));
    let (from, old) = (VACANT, entry());
    let (refused, swapped) = tokio::join!(biased;
        storage.commit(next.clone(), Step::claim(&from, &old)),
        storage.commit(first.clone(), Step::renew(&old, &renewed)),
    );
    assert!(matches!(refused, Err(WriteError::NotApplied(_))), "{refused:?}");
    assert_eq!(swapped.unwrap(), StepOutcome::Applied);
    for number in 1..claimed {
        assert_eq!(storage.read(partition(number)).await.unwrap().entry(), Some(&old));
    }
    assert_eq!(storage.read(first.clone()).await.unwrap().entry(), Some(&renewed));

    limit_pages(&storage, u32::MAX - 1).await;
    assert_eq!(storage.commit(next.clone(), Step::claim(&from, &old)).await.unwrap(), StepOutcome::Applied);
}

#[tokio::test]
async fn batch_without_room_is_undone_and_other_writes_stand() {
    let (_folder, storage) = opened().await;
    let (first, other, entry) = (partition(1), partition(2), entry());
    storage.commit(first.clone(), Step::claim(&VACANT, &entry)).await.unwrap();
    storage.commit(other.clone(), Step::claim(&VACANT, &entry)).await.unwrap();
    limit_pages(&storage, 12).await;
    let fence = |after| Fence { epoch: entry.epoch, incarnation: entry.incarnation(), after };
    let put = |number: u16| put(number.to_be_bytes(), [1_u8; 1000]);
    let large: Vec<_> = (0..100).map(put).collect();
    let (none, small, renewed) =
        (fence(DocumentVersion::NONE), [put(1)], entry.renewed(entry.version.next()));
    // All in one transaction, before and after the one that does not fit.
    let (before, refused, behind) = tokio::join!(biased;
        storage.commit(other.clone(), Step::renew(&entry, &renewed)),
        storage.commit(first.clone(), Step::batch(&none, &large)),
        storage.commit(other.clone(), Step::batch(&none, &small)),
    );
    assert_eq!(before.unwrap(), StepOutcome::Applied);
    assert!(matches!(refused, Err(WriteError::NotApplied(_))), "{refused:?}");
    assert_eq!(behind.unwrap(), StepOutcome::Applied);
    assert_eq!(storage.fence_state(&first).await.unwrap().last, DocumentVersion::NONE);
    let scan = Scan { limit: 1000, ..Scan::default() };
    assert_eq!(storage.scan_documents(&first, &scan).await.unwrap().documents, []);
    assert_eq!(storage.scan_documents(&other, &scan).await.unwrap().documents.len(), 1);

    limit_pages(&storage, u32::MAX - 1).await;
    assert_eq!(
        storage.commit(first.clone(), Step::batch(&none, &large)).await.unwrap(),
        StepOutcome::Applied
    );
}

/// A failed statement, unlike a full disk, does not end the transaction.
#[tokio::test]
async fn batch_that_fails_half_way_is_undone_and_other_writes_stand() {
    let (_folder, storage) = opened().await;
    let (at, entry) = (partition(1), entry());
    storage.commit(at.clone(), Step::claim(&VACANT, &entry)).await.unwrap();
    let refuse = |rows: &Rows<'_>| {
        let trigger = "CREATE TRIGGER refuse BEFORE INSERT ON document WHEN NEW.id = x'05'
            BEGIN SELECT RAISE(ABORT, 'not this one'); END";
        rows.connection.execute_batch(trigger)?;
        Ok(StepOutcome::Applied)
    };
    storage.queue.write(refuse).await.unwrap();
    let put = |number: u8| put([number], [number]);
    let (failing, fine): (Vec<_>, Vec<_>) = ((1..9).map(put).collect(), (1..3).map(put).collect());
    let renewed = entry.renewed(entry.version.next());
    let after = DocumentVersion::NONE;
    let fence = Fence { epoch: entry.epoch, incarnation: entry.incarnation(), after };
    let (before, failed) = tokio::join!(biased;
        storage.commit(at.clone(), Step::renew(&entry, &renewed)),
        storage.commit(at.clone(), Step::batch(&fence, &failing)),
    );
    assert_eq!(before.unwrap(), StepOutcome::Applied);
    assert!(matches!(failed, Err(WriteError::Fatal(_))), "{failed:?}");
    assert_eq!(storage.fence_state(&at).await.unwrap().last, after);
    let scan = Scan { limit: 100, ..Scan::default() };
    assert_eq!(storage.scan_documents(&at, &scan).await.unwrap().documents, []);
    assert_eq!(storage.commit(at.clone(), Step::batch(&fence, &fine)).await.unwrap(), StepOutcome::Applied);
    assert_eq!(storage.scan_documents(&at, &scan).await.unwrap().documents.len(), 2);
    assert_eq!(storage.read(at.clone()).await.unwrap().entry(), Some(&renewed));
}

#[tokio::test]
async fn page_ends_at_its_size_and_the_scan_continues() {
    let (_folder, storage) = opened().await;
    let (at, entry) = (partition(1), entry());
    storage.commit(at.clone(), Step::claim(&VACANT, &entry)).await.unwrap();
    let put = |number: u8| put([number], vec![number; 400 << 10]);
    for number in 0..4 {
        let after = DocumentVersion::from_stored(number.into());
        let fence = Fence { epoch: entry.epoch, incarnation: entry.incarnation(), after };
        storage.commit(at.clone(), Step::batch(&fence, &[put(number)])).await.unwrap();
    }
    let first = storage.scan_documents(&at, &Scan { limit: 100, ..Scan::default() }).await.unwrap();
    assert_eq!((first.documents.len(), first.next.as_ref()), (3, Some(&first.documents[2].id)));
    let rest = Scan { after: first.next, limit: 100, ..Scan::default() };
    let rest = storage.scan_documents(&at, &rest).await.unwrap();
    assert_eq!((rest.documents.len(), rest.next), (1, None));
}

/// Between the check that begins a transaction and its commit.
#[tokio::test]
async fn write_to_a_file_replaced_before_the_commit_is_reported_as_replaced() {
    let (folder, storage) = opened().await;
    let path = folder.path().join("elections.db");
    let replaced = move |_: &Rows<'_>| {
        std::fs::remove_file(&path).unwrap();
        Ok(StepOutcome::Applied)
    };
    let outcome = storage.queue.write(replaced).await;
    assert!(matches!(outcome, Err(WriteError::Replaced(_))), "{outcome:?}");
}

fn driver_error(code: i32) -> DriverError {
    rusqlite::Error::SqliteFailure(ffi::Error::new(code), None).into()
}

#[test]
fn each_code_maps_as_documented() {
    let table = [
        (
            &[ffi::SQLITE_BUSY, ffi::SQLITE_BUSY_RECOVERY, ffi::SQLITE_LOCKED, ffi::SQLITE_PROTOCOL][..],
            "NotApplied",
            "NotApplied",
            false,
        ),
        (&[ffi::SQLITE_FULL], "NotApplied", "NotApplied", false),
        (
            &[ffi::SQLITE_READONLY, ffi::SQLITE_READONLY_DBMOVED, ffi::SQLITE_PERM, ffi::SQLITE_AUTH],
            "Fatal",
            "Fatal",
            true,
        ),
        (&[ffi::SQLITE_CORRUPT, ffi::SQLITE_NOTADB], "Fatal", "Unknown", true),
        (
            &[
                ffi::SQLITE_ERROR,
                ffi::SQLITE_MISMATCH,
                ffi::SQLITE_CONSTRAINT,
                ffi::SQLITE_MISUSE,
                ffi::SQLITE_TOOBIG,
            ],
            "Fatal",
            "Unknown",
            true,
        ),
        (
            &[
                ffi::SQLITE_IOERR,
                ffi::SQLITE_IOERR_FSYNC,
                ffi::SQLITE_NOMEM,
                ffi::SQLITE_CANTOPEN,
                ffi::SQLITE_INTERRUPT,
            ],
            "NotApplied",
            "Unknown",
            false,
        ),
    ];
    for (codes, before, at, read_is_fatal) in table {
        for &code in codes {
            assert_eq!(kind(&driver_error(code).before_commit()), before, "{code} before COMMIT");
            assert_eq!(kind(&driver_error(code).at_commit()), at, "{code} at COMMIT");
            let read = driver_error(code).into_read_error();
            assert_eq!(matches!(read, ReadError::Fatal(_)), read_is_fatal, "{code} to a read: {read}");
        }
    }
    assert_eq!(kind(&DriverError::Replaced.before_commit()), "Replaced");
    assert_eq!(kind(&DriverError::Replaced.at_commit()), "Replaced");
    assert!(matches!(DriverError::Replaced.into_read_error(), ReadError::Replaced(_)));
}
