//! Options, and [`DatabaseFiles`]: whether a database file may lie where it does, and whether it still does. This code
//! never opens the file. Closing any descriptor of it would drop the locks that SQLite holds in this process: POSIX
//! locks belong to the process, not to the descriptor.

use super::{
    file_system::FileSystem,
    obstacle::{Obstacle, not_a_database, of_system, read_only_file, refused},
};
use crate::sysvvm::{Description, OpenedStorage, Provenance};
use rustix::{
    fs::{Access, access},
    io::Errno,
};
use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// How to open a database file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OpenOptions {
    /// Accept a file on overlayfs: the caller knows that all candidates see this overlay. Other file systems on
    /// which candidates may not share the file are refused.
    pub allow_overlay: bool,
    /// Create the file for its user and group (0660), not for its user alone (0600). Has no effect on an existing file.
    pub for_group: bool,
}

/// The files of an open database, and their identities: the file, its log and the log's index. If the index
/// is deleted, the next process creates another one, and then neither respects the other's locks.
#[derive(Debug)]
pub(super) struct DatabaseFiles([Located; 3]);

#[derive(Debug)]
struct Located {
    path: PathBuf,
    identity: (u64, u64),
}

impl DatabaseFiles {
    /// Returns the place of a database that was read: while it is open, SQLite keeps log and index in place. `beside`
    /// is the path without symbolic links; log and index lie there.
    pub(super) fn find(path: PathBuf, beside: &Path) -> Result<Self, Obstacle> {
        let companion = |suffix| {
            let mut name = beside.as_os_str().to_owned();
            name.push(suffix);
            Located::at(name.into())
        };
        Ok(Self([Located::at(path)?, companion("-wal")?, companion("-shm")?]))
    }

    pub(super) fn is_unchanged(&self) -> bool {
        self.0.iter().all(Located::is_unchanged)
    }
}

impl Located {
    fn at(path: PathBuf) -> Result<Self, Obstacle> {
        match fs::metadata(&path) {
            Ok(metadata) => Ok(Self { identity: identity(&metadata), path }),
            Err(cause) => Err(of_system(&path, &cause)),
        }
    }

    fn is_unchanged(&self) -> bool {
        // Other errors prove nothing. Reading or writing will report them.
        fs::metadata(&self.path).map_or_else(
            |error| error.kind() != io::ErrorKind::NotFound,
            |metadata| identity(&metadata) == self.identity,
        )
    }
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

pub(super) fn absolute(path: &Path) -> Result<PathBuf, Obstacle> {
    if path.as_os_str().is_empty() {
        return Err(refused("no path to a database file"));
    }
    std::path::absolute(path).map_err(|cause| of_system(path, &cause))
}

pub(super) fn check(
    path: &Path,
    options: OpenOptions,
    file_system_of: impl Fn(&Path) -> io::Result<FileSystem>,
) -> Result<(), Obstacle> {
    let Some(folder) = path.parent() else { return Err(not_a_file(path)) };
    match fs::metadata(folder) {
        Ok(metadata) if metadata.is_dir() => {}
        Err(cause) if !is_missing(&cause) => return Err(of_system(folder, &cause)),
        // It is not created, since the path may be wrong.
        _ => {
            let folder = folder.display();
            let way_out = "create it (mkdir -p), or correct the path";
            return Err(refused(format!("there is no folder {folder}: {way_out}")));
        }
    }
    let there = match fs::metadata(path) {
        Ok(metadata) => {
            check_file(path, &metadata)?;
            path
        }
        // SQLite would create the target, wherever that is.
        Err(error) if is_missing(&error) && path.is_symlink() => {
            return Err(refused(format!(
                "{} is a symbolic link without a target: name the file itself, or remove the link",
                path.display()
            )));
        }
        Err(error) if is_missing(&error) => folder,
        Err(cause) => return Err(of_system(path, &cause)),
    };
    let file_system = file_system_of(there).map_err(|cause| of_system(there, &cause))?;
    if file_system.is_supported() {
        return Ok(());
    }
    let why = match file_system.is_layered() {
        true if options.allow_overlay => return Ok(()),
        true => format!(
            "{} is on overlayfs: at this path, each container of an image has a file of its own, so a candidate \
             in each would lead. Name a file on a volume or a bind mount; or, if all candidates see this \
             overlay, add `?allow=overlay` to the URL",
            path.display()
        ),
        false => format!(
            "{} is on {file_system}, where locks between processes are unreliable: use a local file system ({})",
            there.display(),
            FileSystem::supported()
        ),
    };
    Err(refused(why))
}

fn not_a_file(path: &Path) -> Obstacle {
    refused(format!("{} is not a file: name the database file itself", path.display()))
}

/// Fails if the file, its log or the log's index exists and can't be written by this user. Checked before SQLite opens
/// anything: a connection that can't write the file would still create a log and an index, as files of this user. They
/// would keep every other user from writing.
pub(super) fn check_writable(path: &Path) -> Result<(), Obstacle> {
    // SQLite may remove log and index meanwhile: another process closes the database.
    let is_obstacle = |file: &PathBuf| {
        let allowed = access(file, Access::READ_OK | Access::WRITE_OK);
        file.exists() && allowed.is_err_and(|error| error != Errno::NOENT)
    };
    let [log, index] = side_files(path);
    match [path.to_owned(), log, index].into_iter().find(is_obstacle) {
        Some(file) => Err(read_only_file(&file)),
        None => Ok(()),
    }
}

/// SQLite names log and index after the target of a symbolic link.
fn side_files(path: &Path) -> [PathBuf; 2] {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    ["-wal", "-shm"].map(|suffix| {
        let mut name = target.clone().into_os_string();
        name.push(suffix);
        name.into()
    })
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The smallest page of a database. SQLite treats a shorter file as an empty one.
const SMALLEST: u64 = 512;

fn check_file(path: &Path, metadata: &Metadata) -> Result<(), Obstacle> {
    if !metadata.is_file() {
        return Err(not_a_file(path));
    }
    if (1..SMALLEST).contains(&metadata.len()) {
        return Err(not_a_database(path));
    }
    // The log lies beside the file, under its name: another name has another log.
    let shared = |how: &str| {
        Err(refused(format!(
            "{} is {how}: a candidate with another name for it does not see what is written here, and both could \
             lead; share its folder",
            path.display()
        )))
    };
    if metadata.nlink() > 1 {
        return shared("a file with several hard links");
    }
    if is_mount(path) {
        return shared("mounted as a single file");
    }
    Ok(())
}

/// Whether the file itself is a mount point (`--volume file:file`).
fn is_mount(path: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
    // Unknown before Linux 5.8.
    statx(CWD, path, AtFlags::empty(), StatxFlags::empty()).is_ok_and(|status| {
        status.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT)
            && status.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
    })
}

#[derive(Clone, Debug)]
pub(in crate::drivers::sqlite) struct Location {
    given: PathBuf,
    path: PathBuf,
    provenance: Provenance,
    file_system: Option<FileSystem>,
    mode: Option<u32>,
}

impl Location {
    pub(super) fn new(given: &Path, path: &Path, provenance: Provenance) -> Self {
        Self {
            given: given.to_owned(),
            path: path.to_owned(),
            provenance,
            file_system: FileSystem::detect(path).ok(),
            mode: fs::metadata(path).ok().map(|metadata| metadata.mode() & 0o777),
        }
    }

