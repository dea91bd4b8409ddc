//! [`Mount`]: the mount that a file is reached through, as `/proc/self/mountinfo` lists it
//! (proc_pid_mountinfo(5)).

use std::path::Path;

/// One line of the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Mount {
    /// The folder of the file system at the mount point.
    pub(super) root: String,
    /// The name of the type, which tells ext2, ext3 and ext4 apart.
    pub(super) file_system: String,
}

impl Mount {
    /// Returns the mount of `path`, or `None` before Linux 5.8 and elsewhere.
    #[cfg(target_os = "linux")]
    pub(super) fn of(path: &Path) -> Option<Self> {
        use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
        let status = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
        let is_known = status.stx_mask & StatxFlags::MNT_ID.bits() != 0;
        is_known.then(|| {
            Self::listed(&std::fs::read_to_string("/proc/self/mountinfo").ok()?, status.stx_mnt_id)
        })?
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn of(_path: &Path) -> Option<Self> {
        None
    }

    fn listed(list: &str, id: u64) -> Option<Self> {
        let line =
            list.lines().find(|line| line.split(' ').next().is_some_and(|text| text.parse() == Ok(id)))?;
        let (before, after) = line.split_once(" - ")?;
        Some(Self {
            root: before.split(' ').nth(3)?.to_owned(),
            file_system: after.split(' ').next()?.to_owned(),
        })
    }

    /// Whether systemd mounted it for one unit (`PrivateTmp=yes`): no process outside the unit sees it.
    pub(super) fn is_private_to_a_unit(&self) -> bool {
        self.root.split('/').any(|part| part.starts_with("systemd-private-"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
290 27 254:0 /tmp/systemd-private-0f-payroll.service-x1/tmp /tmp rw shared:1 master:2 - ext4 /dev/vda rw
291 27 0:40 /systemd-private-0f-payroll.service-x2/tmp /var/tmp rw - tmpfs tmpfs rw
";

    #[test]
    fn private_folders_of_units_are_recognized_by_the_root_of_their_mount() {
        let mount = |id| Mount::listed(LIST, id).unwrap();
        assert_eq!((mount(27).file_system.as_str(), mount(27).is_private_to_a_unit()), ("ext4", false));
        assert!(mount(290).is_private_to_a_unit() && mount(291).is_private_to_a_unit());
        assert_eq!(mount(291).file_system, "tmpfs");
        assert_eq!(Mount::listed(LIST, 2), None);
    }
}
