//! A process and its descendants: signals to them, and their memory and CPU.

use super::WORK;
use crate::resources::{self, ResourcesError};
use rustix::process::{Pid, Signal, kill_process};
use std::{fs, path::Path, time::Duration};

/// The first one is the ancestor.
pub(crate) struct ProcessTree(Vec<Pid>);

impl ProcessTree {
    pub(crate) fn of(ancestor: i32) -> Self {
        let mut all: Vec<Pid> = Pid::from_raw(ancestor).into_iter().collect();
        let mut next = 0;
        while let Some(pid) = all.get(next) {
            // Any of its threads may have started a process.
            let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            let children: Vec<_> =
                threads.map(|thread| fs::read_to_string(thread.path().join("children"))).collect();
            let children = children.iter().flatten().flat_map(|children| children.split_whitespace());
            all.extend(children.filter_map(|child| Pid::from_raw(child.parse().ok()?)));
            next += 1;
        }
        Self(all)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = i32> {
        self.0.iter().map(|pid| pid.as_raw_pid())
    }

    /// The ancestor.
    pub(crate) fn first(&self) -> Option<Pid> {
        self.0.first().copied()
    }

    /// The first one with this argument.
    pub(crate) fn with_argument(&self, argument: &str) -> Option<Pid> {
        self.0.iter().copied().find(|pid| words(*pid).iter().any(|word| word == argument.as_bytes()))
    }

    /// Sends a signal to the ancestor alone.
    pub(crate) fn signal_first(&self, signal: Signal) {
        if let Some(first) = self.0.first() {
            send(*first, signal);
        }
    }

    /// Sends a signal to each of them.
    pub(crate) fn signal_all(&self, signal: Signal) {
        self.0.iter().for_each(|pid| send(*pid, signal));
    }

    /// Stops all, then kills all, so that none reacts to the end of another.
    pub(crate) fn kill_at_once(&self) {
        self.signal_all(Signal::STOP);
        self.signal_all(Signal::KILL);
    }

    /// Whether one of them is the command of this scene.
    pub(crate) fn runs(&self, scene: &Path) -> bool {
        let scene = scene.as_os_str().as_encoded_bytes();
        let is_work = |pid: &Pid| {
            let words = words(*pid);
            words.len() > 2 && words[1] == WORK.as_bytes() && words[2] == scene
        };
        self.0.iter().any(is_work)
    }

    /// Their proportional memory (PSS), in bytes: shared pages are divided among their users.
    pub(crate) fn proportional_bytes(&self) -> Result<u64, ResourcesError> {
        self.0.iter().map(|pid| resources::proportional_bytes_of(pid.as_raw_pid())).sum()
    }

    /// The sum of their resident memory, in bytes: shared pages count more than once.
    pub(crate) fn resident_bytes(&self) -> Result<u64, ResourcesError> {
        self.0.iter().map(|pid| resources::resident_bytes_of(&pid.to_string())).sum()
    }

    /// CPU time of all threads that run now.
    pub(crate) fn cpu_time(&self) -> Result<Duration, ResourcesError> {
        self.0.iter().map(|pid| resources::cpu_time_of(&pid.to_string())).sum()
    }
}

/// The command line of a process.
fn words(pid: Pid) -> Vec<Vec<u8>> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect()
}

pub(super) fn send(pid: Pid, signal: Signal) {
    // It may have ended already.
    let _gone = kill_process(pid, signal);
}
