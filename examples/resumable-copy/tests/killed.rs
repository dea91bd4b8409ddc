//! Real processes: a leader is killed during its copy, and two others complete it.
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

use resumable_copy::{plan::Plan, progress::Progress, step};
use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};
use vvm_clock::SystemClock;

const PIECE: usize = 1 << 10;
/// Ends a test that hangs.
const GIVE_UP_AFTER: Duration = Duration::from_secs(120);

fn start(place: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_resumable-copy"))
        .args(["--storage", &format!("sqlite:{}?allow=overlay", place.join("copy.db").display())])
        .arg("--from")
        .arg(place.join("from"))
        .arg("--to")
        .arg(place.join("to"))
        .args(["--piece", &PIECE.to_string(), "--pause-ms", "5", "--ttl-ms", "4000"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let give_up_at = SystemClock::read().after(GIVE_UP_AFTER);
    while !condition() {
        assert!(SystemClock::read() < give_up_at, "never: {what}");
        SystemClock::block_for(Duration::from_millis(5));
    }
}

#[test]
fn copy_continues_where_its_leader_was_killed() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    fs::create_dir(&from).unwrap();
    for number in 0..40_u8 {
        let bytes = (0..10_000).map(|at: usize| (at % 251) as u8 ^ number).collect::<Vec<_>>();
        fs::write(from.join(format!("file-{number:02}")), bytes).unwrap();
    }
    let plan = Plan::of(&from).unwrap();
    let begin = Progress::begin(from.canonicalize().unwrap(), to.clone(), &plan);
    let expected = step::undisturbed(&plan, begin, PIECE).unwrap();

    let mut first = start(place.path());
    eventually("the first leader has begun", || to.join("file-02").exists());
    let inode = || fs::metadata(to.join("file-00")).unwrap().ino();
    let copied_once = inode();
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(!to.join("file-39").exists(), "the first leader was killed too late");

    let mut others = [start(place.path()), start(place.path())];
    for other in &mut others {
        eventually("they end", || other.try_wait().unwrap().is_some());
    }
    for other in others {
        let finished = other.wait_with_output().unwrap();
        assert!(finished.status.success(), "{finished:?}");
        let done: Progress = serde_json::from_slice(&finished.stdout).unwrap();
        assert_eq!(done, expected, "each step counts once");
    }
    assert_eq!(inode(), copied_once, "a copied file is not copied again");
    for file in &plan.files {
        assert_eq!(fs::read(from.join(&file.name)).unwrap(), fs::read(to.join(&file.name)).unwrap());
    }
}