    pub(in crate::drivers::sqlite) fn opened(&self) -> OpenedStorage {
        let opened = OpenedStorage::at(self.path.display().to_string(), self.provenance);
        match self.file_system {
            Some(file_system) => opened.on(file_system.to_string()),
            None => opened,
        }
    }

    pub(in crate::drivers::sqlite) fn describe(&self, mut description: Description) -> Description {
        if let Some(file_system) = self.file_system {
            description = description.with("file system", file_system);
        }
        self.concerns().into_iter().fold(description, Description::concerned)
    }

    fn concerns(&self) -> Vec<String> {
        let mut concerns = Vec::new();
        if self.given.is_relative() {
            concerns.push(format!(
                "the path {} is relative: it means {} here, and another file for a candidate with another \
                 working folder. Write the absolute path",
                self.given.display(),
                self.path.display()
            ));
        }
        if let Some(file_system) = self.file_system.filter(|found| found.is_in_memory()) {
            concerns.push(format!(
                "the file is on {file_system}, in memory: a reboot deletes it with its epochs, and a container or \
                 a unit with such a mount of its own does not see it. Keep it on a disk"
            ));
        }
        if self.file_system.is_some_and(FileSystem::is_layered) {
            concerns.push(
                "the file is on overlayfs, which the URL allows (allow=overlay): if that is a container's \
                 own layer, it is deleted with the container, and no other container sees it. Keep it on a \
                 volume"
                    .into(),
            );
        }
        if ["/tmp", "/var/tmp"].iter().any(|shared| self.path.starts_with(shared)) {
            concerns.push(format!(
                "{} is in a temporary folder: a systemd unit with PrivateTmp=yes has its own one at the same \
                 path, so two units would have two files. Keep it in a folder below /var/lib",
                self.path.display()
            ));
        }
        if let Some(mode) = self.mode.filter(|mode| mode & 0o007 != 0) {
            let path = self.path.display();
            concerns.push(format!(
                "every user of this machine has access to {path} (mode {mode:04o}): one that only reads can \
                 hold a lock that stops the elections. Run: chmod o-rwx {path} {path}-wal {path}-shm"
            ));
        }
        concerns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(given: &str, file_system: FileSystem) -> Location {
        let path = Path::new("/var/lib").join(given);
        let (given, file_system) = (given.into(), Some(file_system));
        Location { given, path, provenance: Provenance::Existing, file_system, mode: Some(0o660) }
    }

    #[test]
    fn log_that_is_removed_meanwhile_is_no_obstacle() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        fs::write(&path, "").unwrap();
        let [log, _] = side_files(&path);
        std::thread::scope(|scope| {
            let others = scope.spawn(|| {
                for _ in 0..20_000 {
                    fs::write(&log, "").unwrap();
                    fs::remove_file(&log).unwrap();
                }
            });
            while !others.is_finished() {
                check_writable(&path).unwrap();
            }
        });
    }

    #[test]
    fn file_that_other_candidates_may_not_see_is_a_concern() {
        let concerns = |given, file_system| at(given, file_system).concerns();
        assert!(concerns("/x.db", FileSystem::TMPFS)[0].contains("Keep it on a disk"));
        assert!(concerns("/x.db", FileSystem::OVERLAY)[0].contains("Keep it on a volume"));
        let relative = concerns("x.db", FileSystem::EXT4);
        assert!(relative[0].contains("the path x.db is relative: it means /var/lib/x.db"), "{relative:?}");
        for temporary in ["/tmp/x.db", "/var/tmp/a/x.db"] {
            assert!(concerns(temporary, FileSystem::EXT4)[0].contains("PrivateTmp=yes"));
        }
        for fine in ["/x.db", "/tmpx/x.db"] {
            assert_eq!(concerns(fine, FileSystem::EXT4), [""; 0]);
        }
    }
}
