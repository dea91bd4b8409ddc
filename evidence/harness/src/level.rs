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
    /// Only guardian and host.
    Guardian,
    /// A control group for the command.
    ControlGroup,
    /// A PID namespace for the command.
    PidNamespace,
}

impl Level {
    /// Whether this machine has it. Checked once.
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

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Guardian => "guardian",
            Self::ControlGroup => "cgroup",
            Self::PidNamespace => "pidns",
        }
    }

    /// Returns the number of vvm's own processes.
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

/// Returns the folder of the control group (version 2) of this process, if the whole hierarchy is mounted.
pub fn own_group() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"))?;
    Some(Path::new(mount.split(' ').nth(1)?).join(group)).filter(|folder| folder.is_dir())
}

/// Returns the folder of the control group (version 1) of this process in the hierarchy of `controller`.
pub(super) fn own_group_of_version_1(controller: &str) -> Option<PathBuf> {
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

/// Kills every process in a control group, and removes the group with its subgroups.
pub fn remove_group(group: &Path) {
    eventually("a control group of this trial is removed", || {
        for folder in groups_from(group) {
            let members = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            for member in members.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
                // It may have ended already.
                let _gone = kill_process(member, Signal::KILL);
            }
            // Repeated until it succeeds.
            let _busy = fs::remove_dir(&folder);
        }
        !group.exists()
    });
}

/// Returns the group and all groups in it, the innermost first.
fn groups_from(group: &Path) -> Vec<PathBuf> {
    let inside = fs::read_dir(group).into_iter().flatten().flatten().map(|entry| entry.path());
    let inside = inside.filter(|path| path.is_dir()).flat_map(|path| groups_from(&path));
    inside.chain([group.to_owned()]).collect()
}

/// Whether this process may create control groups in this one.
pub fn lets_us_make_groups(group: &Path) -> bool {
    tempfile::tempdir_in(group).is_ok()
}
