//! Levels of containment, and what a machine needs for each.

use super::eventually;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// A level, as `--containment` names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Guardian and host alone.
    Guardian,
    /// A control group for the command.
    ControlGroup,
    /// A PID namespace for the command.
    PidNamespace,
}

impl Level {
    /// Whether this machine has it. Asked once.
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

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Guardian => "guardian",
            Self::ControlGroup => "cgroup",
            Self::PidNamespace => "pidns",
        }
    }

    /// Number of vvm's own processes: guardian and host, and two that keep a namespace.
    pub fn ours(self) -> usize {
        match self {
            Self::Guardian | Self::ControlGroup => 3,
            Self::PidNamespace => 4,
        }
    }
}

/// Whether this machine permits a PID namespace with a `/proc` of its own. Tried with `unshare`, not with
/// vvm.
pub fn gives_pid_namespaces() -> bool {
    is_permitted(&["unshare", "--pid", "--fork", "--mount-proc", "true"]) || gives_user_namespaces(&[])
}

/// Whether it permits one inside a user namespace, to a process that `through` starts.
pub fn gives_user_namespaces(through: &[&str]) -> bool {
    let unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "true"];
    is_permitted(&[through, &unshare].concat())
}

/// Whether a command succeeds; it may fail because it is forbidden, and for no other reason.
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

/// The folder of the control group (version 2) that we are in, where one is mounted whole.
pub fn own_group() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"))?;
    Some(Path::new(mount.split(' ').nth(1)?).join(group)).filter(|folder| folder.is_dir())
}

/// Kills every process in a control group, and removes the group with its subgroups.
pub fn remove_group(group: &Path) {
    eventually("a control group of this trial is removed", || {
        for folder in groups_from(group) {
            let members = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            for member in members.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
                // Gone already is as good.
                let _gone = kill_process(member, Signal::KILL);
            }
            // Tried again until it is done.
            let _busy = fs::remove_dir(&folder);
        }
        !group.exists()
    });
}

/// It and all inside of it, the innermost first.
fn groups_from(group: &Path) -> Vec<PathBuf> {
    let inside = fs::read_dir(group).into_iter().flatten().flatten().map(|entry| entry.path());
    let inside = inside.filter(|path| path.is_dir()).flat_map(|path| groups_from(&path));
    inside.chain([group.to_owned()]).collect()
}

/// Whether we may make control groups in this one.
pub fn lets_us_make_groups(group: &Path) -> bool {
    tempfile::tempdir_in(group).is_ok()
}
