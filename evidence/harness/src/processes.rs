//! [`Processes`]: processes in `/proc`.

use super::{
    HANG_LIMIT,
    level::{own_group_of_version_1, remove_group},
    own_group,
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};

/// Some processes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Processes(pub Vec<Pid>);

impl Processes {
    /// Finds every process with the mark in its environment, except zombies.
    pub fn marked(mark: &str) -> Self {
        // The variable does not begin with VVM_, because vvm removes such variables for the command.
        let trial = format!("TRIAL={mark}").into_bytes();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| Pid::from_raw(name.parse().ok()?))
            else {
                continue;
            };
            // The environment of a zombie is empty.
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            if environment.split(|byte| *byte == 0).any(|variable| variable == trial) {
                found.push(pid);
            }
        }
        found.sort_by_key(|pid| pid.as_raw_pid());
        Self(found)
    }

    /// Returns those whose command line contains `text`.
    pub fn with(&self, text: &str) -> Vec<Pid> {
        self.0.iter().copied().filter(|pid| command_line(*pid).contains(text)).collect()
    }

    /// Returns their command lines, for failures.
    pub fn describe(&self) -> Vec<String> {
        self.0.iter().map(|pid| format!("{pid}: {}", command_line(*pid))).collect()
    }

    /// Kills them.
    pub fn kill(&self) {
        for pid in &self.0 {
            let _gone = kill_process(*pid, Signal::KILL);
        }
    }
}

/// Returns the command line of a process, with spaces between the arguments.
pub fn command_line(pid: Pid) -> String {
    let bytes = fs::read(PathBuf::from(format!("/proc/{pid}/cmdline"))).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

/// Returns the state letter of a process (proc(5)), if it exists.
pub fn state(pid: Pid) -> Option<char> {
    state_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn state_in(stat: &str) -> Option<char> {
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Whether no thread of a process runs: each is stopped, or has ended. A stop signal stops them one after the
/// other.
pub(crate) fn is_still(pid: Pid) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat"));
        stat.is_ok_and(|stat| matches!(state_in(&stat), Some('T' | 't' | 'Z' | 'X')))
    })
}

/// Whether a process has ended: it is a zombie or gone.
pub fn has_ended(pid: Pid) -> bool {
    matches!(state(pid), None | Some('Z' | 'X'))
}

/// Waits until `condition` holds, and returns how long that took.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) -> Duration {
    let began = SystemClock::read();
    loop {
        if condition() {
            return SystemClock::read().since(began);
        }
        assert!(SystemClock::read().since(began) < HANG_LIMIT, "never: {what}");
        // A pause, so that the checks do not take the processor from the processes.
        thread::sleep(Duration::from_millis(1));
    }
}

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
        // A file in memory counts for the group and for no process. A hungry process would have as many points
        // of its own as the victim, and either could be chosen.
        let food = Path::new("/dev/shm").join(self.folder.file_name().unwrap_or_default());
        let eat = format!("exec head -c 1G /dev/zero > '{}'", food.display());
        let hungry = Command::new(first).args(rest).args(["sh", "-c", &eat]).stderr(Stdio::null()).spawn();
        let _hungry = Hungry(hungry.unwrap(), food);
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

/// The process that needs the memory, and its file.
struct Hungry(Child, PathBuf);

impl Drop for Hungry {
    fn drop(&mut self) {
        // The kernel may have ended it, too.
        let _gone = self.0.kill();
        self.0.wait().unwrap();
        fs::remove_file(&self.1).unwrap();
    }
}
