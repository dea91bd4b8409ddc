use super::{ANYWHERE, File, claim, entry, slot, vacant};
use ielections::WriteError;
use rustix::process::geteuid;
use std::{
    env, fs,
    io::ErrorKind,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown},
        process::CommandExt,
    },
    path::Path,
    process::Command,
    thread,
};
use vvm_storage::{
    OpenError, Step, SysVvmStorage,
    sqlite::{OpenOptions, SqliteStorage},
};

#[track_caller]
fn says(error: &OpenError, before: &str, path: &Path, behind: &str) {
    let expected = format!("{before}{}{behind}", path.display());
    assert!(error.to_string().starts_with(&expected), "{error}, not {expected}");
}

#[tokio::test]
async fn file_is_created_once_and_then_reopened() {
    let file = File::used().await;
    assert_eq!(file.open().await.unwrap().read(slot()).await.unwrap(), vacant(Some(1)));
    // The marks by which other programs and later versions recognize the file.
    let by_hand = file.by_hand();
    let number = |pragma| by_hand.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(
        (number("application_id"), number("user_version")),
        (i64::from(u32::from_be_bytes(*b"VVM1")), 2)
    );
    let journal = |by_hand: &rusqlite::Connection| {
        by_hand.pragma_query_value(None, "journal_mode", |row| row.get::<_, String>(0)).unwrap()
    };
    assert_eq!(journal(&by_hand), "wal");
    // A backup may have no log.
    let backup = file.folder.path().join("backup.db");
    by_hand.execute("VACUUM INTO ?", [backup.to_str()]).unwrap();
    assert_eq!(journal(&rusqlite::Connection::open(&backup).unwrap()), "delete");
    let restored = SqliteStorage::open(&backup, ANYWHERE).await.unwrap();
    assert_eq!(restored.read(slot()).await.unwrap(), vacant(Some(1)));
}

#[tokio::test]
async fn path_with_special_characters_is_taken_literally() {
    let file = File::fresh();
    for name in ["file:x?mode=memory", ":memory:", "a b%20ä#", "'"] {
        let path = file.folder.path().join(name);
        let storage = SqliteStorage::open(&path, ANYWHERE).await.unwrap();
        claim(&storage, 1).await;
        drop(storage);
        let reopened = SqliteStorage::open(&path, ANYWHERE).await.unwrap();
        assert_eq!(reopened.read(slot()).await.unwrap().entry(), Some(&entry(1)), "{name}");
    }
}

#[tokio::test]
async fn missing_folder_is_named_and_not_created() {
    let file = File::fresh();
    let folder = file.folder.path().join("missing");
    let error = SqliteStorage::open(&folder.join("elections.db"), ANYWHERE).await.unwrap_err();
    says(&error, "there is no folder ", &folder, ":");
    assert!(!folder.exists());

    fs::write(&file.path, "").unwrap();
    let error = SqliteStorage::open(&file.path.join("elections.db"), ANYWHERE).await.unwrap_err();
    says(&error, "there is no folder ", &file.path, ":");
    let error = SqliteStorage::open(Path::new(""), ANYWHERE).await.unwrap_err();
    assert_eq!(error.to_string(), "no path to a database file");
}

#[tokio::test]
async fn path_of_a_folder_or_device_is_refused() {
    let file = File::fresh();
    for path in [file.folder.path(), Path::new("/"), Path::new("/dev/null")] {
        let error = SqliteStorage::open(path, ANYWHERE).await.unwrap_err();
        says(&error, "", path, " is not a file");
    }
}

#[tokio::test]
async fn file_that_is_no_database_is_refused_and_unchanged() {
    for content in ["x", "hello, world\n", &"minutes of the meeting\n".repeat(1000)] {
        let file = File::fresh();
        fs::write(&file.path, content).unwrap();
        let error = file.open().await.unwrap_err();
        says(&error, "", &file.path, " is not a database");
        assert_eq!(fs::read_to_string(&file.path).unwrap(), content);
    }
}

#[tokio::test]
async fn database_of_another_program_is_refused_and_unchanged() {
    for made_by in [
        "CREATE TABLE customers (name TEXT)",
        "PRAGMA application_id = 252006675",
        "PRAGMA user_version = 3",
        "PRAGMA application_id = 1448496433; PRAGMA user_version = 0; CREATE TABLE t (x)",
    ] {
        let file = File::fresh();
        file.by_hand().execute_batch(made_by).unwrap();
        let before = fs::read(&file.path).unwrap();
        let error = file.open().await.unwrap_err();
        says(&error, "", &file.path, " is a database of another program");
        assert_eq!(fs::read(&file.path).unwrap(), before, "{made_by}");
    }
}

