//! A control group for the worker's processes, below the one that `vvm` runs in: what is in it can be killed
//! at once, and what it starts is in it, too (cgroups(7), version 2).
//!
//! It is made by the guardian, and both it and the host have hold of it: as a descriptor of its folder,
//! because the group file system may be found elsewhere, or nowhere, by the time that it matters.

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags, openat},
    io::{Errno, read, write},
    process::{Pid, Signal, kill_process},
};
use std::{
    fs, io,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    time::Duration,
};

/// A control group, while it exists.
#[derive(Debug)]
pub(crate) struct ControlGroup {
    folder: OwnedFd,
}

/// Between two looks at a group that was left and still seems to be full, if nothing is heard of it before.
const LEAVING: Duration = Duration::from_millis(100);

/// How many such looks in a row may find the same ones inside. Looks and not a time, since a machine that
/// stands still, or gives its processors to others, lets nobody leave; a storm of processes that are dying
/// takes as long as it takes.
const LOOKS: u32 = 10;

/// How many looks there are at all, at one where strangers come and go.
const ALL_LOOKS: u32 = 600;

/// How many names are tried: namesakes are what others of our number left behind, in other PID namespaces or
/// long ago.
const NAMES: u32 = 1_000;

impl ControlGroup {
    /// A new one below `parent`.
    ///
    /// # Errors
    /// When this user may not make one there.
    pub(crate) fn below(parent: &Path) -> io::Result<Self> {
        let process = rustix::process::getpid();
        let mut taken = io::Error::from(io::ErrorKind::AlreadyExists);
        for number in 0..NAMES {
            let path = parent.join(format!("vvm-{process}-{number}"));
            match fs::create_dir(&path) {
                Ok(()) => {
                    let folder = fs::File::open(&path)?;
                    return Ok(Self { folder: folder.into() });
                }
                Err(refusal) if refusal.kind() == io::ErrorKind::AlreadyExists => taken = refusal,
                Err(refusal) => return Err(refusal),
            }
        }
        Err(taken)
    }

    /// The one whose folder this is.
    pub(crate) fn of(folder: OwnedFd) -> Self {
        Self { folder }
    }

    /// Moves a process in. Whatever it starts from then on is in it.
    ///
    /// # Errors
    /// When the kernel refuses: this user may not move it, or it has ended.
    pub(crate) fn admit(&self, process: Pid) -> io::Result<()> {
        Ok(self.tell("cgroup.procs", &process.to_string())?)
    }

    /// Kills everybody in it, those included who are being started just now.
    ///
    /// # Errors
    /// When the group is gone.
    pub(crate) fn kill(&self) -> io::Result<()> {
        match self.tell("cgroup.kill", "1") {
            // Before Linux 5.14.
            Err(Errno::NOENT) => self.freeze_and_kill(),
            outcome => Ok(outcome?),
        }
    }

    /// The same by hand: who is frozen starts nobody, and can be killed (cgroups(7)). One who is started
    /// while we look may be missed, and is found at the next look, which follows when one that was killed has
    /// ended.
    fn freeze_and_kill(&self) -> io::Result<()> {
        self.tell("cgroup.freeze", "1")?;
        for member in self.members()? {
            // Gone already, or out of reach, which whoever waits for it will tell.
            let _ = kill_process(member, Signal::KILL);
        }
        Ok(self.tell("cgroup.freeze", "0")?)
    }

    /// Removes the group, and those that the worker has made inside of it.
    ///
    /// Waits for those who have ended, as long as they get fewer and a little longer: one that was reaped may
    /// be counted as inside for a moment.
    ///
    /// # Errors
    /// When there is still somebody in it.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let (mut inside, mut in_vain) = (Vec::new(), 0);
        for _ in 0..ALL_LOOKS {
            // Read before the try: a change after that is not missed.
            let events = self.open("cgroup.events", OFlags::RDONLY)?;
            read(&events, &mut [0; 128])?;
            let outcome = self.folders()?.into_iter().rev().try_for_each(fs::remove_dir);
            let is_busy =
                outcome.as_ref().is_err_and(|refusal| refusal.kind() == io::ErrorKind::ResourceBusy);
            if !is_busy {
                return outcome;
            }
            let before = std::mem::replace(&mut inside, self.members()?);
            in_vain = if before == inside { in_vain + 1 } else { 0 };
            if in_vain >= LOOKS {
                return outcome;
            }
            await_change(&events, LEAVING);
        }
        Err(Errno::BUSY.into())
    }

    /// Who is in it, and in those inside of it.
    fn members(&self) -> io::Result<Vec<Pid>> {
        let mut found = Vec::new();
        for folder in self.folders()? {
            // A group inside may be removed while we look.
            let members = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            found.extend(members.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)));
        }
        Ok(found)
    }

    /// Its folder, and those inside of it, each before what is inside of itself.
    fn folders(&self) -> io::Result<Vec<PathBuf>> {
        // Wherever it is now.
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

    fn tell(&self, file: &str, what: &str) -> rustix::io::Result<()> {
        write(&self.open(file, OFlags::WRONLY)?, what.as_bytes()).map(drop)
    }

    fn open(&self, file: &str, access: OFlags) -> rustix::io::Result<OwnedFd> {
        openat(&self.folder, file, access | OFlags::CLOEXEC, Mode::empty())
    }
}

/// Returns when the events of a group have changed since they were read (cgroups(7): `POLLPRI`), at the
/// latest after `longest`.
fn await_change(events: &OwnedFd, longest: Duration) {
    // What can't be said in seconds and nanoseconds is far beyond what is ever asked for.
    let longest = Timespec::try_from(longest).ok();
    // Interrupted, or with no memory: the next try tells.
    let _ = poll(&mut [PollFd::new(events, PollFlags::PRI)], longest.as_ref());
}

/// Its folder.
impl AsFd for ControlGroup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delegation;
    use std::process::{Child, Command};

    /// Where this machine lets us make a group; where it doesn't, that it is refused is what is left to see.
    fn group() -> Option<ControlGroup> {
        let found = delegation::own_group().and_then(|own| {
            ControlGroup::below(&own).map_err(|cause| delegation::Refusal::NotDelegated { own, cause })
        });
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
    fn killed_in_either_way_nobody_is_left_and_the_group_can_be_used_again() {
        let Some(group) = group() else { return };
        for kill in [ControlGroup::kill, ControlGroup::freeze_and_kill, ControlGroup::kill] {
            let mut child = sleeper(&group);
            // One in a group that the worker has made.
            let inner = group.folders().unwrap()[0].join("inner");
            fs::create_dir_all(&inner).unwrap();
            let mut inside = sleeper(&ControlGroup::of(fs::File::open(inner).unwrap().into()));
            assert!(group.remove().is_err(), "a group with somebody in it was removed");
            kill(&group).unwrap();
            assert!(!child.wait().unwrap().success());
            assert!(!inside.wait().unwrap().success());
        }
        let path = group.folders().unwrap().remove(0);
        group.remove().unwrap();
        assert!(!path.exists());
        assert!(group.kill().is_err());
    }
}
