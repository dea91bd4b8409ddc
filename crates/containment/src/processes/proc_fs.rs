//! The few things that are read from `/proc`.

use rustix::{io::Errno, process::Pid};
use std::{fs, io, path::Path};

/// `/proc` is missing, or shows another PID namespace: its numbers would name other people's processes.
#[derive(Debug, thiserror::Error)]
#[error(
    "/proc is missing or belongs to another PID namespace, and a command's processes are found through it: \
     mount it (mount -t proc proc /proc; for unshare: --mount-proc)"
)]
pub struct ForeignProcFs;

/// Refuses a `/proc` whose numbers are not ours.
pub(super) fn check() -> Result<(), ForeignProcFs> {
    let own = rustix::process::getpid().as_raw_pid().to_string();
    match fs::read_link("/proc/self") {
        Ok(name) if name == Path::new(&own) => Ok(()),
        _ => Err(ForeignProcFs),
    }
}

/// Whether the kernel lists children per thread (`CONFIG_PROC_CHILDREN`).
pub(super) fn lists_children() -> bool {
    Path::new("/proc/thread-self/children").exists()
}

/// The children of `parent`, zombies included; none when it is gone. May miss some while others exit
/// (proc(5)).
pub(super) fn children_of(parent: Pid) -> Vec<Pid> {
    let Ok(threads) = fs::read_dir(format!("/proc/{parent}/task")) else { return Vec::new() };
    let lists = threads.flatten().map(|thread| fs::read_to_string(thread.path().join("children")));
    lists
        .flatten()
        .flat_map(|list| list.split_ascii_whitespace().filter_map(pid).collect::<Vec<_>>())
        .collect()
}

/// Every process with its parent.
pub(super) fn all_processes() -> Vec<(Pid, Pid)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str().and_then(pid));
    pids.filter_map(|pid| Some((pid, parent_of(pid).ok()?))).collect()
}

/// The parent of `child`.
///
/// # Errors
/// `SRCH` when it is gone or has no parent in this namespace.
pub(super) fn parent_of(child: Pid) -> io::Result<Pid> {
    field(&format!("/proc/{child}/stat"), PARENT)?.ok_or_else(|| Errno::SRCH.into())
}

/// The process group of this process; none if it is one of another PID namespace, for which the system calls
/// have no number.
pub fn own_group() -> Option<Pid> {
    field("/proc/self/stat", GROUP).ok().flatten()
}

/// The process group of `process`; none if it is gone or in a group of another PID namespace.
pub(crate) fn group_of(process: Pid) -> Option<Pid> {
    field(&format!("/proc/{process}/stat"), GROUP).ok().flatten()
}

/// The session of this process; none if it is one of another PID namespace.
pub(crate) fn own_session() -> Option<Pid> {
    field("/proc/self/stat", SESSION).ok().flatten()
}

/// Places after the name, in proc(5)'s order.
const PARENT: usize = 1;
const GROUP: usize = 2;
const SESSION: usize = 3;

fn field(stat: &str, place: usize) -> io::Result<Option<Pid>> {
    Ok(field_in(&fs::read_to_string(stat)?, place))
}

fn field_in(stat: &str, place: usize) -> Option<Pid> {
    // The name in parentheses may contain anything, parentheses too: the state follows the last one
    // (proc(5)).
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    after_name.split_ascii_whitespace().nth(place).and_then(pid)
}

/// The kernel writes -1 for the group of a process that it is just taking apart.
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
    fn a_child_is_listed_and_names_its_parent() {
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
    fn a_child_with_a_group_of_its_own_leads_it() {
        let mut child = std::process::Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
        let child_pid = Pid::from_child(&child);
        assert_eq!(group_of(child_pid), Some(child_pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(group_of(child_pid), None);
    }

    #[test]
    fn each_field_is_read_from_its_place_whatever_the_name() {
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
    fn this_namespaces_proc_is_accepted() {
        assert!(check().is_ok());
    }
}
