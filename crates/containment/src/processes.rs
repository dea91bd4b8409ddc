//! Reaping children ([`reap()`]), and [`Family`]: the descendants of this process, found from the top, at a cost that
//! follows the tree's size. They are found in `/proc`.

use crate::signal_table::signal_name;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{
        Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, kill_process_group,
        pidfd_open, pidfd_send_signal, wait, waitid,
    },
};
use std::{
    collections::{HashMap, HashSet},
    fmt, fs, io,
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
};
use vvm_clock::{Instant, SystemClock};

/// The descendants of this process.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    root: Pid,
    source: Source,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    /// `/proc/PID/task/*/children`: its cost follows the tree's size.
    Children,
    /// `/proc/*/stat`: its cost follows the number of all processes, but every kernel has it.
    AllProcesses,
}

/// A process, with its parent when it was found.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// Its number.
    pub pid: Pid,
    parent: Pid,
}

impl Family {
    /// Returns the family of this process. Fails if `/proc` is missing or foreign.
    pub fn of_this_process() -> Result<Self, ForeignProcFs> {
        check_proc_fs()?;
        let source = if lists_children() { Source::Children } else { Source::AllProcesses };
        Ok(Self { root: getpid(), source })
    }

    /// Returns all descendants, including zombies. May miss some while the tree changes.
    pub fn descendants(&self) -> Vec<Member> {
        self.search().0
    }

    /// The same, and whether `/proc` could be read. It can't without a free descriptor.
    pub(crate) fn search(&self) -> (Vec<Member>, bool) {
        match self.source {
            Source::Children => self.below(children_of),
            Source::AllProcesses => {
                let Ok(all) = all_processes() else { return (Vec::new(), false) };
                let mut children = HashMap::<Pid, Vec<Pid>>::new();
                for (child, parent) in all {
                    children.entry(parent).or_default().push(child);
                }
                self.below(|parent| Ok(children.remove(&parent).unwrap_or_default()))
            }
        }
    }

    /// Returns the descendants whose parent is `parent`.
    pub fn children_of(&self, parent: Pid) -> Vec<Member> {
        self.descendants().into_iter().filter(|member| member.parent == parent).collect()
    }

    /// Returns the descendant `top` and its own descendants.
    pub fn tree_of(&self, top: Pid) -> Vec<Member> {
        let mut tree = HashSet::from([top]);
        // Parents are found before their children.
        let within = |member: &Member| {
            tree.contains(&member.pid) || (tree.contains(&member.parent) && tree.insert(member.pid))
        };
        self.descendants().into_iter().filter(within).collect()
    }

    /// Returns whether `process` descends from `top`. It looks at the processes above it alone, whatever else runs, and
    /// at few of them: any user may ask by connecting to a socket. The caller makes sure that the number names the
    /// process that was meant, by a pidfd that was opened before and is not at its end afterwards.
    pub fn is_below(&self, top: Pid, process: Pid) -> bool {
        (0..WALKS).find_map(|_| walk_up(top, process)).unwrap_or(false)
    }

    /// Kills the process group of each child that leads one, which mostly is a whole tree at once. By number, because
    /// kernels before 6.9 have no other way. Only this process can free the number by reaping. If another thread reaps
    /// between the two calls, the number is not reused so soon.
    pub fn kill_groups(&self) {
        let Source::Children = self.source else { return };
        // From `/proc`: system calls have no number for a group of another PID namespace.
        let own = own_group();
        for child in children_of(self.root).unwrap_or_default() {
            if group_of(child) == Some(child) && own != Some(child) {
                // Gone, or partly out of reach: the caller kills the others one by one.
                let _ = kill_process_group(child, Signal::KILL);
            }
        }
    }

    /// Sends `signal` to the process that was found, never to another one that has its number now. Fails with `SRCH` if
    /// it is gone, with `PERM` if it runs as another user.
    pub fn signal(&self, member: Member, signal: Signal) -> rustix::io::Result<()> {
        pidfd_send_signal(&self.pin(member)?, signal)
    }

    /// Returns a descriptor of the process that was found, readable once it has ended. Fails with `SRCH` if it is gone.
    pub fn pin(&self, member: Member) -> rustix::io::Result<OwnedFd> {
        // The number may have been reused. If this process is still of the family, it is the one found.
        let process = pidfd_open(member.pid, PidfdFlags::empty())?;
        if self.root == getpid() && is_own_child(&process) {
            return Ok(process);
        }
        match unless_gone(parent_of(member.pid)) {
            Ok(Some(parent)) if parent == member.parent || parent == self.root => Ok(process),
            Ok(_) => Err(Errno::SRCH),
            Err(cause) => Err(Errno::from_io_error(&cause).unwrap_or(Errno::IO)),
        }
    }

