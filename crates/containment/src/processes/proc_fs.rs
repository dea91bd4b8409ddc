//! Reading `/proc`.

use rustix::{io::Errno, process::Pid};
use std::{fs, io, path::Path};

/// `/proc` is missing, or shows another PID namespace, in which the same numbers name other processes.
#[derive(Debug, thiserror::Error)]
#[error(
    "/proc is missing or belongs to another PID namespace, and a command's processes are found through it: \
     mount it (mount -t proc proc /proc; for unshare: --mount-proc)"
)]
pub struct ForeignProcFs;

/// Fails if `/proc` is missing or of another PID namespace.
pub(super) fn check() -> Result<(), ForeignProcFs> {
    let own = rustix::process::getpid().as_raw_pid().to_string();
    match fs::read_link("/proc/self") {
        Ok(name) if name == Path::new(&own) => Ok(()),
        _ => Err(ForeignProcFs),
    }
}

/// Returns whether the kernel lists children per thread (`CONFIG_PROC_CHILDREN`).
pub(super) fn lists_children() -> bool {
    Path::new("/proc/thread-self/children").exists()
}

/// Returns the children of `parent`, including zombies; none if it is gone. May miss some while others exit
/// (proc(5)).
pub(super) fn children_of(parent: Pid) -> Vec<Pid> {
    let Ok(threads) = fs::read_dir(format!("/proc/{parent}/task")) else { return Vec::new() };
    let lists = threads.flatten().map(|thread| fs::read_to_string(thread.path().join("children")));
    lists
        .flatten()
        .flat_map(|list| list.split_ascii_whitespace().filter_map(pid).collect::<Vec<_>>())
        .collect()
}

/// Returns every process with its parent.
pub(super) fn all_processes() -> Vec<(Pid, Pid)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str().and_then(pid));
    pids.filter_map(|pid| Some((pid, parent_of(pid).ok()?))).collect()
}

/// Returns the parent of `child`.
///
/// # Errors
/// `SRCH` if it is gone or has no parent in this namespace.
pub(super) fn parent_of(child: Pid) -> io::Result<Pid> {
    field(&format!("/proc/{child}/stat"), PARENT)?.ok_or_else(|| Errno::SRCH.into())
}

/// Returns the process group of this process; `None` if it belongs to another PID namespace.
pub fn own_group() -> Option<Pid> {
    field("/proc/self/stat", GROUP).ok().flatten()
}

/// Returns the process group of `process`; `None` if it is gone or its group belongs to another PID
/// namespace.
pub(crate) fn group_of(process: Pid) -> Option<Pid> {
    field(&format!("/proc/{process}/stat"), GROUP).ok().flatten()
}

/// Returns the session of this process; `None` if it belongs to another PID namespace.
pub(crate) fn own_session() -> Option<Pid> {
    field("/proc/self/stat", SESSION).ok().flatten()
}

/// Positions after the name, in the order of proc(5).
const PARENT: usize = 1;
const GROUP: usize = 2;
const SESSION: usize = 3;

fn field(stat: &str, place: usize) -> io::Result<Option<Pid>> {
    Ok(field_in(&fs::read_to_string(stat)?, place))
}

fn field_in(stat: &str, place: usize) -> Option<Pid> {
    // The name in parentheses may contain parentheses. The state follows the last one (proc(5)).
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    after_name.split_ascii_whitespace().nth(place).and_then(pid)
}

/// Parses a process id. The kernel writes -1 for the group of a process that is exiting.
fn pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok().filter(|raw| *raw > 0)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt as _;

    #[test]
    fn negative_or_missing_process_is_none() {
        assert_eq!(["-1", "0", "", "x"].map(pid), [None; 4]);
        assert_eq!(pid("7"), Pid::from_raw(7));
    }

    #[test]
    fn child_is_listed_and_names_its_parent() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let child_pid = Pid::from_child(&child);
        assert!(children_of(rustix::process::getpid()).contains(&child_pid));
        assert_eq!(parent_of(child_pid).unwrap(), rustix::process::getpid());
        assert!(all_processes().contains(&(child_pid, rustix::process::getpid())));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(parent_of(child_pid).is_err());
    }

    // A child's group, not our own: the tests may run in a group of another PID namespace.
    #[test]
    fn child_with_a_group_of_its_own_leads_it() {
        let mut child = std::process::Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
        let child_pid = Pid::from_child(&child);
        assert_eq!(group_of(child_pid), Some(child_pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(group_of(child_pid), None);
    }

    #[test]
    fn fields_are_found_behind_any_name() {
        let stat = "40 (a) S 1 2 3) S 41 42 43 0 -1";
        let places = [PARENT, GROUP, SESSION].map(|place| field_in(stat, place));
        assert_eq!(places, [41, 42, 43].map(Pid::from_raw));
        assert_eq!(
            field_in("40 (foreign) S 41 0 0 0 -1", SESSION),
            None,
            "a session of another PID namespace"
        );
    }

    #[test]
    fn proc_of_this_namespace_is_accepted() {
        assert!(check().is_ok());
    }
}
