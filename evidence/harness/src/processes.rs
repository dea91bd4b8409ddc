//! [`Processes`]: processes in `/proc`.

use super::HANG_LIMIT;
use rustix::process::{Pid, Signal, kill_process};
use std::{fs, path::PathBuf, thread, time::Duration};
use vvm_clock::SystemClock;

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