    fn below(&self, mut children_of: impl FnMut(Pid) -> io::Result<Vec<Pid>>) -> (Vec<Member>, bool) {
        let (mut found, mut is_complete) = (Vec::<Member>::new(), true);
        // Meanwhile a process may get another parent and be met twice, and a reused number may close a circle.
        let mut seen = HashSet::from([self.root]);
        let mut parents = vec![self.root];
        while let Some(parent) = parents.pop() {
            let children = children_of(parent);
            is_complete &= children.is_ok();
            for pid in children.unwrap_or_default() {
                if seen.insert(pid) {
                    found.push(Member { pid, parent });
                    parents.push(pid);
                }
            }
        }
        (found, is_complete)
    }
}

/// How many processes above one are looked at. A chain that is longer may have been made so to keep this process busy.
const DEEPEST: usize = 64;

/// How often a process is looked for whose parents end meanwhile.
const WALKS: usize = 3;

/// Looks for `top` above `process`. `None` if the processes above have changed meanwhile.
fn walk_up(top: Pid, process: Pid) -> Option<bool> {
    let mut chain = vec![process];
    while chain.len() <= DEEPEST {
        // Process 1 has no parent, nor has one whose parent is in a namespace above.
        let Some(parent) = field(&stat_of(*chain.last()?), PARENT).ok()? else { return Some(false) };
        chain.push(parent);
        if parent == top {
            // A number may have got to another process between two look-ups. From the top down, a process that has the
            // same parent again has had it since the first look-up. So that parent has lived since, and what was read
            // by its number was its own.
            let is_same = |link: &[Pid]| parent_of(link[0]).is_ok_and(|parent| parent == link[1]);
            return chain.windows(2).rev().all(is_same).then_some(true);
        }
    }
    Some(false)
}

/// Returns whether the process is a child of ours that was not reaped. Far cheaper than `/proc`.
fn is_own_child(process: &OwnedFd) -> bool {
    let only_look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    waitid(WaitId::PidFd(process.as_fd()), only_look).is_ok()
}

/// `/proc` is missing, or shows another PID namespace, in which the same numbers name other processes.
#[derive(Debug, thiserror::Error)]
#[error(
    "/proc is missing or belongs to another PID namespace, and a command's processes are found through it: \
     mount it (mount -t proc proc /proc; for unshare: --mount-proc)"
)]
pub struct ForeignProcFs;

fn check_proc_fs() -> Result<(), ForeignProcFs> {
    let own = rustix::process::getpid().as_raw_pid().to_string();
    match fs::read_link("/proc/self") {
        Ok(name) if name == Path::new(&own) => Ok(()),
        _ => Err(ForeignProcFs),
    }
}

fn lists_children() -> bool {
    Path::new("/proc/thread-self/children").exists()
}

/// Includes zombies. May miss some while others exit (proc(5)).
fn children_of(parent: Pid) -> io::Result<Vec<Pid>> {
    let mut children = Vec::new();
    for thread in unless_gone(fs::read_dir(format!("/proc/{parent}/task")))?.into_iter().flatten() {
        let list = thread.and_then(|thread| fs::read_to_string(thread.path().join("children")));
        let list = unless_gone(list)?.unwrap_or_default();
        children.extend(list.split_ascii_whitespace().filter_map(pid));
    }
    Ok(children)
}

fn all_processes() -> io::Result<Vec<(Pid, Pid)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(process) = entry?.file_name().to_str().and_then(pid) else { continue };
        found.extend(unless_gone(parent_of(process))?.map(|parent| (process, parent)));
    }
    Ok(found)
}

/// `None` if the process is gone, or if its user hides it (proc(5): `hidepid`).
fn unless_gone<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    let is_gone = |cause| matches!(cause, Errno::NOENT | Errno::SRCH | Errno::PERM | Errno::ACCESS);
    match read {
        Err(cause) if Errno::from_io_error(&cause).is_some_and(is_gone) => Ok(None),
        read => read.map(Some),
    }
}

fn parent_of(child: Pid) -> io::Result<Pid> {
    field(&stat_of(child), PARENT)?.ok_or_else(|| Errno::SRCH.into())
}

/// The file of the first thread: that of the process adds up the times of all its threads at each read.
fn stat_of(process: Pid) -> String {
    format!("/proc/{process}/task/{process}/stat")
}

/// `None` if it belongs to another PID namespace.
pub fn own_group() -> Option<Pid> {
    field("/proc/self/stat", GROUP).ok().flatten()
}

