use super::{ANYWHERE, File, claim, entry, is_pending, slot, vacant};
use ielections::{ReadError, WriteError};
use std::{fs, pin::pin, time::Duration};
use vvm_clock::SystemClock;
use vvm_storage::{Partition, Step, StepOutcome, SysVvmStorage, sqlite::SqliteStorage};

#[tokio::test]
async fn lock_of_another_process_refuses_writes_and_lets_reads_pass() {
    let file = File::used().await;
    let storage = file.open().await.unwrap();
    let by_hand = file.by_hand();
    by_hand.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (from, next) = (vacant(Some(1)), entry(2));
    let at = slot();
    let sent_at = SystemClock::read();
    let mut claim = pin!(storage.commit(at.clone(), Step::claim(&from, &next)));
    assert!(is_pending(claim.as_mut()).await);
    // The read is answered before a write that waits earlier in the queue, unless the machine stopped for that wait.
    assert_eq!(storage.read(at.clone()).await.unwrap(), from);
    let is_pending = is_pending(claim.as_mut()).await;
    assert!(is_pending || SystemClock::read().since(sent_at) >= Duration::from_secs(1));
    let error = claim.await.unwrap_err();
    assert!(matches!(error, WriteError::NotApplied(_)), "{error:?}");
    assert!(error.to_string().contains("locked for over a second"), "{error}");
    by_hand.execute_batch("ROLLBACK").unwrap();
    assert_eq!(storage.read(at.clone()).await.unwrap(), from);
    super::claim(&storage, 2).await;
}

#[tokio::test]
async fn write_of_a_dropped_caller_is_skipped() {
    let file = File::used().await;
    let storage = file.open().await.unwrap();
    let by_hand = file.by_hand();
    by_hand.execute_batch("BEGIN IMMEDIATE").unwrap();
    {
        let (at, from, next) = (slot(), vacant(Some(1)), entry(2));
        let mut claim = pin!(storage.commit(at.clone(), Step::claim(&from, &next)));
        assert!(is_pending(claim.as_mut()).await);
        // The claim has reached the thread, because a later read is answered.
        storage.read(at.clone()).await.unwrap();
    }
    by_hand.execute_batch("ROLLBACK").unwrap();
    storage.close().await;
    assert_eq!(file.open().await.unwrap().read(slot()).await.unwrap(), vacant(Some(1)));
}

#[tokio::test]
async fn waiting_writes_share_one_commit() {
    const WRITES: u64 = 64;
    let file = File::used().await;
    let storage = file.open().await.unwrap();
    let by_hand = file.by_hand();
    by_hand.execute_batch("BEGIN IMMEDIATE").unwrap();
    let from = vacant(None);
    let calls: Vec<_> =
        (0..WRITES).map(|number| (Partition::from_bytes(number.to_be_bytes()), entry(number + 1))).collect();
    let mut writes: Vec<_> =
        calls.iter().map(|(at, entry)| storage.commit(at.clone(), Step::claim(&from, entry))).collect();
    for write in &mut writes {
        assert!(is_pending(write.as_mut()).await);
    }
    let before = commits(&file);
    by_hand.execute_batch("ROLLBACK").unwrap();
    for write in writes {
        assert_eq!(write.await.unwrap(), StepOutcome::Applied);
    }
    assert_eq!(commits(&file) - before, 1);
}

/// Transactions: frames whose header has a database size (SQLite file format, 4.2).
fn commits(file: &File) -> usize {
    const HEADER: usize = 32;
    const FRAME_HEADER: usize = 24;
    let log = fs::read(file.path.with_extension("db-wal")).unwrap();
    if log.is_empty() {
        return 0;
    }
    let word = |at: usize| u32::from_be_bytes(log[at..at + 4].try_into().unwrap());
    let (page, salt) = (word(8) as usize, (word(16), word(20)));
    (HEADER..log.len())
        .step_by(FRAME_HEADER + page)
        .take_while(|&frame| (word(frame + 8), word(frame + 12)) == salt)
        .filter(|&frame| word(frame + 4) != 0)
        .count()
}

