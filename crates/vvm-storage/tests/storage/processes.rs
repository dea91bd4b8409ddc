//! Killed processes, failing disks, counted threads. `cargo xtask safety` has several processes that contend.

use crate::driver::{TTL, VACANT, entry, opened, slot_of};
use ielections::{ReadError, WriteError};
use std::{
    env,
    ffi::OsStr,
    io::{BufRead, BufReader, Lines},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};
use tempfile::TempDir;
use vvm_storage::{Partition, Step, StepOutcome};

/// The storage of a process that a test started. Unset in the test itself.
pub(crate) const STORAGE: &str = "VVM_STORAGE_TEST_URL";

fn slot() -> Partition {
    slot_of("slot")
}

fn in_folder(folder: &Path) -> Vec<String> {
    let at = |name| folder.join(name).display().to_string();
    let sled = cfg!(feature = "sled").then(|| format!("sled:{}", at("elections")));
    [format!("sqlite:{}?allow=overlay", at("elections.db"))].into_iter().chain(sled).collect()
}

fn start(program: &[&str], test: &str, url: &str) -> Child {
    let this = env::current_exe().unwrap();
    let mut command = program.iter().map(OsStr::new).chain([this.as_os_str()]);
    Command::new(command.next().unwrap())
        .args(command)
        .args(["--exact", test, "--nocapture"])
        .env(STORAGE, url)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The other lines are the test harness's.
fn next_number(lines: &mut Lines<BufReader<ChildStdout>>, what: &str) -> Option<u64> {
    // The harness may have begun the first line.
    lines.find_map(|line| line.unwrap().split_once(what).map(|(_, number)| number.trim().parse().unwrap()))
}

fn lines_of(child: &mut Child) -> Lines<BufReader<ChildStdout>> {
    BufReader::new(child.stdout.take().unwrap()).lines()
}

pub(crate) fn run_alone(test: &str, url: &str) {
    let text = String::from_utf8(start(&[], test, url).wait_with_output().unwrap().stdout).unwrap();
    // With a name of no test, it would succeed without a check.
    assert!(text.contains("test result: ok. 1 passed"), "{text}");
}

const RENEWS: &str = "processes::process_renews";

/// Renews until its process is killed or a write fails, and prints each answer. A few times if no test started it.
#[tokio::test]
async fn process_renews() {
    let folder = TempDir::new().unwrap();
    let started = env::var(STORAGE).ok();
    let urls = started.as_ref().map_or(in_folder(folder.path()), |url| vec![url.clone()]);
    for url in urls {
        let storage = opened(&url).await.unwrap();
        let mut held = entry(1, 0, TTL);
        assert_eq!(storage.commit(slot(), Step::claim(&VACANT, &held)).await.unwrap(), StepOutcome::Applied);
        while started.is_some() || held.version.write < 10 {
            let renewed = held.renewed(held.version.next());
            match storage.commit(slot(), Step::renew(&held, &renewed)).await {
                Ok(outcome) => assert_eq!(outcome, StepOutcome::Applied),
                Err(error) => {
                    assert!(matches!(error, WriteError::Unknown(_)), "{error:?}");
                    let stands = storage.read(slot()).await;
                    if url.starts_with("sled:") {
                        // What it would show may not be on the disk.
                        assert!(matches!(stands, Err(ReadError::Fatal(_))), "{stands:?}");
                        let write = storage.commit(slot(), Step::renew(&held, &renewed)).await;
                        assert!(
                            matches!(write, Err(WriteError::NotApplied(_) | WriteError::Fatal(_))),
                            "{write:?}"
                        );
                    } else {
                        assert!(
                            [&held, &renewed].contains(&stands.as_ref().unwrap().entry().unwrap()),
                            "{stands:?}"
                        );
                    }
                    return println!("failed {}", renewed.version.write);
                }
            }
            held = renewed;
            println!("answered {}", held.version.write);
        }
        assert_eq!(storage.read(slot()).await.unwrap().entry(), Some(&held));
    }
}

async fn stands(url: &str) -> u64 {
    let storage = opened(url).await.unwrap();
    let slot = storage.read(slot()).await.unwrap();
    storage.close().await;
    assert_eq!(slot.last_epoch().unwrap().get(), 1);
    slot.entry().unwrap().version.write
}

#[tokio::test]
async fn killed_process_loses_no_answered_write() {
    for enough in [1, 20, 100] {
        let folder = TempDir::new().unwrap();
        for url in in_folder(folder.path()) {
            let mut child = start(&[], RENEWS, &url);
            let mut lines = lines_of(&mut child);
            let mut answered = 0;
            while answered < enough {
                answered = next_number(&mut lines, "answered ").unwrap();
            }
            child.kill().unwrap();
            child.wait().unwrap();
            while let Some(write) = next_number(&mut lines, "answered ") {
                answered = write;
            }
            let stands = stands(&url).await;
            // One more write may be committed without an answer.
            assert!(
                (answered..=answered + 1).contains(&stands),
                "{url}: {answered} answered, {stands} stands"
            );
        }
    }
}

#[tokio::test]
async fn failed_commit_is_unknown_and_leaves_the_database_intact() {
    const HALF_KIB_BLOCKS: u32 = 128;
    let folder = TempDir::new().unwrap();
    for url in in_folder(folder.path()) {
        // A limit on the size of files replaces a full disk. Its signal is ignored.
        let limited = format!("trap '' XFSZ; ulimit -f {HALF_KIB_BLOCKS}; exec \"$0\" \"$@\"");
        let mut child = start(&["sh", "-c", &limited], RENEWS, &url);
        let mut lines = lines_of(&mut child);
        let failed = next_number(&mut lines, "failed ").unwrap();
        assert_eq!(next_number(&mut lines, "failed "), None);
        assert!(child.wait().unwrap().success());
        if let Some(file) = url.strip_prefix("sqlite:").and_then(|file| file.split_once('?')) {
            let by_hand = rusqlite::Connection::open(file.0).unwrap();
            let check: String = by_hand.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
            assert_eq!(check, "ok");
        }
        let stands = stands(&url).await;
        assert!([failed - 1, failed].contains(&stands), "{url}: write {failed} failed, {stands} stands");
    }
}

/// The kernel's mark of a task that has begun to exit (`PF_EXITING` of its `sched.h`), in the ninth field of
/// `/proc/PID/stat` (proc_pid_stat(5)).
const EXITING: u64 = 0x4;

/// Returns how many threads of this process still own a database. The kernel may list a joined thread a moment longer,
/// because it wakes the joining thread first. By then the thread has the mark; a thread that still runs does not.
pub(crate) fn threads(name: &str) -> usize {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter(|task| {
            // A thread may end between the listing and this read.
            std::fs::read_to_string(task.as_ref().unwrap().path().join("stat")).is_ok_and(|stat| {
                let (id_and_name, fields) = stat.rsplit_once(") ").unwrap();
                let flags = fields.split(' ').nth(6).unwrap().parse::<u64>().unwrap();
                id_and_name.ends_with(&format!("({name}")) && flags & EXITING == 0
            })
        })
        .count()
}