/// `None` if the process is gone, or its group belongs to another PID namespace.
pub(crate) fn group_of(process: Pid) -> Option<Pid> {
    field(&format!("/proc/{process}/stat"), GROUP).ok().flatten()
}

pub(crate) fn own_session() -> Option<Pid> {
    field("/proc/self/stat", SESSION).ok().flatten()
}

/// Reads a file of `/proc`. Names in it may be no UTF-8: that of a process is cut after 15 bytes, also within a character.
pub(crate) fn read_text(path: &str) -> io::Result<String> {
    fs::read(path).map(|text| String::from_utf8_lossy(&text).into_owned())
}

/// Positions after the name, in the order of proc(5).
pub(crate) const PARENT: usize = 1;
const GROUP: usize = 2;
const SESSION: usize = 3;

fn field(stat: &str, place: usize) -> io::Result<Option<Pid>> {
    Ok(field_in(&read_text(stat)?, place))
}

pub(crate) fn field_in(stat: &str, place: usize) -> Option<Pid> {
    // The name in parentheses may contain parentheses. The state follows the last one (proc(5)).
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    after_name.split_ascii_whitespace().nth(place).and_then(pid)
}

/// Parses a process id. The kernel writes -1 for the group of a process that is exiting.
pub(crate) fn pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok().filter(|raw| *raw > 0)?)
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProcessEnd {
    /// With this exit status.
    Exited(u8),
    /// By the signal of this number.
    Signalled(i32),
}

/// A child that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reaped {
    /// Its number, which another process may have by now.
    pub pid: Pid,
    /// How it ended.
    pub ended: ProcessEnd,
}

/// What a look for ended children found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reap {
    /// One has ended, and is gone now.
    One(Reaped),
    /// Children are left, all of them alive.
    NoneYet,
    /// No child is left. For a sub-reaper, that means no descendant.
    Childless,
}

impl Reap {
    fn from_wait_answer(answer: rustix::io::Result<Option<(Pid, WaitStatus)>>) -> Option<Self> {
        Some(match answer {
            Ok(Some((pid, status))) => Self::One(Reaped { pid, ended: ProcessEnd::from_wait_status(status) }),
            Ok(None) => Self::NoneYet,
            Err(Errno::INTR) => return None,
            Err(Errno::CHILD) => Self::Childless,
            // wait(2) documents no other error. One would prove nothing (I6).
            Err(_) => Self::NoneYet,
        })
    }
}

impl ProcessEnd {
    fn from_wait_status(status: WaitStatus) -> Self {
        match status.terminating_signal() {
            Some(signal) => Self::Signalled(signal),
            // An exit status has eight bits (wait(2)).
            None => Self::Exited(status.exit_status().unwrap_or(0) as u8),
        }
    }
}

impl fmt::Display for ProcessEnd {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Exited(status) => write!(out, "exited with status {status}"),
            Self::Signalled(number) => write!(out, "was ended by {}", signal_name(number)),
        }
    }
}

/// Reaps one child that has ended, if there is one. Never blocks.
pub fn reap() -> Reap {
    loop {
        if let Some(found) = Reap::from_wait_answer(wait(WaitOptions::NOHANG)) {
            return found;
        }
    }
}

pub(crate) fn has_ended(process: &OwnedFd) -> bool {
    ends_by(process, Instant::ORIGIN)
}

