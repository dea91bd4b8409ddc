//! Who owns the files of a database, for messages.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path};

/// Returns the owner and the mode of a file, as `owner payroll, mode 0600`.
pub(super) fn owner_and_mode(path: &Path) -> String {
    fs::metadata(path).map_or_else(
        |_| "owner unknown".to_owned(),
        |metadata| format!("owner {}, mode {:04o}", user(metadata.uid()), metadata.mode() & 0o7777),
    )
}

/// Returns owner and mode of the file at `path`, and whether its folder has another owner.
pub(in super::super) fn owners(path: &Path) -> String {
    let found = owner_and_mode(path);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (file_owner, folder_owner) = (owner(path), owner(folder));
    if file_owner == folder_owner {
        return found;
    }
    format!("{found}; its folder belongs to {folder_owner}: can the candidates' user write the file?")
}

/// Returns the name of a file's owner.
pub(super) fn owner(path: &Path) -> String {
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
