//! Who owns a database file, and what a user can do who may not use it.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path};

/// Returns the owner and the mode of a file, as `owner payroll, mode 0600`.
pub(super) fn owner_and_mode(path: &Path) -> String {
    fs::metadata(path).map_or_else(
        |_| "owner unknown".to_owned(),
        |metadata| format!("owner {}, mode {:04o}", user(metadata.uid()), metadata.mode() & 0o7777),
    )
}

/// Returns owner and mode of the file at `path`, and whether its folder has another owner.
pub(super) fn owners(path: &Path) -> String {
    let found = owner_and_mode(path);
    let (file_owner, folder_owner) = (owner(path), owner(folder(path)));
    if file_owner == folder_owner {
        return found;
    }
    format!("{found}; its folder belongs to {folder_owner}: can the candidates' user write the file?")
}

/// Returns what to do about a database that this user can't write or read: run as its owner, unless the user
/// is the owner. Then file or folder have the wrong rights.
pub(super) fn way_in(path: &Path) -> String {
    let owner = owner(path);
    if owner != this_user() {
        return format!("run it as {owner}");
    }
    let folder = folder(path);
    format!(
        "correct the rights of the file ({}), of its folder {} ({}), or its mount",
        owner_and_mode(path),
        folder.display(),
        owner_and_mode(folder)
    )
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the name of a file's owner.
fn owner(path: &Path) -> String {
    fs::metadata(path).map_or_else(|_| "its owner".to_owned(), |metadata| user(metadata.uid()))
}

/// Returns the name of the user that this process runs as.
pub(super) fn this_user() -> String {
    user(rustix::process::geteuid().as_raw())
}

/// Returns the name from the user database of this machine, or the number.
fn user(id: u32) -> String {
    let number = id.to_string();
    let list = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = list.lines().find_map(|user| {
        let mut fields = user.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then(|| name.to_owned())
    });
    name.unwrap_or(number)
}
