//! The control group of this process, and whether this process may make others below it.

use rustix::{fs::getxattr, process::geteuid};
use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// Why this process can't make a control group.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// There is no version 2, or this process is in no visible group of it.
    #[error(
        "there is no cgroup v2 here that this process can see (proc(5): /proc/self/cgroup, \
         /proc/self/mountinfo): have it mounted (kernel parameter systemd.unified_cgroup_hierarchy=1)"
    )]
    NoGroups,
    /// This process may not make groups below its own.
    #[error(
        "its own group {} is not delegated to it ({cause}): start it as a unit with Delegate=yes \
         (in the unit's file, or with systemd-run --user --scope -p Delegate=yes)",
        own.display()
    )]
    NotDelegated {
        /// The group of this process.
        own: PathBuf,
        /// The kernel's refusal.
        cause: io::Error,
    },
}

/// Returns the folder of this process's group.
///
/// # Errors
/// If it is in no visible group.
pub(crate) fn own_group() -> Result<PathBuf, Refusal> {
    let read = |file| fs::read_to_string(file).unwrap_or_default();
    folder(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"))
        .filter(|folder| folder.is_dir())
        .ok_or(Refusal::NoGroups)
}

/// Returns whether the manager of this machine's groups has delegated `group`: to this user, or by the mark
/// that systemd sets. That root may write anywhere does not count.
pub(crate) fn is_delegated(group: &Path) -> bool {
    let user = geteuid();
    let is_ours = || fs::metadata(group).is_ok_and(|of| of.uid() == user.as_raw());
    let marked = |name| {
        let mut value = [0_u8; 1];
        getxattr(group, name, &mut value).is_ok_and(|length| value[..length] == *b"1")
    };
    (!user.is_root() && is_ours()) || marked("user.delegate") || marked("trusted.delegate")
}

/// Returns the folder of the group in `/proc/self/cgroup`, by the mounts in `/proc/self/mountinfo`.
fn folder(groups: &str, mounts: &str) -> Option<PathBuf> {
    // Version 2 has number 0, and no controllers in its line (cgroups(7)).
    let group = Path::new(groups.lines().find_map(|line| line.strip_prefix("0::"))?);
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let below = group.strip_prefix(unescaped(root)).ok()?;
        // Above the part that this process may see.
        let is_hidden = below.starts_with("..");
        (kind.starts_with("cgroup2 ") && !is_hidden).then(|| Path::new(&unescaped(point)).join(below))
    })
}

/// Decodes a field of proc(5), in which a backslash and three octal digits stand for blanks and the like.
fn unescaped(field: &str) -> String {
    let mut parts = field.split('\\');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                text.push(byte.into());
                text.push_str(part.get(3..).unwrap_or_default());
            }
            None => {
                text.push('\\');
                text.push_str(part);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "22 27 0:21 / /proc rw - proc proc rw
30 31 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
41 31 0:38 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw";

    #[test]
    fn own_group_is_found_below_its_mount() {
        let of = |groups: &str| folder(groups, MOUNTS);
        let user = "/user.slice/user-7.slice/session-2.scope";
        assert_eq!(of(&format!("0::{user}")), Some(format!("/sys/fs/cgroup{user}").into()));
        assert_eq!(of("9:pids:/a\n0::/\n"), Some("/sys/fs/cgroup".into()));
        assert_eq!(of("9:pids:/a"), None, "no version 2");
        assert_eq!(of("0::/../other"), None, "above the group namespace");
        assert_eq!(folder("0::/", "22 27 0:21 / /proc rw - proc proc rw"), None, "not mounted");
        let part = "41 31 0:38 /docker/7 /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
        assert_eq!(folder("0::/docker/7/a", part), Some("/sys/fs/cgroup/a".into()));
        assert_eq!(folder("0::/docker/8", part), None, "another part is mounted");
    }

    #[test]
    fn escaped_blanks_are_blanks() {
        assert_eq!(unescaped(r"/a\040b\134c"), r"/a b\c");
        assert_eq!(unescaped(r"/a\b"), r"/a\b");
    }

    #[test]
    fn folder_of_root_is_not_delegated() {
        assert!(!is_delegated(Path::new("/proc/sys")), "a folder of root");
    }
}
