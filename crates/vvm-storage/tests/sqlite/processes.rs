//! Processes on a file: killed ones, and failing disks. `cargo xtask safety` has several that contend.

use crate::{ANYWHERE, File, entry, slot, vacant};
use ielections::WriteError;
use std::{
    env,
    ffi::OsStr,
    io::{BufRead, BufReader, Lines},
    path::PathBuf,
    process::{Child, ChildStdout, Command, Stdio},
};
use vvm_storage::{Done, Step, SysVvmStorage, sqlite::SqliteStorage};

/// The file of a process that a test started. Unset in the test itself.
const FILE: &str = "VVM_STORAGE_TEST_FILE";

/// Starts [`process_renews`] once more, in a process of its own, by a program with these arguments before it.
fn start(program: &[&str], file: &File) -> Child {
    let this = env::current_exe().unwrap();
    let mut command = program.iter().map(OsStr::new).chain([this.as_os_str()]);
    Command::new(command.next().unwrap())
        .args(command)
        .args(["--exact", "processes::process_renews", "--nocapture"])
        .env(FILE, &file.path)
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

/// Renews until its process is killed or a write fails, and prints each answer. A few times if no test started it.
#[tokio::test]
async fn process_renews() {
    let started = env::var_os(FILE).map(PathBuf::from);
    let own = started.is_none().then(File::fresh);
    let path = started.as_ref().or(own.as_ref().map(|file| &file.path)).unwrap();
    let storage = SqliteStorage::open(path, ANYWHERE).await.unwrap();
    let mut held = entry(1);
    assert_eq!(storage.commit(slot(), Step::claim(&vacant(None), &held)).await.unwrap(), Done::Applied);
    while started.is_some() || held.version.write < 10 {
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
        println!("answered {}", held.version.write);
    }
    assert_eq!(storage.read(slot()).await.unwrap().entry(), Some(&held));
}

#[tokio::test]
async fn killed_process_loses_no_answered_write() {
    for enough in [1, 20, 100] {
        let file = File::fresh();
        let mut child = start(&[], &file);
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

#[test]
fn failed_commit_is_unknown_and_leaves_the_database_intact() {
    const HALF_KIB_BLOCKS: u32 = 128;
    let file = File::fresh();
    // A limit on the size of files replaces a full disk. Its signal is ignored.
    let limited = format!("trap '' XFSZ; ulimit -f {HALF_KIB_BLOCKS}; exec \"$0\" \"$@\"");
    let mut child = start(&["sh", "-c", &limited], &file);
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
