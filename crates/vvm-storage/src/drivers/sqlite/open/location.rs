//! [`Location`]: where an open database file lies, and what is unwise about that.

use super::file_system::{FileSystem, Mount};
use crate::sysvvm::{Description, Opened, Provenance};
use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// Where an open database file lies.
#[derive(Clone, Debug)]
pub(in crate::drivers::sqlite) struct Location {
    /// The caller's path.
    given: PathBuf,
    path: PathBuf,
    provenance: Provenance,
    file_system: Option<FileSystem>,
    mount: Option<Mount>,
    /// The permissions. `None` if the system did not return them.
    mode: Option<u32>,
}

impl Location {
    /// Returns the location of the file at `path`, which is `given` made absolute.
    pub(super) fn of(given: &Path, path: &Path, provenance: Provenance) -> Self {
        Self {
            given: given.to_owned(),
            path: path.to_owned(),
            provenance,
            file_system: FileSystem::of(path).ok(),
            mount: Mount::of(path),
            mode: fs::metadata(path).ok().map(|metadata| metadata.mode() & 0o777),
        }
    }

    /// Returns the location for start lines and logs.
    pub(in crate::drivers::sqlite) fn opened(&self) -> Opened {
        let opened = Opened::at(self.path.display().to_string(), self.provenance);
        match self.file_system() {
            Some(file_system) => opened.on(file_system),
            None => opened,
        }
    }

    /// Adds the file system and the concerns to `description`.
    pub(in crate::drivers::sqlite) fn describe(&self, mut description: Description) -> Description {
        if let Some(file_system) = self.file_system() {
            description = description.with("file system", file_system);
        }
        self.concerns().into_iter().fold(description, Description::concerned)
    }

    /// Returns the name of the file system. Several share one number; the mount tells which it is.
    fn file_system(&self) -> Option<String> {
        let names = self.file_system?.to_string();
        let exact = self.mount.as_ref().map(|mount| mount.file_system.as_str());
        Some(match exact.filter(|exact| names.split(", ").any(|name| name == *exact)) {
            Some(exact) => exact.to_owned(),
            None => names.replace(", ", "/"),
        })
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
        if self.file_system.is_some_and(FileSystem::is_in_memory) {
            concerns.push(format!(
                "the file is on {}, in memory: a reboot deletes it with its epochs, and a container or a \
                 unit with such a mount of its own does not see it. Keep it on a disk",
                self.file_system().unwrap_or_default()
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
        if self.mount.as_ref().is_some_and(Mount::is_private_to_a_unit) {
            concerns.push(format!(
                "{} is in a temporary folder of one systemd unit (PrivateTmp=): no other unit sees it, and \
                 it is deleted when the unit stops. Keep it in a folder that all candidates see, as one \
                 below /var/lib",
                self.path.display()
            ));
        } else if ["/tmp", "/var/tmp"].iter().any(|shared| self.path.starts_with(shared)) {
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
        Location {
            given,
            path,
            provenance: Provenance::Existing,
            file_system,
            mount: None,
            mode: Some(0o660),
        }
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

    #[test]
    fn file_that_every_user_can_read_is_a_concern() {
        let mut location = at("/x.db", FileSystem::EXT4);
        location.mode = Some(0o644);
        let concern = location.concerns().remove(0);
        assert!(
            concern.contains("(mode 0644)") && concern.contains("chmod o-rwx /x.db /x.db-wal"),
            "{concern}"
        );
    }

    #[test]
    fn mount_tells_file_systems_of_one_number_apart() {
        let mut location = at("/x.db", FileSystem::EXT4);
        assert_eq!(location.file_system().unwrap(), "ext2/ext3/ext4");
        let root = "/".to_owned();
        location.mount = Some(Mount { root: root.clone(), file_system: "ext4".into() });
        assert_eq!(location.file_system().unwrap(), "ext4");
        location.mount = Some(Mount { root, file_system: "nfs".into() });
        assert_eq!(location.file_system().unwrap(), "ext2/ext3/ext4");
    }
}
