//! Processes, as `/proc` shows them.

use super::PATIENCE;
use rustix::process::{Pid, Signal, kill_process};
use std::{fs, path::PathBuf, thread, time::Duration};
use vvm_clock::SystemClock;

/// Some processes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Processes(pub Vec<Pid>);

impl Processes {
    /// Every process, zombies aside, whose environment has the mark.
    pub fn marked(mark: &str) -> Self {
        // Not one of ours (VVM_…): those are taken out of the worker's environment.
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

    /// Those of them whose command line contains `text`.
    pub fn with(&self, text: &str) -> Vec<Pid> {
        self.0.iter().copied().filter(|pid| command_line(*pid).contains(text)).collect()
    }

    /// Their command lines, for a test that fails.
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

/// The command line of a process, spaces between the arguments.
pub fn command_line(pid: Pid) -> String {
    let bytes = fs::read(PathBuf::from(format!("/proc/{pid}/cmdline"))).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

/// The state letter of a process (proc(5)), if it is there.
pub fn state(pid: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Looks until `condition` holds, and returns how long that took.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) -> Duration {
    let began = SystemClock::read();
    loop {
        if condition() {
            return SystemClock::read().since(began);
        }
        assert!(SystemClock::read().since(began) < PATIENCE, "never: {what}");
        // Between two looks, so that looking does not take the processor from what is looked at.
        thread::sleep(Duration::from_millis(1));
    }
}
