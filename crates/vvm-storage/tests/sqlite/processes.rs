//! Processes on a file: killed ones, and failing disks. `cargo xtask safety` has several that contend.

use crate::{ANYWHERE, File, entry, slot, vacant};
use ielections::WriteError;
use std::{
    env,
    io::{BufRead, BufReader, Lines},
    path::PathBuf,
    process::{Child, ChildStdout, Command, Stdio},
};
use vvm_storage::{Done, Step, SysVvmStorage, sqlite::SqliteStorage};

/// The file and the role of a process that a test started. Unset in the test itself.
const FILE: &str = "VVM_STORAGE_TEST_FILE";
const NUMBER: &str = "VVM_STORAGE_TEST_NUMBER";

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
