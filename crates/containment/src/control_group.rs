//! [`ControlGroup`]: a control group for the command's processes, which can be killed at once (cgroups(7), version 2).
//! The guardian makes it below its own group. Each process holds a descriptor of its folder: the mount may change.

use crate::processes::read_text;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags, getxattr, openat},
    io::{Errno, read, write},
    process::{Pid, Signal, geteuid, kill_process},
};
use std::{
    fs, io,
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
        unix::fs::MetadataExt as _,
    },
    path::{Path, PathBuf},
    time::Duration,
};

#[derive(Debug)]
pub(crate) struct ControlGroup {
    folder: OwnedFd,
    /// Open from the start, so that a kill needs no free descriptor. `None` before Linux 5.14.
    kill: Option<OwnedFd>,
}

const PAUSE: Duration = Duration::from_millis(100);

/// How many looks in a row may find the same members. Not a time: on a busy machine killed processes need long to end.
const LOOKS: u32 = 10;

/// How many looks there are in all, if other processes enter and leave the group.
const ALL_LOOKS: u32 = 600;

/// How many names are tried. Processes of the same number, earlier or in other PID namespaces, may have left groups.
const NAMES: u32 = 1_000;

impl ControlGroup {
    pub(crate) fn below(parent: &Path) -> io::Result<Self> {
        let process = rustix::process::getpid();
        let mut taken = io::Error::from(io::ErrorKind::AlreadyExists);
        for number in 0..NAMES {
            let path = parent.join(format!("vvm-{process}-{number}"));
            match fs::create_dir(&path) {
                Ok(()) => {
                    return Self::from_folder(fs::File::open(&path)?.into());
                }
                Err(refusal) if refusal.kind() == io::ErrorKind::AlreadyExists => taken = refusal,
                Err(refusal) => return Err(refusal),
            }
        }
        Err(taken)
    }

    pub(crate) fn from_folder(folder: OwnedFd) -> io::Result<Self> {
        let kill = match open_in(&folder, "cgroup.kill", OFlags::WRONLY) {
            Err(Errno::NOENT) => None,
            kill => Some(kill?),
        };
        Ok(Self { folder, kill })
    }

    pub(crate) fn admit(&self, process: Pid) -> io::Result<()> {
        Ok(self.write_file("cgroup.procs", &process.to_string())?)
    }

    /// Also kills members that are just being started.
    pub(crate) fn kill(&self) -> io::Result<()> {
        match &self.kill {
            Some(kill) => Ok(write(kill, b"1").map(drop)?),
            None => self.freeze_and_kill(),
        }
    }

    /// Kills without `cgroup.kill`: a frozen process starts no other and can be killed (cgroups(7)). A
    /// process that is started meanwhile may be missed. The next call finds it, when a killed one has ended.
    fn freeze_and_kill(&self) -> io::Result<()> {
        self.write_file("cgroup.freeze", "1")?;
        for member in self.members()? {
            // Gone already, or out of reach, which `sweep` reports.
            let _ = kill_process(member, Signal::KILL);
        }
        Ok(self.write_file("cgroup.freeze", "0")?)
    }

    /// Returns whether neither the group nor one inside has a member. Kills those that it finds, and waits
    /// for [`PAUSE`] at most until they have ended: the caller calls again.
    pub(crate) fn is_empty_or_killed(&self) -> bool {
        let events = match self.open("cgroup.events", OFlags::RDONLY) {
            Ok(events) => Some(events),
            // Only a group without members can be removed.
            Err(Errno::NOENT) => return true,
            Err(_) => None,
        };
        // Read before the kill: a change after that is not missed.
        if events.as_ref().is_some_and(|events| is_populated(events) == Ok(false)) {
            return true;
        }
        // If it fails, the next call tries again.
        let _ = self.kill();
        await_change(events.as_ref());
        false
    }

    /// Waits while the members change, and a little longer: a reaped process may count as a member for a moment.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let (mut inside, mut in_vain) = (Vec::new(), 0);
        for _ in 0..ALL_LOOKS {
            // Read before the try: a change after that is not missed.
            let events = match self.open("cgroup.events", OFlags::RDONLY) {
                Err(Errno::NOENT) => return Ok(()),
                events => events?,
            };
            let _ = read(&events, &mut [0; 128]);
            let remove = |folders: Vec<PathBuf>| folders.into_iter().rev().try_for_each(fs::remove_dir);
            let outcome = self.folders().and_then(remove);
            // Not found may be a group inside: that the whole is gone, the next look tells.
            let is_changing = |refusal: &io::Error| {
                matches!(refusal.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::NotFound)
            };
            if !outcome.as_ref().is_err_and(is_changing) {
                return outcome;
            }
            let before = std::mem::replace(&mut inside, self.members().unwrap_or_default());
            in_vain = if before == inside { in_vain + 1 } else { 0 };
            if in_vain >= LOOKS {
                return outcome;
            }
            await_change(Some(&events));
        }
        Err(Errno::BUSY.into())
    }

    fn members(&self) -> io::Result<Vec<Pid>> {
        let mut found = Vec::new();
        for folder in self.folders()? {
            // A group inside may be removed while we look.
            let members = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            found.extend(members.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)));
        }
        Ok(found)
    }

    /// Returns its folder and those inside, each before its own inner ones.
    fn folders(&self) -> io::Result<Vec<PathBuf>> {
        // Where it is mounted now.
        let mut folders = vec![fs::read_link(format!("/proc/self/fd/{}", self.folder.as_raw_fd()))?];
        let mut looked_at = 0;
        while let Some(folder) = folders.get(looked_at) {
            let entries = fs::read_dir(folder)?.flatten();
            let inside = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            let inside = inside.map(|entry| entry.path()).collect::<Vec<_>>();
            folders.extend(inside);
            looked_at += 1;
        }
        Ok(folders)
    }

    fn write_file(&self, file: &str, what: &str) -> rustix::io::Result<()> {
        write(&self.open(file, OFlags::WRONLY)?, what.as_bytes()).map(drop)
    }

    fn open(&self, file: &str, access: OFlags) -> rustix::io::Result<OwnedFd> {
        open_in(&self.folder, file, access)
    }
}

