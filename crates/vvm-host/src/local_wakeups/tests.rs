//! [`LocalWakeups`] in temporary folders, some of them unfit.

use super::*;
use rustix::{
    fs::{Mode, chmod},
    process::geteuid,
};
use std::{
    collections::BTreeSet,
    os::unix::fs::{FileTypeExt as _, symlink},
    sync::Arc,
};
use vvm_clock::{Clock, SystemClock};

struct Place {
    folder: tempfile::TempDir,
    clock: Arc<dyn Clock>,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), clock: Arc::new(SystemClock::start().unwrap()) }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("local")
    }

    fn dir(&self) -> LocalDir {
        LocalDir::At(self.path())
    }

    fn join(&self, name: &str) -> LocalWakeups {
        LocalWakeups::join(&self.dir(), name).unwrap()
    }

    fn files(&self) -> BTreeSet<PathBuf> {
        fs::read_dir(self.path()).unwrap().map(|file| file.unwrap().path()).collect()
    }

    async fn woken(&self, candidate: &LocalWakeups, within: Duration) -> bool {
        tokio::select! {
            biased;
            () = candidate.woken() => true,
            () = self.clock.sleep(within) => false,
        }
    }
}

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(60);

fn own(candidate: &LocalWakeups) -> PathBuf {
    candidate.receiver.as_ref().unwrap().path.clone()
}

