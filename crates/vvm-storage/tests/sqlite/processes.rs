//! Several processes on one file: concurrent claims, killed processes, and failing disks.

use crate::{ANYWHERE, File, entry, slot, vacant};
use ielections::{Entry, Epoch, Incarnation, Slot, Version, WriteError};
use std::{
    collections::BTreeSet,
    env,
    io::{BufRead, BufReader, Lines},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};
use vvm_storage::{
    Done, Shown, Step, SysVvmStorage,
    sqlite::{OpenError, SqliteStorage},
};

/// The file and the role of a process that a test started. Unset in the test itself.
const FILE: &str = "VVM_STORAGE_TEST_FILE";
const NUMBER: &str = "VVM_STORAGE_TEST_NUMBER";
const PROCESSES: u8 = 5;
const LEADERSHIPS: usize = 40;

/// Starts the test of this name once more, in a process of its own.
fn start(test: &str, file: &File, number: u8) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(FILE, &file.path)
        .env(NUMBER, number.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Returns the next number after `what` in a process's output. The other lines are the test harness's.
fn next_number(lines: &mut Lines<BufReader<ChildStdout>>, what: &str) -> Option<u64> {
    // The harness may have begun the first line.
    lines.find_map(|line| line.unwrap().split_once(what).map(|(_, number)| number.trim().parse().unwrap()))
}

fn lines_of(child: &mut Child) -> Lines<BufReader<ChildStdout>> {
    BufReader::new(child.stdout.take().unwrap()).lines()
}

/// Returns the file and the number of a started process, or else a new file for this test.
fn place() -> (Option<File>, PathBuf, u8) {
    match (env::var_os(FILE), env::var(NUMBER)) {
        (Some(path), Ok(number)) => (None, path.into(), number.parse().unwrap()),
        _ => {
            let file = File::fresh();
            let path = file.path.clone();
            (Some(file), path, 0)
        }
    }
}

/// Leads the slot [`LEADERSHIPS`] times, beside other processes, and prints the epochs.
#[tokio::test]
async fn process_leads_repeatedly() {
    let (_file, path, number) = place();
    let storage = open(&path).await;
    let mut slot_seen = vacant(None);
    let mut led = 0;
    while led < LEADERSHIPS {
        let epoch = slot_seen.last_epoch().map_or(1, |epoch| epoch.get() + 1);
        let mut ours = Entry { epoch: Epoch::new(epoch).unwrap(), ..entry(1) };
        ours.version.incarnation = Incarnation::from_bytes([number; 16]);
        let outcome = match &slot_seen {
            Slot::Vacant(_) => storage.commit(slot(), Step::claim(&slot_seen, &ours)).await,
            Slot::Held { .. } => {
                tokio::time::sleep(Duration::from_millis(1)).await;
                Ok(Done::Refused(Shown::Slot(storage.read(slot()).await.unwrap())))
            }
        };
        match outcome {
            Ok(Done::Applied) => {
                println!("led {epoch}");
                led += 1;
                lead_and_release(&storage, &ours).await;
                slot_seen = vacant(Some(epoch));
            }
            Ok(Done::Refused(Shown::Slot(stands))) => slot_seen = stands,
            Err(WriteError::NotApplied(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    storage.close().await;
}

/// Opens the file. Processes that create it at the same time wait for each other, and for a slow disk.
async fn open(path: &Path) -> SqliteStorage {
    loop {
        match SqliteStorage::open(path, ANYWHERE).await {
            Err(OpenError::Locked(_)) => {}
            outcome => return outcome.unwrap(),
        }
    }
}

/// Renews and releases once. Only its leader changes a record, so neither is ever refused.
async fn lead_and_release(storage: &SqliteStorage, ours: &Entry) {
    let renewed = ours.renewed(Version { write: 1, ..ours.version });
    loop {
        match storage.commit(slot(), Step::renew(ours, &renewed)).await {
            Ok(outcome) => break assert_eq!(outcome, Done::Applied),
            Err(error) => assert!(matches!(error, WriteError::NotApplied(_)), "{error}"),
        }
    }
    loop {
        match storage.commit(slot(), Step::release(ours.incarnation(), ours.epoch)).await {
            Ok(outcome) => break assert_eq!(outcome, Done::Applied),
            Err(error) => assert!(matches!(error, WriteError::NotApplied(_)), "{error}"),
        }
    }
}

#[tokio::test]
async fn concurrent_processes_lead_one_at_a_time_with_rising_epochs() {
    let file = File::fresh();
    // They also create the file at the same time.
    let children: Vec<_> =
        (1..=PROCESSES).map(|number| start("processes::process_leads_repeatedly", &file, number)).collect();
    let mut all = BTreeSet::new();
    let mut count = 0;
    for mut child in children {
        let mut lines = lines_of(&mut child);
        let mut before = 0;
        while let Some(epoch) = next_number(&mut lines, "led ") {
            assert!(epoch > before, "epoch {epoch} after {before} in one process");
            before = epoch;
            all.insert(epoch);
            count += 1;
        }
        assert!(child.wait().unwrap().success());
    }
    let expected = usize::from(PROCESSES) * LEADERSHIPS;
    assert_eq!(count, expected);
    assert_eq!(all, (1..=expected as u64).collect(), "each epoch was led by one process");
    assert_eq!(file.open().await.unwrap().read(slot()).await.unwrap(), vacant(Some(expected as u64)));
}

/// Renews until its process is killed, and prints each answer.
#[tokio::test]
async fn process_renews_until_it_is_killed() {
    let (file, path, _) = place();
    let storage = SqliteStorage::open(&path, ANYWHERE).await.unwrap();
    let mut held = entry(1);
    assert_eq!(storage.commit(slot(), Step::claim(&vacant(None), &held)).await.unwrap(), Done::Applied);
    while file.is_none() || held.version.write < 10 {
        let renewed = held.renewed(held.version.next());
        assert_eq!(storage.commit(slot(), Step::renew(&held, &renewed)).await.unwrap(), Done::Applied);
        held = renewed;
        println!("answered {}", held.version.write);
    }
    assert_eq!(storage.read(slot()).await.unwrap().entry(), Some(&held));
}

#[tokio::test]
async fn killed_process_loses_no_answered_write() {
    for enough in [1, 20, 100] {
        let file = File::fresh();
        let mut child = start("processes::process_renews_until_it_is_killed", &file, 1);
        let mut lines = lines_of(&mut child);
        let mut answered = 0;
        while answered < enough {
            answered = next_number(&mut lines, "answered ").unwrap();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // The rest of its output.
        while let Some(write) = next_number(&mut lines, "answered ") {
            answered = write;
        }
        let stands = file.open().await.unwrap().read(slot()).await.unwrap();
        let stands = stands.entry().unwrap().version.write;
        // One more write may be committed without an answer.
        assert!((answered..=answered + 1).contains(&stands), "{answered} answered, {stands} stands");
    }
}

/// Renews until a write fails, and prints its number.
#[tokio::test]
async fn process_renews_until_the_disk_is_full() {
    let (file, path, _) = place();
    let storage = SqliteStorage::open(&path, ANYWHERE).await.unwrap();
    let mut held = entry(1);
    assert_eq!(storage.commit(slot(), Step::claim(&vacant(None), &held)).await.unwrap(), Done::Applied);
    while file.is_none() || held.version.write < 10 {
        let renewed = held.renewed(held.version.next());
        match storage.commit(slot(), Step::renew(&held, &renewed)).await {
            Ok(outcome) => assert_eq!(outcome, Done::Applied),
            Err(error) => {
                assert!(matches!(error, WriteError::Unknown(_)), "{error:?}");
                // Reads still work, and show one of the two records.
                let stands = storage.read(slot()).await.unwrap();
                assert!([&held, &renewed].contains(&stands.entry().unwrap()), "{stands:?}");
                return println!("failed {}", renewed.version.write);
            }
        }
        held = renewed;
    }
}

#[test]
fn failed_commit_is_unknown_and_leaves_the_database_intact() {
    const HALF_KIB_BLOCKS: u32 = 128;
    let file = File::fresh();
    // A limit on the size of files replaces a full disk. Its signal is ignored.
    let mut child = Command::new("sh")
        .args(["-c", &format!("trap '' XFSZ; ulimit -f {HALF_KIB_BLOCKS}; exec \"$0\" \"$@\"")])
        .arg(env::current_exe().unwrap())
        .args(["--exact", "processes::process_renews_until_the_disk_is_full", "--nocapture"])
        .env(FILE, &file.path)
        .env(NUMBER, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = lines_of(&mut child);
    let failed = next_number(&mut lines, "failed ").unwrap();
    assert_eq!(next_number(&mut lines, "failed "), None);
    assert!(child.wait().unwrap().success());
    let by_hand = file.by_hand();
    let stands: i64 = by_hand.query_row("SELECT write FROM leader", [], |row| row.get(0)).unwrap();
    let stands = stands.cast_unsigned();
    assert!([failed - 1, failed].contains(&stands), "write {failed} failed, {stands} stands");
    let check: String = by_hand.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
}
