//! LocalWakeups in folders of their own, some of them hostile.

use super::*;
use rustix::{
    fs::{Mode, chmod},
    process::geteuid,
};
use std::{
    collections::BTreeSet,
    os::unix::fs::{FileTypeExt as _, symlink},
};
use vvm_clock::SystemClock;

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

    fn meet(&self, name: &str) -> LocalWakeups {
        LocalWakeups::meet(&self.dir(), name, Arc::clone(&self.clock)).unwrap()
    }

    fn files(&self) -> BTreeSet<PathBuf> {
        fs::read_dir(self.path()).unwrap().map(|file| file.unwrap().path()).collect()
    }

    /// Whether it is told within the time; far longer than a datagram takes.
    async fn hears(&self, neighbours: &LocalWakeups, within: Duration) -> bool {
        tokio::select! {
            biased;
            () = neighbours.told() => true,
            () = self.clock.sleep(within) => false,
        }
    }
}

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(60);

fn own(neighbours: &LocalWakeups) -> PathBuf {
    neighbours.ear.as_ref().unwrap().path.clone()
}

/// Makes a file look as if it had lain there for a while.
fn age(path: &Path) {
    let long_ago = SystemWallClock.since_unix_epoch() - ABANDONED * 2;
    let stamp = rustix::fs::Timespec { tv_sec: long_ago.as_secs() as i64, tv_nsec: 0 };
    let stamps = rustix::fs::Timestamps { last_access: stamp, last_modification: stamp };
    rustix::fs::utimensat(rustix::fs::CWD, path, &stamps, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

#[tokio::test]
async fn whoever_shares_the_name_is_told_and_nobody_else() {
    let place = Place::new();
    let [a, b, c] = ["payroll", "payroll", "invoices"].map(|name| place.meet(name));
    a.tell();
    assert!(place.hears(&b, LONG).await);
    assert!(!place.hears(&a, SHORT).await && !place.hears(&c, SHORT).await);
    WakeSender::to(&place.dir(), "payroll").unwrap().tell();
    assert!(place.hears(&a, LONG).await && place.hears(&b, LONG).await);
    assert!(!place.hears(&c, SHORT).await);
}

#[tokio::test]
async fn a_socket_is_ours_alone_and_ends_with_us() {
    let place = Place::new();
    let (a, b) = (place.meet("payroll"), place.meet("payroll"));
    assert_eq!(fs::symlink_metadata(place.path()).unwrap().permissions().mode() & 0o7777, 0o700);
    let found = fs::symlink_metadata(own(&a)).unwrap();
    assert!(found.file_type().is_socket());
    assert_eq!(found.permissions().mode() & 0o7777, 0o600);
    drop(a);
    assert_eq!(place.files(), [own(&b)].into());
}

/// However many come, one is heeded at a time, and one that comes meanwhile is kept.
#[tokio::test]
async fn a_flood_is_heeded_once_in_a_gap() {
    let place = Place::new();
    let (a, b) = (place.meet("payroll"), place.meet("payroll"));
    let (began, mut heard) = (place.clock.now(), 0);
    while place.clock.now().since(began) < Terms::HINT_GAP * 10 {
        for _ in 0..100 {
            a.tell();
        }
        heard += u32::from(place.hears(&b, Duration::from_millis(1)).await);
    }
    // As many as there are gaps, and one at the beginning.
    let gaps = place.clock.now().since(began).div_duration_f64(Terms::HINT_GAP);
    assert!(heard >= 1 && f64::from(heard) <= gaps + 1.0, "heeded {heard} times in {gaps} gaps");
    while place.hears(&b, SHORT).await {}
    a.tell();
    assert!(place.hears(&b, LONG).await);
    a.tell();
    assert!(place.hears(&b, LONG).await, "the one that came in the gap is lost");
}

/// A queue that is full belongs to somebody who has hints enough, say because it is stopped.
#[tokio::test]
async fn one_that_does_not_listen_holds_nobody_up() {
    let place = Place::new();
    let (a, deaf, b) = (place.meet("payroll"), place.meet("payroll"), place.meet("payroll"));
    for _ in 0..2000 {
        a.tell();
    }
    assert!(place.hears(&b, LONG).await && place.hears(&deaf, LONG).await);
}

#[tokio::test]
async fn junk_is_passed_over_and_abandoned_sockets_are_removed() {
    let place = Place::new();
    let (a, b) = (place.meet("payroll"), place.meet("payroll"));
    let named = |end: &str| {
        let name = own(&a).file_name().unwrap().to_str().unwrap().to_owned();
        place.path().join(format!("{}{end}", &name[..16]))
    };
    // Abandoned long ago, and just being made, for all that anybody knows.
    let (abandoned, fresh) = (named("0000000000000001"), named("0000000000000002"));
    for path in [&abandoned, &fresh] {
        drop(UnixDatagram::bind(path).unwrap());
    }
    let junk = [
        (named("0000000000000003"), "a file under a socket's name"),
        (place.path().join("notes.txt"), "a file"),
    ];
    for (path, text) in &junk {
        fs::write(path, text).unwrap();
        age(path);
    }
    age(&abandoned);
    fs::create_dir(named("0000000000000004")).unwrap();
    let elsewhere = place.folder.path().join("elsewhere");
    let victim = UnixDatagram::bind(&elsewhere).unwrap();
    victim.set_nonblocking(true).unwrap();
    symlink(&elsewhere, named("0000000000000005")).unwrap();
    let _stream = std::os::unix::net::UnixListener::bind(named("0000000000000006")).unwrap();
    for number in 0..2000 {
        fs::write(place.path().join(format!("junk-{number}")), "").unwrap();
    }

    a.tell();
    assert!(place.hears(&b, LONG).await);
    assert!(!abandoned.exists() && fresh.exists());
    for (path, text) in &junk {
        assert_eq!(fs::read_to_string(path).unwrap(), *text);
    }
    assert!(victim.recv(&mut [0; 8]).is_err(), "a link was followed");
    assert_eq!(place.files().len(), 2 + 1 + 2 + 3 + 2000);
}

#[tokio::test]
async fn a_folder_that_goes_costs_promptness() {
    let place = Place::new();
    let (a, b) = (place.meet("payroll"), place.meet("payroll"));
    fs::remove_dir_all(place.path()).unwrap();
    a.tell();
    assert!(!place.hears(&b, SHORT).await);
}

/// What others could have put there is not used; what it would take is said.
#[test]
fn a_folder_that_is_not_ours_alone_is_refused() {
    let place = Place::new();
    let refused = |what: &str, hint: &str| {
        for refusal in [place.dir().check().unwrap_err(), place.dir().make().map(drop).unwrap_err()] {
            let said = refusal.to_string();
            assert!(said.contains(hint) && said.contains("or none"), "{what}: {said}");
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

/// Only root can make one, and only others can meet one of root's.
#[test]
fn a_folder_of_somebody_else_is_refused() {
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
fn what_can_be_said() {
    assert_eq!("none".parse::<LocalDir>().unwrap(), LocalDir::None);
    assert_eq!("/run/vvm".parse::<LocalDir>().unwrap(), LocalDir::At("/run/vvm".into()));
    assert!(matches!("run/vvm".parse::<LocalDir>(), Err(UnfitFolder::Relative)));
    let longest = format!("/{}", "x".repeat(LocalDir::MAX_BYTES - 1));
    longest.parse::<LocalDir>().unwrap();
    assert!(matches!(format!("{longest}x").parse::<LocalDir>(), Err(UnfitFolder::TooLong)));
    assert_eq!(LocalDir::None.make().unwrap(), None);
}

/// The longest path that is accepted is one that works.
#[tokio::test]
async fn the_longest_path_works() {
    let place = Place::new();
    let room = LocalDir::MAX_BYTES - place.folder.path().as_os_str().len() - 1;
    let dir = LocalDir::At(place.folder.path().join("x".repeat(room)));
    let meet = || LocalWakeups::meet(&dir, "payroll", Arc::clone(&place.clock)).unwrap();
    let (a, b) = (meet(), meet());
    a.tell();
    assert!(place.hears(&b, LONG).await);
}