fn open_in(folder: &OwnedFd, file: &str, access: OFlags) -> rustix::io::Result<OwnedFd> {
    openat(folder, file, access | OFlags::CLOEXEC, Mode::empty())
}

fn is_populated(events: &OwnedFd) -> rustix::io::Result<bool> {
    let mut text = [0; 128];
    let length = read(events, &mut text)?;
    Ok(!text[..length].split(|byte| *byte == b'\n').any(|line| line == b"populated 0"))
}

/// Waits until the events of a group change (cgroups(7): `POLLPRI`), but at most for [`PAUSE`].
fn await_change(events: Option<&OwnedFd>) {
    let longest = Timespec::try_from(PAUSE).ok();
    let mut events = events.map(|events| PollFd::new(events, PollFlags::PRI));
    // After an error, the caller looks again.
    let _ = poll(events.as_mut_slice(), longest.as_ref());
}

impl AsFd for ControlGroup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

/// Why this process can't make a control group.
#[derive(Debug, thiserror::Error)]
pub enum ControlGroupRefusal {
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
    /// The system refused a process, a descriptor or memory, which may pass.
    #[error("the system refuses a process, a descriptor or memory: {0}")]
    System(io::Error),
}

impl ControlGroupRefusal {
    pub(crate) fn of(own: &Path, cause: io::Error) -> Self {
        if may_pass(&cause) { Self::System(cause) } else { Self::NotDelegated { own: own.to_owned(), cause } }
    }
}

/// `AGAIN` is not among them: a group that has as many groups inside as it may have says that for good.
fn may_pass(cause: &io::Error) -> bool {
    matches!(Errno::from_io_error(cause), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

pub(crate) fn own_group() -> Result<PathBuf, ControlGroupRefusal> {
    let read = |file| match read_text(file) {
        Err(cause) if may_pass(&cause) => Err(ControlGroupRefusal::System(cause)),
        read => Ok(read.unwrap_or_default()),
    };
    folder(&read("/proc/self/cgroup")?, &read("/proc/self/mountinfo")?)
        .filter(|folder| folder.is_dir())
        .ok_or(ControlGroupRefusal::NoGroups)
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
    use std::process::{Child, Command};

    /// Makes a group. Where the machine refuses that, checks the refusal.
    fn group() -> Option<ControlGroup> {
        let found = own_group()
            .and_then(|own| ControlGroup::below(&own).map_err(|cause| ControlGroupRefusal::of(&own, cause)));
        match found {
            Ok(group) => Some(group),
            Err(refusal) => {
                let text = refusal.to_string();
                assert!(text.contains("Delegate=yes") || text.contains("no cgroup v2"), "{text}");
                println!("no group here: {text}");
                None
            }
        }
    }

    fn sleeper(group: &ControlGroup) -> Child {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        group.admit(Pid::from_child(&child)).unwrap();
        child
    }

    #[test]
    fn both_ways_of_killing_leave_an_empty_group() {
        let Some(group) = group() else { return };
        for kill in [ControlGroup::kill, ControlGroup::freeze_and_kill, ControlGroup::kill] {
            let mut child = sleeper(&group);
            // A member of a group that the command has made.
            let inner = group.folders().unwrap()[0].join("inner");
            fs::create_dir_all(&inner).unwrap();
            let mut inside =
                sleeper(&ControlGroup::from_folder(fs::File::open(inner).unwrap().into()).unwrap());
            assert!(group.remove().is_err(), "a group with members was removed");
            kill(&group).unwrap();
            assert!(!child.wait().unwrap().success());
            assert!(!inside.wait().unwrap().success());
        }
        let path = group.folders().unwrap().remove(0);
        group.remove().unwrap();
        group.remove().unwrap();
        assert!(!path.exists());
        assert!(group.kill().is_err());
    }

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
    fn refusal_that_may_pass_does_not_say_that_the_group_is_not_delegated() {
        let of = |errno: Errno| ControlGroupRefusal::of(Path::new("/sys/fs/cgroup/a"), errno.into());
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
            assert!(matches!(of(errno), ControlGroupRefusal::System(_)), "{errno:?}");
        }
        for errno in [Errno::PERM, Errno::ACCESS, Errno::AGAIN, Errno::ROFS] {
            assert!(matches!(of(errno), ControlGroupRefusal::NotDelegated { .. }), "{errno:?}");
        }
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