/// Waits until the process of a descriptor has ended, reaped or not, and at most until `limit`. Returns whether it has.
pub fn ends_by(process: &OwnedFd, limit: Instant) -> bool {
    loop {
        let left = SystemClock::read().until(limit);
        let longest = Timespec::try_from(left).ok();
        // After an interruption, again with the time left.
        if poll(&mut [PollFd::new(process, PollFlags::IN)], longest.as_ref()).is_ok_and(|ready| ready > 0) {
            return true;
        }
        if left.is_zero() {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        os::unix::process::CommandExt as _,
        process::{Child, Command, Stdio},
    };

    fn shell(script: &str, in_own_group: bool) -> Child {
        let mut command = Command::new("sh");
        if in_own_group {
            command.process_group(0);
        }
        let mut shell = command.args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let out = shell.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
        shell
    }

    #[test]
    fn both_sources_find_the_same_descendants() {
        let no_text = r#"sh -c "printf '\377' >/proc/\$\$/comm; echo up; kill -STOP \$\$""#;
        let mut shell = shell(&format!("sleep 60 & {no_text} & wait"), false);
        for source in [Source::Children, Source::AllProcesses] {
            // Other tests of this process have children too: only what hangs below the shell counts.
            let family = Family { root: Pid::from_child(&shell), source };
            let found = family.descendants();
            assert_eq!(found.len(), 2, "{source:?}: {found:?}");
        }
        let family = Family::of_this_process().unwrap();
        let top = Pid::from_child(&shell);
        let tree = family.tree_of(top).iter().map(|member| member.pid).collect::<Vec<_>>();
        let below = family.children_of(top).iter().map(|member| member.pid).collect::<Vec<_>>();
        let own = getpid();
        for child in &below {
            assert!(family.is_below(top, *child) && family.is_below(own, *child));
            assert!(!family.is_below(*child, top) && !family.is_below(*child, *child));
        }
        assert!(!family.is_below(top, top) && !family.is_below(top, own) && !family.is_below(top, Pid::INIT));
        assert_eq!((tree[0], tree.len(), below.len()), (top, 3, 2));
        assert!(below.iter().all(|pid| tree.contains(pid)));
        let family = Family { root: Pid::from_child(&shell), source: Source::Children };
        for member in family.descendants() {
            family.signal(member, Signal::KILL).unwrap();
        }
        shell.wait().unwrap();
    }

    #[test]
    fn process_that_is_too_deep_costs_few_looks_and_is_not_found() {
        let next = "if test $1 = 0; then echo up; sleep 60; else sh -c \"$2\" sh $(($1 - 1)) \"$2\"; :; fi";
        let script = format!("exec sh -c '{next}' sh {} '{next}'", DEEPEST + 2);
        let mut shell = shell(&script, true);
        let top = Pid::from_child(&shell);
        let family = Family { root: top, source: Source::Children };
        let chain = family.descendants();
        let (near, far) = (chain[DEEPEST - 1], chain[DEEPEST]);
        assert!(family.is_below(top, near.pid) && !family.is_below(top, far.pid));
        kill_process_group(top, Signal::KILL).unwrap();
        shell.wait().unwrap();
    }

    #[test]
    fn group_of_a_child_is_killed_whole_and_no_other() {
        let mut stranger = shell("sleep 60 & echo up; wait", true);
        // Its child leads a group, and a second one shares the shell's.
        let mut shell = shell("setsid sh -c 'sleep 60 & echo up; wait' & sleep 60 & wait", true);
        let top = Pid::from_child(&shell);
        let family = Family { root: top, source: Source::Children };
        let leader = family.children_of(top).into_iter().find(|one| group_of(one.pid) == Some(one.pid));
        let apart = family.tree_of(leader.unwrap().pid);
        assert_eq!(apart.len(), 2, "{apart:?}");
        let pinned = apart.iter().map(|one| family.pin(*one).unwrap()).collect::<Vec<_>>();
        family.kill_groups();
        assert!(pinned.iter().all(|process| ends_by(process, Instant::NEVER)));
        assert!(shell.try_wait().unwrap().is_none(), "leads a group, but is no child of the root's");
        assert!(stranger.try_wait().unwrap().is_none());
        Family { root: getpid(), source: Source::Children }.tree_of(top).into_iter().for_each(|one| {
            let _ = rustix::process::kill_process(one.pid, Signal::KILL);
        });
        kill_process_group(Pid::from_child(&stranger), Signal::KILL).unwrap();
        stranger.wait().unwrap();
        shell.wait().unwrap();
    }

    #[test]
    fn process_of_another_family_is_not_signalled() {
        let mut stranger = Command::new("sleep").arg("60").spawn().unwrap();
        let family = Family { root: Pid::from_raw(2).unwrap(), source: Source::Children };
        let mistaken = Member { pid: Pid::from_child(&stranger), parent: Pid::from_raw(3).unwrap() };
        assert_eq!(family.signal(mistaken, Signal::KILL), Err(Errno::SRCH));
        assert!(stranger.try_wait().unwrap().is_none());
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }

    #[test]
    fn negative_or_missing_process_is_none() {
        assert_eq!(["-1", "0", "", "x"].map(pid), [None; 4]);
        assert_eq!(pid("7"), Pid::from_raw(7));
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

    /// Shows I6: without that proof, a guardian releases nothing.
    #[test]
    fn only_echild_proves_that_no_child_is_left() {
        let errors = (1..=133).map(Errno::from_raw_os_error).filter(|error| *error != Errno::CHILD);
        for error in errors {
            assert_ne!(Reap::from_wait_answer(Err(error)), Some(Reap::Childless), "{error:?}");
        }
        assert_eq!(Reap::from_wait_answer(Err(Errno::CHILD)), Some(Reap::Childless));
        assert_eq!(Reap::from_wait_answer(Ok(None)), Some(Reap::NoneYet));
    }
}
