//! Each kind of file: what is written, and what exists afterwards.

use super::*;
use std::{
    io::Read as _,
    os::unix::{fs::symlink, net::UnixListener},
    process::Command,
    thread,
};

const TEXT: &[u8] = b"{}\n";

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Checks and writes.
fn put(path: &Path) -> Result<(), Unwritable> {
    check(path, &[])?;
    write(path, TEXT)
}

fn refusal(path: &Path) -> String {
    check(path, &[]).unwrap_err().to_string()
}

#[test]
fn regular_file_is_replaced_whole() {
    let folder = folder();
    let path = folder.path().join("result");
    fs::write(&path, "of an earlier run, and longer").unwrap();
    let before = fs::metadata(&path).unwrap().ino();
    put(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), TEXT);
    assert_ne!(fs::metadata(&path).unwrap().ino(), before, "a reader of the old file has all of it");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn symlinks_stay_and_their_target_is_replaced_or_made() {
    let folder = folder();
    fs::create_dir(folder.path().join("there")).unwrap();
    for existing in [true, false] {
        let target = folder.path().join("there/result");
        let (first, second) = (folder.path().join("first"), folder.path().join("there/second"));
        symlink("there/second", &first).unwrap();
        symlink("result", &second).unwrap();
        if existing {
            fs::write(&target, "of an earlier run").unwrap();
        }
        put(&first).unwrap();
        assert_eq!(fs::read(&target).unwrap(), TEXT);
        for link in [first, second] {
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink(), "{}", link.display());
            fs::remove_file(link).unwrap();
        }
        fs::remove_file(target).unwrap();
    }
}

#[test]
fn circular_symlinks_are_refused() {
    let folder = folder();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    symlink(&one, &other).unwrap();
    symlink(&other, &one).unwrap();
    assert!(refusal(&one).contains("name a file"), "{}", refusal(&one));
}

fn fifo(folder: &Path) -> PathBuf {
    let path = folder.join("fifo");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

#[test]
fn fifo_is_written_to_and_stays_one() {
    let folder = folder();
    let path = fifo(folder.path());
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut text = Vec::new();
            File::open(&path).unwrap().read_to_end(&mut text).unwrap();
            text
        });
        // Until the reader waits for a writer.
        while put(&path).is_err() {
            thread::yield_now();
        }
        assert_eq!(reader.join().unwrap(), TEXT, "the check does not open it: its reader would see its end");
    });
    assert!(fs::symlink_metadata(&path).unwrap().file_type().is_fifo());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn fifo_without_a_reader_is_not_waited_for() {
    let folder = folder();
    let path = fifo(folder.path());
    check(&path, &[]).unwrap();
    let refusal = write(&path, TEXT).unwrap_err().to_string();
    assert!(refusal.contains("no process reads it"), "{refusal}");
    assert!(fs::symlink_metadata(&path).unwrap().file_type().is_fifo());
}

/// Decided without a write first: a mistake here would replace the device.
#[test]
fn null_device_is_opened_and_stays_a_device() {
    let null = Path::new("/dev/null");
    assert_eq!(place(null).unwrap(), Place::Opened);
    put(null).unwrap();
    assert!(fs::symlink_metadata(null).unwrap().file_type().is_char_device());
}

#[test]
fn descriptors_are_opened_also_on_regular_files() {
    let folder = folder();
    let path = folder.path().join("output");
    let mut output = File::create(&path).unwrap();
    output.write_all(b"before\n").unwrap();
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&output);
    for name in [format!("/dev/fd/{descriptor}"), format!("/proc/self/fd/{descriptor}")] {
        assert_eq!(place(Path::new(&name)).unwrap(), Place::Opened);
        put(Path::new(&name)).unwrap();
    }
    assert_eq!(fs::read(&path).unwrap(), b"before\n{}\n{}\n");
}

#[test]
fn folders_sockets_and_missing_folders_are_refused_early() {
    let folder = folder();
    let socket = folder.path().join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    for (path, why) in [
        (folder.path().to_path_buf(), "name a file"),
        (socket, "block device or a socket"),
        (folder.path().join("missing/result"), "a folder that exists"),
    ] {
        assert!(refusal(&path).contains(why), "{}", refusal(&path));
    }
}

#[test]
fn files_of_the_storage_are_refused_under_every_name() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("x.db"), "").unwrap();
    fs::hard_link(at("x.db"), at("hard")).unwrap();
    symlink("x.db", at("soft")).unwrap();
    symlink("x.db-wal", at("dangling")).unwrap();
    fs::create_dir(at("sub")).unwrap();
    let of_storage = [at("x.db"), at("x.db-wal")];
    for name in ["x.db", "hard", "soft", "x.db-wal", "dangling", "sub/../x.db", "sub/../x.db-wal"] {
        let refusal = check(&at(name), &of_storage).unwrap_err().to_string();
        assert!(refusal.contains("it belongs to the storage"), "{name}: {refusal}");
    }
    check(&at("result"), &of_storage).unwrap();
}

#[test]
fn refusals_say_what_to_do() {
    let table = [
        (io::ErrorKind::StorageFull, "make room"),
        (io::ErrorKind::QuotaExceeded, "make room"),
        (io::ErrorKind::PermissionDenied, "let this user write"),
        (io::ErrorKind::ReadOnlyFilesystem, "mounted to be written"),
        (io::ErrorKind::NotFound, "a folder that exists"),
    ];
    for (kind, way_out) in table {
        let text = Unwritable { path: "result".into(), cause: Cause::System(kind) }.to_string();
        assert!(text.contains(way_out), "{text}");
    }
}