fn age(path: &Path) {
    let long_ago = SystemWallClock.since_unix_epoch() - ABANDONED * 2;
    let stamp = rustix::fs::Timespec { tv_sec: long_ago.as_secs() as i64, tv_nsec: 0 };
    let stamps = rustix::fs::Timestamps { last_access: stamp, last_modification: stamp };
    rustix::fs::utimensat(rustix::fs::CWD, path, &stamps, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

#[tokio::test]
async fn wake_up_reaches_candidates_for_the_same_name_only() {
    let place = Place::new();
    let [a, b, c] = ["payroll", "payroll", "invoices"].map(|name| place.join(name));
    a.wake();
    assert!(place.woken(&b, LONG).await);
    assert!(!place.woken(&a, SHORT).await && !place.woken(&c, SHORT).await);
    WakeSender::to(&place.dir(), "payroll").unwrap().wake();
    assert!(place.woken(&a, LONG).await && place.woken(&b, LONG).await);
    assert!(!place.woken(&c, SHORT).await);
}

#[tokio::test]
async fn socket_is_private_and_removed_on_drop() {
    let place = Place::new();
    let (a, b) = (place.join("payroll"), place.join("payroll"));
    assert_eq!(fs::symlink_metadata(place.path()).unwrap().permissions().mode() & 0o7777, 0o700);
    let found = fs::symlink_metadata(own(&a)).unwrap();
    assert!(found.file_type().is_socket());
    assert_eq!(found.permissions().mode() & 0o7777, 0o600);
    drop(a);
    assert_eq!(place.files(), [own(&b)].into());
}

#[tokio::test]
async fn receiver_with_a_full_queue_does_not_block_the_sender() {
    let place = Place::new();
    let (a, busy, b) = (place.join("payroll"), place.join("payroll"), place.join("payroll"));
    for _ in 0..2000 {
        a.wake();
    }
    assert!(place.woken(&b, LONG).await && place.woken(&busy, LONG).await);
}

#[tokio::test]
async fn sender_ignores_other_files() {
    let place = Place::new();
    let (a, b) = (place.join("payroll"), place.join("payroll"));
    let named = |end: &str| {
        let name = own(&a).file_name().unwrap().to_str().unwrap().to_owned();
        place.path().join(format!("{}{end}", &name[..16]))
    };
    drop(UnixDatagram::bind(named("0000000000000001")).unwrap());
    let junk = [
        (named("0000000000000003"), "a file under a socket's name"),
        (place.path().join("notes.txt"), "a file"),
    ];
    for (path, text) in &junk {
        fs::write(path, text).unwrap();
    }
    fs::create_dir(named("0000000000000004")).unwrap();
    let elsewhere = place.folder.path().join("elsewhere");
    let victim = UnixDatagram::bind(&elsewhere).unwrap();
    victim.set_nonblocking(true).unwrap();
    symlink(&elsewhere, named("0000000000000005")).unwrap();
    let _stream = std::os::unix::net::UnixListener::bind(named("0000000000000006")).unwrap();

    a.wake();
    assert!(place.woken(&b, LONG).await);
    for (path, text) in &junk {
        assert_eq!(fs::read_to_string(path).unwrap(), *text);
    }
    assert!(victim.recv(&mut [0; 8]).is_err(), "a link was followed");
    assert_eq!(place.files().len(), 2 + 6);
}

#[tokio::test]
async fn joining_removes_abandoned_sockets_of_all_names() {
    let place = Place::new();
    let other = place.join("invoices");
    // The new one could still be about to get a receiver.
    let [abandoned, fresh] = ["a", "b"].map(|end| {
        let path = place.path().join(end.repeat(32));
        drop(UnixDatagram::bind(&path).unwrap());
        path
    });
    let file = place.path().join("c".repeat(32));
    fs::write(&file, "a file under a socket's name").unwrap();
    age(&file);
    age(&abandoned);
    age(&own(&other));
    let joined = place.join("payroll");
    assert_eq!(place.files(), [own(&other), own(&joined), fresh, file].into());
}

#[test]
fn folder_that_others_can_write_is_refused() {
    let place = Place::new();
    let refused = |what: &str, hint: &str| {
        for refusal in [place.dir().check().unwrap_err(), place.dir().make().map(drop).unwrap_err()] {
            let text = refusal.to_string();
            assert!(text.contains(hint) && text.contains("or none"), "{what}: {text}");
        }
    };
    fs::write(place.path(), "").unwrap();
    refused("a file", "is no folder");
    fs::remove_file(place.path()).unwrap();

    let target = place.folder.path().join("target");
    fs::create_dir(&target).unwrap();
    symlink(&target, place.path()).unwrap();
    refused("a link", "a symbolic link");
    fs::remove_file(place.path()).unwrap();
    assert_eq!(fs::read_dir(&target).unwrap().count(), 0);

    fs::create_dir(place.path()).unwrap();
    for mode in [0o777, 0o1777, 0o770, 0o720, 0o702] {
        chmod(place.path(), Mode::from_raw_mode(mode)).unwrap();
        refused("others may write", &format!("mode {mode:o}"));
    }
    chmod(place.path(), Mode::from_raw_mode(0o755)).unwrap();
    place.dir().check().unwrap();
    assert_eq!(place.dir().make().unwrap(), Some(place.path()));
    fs::remove_dir(place.path()).unwrap();

    let orphan = LocalDir::At(place.folder.path().join("missing/local"));
    for refusal in [orphan.check().unwrap_err(), orphan.make().map(drop).unwrap_err()] {
        assert!(refusal.to_string().contains("No such file"), "{refusal}");
    }
}

/// Only root can create such a folder; other users find root's.
#[test]
fn folder_of_another_user_is_refused() {
    let place = Place::new();
    let foreign = if geteuid().is_root() {
        fs::create_dir(place.path()).unwrap();
        std::os::unix::fs::chown(place.path(), Some(12345), None).unwrap();
        place.dir()
    } else {
        LocalDir::At("/var".into())
    };
    let refusal = foreign.check().unwrap_err();
    assert!(matches!(refusal, UnfitFolder::Foreign { .. }), "{refusal}");
    assert!(foreign.make().is_err());
}

#[test]
fn local_dir_is_parsed_or_refused() {
    assert_eq!("none".parse::<LocalDir>().unwrap(), LocalDir::None);
    assert_eq!("/run/vvm".parse::<LocalDir>().unwrap(), LocalDir::At("/run/vvm".into()));
    assert!(matches!("run/vvm".parse::<LocalDir>(), Err(UnfitFolder::Relative)));
    let longest = format!("/{}", "x".repeat(LocalDir::MAX_BYTES - 1));
    longest.parse::<LocalDir>().unwrap();
    assert!(matches!(format!("{longest}x").parse::<LocalDir>(), Err(UnfitFolder::TooLong)));
    assert_eq!(LocalDir::None.make().unwrap(), None);
}

#[tokio::test]
async fn longest_accepted_path_works() {
    let place = Place::new();
    let room = LocalDir::MAX_BYTES - place.folder.path().as_os_str().len() - 1;
    let dir = LocalDir::At(place.folder.path().join("x".repeat(room)));
    let join = || LocalWakeups::join(&dir, "payroll").unwrap();
    let (a, b) = (join(), join());
    a.wake();
    assert!(place.woken(&b, LONG).await);
}
