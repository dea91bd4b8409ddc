//! One trial: starts a worker, ends guardian or host, and waits for the worker's last process to end.

use super::{
    kind::{Ending, Kind},
    setting::Setting,
};
use crate::proc_fs::{self, Marked};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    io,
    path::Path,
    process::{Child, Stdio},
    time::Duration,
};
use vvm_clock::SystemClock;

/// When a trial is given up: far longer than any bound.
const WATCHED: Duration = Duration::from_secs(3);
/// How long a worker may take to set up.
const STARTS: Duration = Duration::from_secs(30);

/// The environment variable that marks the processes of a trial.
const MARK: &str = "FUGITIVE";

/// The processes of a trial.
#[derive(Default)]
struct Found {
    guardian: Option<Pid>,
    host: Option<Pid>,
    of_worker: Vec<Pid>,
    all: Vec<Pid>,
}

/// Returns how long the worker's last process outlived the host, or the killed guardian. `None` if it still
/// ran at the end.
pub(super) fn trial(
    vvm: &Path,
    setting: Setting,
    kind: Kind,
    ending: Ending,
) -> io::Result<Option<Duration>> {
    let folder = tempfile::tempdir()?;
    let mark = folder.path().display().to_string();
    let mut command = setting.command(vvm, folder.path(), &["sh", "-c", kind.script]);
    command.env(MARK, &mark).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let took = inject(&mark, kind, ending);
    clean_up(&mut child, &mark)?;
    took
}

fn inject(mark: &str, kind: Kind, ending: Ending) -> io::Result<Option<Duration>> {
    let mut found = Found::default();
    let is_there = wait(STARTS, || {
        found = find(mark);
        found.of_worker.len() >= kind.processes
    });
    let (Some(_), Some(guardian), Some(host)) = (is_there, found.guardian, found.host) else {
        return Err(io::Error::other(format!("the worker did not start: {}", kind.title)));
    };
    match ending {
        Ending::HostKilled => kill_process(host, Signal::KILL)?,
        Ending::GuardianKilled => kill_process(guardian, Signal::KILL)?,
        Ending::HostStopped => kill_process(host, Signal::STOP)?,
        Ending::BothStopped => {
            kill_process(guardian, Signal::STOP)?;
            kill_process(host, Signal::STOP)?;
        }
    }
    let target = if ending == Ending::GuardianKilled { guardian } else { host };
    if wait(STARTS, || proc_fs::status(target.as_raw_nonzero().get()).is_none_or(|of| of.zombie)).is_none() {
        return Err(io::Error::other(format!("{} outlived the deadline", ending.title())));
    }
    Ok(wait(WATCHED, || find(mark).of_worker.is_empty()))
}

/// Looks until `condition` holds. Returns how long that took, or `None` after the limit.
fn wait(most: Duration, mut condition: impl FnMut() -> bool) -> Option<Duration> {
    let began = SystemClock::read();
    loop {
        if condition() {
            return Some(SystemClock::read().since(began));
        }
        if SystemClock::read().since(began) > most {
            return None;
        }
        // A pause, so that the looks don't take the processor from the processes.
        SystemClock::block_for(Duration::from_millis(1));
    }
}

/// Finds every process with the mark in its environment. The environment of a zombie is empty.
fn find(mark: &str) -> Found {
    let variable = format!("{MARK}={mark}").into_bytes();
    let mut found = Found::default();
    for Marked { pid, words } in proc_fs::marked(|one| one == variable) {
        found.all.push(pid);
        let mut words = words.iter().map(String::as_str);
        match (words.next(), words.next()) {
            (Some("vvm"), Some("run")) => found.guardian = Some(pid),
            (Some("vvm"), Some("stage-host")) => found.host = Some(pid),
            // The keeper and its helpers are parts of vvm; a shim becomes the worker.
            (Some("vvm"), Some("stage-keeper" | "stage-namespace" | "stage-init")) | (Some("unshare"), _) => {
            }
            _ => found.of_worker.push(pid),
        }
    }
    found
}

fn clean_up(child: &mut Child, mark: &str) -> io::Result<()> {
    if let Some(guardian) = find(mark).guardian {
        // A stopped process continues, and cleans up.
        let _ = kill_process(guardian, Signal::CONT);
        let _ = wait(WATCHED, || find(mark).all.is_empty());
    }
    // This kills stopped processes, too. A storm of forks may need several rounds.
    let all_gone = wait(STARTS, || {
        let found = find(mark);
        for pid in &found.all {
            let _ = kill_process(*pid, Signal::KILL);
        }
        found.all.is_empty()
    });
    child.wait()?;
    all_gone.map(drop).ok_or_else(|| io::Error::other("processes of a trial can't be killed"))
}
