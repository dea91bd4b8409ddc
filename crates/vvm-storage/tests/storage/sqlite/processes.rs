//! Processes of their own: killed ones, failing disks, and one whose threads are counted. `cargo xtask safety` has
//! several that contend.

use super::{ANYWHERE, File, entry, slot, vacant};
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

/// Starts the test of this name in a process of its own, by a program with these arguments before it.
fn start(program: &[&str], test: &str, file: &File) -> Child {
    let this = env::current_exe().unwrap();
    let mut command = program.iter().map(OsStr::new).chain([this.as_os_str()]);
    Command::new(command.next().unwrap())
        .args(command)
        .args(["--exact", test, "--nocapture"])
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

const RENEWS: &str = "sqlite::processes::process_renews";

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
        let mut child = start(&[], RENEWS, &file);
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
    let mut child = start(&["sh", "-c", &limited], RENEWS, &file);
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

/// Every thread of the driver ends (I9).
#[cfg(target_os = "linux")]
mod threads {
    use super::{ANYWHERE, FILE, File, SqliteStorage, SysVvmStorage as _, slot, start};
    use crate::sqlite::is_pending;
    use std::{env, fs, pin::pin};

    /// The kernel's mark of a task that has begun to exit (`PF_EXITING` of its `sched.h`), in the ninth field of
    /// `/proc/PID/stat` (proc_pid_stat(5)).
    const EXITING: u64 = 0x4;

    /// Returns how many threads of this process still own a database.
    ///
    /// The kernel may list a joined thread a moment longer, because it wakes the joining thread first. By then
    /// the thread has the mark; a thread that still runs does not.
    fn database_threads() -> usize {
        fs::read_dir("/proc/self/task")
            .unwrap()
            .filter(|task| {
                // A thread may end between the listing and this read.
                fs::read_to_string(task.as_ref().unwrap().path().join("stat")).is_ok_and(|stat| {
                    let (id_and_name, fields) = stat.rsplit_once(") ").unwrap();
                    let flags = fields.split(' ').nth(6).unwrap().parse::<u64>().unwrap();
                    id_and_name.ends_with("(vvm-sqlite") && flags & EXITING == 0
                })
            })
            .count()
    }

    #[tokio::test]
    async fn every_thread_ends_with_its_handle() {
        let file = File::fresh();
        if env::var_os(FILE).is_none() {
            // Other tests have threads, too.
            let alone = start(&[], "sqlite::processes::threads::every_thread_ends_with_its_handle", &file);
            let text = String::from_utf8(alone.wait_with_output().unwrap().stdout).unwrap();
            // With a name of no test, it would succeed without a check.
            return assert!(text.contains("test result: ok. 1 passed"), "{text}");
        }
        let (first, second) = (file.open().await.unwrap(), file.open().await.unwrap());
        assert_eq!(database_threads(), 2);

        tokio::join!(biased; first.close(), first.close());
        assert_eq!(database_threads(), 1, "after close");
        assert!(first.read(slot()).await.is_err());
        drop(first);
        drop(second);
        assert_eq!(database_threads(), 0, "after drop");

        SqliteStorage::open(file.folder.path(), ANYWHERE).await.unwrap_err();
        assert_eq!(database_threads(), 0, "after a refusal");

        {
            let mut opening = pin!(file.open());
            assert!(is_pending(opening.as_mut()).await);
        }
        assert_eq!(database_threads(), 0, "after a dropped opening");
    }
}