#[tokio::test]
async fn file_of_a_newer_version_is_refused_and_unchanged() {
    let file = File::used().await;
    file.by_hand().pragma_update(None, "user_version", 3).unwrap();
    let before = fs::read(&file.path).unwrap();
    let error = file.open().await.unwrap_err();
    says(&error, "", &file.path, " has format 3, and this version knows formats up to 2");
    assert_eq!(fs::read(&file.path).unwrap(), before);
}

#[tokio::test]
async fn locked_database_is_waited_for_and_then_refused() {
    let file = File::fresh();
    let by_hand = file.by_hand();
    by_hand.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let error = file.open().await.unwrap_err();
    says(&error, "another process has locked ", &file.path, "");
    assert!(error.is_passing());
    by_hand.execute_batch("ROLLBACK").unwrap();
    claim(&file.open().await.unwrap(), 1).await;
}

#[tokio::test]
async fn file_with_a_second_hard_link_is_refused() {
    let file = File::used().await;
    let second = file.folder.path().join("second.db");
    fs::hard_link(&file.path, &second).unwrap();
    let error = file.open().await.unwrap_err();
    assert!(error.to_string().contains("several hard links"), "{error}");
    fs::remove_file(&second).unwrap();
    // SQLite follows a symbolic link to the same file and the same log.
    std::os::unix::fs::symlink(&file.path, &second).unwrap();
    let (direct, linked) =
        (file.open().await.unwrap(), SqliteStorage::open(&second, ANYWHERE).await.unwrap());
    claim(&direct, 2).await;
    assert_eq!(linked.read(slot()).await.unwrap().entry(), Some(&entry(2)));
}

#[tokio::test]
async fn damaged_database_is_fatal_and_unchanged() {
    let file = File::used().await;
    let mut bytes = fs::read(&file.path).unwrap();
    // The header has the page size. The first page has the schema, and the tables follow.
    let page = usize::from(u16::from_be_bytes([bytes[16], bytes[17]]));
    bytes[page..].fill(0xff);
    fs::write(&file.path, &bytes).unwrap();
    let storage = file.open().await.unwrap();
    let error = storage.commit(slot(), Step::claim(&vacant(Some(1)), &entry(2))).await.unwrap_err();
    assert!(matches!(error, WriteError::Fatal(_)), "{error:?}");
    assert!(error.to_string().contains("damaged"), "{error}");
    let error = storage.read(slot()).await.unwrap_err();
    assert!(matches!(error, ielections::ReadError::Fatal(_)), "{error:?}");
    storage.close().await;
    assert_eq!(fs::read(&file.path).unwrap(), bytes);
}

/// The path for a test that runs again as an ordinary user.
const PLACE: &str = "VVM_STORAGE_TEST_PLACE";
const NOBODY: u32 = 65534;

