//! Each kind of file: what is written, and what exists afterwards.

use super::*;
use std::{
    os::unix::{fs::symlink, net::UnixListener},
    process::Command,
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
fn fifo_without_a_reader_is_not_waited_for() {
    let folder = folder();
    let path = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    check(&path, &[]).unwrap();
    let refusal = write(&path, TEXT).unwrap_err().to_string();
    assert!(refusal.contains("no process reads it"), "{refusal}");
    assert!(fs::symlink_metadata(&path).unwrap().file_type().is_fifo());
}

/// Checks `place` before it writes: with a mistake there, a write would replace the device.
#[test]
fn null_device_is_opened_and_stays_a_device() {
    let null = Path::new("/dev/null");
    assert_eq!(place(null).unwrap(), Place::Opened);
    put(null).unwrap();
    assert!(fs::symlink_metadata(null).unwrap().file_type().is_char_device());
}

#[test]
fn folders_sockets_missing_folders_and_circular_symlinks_are_refused_early() {
    let folder = folder();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    symlink(&one, &other).unwrap();
    symlink(&other, &one).unwrap();
    let socket = folder.path().join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    for (path, why) in [
        (folder.path().to_path_buf(), "name a file"),
        (socket, "block device or a socket"),
        (folder.path().join("missing/result"), "a folder that exists"),
        (one, "name a file"),
    ] {
        assert!(refusal(&path).contains(why), "{}", refusal(&path));
    }
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
        assert!(!text.contains("entity not found") && !text.contains("no storage space"), "{text}");
    }
}
