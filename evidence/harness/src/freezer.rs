//! [`Freezer`]: a control group of version 1 in which no process can be killed, as if it hung in the kernel.

use super::{
    eventually,
    level::{own_group_of_version_1, remove_group},
};
use rustix::process::Pid;
use std::{fs, io, path::PathBuf};

/// A control group whose processes stand still. A signal, also SIGKILL, takes effect after its end.
#[derive(Debug)]
pub struct Freezer(PathBuf);

impl Freezer {
    /// Makes a group of this name, inside the one of this process.
    ///
    /// # Errors
    /// Says why this machine does not allow it.
    pub fn of(name: &str) -> io::Result<Self> {
        let parent = own_group_of_version_1("freezer");
        let parent = parent.ok_or_else(|| io::Error::other("no control groups of version 1"))?;
        let folder = parent.join(format!("vvm-freezer-{name}"));
        fs::create_dir(&folder)?;
        Ok(Self(folder))
    }

    /// Has a process stand still.
    pub fn freeze(&self, process: Pid) {
        fs::write(self.0.join("cgroup.procs"), process.to_string()).unwrap();
        self.turn("FROZEN");
    }

    fn turn(&self, state: &str) {
        let file = self.0.join("freezer.state");
        fs::write(&file, state).unwrap();
        eventually(state, || fs::read_to_string(&file).unwrap().trim() == state);
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.turn("THAWED");
        remove_group(&self.0);
    }
}