/// Checks a file as an ordinary user. Root may write everywhere, so as root this runs the test again as such a user.
async fn as_other_user(test: &str, make: impl AsyncFnOnce() -> File, check: impl AsyncFnOnce(&Path)) {
    if let Some(path) = env::var_os(PLACE) {
        return check(Path::new(&path)).await;
    }
    let file = make().await;
    if geteuid().is_root() {
        // The checkout may be in a folder that only root can read, so the user gets a copy.
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let copy = folder.path().join("as-other-user");
        fs::copy(env::current_exe().unwrap(), &copy).unwrap();
        let mut again = Command::new(copy);
        let test = format!("sqlite::opening::{test}");
        again.args(["--exact", &test, "--nocapture"]).env(PLACE, &file.path).current_dir(folder.path());
        again.uid(NOBODY).gid(NOBODY);
        let ended = loop {
            match again.output() {
                // A process that another test starts has the copy open for writing until it executes its program.
                Err(busy) if busy.kind() == ErrorKind::ExecutableFileBusy => thread::yield_now(),
                ended => break ended.unwrap(),
            }
        };
        let text = String::from_utf8_lossy(&ended.stdout);
        // With a name of no test, it would succeed without a check.
        let error = String::from_utf8_lossy(&ended.stderr);
        assert!(text.contains("test result: ok. 1 passed"), "{text}{error}");
    } else {
        check(&file.path).await;
        fs::set_permissions(file.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

fn give_to_other_user(paths: &[&Path]) {
    if geteuid().is_root() {
        paths.iter().for_each(|path| chown(path, Some(NOBODY), Some(NOBODY)).unwrap());
    }
}

#[tokio::test]
async fn read_only_file_is_refused() {
    let make = async || {
        let file = File::used().await;
        fs::set_permissions(&file.path, fs::Permissions::from_mode(0o444)).unwrap();
        give_to_other_user(&[file.folder.path(), &file.path]);
        file
    };
    as_other_user("read_only_file_is_refused", make, async |path| {
        let error = SqliteStorage::open(path, ANYWHERE).await.unwrap_err();
        says(&error, "", path, " (owner");
        assert!(error.to_string().contains("can't be written by this user"), "{error}");
    })
    .await;
}

#[tokio::test]
async fn read_only_folder_is_refused() {
    let make = async || {
        let file = File::used().await;
        fs::set_permissions(file.folder.path(), fs::Permissions::from_mode(0o555)).unwrap();
        give_to_other_user(&[file.folder.path(), &file.path]);
        file
    };
    as_other_user("read_only_folder_is_refused", make, async |path| {
        let folder = path.parent().unwrap();
        for path in [path.to_owned(), folder.join("new.db")] {
            let error = SqliteStorage::open(&path, ANYWHERE).await.unwrap_err();
            says(&error, "the folder ", folder, " (owner");
            assert!(error.to_string().contains("mode 0555) can't be written"), "{error}");
        }
    })
    .await;
}

/// Side files of another user would lock out every candidate.
#[tokio::test]
async fn user_that_may_only_read_creates_no_side_file_in_a_folder_for_all() {
    let make = async || {
        let file = File::used().await;
        fs::set_permissions(&file.path, fs::Permissions::from_mode(0o444)).unwrap();
        fs::set_permissions(file.folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        file
    };
    as_other_user("user_that_may_only_read_creates_no_side_file_in_a_folder_for_all", make, async |path| {
        let lead = SqliteStorage::open(path, ANYWHERE).await.unwrap_err();
        says(&lead, "", path, " (owner");
        let found = fs::read_dir(path.parent().unwrap()).unwrap().map(|found| found.unwrap().path());
        assert_eq!(found.collect::<Vec<_>>(), [path]);
    })
    .await;
}

#[tokio::test]
async fn side_file_that_cannot_be_written_is_named_with_its_owner() {
    let make = async || {
        let file = File::used().await;
        let side = format!("{}-shm", file.path.display());
        fs::write(&side, "").unwrap();
        fs::set_permissions(&side, fs::Permissions::from_mode(0o444)).unwrap();
        give_to_other_user(&[file.folder.path(), &file.path]);
        file
    };
    as_other_user("side_file_that_cannot_be_written_is_named_with_its_owner", make, async |path| {
        let error = SqliteStorage::open(path, ANYWHERE).await.unwrap_err().to_string();
        let side = fs::metadata(format!("{}-shm", path.display())).unwrap();
        let owner = if side.uid() == 0 { "root" } else { "" };
        let named = format!("{}-shm (owner {owner}", path.display());
        assert!(error.contains(&named) && error.contains("mode 0444"), "{error}");
    })
    .await;
}

#[tokio::test]
async fn file_of_another_user_names_the_user_that_can_write_it() {
    let make = async || {
        let file = File::used().await;
        fs::set_permissions(file.folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let mode = if geteuid().is_root() { 0o600 } else { 0o000 };
        fs::set_permissions(&file.path, fs::Permissions::from_mode(mode)).unwrap();
        file
    };
    as_other_user("file_of_another_user_names_the_user_that_can_write_it", make, async |path| {
        let error = SqliteStorage::open(path, ANYWHERE).await.unwrap_err().to_string();
        let is_owner = fs::metadata(path).unwrap().uid() == geteuid().as_raw();
        let way_out = if is_owner { "correct its permissions" } else { "run it as root, or let this user" };
        assert!(error.contains("can't be written by this user") && error.contains(way_out), "{error}");
    })
    .await;
}

#[tokio::test]
async fn file_and_side_files_are_created_for_the_user_alone_or_with_the_group() {
    for (options, mode) in [(ANYWHERE, 0o600), (OpenOptions { for_group: true, ..ANYWHERE }, 0o660)] {
        let file = File::fresh();
        let storage = SqliteStorage::open(&file.path, options).await.unwrap();
        claim(&storage, 1).await;
        for side in ["", "-wal", "-shm"] {
            let path = format!("{}{side}", file.path.display());
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode, "{path}");
        }
    }
}

#[tokio::test]
async fn permissions_of_an_existing_file_are_kept_and_a_concern_if_every_user_can_read_it() {
    let file = File::used().await;
    let concerns = async || file.open().await.unwrap().describe().await.unwrap().concerns.join("\n");
    assert!(!concerns().await.contains("every user of this machine"));
    fs::set_permissions(&file.path, fs::Permissions::from_mode(0o644)).unwrap();
    let found = concerns().await;
    assert!(found.contains("every user of this machine") && found.contains("chmod o-rwx"), "{found}");
    assert_eq!(fs::metadata(&file.path).unwrap().permissions().mode() & 0o777, 0o644);
}