#[tokio::test]
async fn deleted_or_replaced_file_is_noticed() {
    for replaced in [false, true] {
        let file = File::used().await;
        let storage = file.open().await.unwrap();
        fs::remove_file(&file.path).unwrap();
        if replaced {
            fs::write(&file.path, "").unwrap();
        }
        let error = storage.commit(slot(), Step::claim(&vacant(Some(1)), &entry(2))).await.unwrap_err();
        assert!(matches!(error, WriteError::Replaced(_)), "{error:?}");
        assert!(error.to_string().contains("deleted or replaced"), "{error}");
        assert!(matches!(storage.read(slot()).await, Err(ReadError::Replaced(_))));
    }
}

/// A user deletes a side file. The next process that opens the database gets one that its other users don't see.
#[tokio::test]
async fn deleted_log_or_index_is_noticed() {
    for suffix in ["db-wal", "db-shm"] {
        for path_kind in ["by name", "by a symbolic link"] {
            let file = File::used().await;
            let storage = if path_kind == "by name" {
                file.open().await.unwrap()
            } else {
                let link = file.path.with_file_name("link");
                std::os::unix::fs::symlink(&file.path, &link).unwrap();
                SqliteStorage::open(&link, ANYWHERE).await.unwrap()
            };
            claim(&storage, 2).await;
            fs::remove_file(file.path.with_extension(suffix)).unwrap();
            let error = storage.commit(slot(), Step::claim(&vacant(Some(2)), &entry(3))).await.unwrap_err();
            assert!(matches!(error, WriteError::Replaced(_)), "{suffix} {path_kind}: {error:?}");
            assert!(error.to_string().contains("deleted or replaced"), "{error}");
            assert!(
                matches!(storage.read(slot()).await, Err(ReadError::Replaced(_))),
                "{suffix} {path_kind}"
            );
        }
    }
}

#[tokio::test]
async fn missing_table_is_fatal() {
    let file = File::used().await;
    let storage = file.open().await.unwrap();
    file.by_hand().execute_batch("DROP TABLE leader").unwrap();
    let error = storage.commit(slot(), Step::claim(&vacant(None), &entry(1))).await.unwrap_err();
    assert!(matches!(error, WriteError::Fatal(_)), "{error:?}");
    assert!(matches!(storage.read(slot()).await, Err(ReadError::Fatal(_))));
}

#[tokio::test]
async fn malformed_row_is_fatal_and_does_not_affect_others() {
    for nonsense in
        ["epoch = 0", "epoch = -1", "ttl_nanos = 0", "write = NULL", "holder = NULL", "incarnation = x'00'"]
    {
        let file = File::used().await;
        let storage = file.open().await.unwrap();
        claim(&storage, 2).await;
        file.by_hand().execute_batch(&format!("UPDATE leader SET {nonsense}")).unwrap();
        let (at, other) = (slot(), Partition::from_bytes(*b"other"));
        let (from, next) = (vacant(None), entry(3));
        // In one transaction with a valid write.
        let one = storage.commit(at.clone(), Step::claim(&from, &next));
        let two = storage.commit(other.clone(), Step::claim(&from, &next));
        let (broken, sound) = tokio::join!(biased; one, two);
        assert!(matches!(broken, Err(WriteError::Fatal(_))), "{nonsense}: {broken:?}");
        assert!(sound.is_ok(), "{nonsense}: {sound:?}");
        assert!(matches!(storage.read(at.clone()).await, Err(ReadError::Fatal(_))), "{nonsense}");
        assert_eq!(storage.read(other.clone()).await.unwrap().entry(), Some(&next));
    }
}

#[tokio::test]
async fn record_without_a_valid_stamp_has_no_proven_age() {
    let file = File::used().await;
    let storage = file.open().await.unwrap();
    claim(&storage, 2).await;
    for foreign in [
        "boot_id = NULL",
        "boot_id = 'another'",
        "time_namespace = 1",
        "issued_at_nanos = -1",
        "issued_at_nanos = 1 << 62",
    ] {
        file.by_hand().execute_batch(&format!("UPDATE leader SET {foreign}")).unwrap();
        let slot = storage.read(slot()).await.unwrap();
        assert!(matches!(slot, ielections::Slot::Held { proven_age: None, .. }), "{foreign}: {slot:?}");
    }
}
