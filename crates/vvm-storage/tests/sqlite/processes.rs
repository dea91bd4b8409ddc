//! Several processes on one file: claims race, and a process that is killed loses nothing that was answered.

use crate::file::{ANYWHERE, File, entry, slot, vacant};
use ielections::{Claim, Delete, Entry, Epoch, Incarnation, Slot, Swap, Version, WriteError};
use std::{
    collections::BTreeSet,
    env,
    io::{BufRead, BufReader, Lines},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};
use vvm_storage::{
    SysVvmStorage,
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

/// What a process says of itself; the rest of its output is the test harness's.
fn said(lines: &mut Lines<BufReader<ChildStdout>>, what: &str) -> Option<u64> {
    // The first line may stand behind what the harness says.
    lines.find_map(|line| line.unwrap().split_once(what).map(|(_, number)| number.trim().parse().unwrap()))
}

fn lines_of(child: &mut Child) -> Lines<BufReader<ChildStdout>> {
    BufReader::new(child.stdout.take().unwrap()).lines()
}

/// The file and the number of this process, or a file of this test's own.
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

/// Leads the slot this many times, beside other processes, and prints the epochs.
#[tokio::test]
async fn one_process_leads_again_and_again() {
    let (_file, path, number) = place();
    let storage = open(&path).await;
    let mut slot_seen = vacant(None);
    let mut led = 0;
    while led < LEADERSHIPS {
        let epoch = slot_seen.last_epoch().map_or(1, |epoch| epoch.get() + 1);
        let mut ours = Entry { epoch: Epoch::new(epoch).unwrap(), ..entry(1) };
        ours.version.incarnation = Incarnation::from_bytes([number; 16]);
        let outcome = match &slot_seen {
            Slot::Vacant(_) => storage.claim(slot(), &slot_seen, &ours).await,
            Slot::Held { .. } => {
                tokio::time::sleep(Duration::from_millis(1)).await;
                Ok(Claim::Refused(storage.read(slot()).await.unwrap()))
            }
        };
        match outcome {
            Ok(Claim::Claimed) => {
                println!("led {epoch}");
                led += 1;
                lead_and_release(&storage, &ours).await;
                slot_seen = vacant(Some(epoch));
            }
            Ok(Claim::Refused(stands)) => slot_seen = stands,
            Err(WriteError::NotApplied(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    storage.close().await;
}

/// Those who create the file at once wait for each other, and for a slow disk.
async fn open(path: &Path) -> SqliteStorage {
    loop {
        match SqliteStorage::open(path, ANYWHERE).await {
            Err(OpenError::Locked(_)) => {}
            outcome => return outcome.unwrap(),
        }
    }
}

/// Only its leader changes a record.
async fn lead_and_release(storage: &SqliteStorage, ours: &Entry) {
    let renewed = ours.renewed(Version { write: 1, ..ours.version });
    loop {
        match storage.renew(slot(), ours, &renewed).await {
            Ok(outcome) => break assert_eq!(outcome, Swap::Swapped),
            Err(error) => assert!(matches!(error, WriteError::NotApplied(_)), "{error}"),
        }
    }
    loop {
        match storage.release(slot(), ours.incarnation(), ours.epoch).await {
            Ok(outcome) => break assert_eq!(outcome, Delete::Deleted),
            Err(error) => assert!(matches!(error, WriteError::NotApplied(_)), "{error}"),
        }
    }
}

#[tokio::test]
async fn processes_that_race_lead_one_at_a_time_under_rising_epochs() {
    let file = File::fresh();
    // They create the file at once, too.
    let children: Vec<_> = (1..=PROCESSES)
        .map(|number| start("processes::one_process_leads_again_and_again", &file, number))
        .collect();
    let mut all = BTreeSet::new();
    let mut count = 0;
    for mut child in children {
        let mut lines = lines_of(&mut child);
        let mut before = 0;
        while let Some(epoch) = said(&mut lines, "led ") {
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

/// Renews until its reader is gone, and prints each answer.
#[tokio::test]
async fn one_process_renews_until_it_ends() {
    let (file, path, _) = place();
    let storage = SqliteStorage::open(&path, ANYWHERE).await.unwrap();
    let mut held = entry(1);
    assert_eq!(storage.claim(slot(), &vacant(None), &held).await.unwrap(), Claim::Claimed);
    while file.is_none() || held.version.write < 10 {
        let renewed = held.renewed(held.version.next());
        assert_eq!(storage.renew(slot(), &held, &renewed).await.unwrap(), Swap::Swapped);
        held = renewed;
        println!("answered {}", held.version.write);
    }
    assert_eq!(storage.read(slot()).await.unwrap().entry(), Some(&held));
}

#[tokio::test]
async fn a_process_that_is_killed_loses_nothing_that_was_answered() {
    for enough in [1, 20, 100] {
        let file = File::fresh();
        let mut child = start("processes::one_process_renews_until_it_ends", &file, 1);
        let mut lines = lines_of(&mut child);
        let mut answered = 0;
        while answered < enough {
            answered = said(&mut lines, "answered ").unwrap();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What it said before it died.
        while let Some(write) = said(&mut lines, "answered ") {
            answered = write;
        }
        let stands = file.open().await.unwrap().read(slot()).await.unwrap();
        let stands = stands.entry().unwrap().version.write;
        // One more may be committed and not yet told.
        assert!((answered..=answered + 1).contains(&stands), "{answered} answered, {stands} stands");
    }
}

/// Renews until that fails, and says how, and what is read after it.
#[tokio::test]
async fn one_process_renews_until_the_disk_takes_no_more() {
    let (file, path, _) = place();
    let storage = SqliteStorage::open(&path, ANYWHERE).await.unwrap();
    let mut held = entry(1);
    assert_eq!(storage.claim(slot(), &vacant(None), &held).await.unwrap(), Claim::Claimed);
    while file.is_none() || held.version.write < 10 {
        let renewed = held.renewed(held.version.next());
        match storage.renew(slot(), &held, &renewed).await {
            Ok(outcome) => assert_eq!(outcome, Swap::Swapped),
            Err(error) => {
                assert!(matches!(error, WriteError::Unknown(_)), "{error:?}");
                // Reads go on, and show one of the two.
                let stands = storage.read(slot()).await.unwrap();
                assert!([&held, &renewed].contains(&stands.entry().unwrap()), "{stands:?}");
                return println!("failed {}", renewed.version.write);
            }
        }
        held = renewed;
    }
}

#[test]
fn a_commit_that_fails_half_way_is_unknown_and_leaves_a_sound_database() {
    const HALF_KIB_BLOCKS: u32 = 128;
    let file = File::fresh();
    // A limit on the size of files plays the disk; the signal that would come with it is ignored.
    let mut child = Command::new("sh")
        .args(["-c", &format!("trap '' XFSZ; ulimit -f {HALF_KIB_BLOCKS}; exec \"$0\" \"$@\"")])
        .arg(env::current_exe().unwrap())
        .args(["--exact", "processes::one_process_renews_until_the_disk_takes_no_more", "--nocapture"])
        .env(FILE, &file.path)
        .env(NUMBER, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = lines_of(&mut child);
    let failed = said(&mut lines, "failed ").unwrap();
    assert_eq!(said(&mut lines, "failed "), None);
    assert!(child.wait().unwrap().success());
    let by_hand = file.by_hand();
    let stands: i64 = by_hand.query_row("SELECT write FROM leader", [], |row| row.get(0)).unwrap();
    let stands = stands.cast_unsigned();
    assert!([failed - 1, failed].contains(&stands), "write {failed} failed, {stands} stands");
    let check: String = by_hand.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
}
