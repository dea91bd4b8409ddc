//! [`FileSystem`]: a list of those with reliable locks between processes and syncs. Unreliable locks mean two leaders.

use std::{fmt, io, path::Path};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) struct FileSystem(u32);

/// Local file systems of Linux (numbers: `linux/magic.h` and their own headers). ext2 and ext3 have the number of ext4.
const SUPPORTED: [(u32, &str); 11] = [
    (0xef53, "ext4"),
    (0x5846_5342, "XFS"),
    (0x9123_683e, "Btrfs"),
    (0x2fc1_2fc1, "ZFS"),
    (0xf2f5_2010, "F2FS"),
    (0xca45_1a4e, "bcachefs"),
    (0x3153_464a, "JFS"),
    (0x5265_4973, "ReiserFS"),
    (0x3434, "NILFS2"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
];

/// Local, but not shared: each container of one image has an upper layer of its own.
const OVERLAY: (u32, &str) = (0x794c_7630, "overlayfs");

const REFUSED: [(u32, &str); 10] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "SMB (CIFS)"),
    (0xfe53_4d42, "SMB 2"),
    (0x6573_5546, "FUSE or virtiofs"),
    (0x0102_1997, "9p"),
    (0x00c3_6400, "CephFS"),
    (0x5346_414f, "AFS"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
];

impl FileSystem {
    pub(in super::super) fn detect(path: &Path) -> io::Result<Self> {
        // Width and sign differ between machines; the numbers have 32 bits on all.
        Ok(Self(rustix::fs::statfs(path)?.f_type as u32))
    }

    pub(super) fn is_supported(self) -> bool {
        SUPPORTED.iter().any(|(number, _)| *number == self.0)
    }

    pub(in super::super) fn is_in_memory(self) -> bool {
        matches!(self.0, 0x0102_1994 | 0x8584_58f6)
    }

    /// Whether it may be a container's own layer, which no other container sees.
    pub(in super::super) fn is_layered(self) -> bool {
        self.0 == OVERLAY.0
    }

    pub(super) fn supported() -> String {
        SUPPORTED.map(|(_, name)| name).join(", ")
    }
}

impl fmt::Display for FileSystem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match SUPPORTED.iter().chain(&REFUSED).chain([&OVERLAY]).find(|(number, _)| *number == self.0) {
            Some((_, name)) => out.write_str(name),
            None => write!(out, "a file system of unknown type 0x{:x}", self.0),
        }
    }
}

#[cfg(test)]
impl FileSystem {
    pub(in super::super) const NFS: Self = Self(0x6969);
    pub(in super::super) const EXT4: Self = Self(0xef53);
    pub(in super::super) const OVERLAY: Self = Self(0x794c_7630);
    pub(in super::super) const TMPFS: Self = Self(0x0102_1994);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlisted_file_system_is_refused() {
        for (number, name) in REFUSED {
            assert!(!FileSystem(number).is_supported(), "{name}");
        }
        assert!(!FileSystem(0).is_supported());
        assert!(FileSystem::EXT4.is_supported());
        assert_eq!(FileSystem::NFS.to_string(), "NFS");
        for (number, name) in SUPPORTED {
            assert_eq!(FileSystem(number).is_in_memory(), ["tmpfs", "ramfs"].contains(&name), "{name}");
            assert!(!FileSystem(number).is_layered(), "{name}");
        }
        assert!(FileSystem::OVERLAY.is_layered() && !FileSystem::OVERLAY.is_supported());
        assert_eq!(FileSystem::OVERLAY.to_string(), "overlayfs");
        assert_eq!(FileSystem(0xabc).to_string(), "a file system of unknown type 0xabc");
    }

    #[test]
    fn file_system_of_a_path_is_found() {
        // Every Linux has it, and no file can be stored there.
        let proc = FileSystem::detect(Path::new("/proc")).unwrap();
        assert_eq!(proc.to_string(), "a file system of unknown type 0x9fa0");
        assert!(!proc.is_supported());
    }
}
