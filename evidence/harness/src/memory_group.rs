//! [`MemoryGroup`]: a control group with little memory, in which the kernel ends processes.

use super::{
    eventually,
    level::{own_group_of_version_1, remove_group},
    own_group,
    processes::has_ended,
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs, io,
    path::PathBuf,
    process::{Child, Command, Stdio},
};
use vvm_clock::{Instant, SystemClock};

/// The limit. The kernel counts each of the 1,000 points of `oom_score_adj` as a thousandth of the limit, in
/// whole pages. Only of a multiple of 1,000 pages are 1,000 points all.
const BYTES: &str = "32768000";

/// A control group with little memory, of version 1 or 2.
#[derive(Debug)]
pub struct MemoryGroup {
    folder: PathBuf,
    version: u8,
}

impl MemoryGroup {
    /// Makes a group of this name, inside the one of this process.
    ///
    /// # Errors
    /// Says why this machine does not allow it.
    pub fn of(name: &str) -> io::Result<Self> {
        let (parent, version) = match own_group_of_version_1("memory") {
            Some(parent) => (parent, 1),
            None => (own_group().ok_or_else(|| io::Error::other("no control groups"))?, 2),
        };
        let folder = parent.join(format!("vvm-memory-{name}"));
        fs::create_dir(&folder)?;
        let group = Self { folder, version };
        fs::write(group.file(if version == 1 { "memory.limit_in_bytes" } else { "memory.max" }), BYTES)?;
        Ok(group)
    }

    /// Whether the kernel can end all processes of the group at once (`memory.oom.group`). From then on it
    /// does.
    pub fn ends_together(&self) -> bool {
        self.version == 2 && fs::write(self.file("memory.oom.group"), "1").is_ok()
    }

    /// Returns a command that starts the one that follows in the group.
    pub fn enter(&self) -> [String; 4] {
        let enter = format!("echo 0 > {} && exec \"$@\"", self.file("cgroup.procs").display());
        ["sh".into(), "-c".into(), enter, "sh".into()]
    }

    /// Needs more memory than there is, until the kernel has ended `victim`. It chooses that one, which is
    /// moved here with 1,000 points. Returns when it was seen to have ended.
    ///
    /// # Panics
    /// If it does not end.
    pub fn exhaust(&self, victim: Pid) -> Instant {
        fs::write(self.file("cgroup.procs"), victim.to_string()).unwrap();
        fs::write(format!("/proc/{victim}/oom_score_adj"), "1000").unwrap();
        let [first, rest @ ..] = self.enter();
        let hungry = Command::new(first).args(rest).args(["tail", "/dev/zero"]).stderr(Stdio::null()).spawn();
        let _hungry = Hungry(hungry.unwrap());
        eventually("the kernel ends the victim for memory", || has_ended(victim));
        SystemClock::read()
    }

    /// Kills all processes in the group. None of them can act after the first has died.
    pub fn kill(&self) {
        let members = fs::read_to_string(self.file("cgroup.procs")).unwrap();
        let members: Vec<Pid> =
            members.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)).collect();
        for signal in [Signal::STOP, Signal::KILL] {
            for member in &members {
                // It may have died with its parent.
                let _gone = kill_process(*member, signal);
            }
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        remove_group(&self.folder);
    }
}

/// The process that needs the memory.
struct Hungry(Child);

impl Drop for Hungry {
    fn drop(&mut self) {
        // The kernel may have ended it, too.
        let _gone = self.0.kill();
        self.0.wait().unwrap();
    }
}
