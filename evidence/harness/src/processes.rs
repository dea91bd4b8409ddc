//! Processes in `/proc`, levels of containment and what a machine needs for each, and control groups: with
//! little memory ([`MemoryGroup`]), and whose processes stand still ([`Freezer`]).

use super::HANG_LIMIT;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs, io,
    iter::successors,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    thread,
    time::Duration,
};
use vvm_clock::{Instant, SystemClock};

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

    pub fn with(&self, text: &str) -> Vec<Pid> {
        self.0.iter().copied().filter(|pid| command_line(*pid).contains(text)).collect()
    }

    pub fn of(&self, command: &str) -> Vec<Pid> {
        self.0.iter().copied().filter(|pid| command_line(*pid).starts_with(command)).collect()
    }

    pub fn describe(&self) -> Vec<String> {
        self.0.iter().map(|pid| format!("{pid}: {}", command_line(*pid))).collect()
    }

    pub fn kill(&self) {
        for pid in &self.0 {
            let _gone = kill_process(*pid, Signal::KILL);
        }
    }
}

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

pub fn catches(pid: Pid, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal.as_raw() - 1)) != 0
}

pub fn ancestors(pid: Pid) -> impl Iterator<Item = Pid> {
    let parent = |pid: &Pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Pid::from_raw(stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()?)
    };
    successors(parent(&pid), parent)
}

/// Whether no thread of a process runs: each is stopped, or has ended. A stop signal stops them one after the other.
pub(crate) fn is_still(pid: Pid) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat"));
        stat.is_ok_and(|stat| matches!(state_in(&stat), Some('T' | 't' | 'Z' | 'X')))
    })
}

pub fn has_ended(pid: Pid) -> bool {
    matches!(state(pid), None | Some('Z' | 'X'))
}

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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    Guardian,
    ControlGroup,
    PidNamespace,
}

impl Level {
    pub(super) fn is_available(self) -> bool {
        static GROUPS: OnceLock<bool> = OnceLock::new();
        static NAMESPACES: OnceLock<bool> = OnceLock::new();
        match self {
            Self::Guardian => true,
            Self::ControlGroup => {
                *GROUPS.get_or_init(|| own_group().is_some_and(|own| lets_us_make_groups(&own)))
            }
            Self::PidNamespace => *NAMESPACES.get_or_init(gives_pid_namespaces),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Guardian => "guardian",
            Self::ControlGroup => "cgroup",
            Self::PidNamespace => "pidns",
        }
    }

    pub fn ours(self) -> usize {
        match self {
            Self::Guardian | Self::ControlGroup => 3,
            Self::PidNamespace => 4,
        }
    }
}

/// Whether this machine permits a PID namespace with its own `/proc`. Checked by `unshare`, not by vvm.
pub fn gives_pid_namespaces() -> bool {
    is_permitted(&["unshare", "--pid", "--fork", "--mount-proc", "true"]) || gives_user_namespaces(&[])
}

/// Whether it permits one inside a user namespace, for a process that `through` starts.
pub fn gives_user_namespaces(through: &[&str]) -> bool {
    let unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "true"];
    is_permitted(&[through, &unshare].concat())
}

/// Whether a command succeeds. It may fail only because it is forbidden.
pub fn is_permitted(line: &[&str]) -> bool {
    let output = Command::new(line[0]).args(&line[1..]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let forbidden = ["Operation not permitted", "No space left on device", "Permission denied"];
    assert!(
        output.status.success() || forbidden.iter().any(|refusal| said.contains(refusal)),
        "{line:?}: {said}"
    );
    output.status.success()
}

pub fn own_group() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"))?;
    Some(Path::new(mount.split(' ').nth(1)?).join(group)).filter(|folder| folder.is_dir())
}

fn own_group_of_version_1(controller: &str) -> Option<PathBuf> {
    let is_its = |text: &str| text.split(',').any(|word| word == controller);
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mount = mounts.lines().find_map(|line| {
        let words = line.split(' ').collect::<Vec<_>>();
        (*words.get(2)? == "cgroup" && is_its(words.get(3)?)).then(|| PathBuf::from(words[1]))
    })?;
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        is_its(parts.next()?).then(|| parts.next())?
    })?;
    Some(Path::new(&mount).join(group.trim_start_matches('/'))).filter(|folder| folder.is_dir())
}

pub(crate) fn remove_group(group: &Path) {
    eventually("a control group of this trial is removed", || {
        for folder in groups_from(group) {
            let members = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            for member in members.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
                let _gone = kill_process(member, Signal::KILL);
            }
            let _busy = fs::remove_dir(&folder);
        }
        !group.exists()
    });
}

fn groups_from(group: &Path) -> Vec<PathBuf> {
    let inside = fs::read_dir(group).into_iter().flatten().flatten().map(|entry| entry.path());
    let inside = inside.filter(|path| path.is_dir()).flat_map(|path| groups_from(&path));
    inside.chain([group.to_owned()]).collect()
}

fn lets_us_make_groups(group: &Path) -> bool {
    tempfile::tempdir_in(group).is_ok()
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
    /// Inside the group of this process. The error says why this machine does not allow it.
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

    /// Whether the kernel can end all processes of the group at once (`memory.oom.group`). From then on it does.
    pub fn ends_together(&self) -> bool {
        self.version == 2 && fs::write(self.file("memory.oom.group"), "1").is_ok()
    }

    /// Returns a command that starts the one that follows in the group.
    pub fn enter(&self) -> [String; 4] {
        let enter = format!("echo 0 > {} && exec \"$@\"", self.file("cgroup.procs").display());
        ["sh".into(), "-c".into(), enter, "sh".into()]
    }

    /// Needs more memory than there is, until the kernel has ended `victim`, which is moved here with 1,000 points so
    /// that it is chosen. Returns when it was seen to have ended; panics if it does not end.
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
        let _gone = self.0.kill();
        self.0.wait().unwrap();
        fs::remove_file(&self.1).unwrap();
    }
}

/// A control group whose processes stand still. A signal, also SIGKILL, takes effect after its end.
#[derive(Debug)]
pub struct Freezer(PathBuf);

impl Freezer {
    /// Inside the group of this process. The error says why this machine does not allow it.
    pub fn of(name: &str) -> io::Result<Self> {
        let parent = own_group_of_version_1("freezer");
        let parent = parent.ok_or_else(|| io::Error::other("no control groups of version 1"))?;
        let folder = parent.join(format!("vvm-freezer-{name}"));
        fs::create_dir(&folder)?;
        Ok(Self(folder))
    }

    pub fn freeze(&self, process: Pid) {
        fs::write(self.0.join("cgroup.procs"), process.to_string()).unwrap();
        self.turn("FROZEN");
    }

    /// Has one thread stand still: its process can't end, as if the thread hung in a system call.
    pub fn freeze_thread(&self, thread: Pid) {
        fs::write(self.0.join("tasks"), thread.to_string()).unwrap();
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
