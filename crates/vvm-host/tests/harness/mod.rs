//! Real processes for the tests: starting `vvm`, hearing what it and its worker say, and finding every process that
//! descends from it, wherever it went.
//!
//! Each trial marks its environment, which every descendant inherits; that is how one is found that has left session,
//! group, parent and user behind.
#![allow(dead_code, unused_imports, reason = "each test binary uses its own part of this")]
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

mod described;
mod door;
mod ignored;
mod level;
mod lines;
mod processes;
mod run;
mod storage;
mod terminal;

pub(crate) use described::{Described, commands, vvm};
pub(crate) use level::{
    Level, gives_pid_namespaces, gives_user_namespaces, is_permitted, lets_us_make_groups, own_group,
    remove_group,
};
pub(crate) use lines::Lines;
pub(crate) use processes::{Processes, command_line, eventually, state};
pub(crate) use run::{Finished, Run, Running};
pub(crate) use storage::{Obstruction, Outage, Usurper};
pub(crate) use terminal::Terminal;

use rustix::{fs::FlockOperation, process::Pid};
use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

/// Repeats `trial` until it took less than `bound`, at most ten times.
///
/// A machine that is busy with other things can delay any process by more than a bound that the design promises, so one
/// trial in ten must keep it. What is wrong with the program, and not with the machine, shows in all of them.
pub(crate) fn within(what: &str, bound: Duration, mut trial: impl FnMut() -> Duration) {
    let mut took = Vec::new();
    while took.len() < 10 {
        took.push(trial());
        if took.last().is_some_and(|took| *took < bound) {
            println!("{what}: {took:?}");
            return;
        }
    }
    panic!("{what}: not once within {bound:?}: {took:?}");
}

/// What the design promises for the time between the death of host or guardian and that of the last descendant.
pub(crate) const OUTLIVING: Duration = Duration::from_millis(50);

/// How many trials [`promptly`] makes, and how many of them must keep the bound.
const TRIALS: usize = 7;
const PROMPT: usize = 4;

/// The same for a machine that others want, where any process may have to wait for longer than the bound: so many trials
/// at most, until so many have kept it.
const TRIALS_IF_BUSY: usize = 20;
const PROMPT_IF_BUSY: usize = 2;

/// How many processes for each processor make a machine busy.
const BUSY: f64 = 2.0;

/// What no trial may take more than was promised: what the usual TTL of 20 s leaves between the deadline and the first
/// moment of another leader.
const MARGIN: Duration = Duration::from_secs(4);

/// Repeats `trial`: half of the trials must keep the bound, or as many as a busy machine lets them, and none may take so
/// long that somebody else could lead by then.
pub(crate) fn promptly(what: &str, bound: Duration, mut trial: impl FnMut() -> Duration) {
    // One at a time, and no other test that measures: they shall not be what keeps each other waiting.
    let alone = std::fs::File::open(env!("CARGO_BIN_EXE_vvm")).unwrap();
    rustix::fs::flock(&alone, FlockOperation::LockExclusive).unwrap();
    let mut took = Vec::new();
    loop {
        took.push(trial());
        let prompt = took.iter().filter(|took| **took <= bound).count();
        let load = load();
        let (trials, needed) = if load > BUSY { (TRIALS_IF_BUSY, PROMPT_IF_BUSY) } else { (TRIALS, PROMPT) };
        assert!(took.iter().all(|took| *took <= bound + MARGIN), "{what}: far beyond {bound:?}: {took:?}");
        if prompt >= needed && took.len() >= TRIALS {
            println!("{what}: {took:?}, {load:.1} processes for each processor");
            return;
        }
        assert!(took.len() < trials, "{what}: not {needed} within {bound:?}, load {load:.1}: {took:?}");
    }
}

/// How many processes have wanted each processor, in the last minute (proc_loadavg(5)).
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap();
    let runnable = text.split(' ').next().unwrap().parse::<f64>().unwrap();
    runnable / std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64)
}

/// Far longer than anything here takes, and short enough to see a test fail: not a bound that anything promises.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The variable that says where that is.
const LOCAL_DIR: &str = "VVM_LOCAL_DIR";

/// A place for one trial: a folder with a storage in it, and a mark for its processes.
pub(crate) struct Trial {
    folder: tempfile::TempDir,
    mark: String,
    /// Between its processes and the server, where the storage is on one.
    door: Option<door::Door>,
    /// At level control group, the one that all runs begin in, so that the groups that they make can be found.
    group: Option<PathBuf>,
}

impl Trial {
    /// A trial of its own, with an empty storage.
    pub(crate) fn new() -> Self {
        ignored::ignore_nothing();
        let folder = tempfile::tempdir().unwrap();
        // The folder's name is unlike any other's.
        let mark = folder.path().file_name().unwrap().to_str().unwrap().to_owned();
        let group = (Level::of_this_binary() == Level::ControlGroup).then(|| {
            let group = own_group().unwrap().join(format!("vvm-trial-{mark}"));
            std::fs::create_dir(&group).unwrap();
            group
        });
        Self { folder, mark, door: storage::door(), group }
    }

    /// Its folder.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The storage that all runs of this trial share.
    pub(crate) fn storage(&self) -> String {
        let file = || format!("sqlite:{}", self.folder.path().join("leader.db").display());
        self.door.as_ref().map_or_else(file, storage::behind)
    }

    /// What is led: `payroll`, or on a server that others use a name of this trial's own.
    pub(crate) fn name(&self) -> String {
        if self.door.is_some() { format!("payroll-{}", self.mark) } else { "payroll".into() }
    }

    /// `vvm run` on the storage, for the trial's name. The TTL is the default, long enough for a busy machine.
    pub(crate) fn run<'a>(&self, command: impl IntoIterator<Item = &'a str>) -> Run {
        Run::new(self, command)
    }

    /// `vvm run` of a shell script.
    pub(crate) fn run_script(&self, script: &str) -> Run {
        self.run(["sh", "-c", script])
    }

    /// Keeps the storage locked until the value is dropped: writes of others are not applied meanwhile.
    pub(crate) fn lock_storage(&self) -> rusqlite::Connection {
        let connection = rusqlite::Connection::open(self.folder.path().join("leader.db")).unwrap();
        connection.busy_timeout(PATIENCE).unwrap();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        connection
    }

    /// `vvm status` on the storage: exit status, standard output, standard error.
    pub(crate) fn status(&self, arguments: &[&str]) -> (i32, String, String) {
        self.ask("status", arguments)
    }

    /// Another command about the storage, likewise.
    pub(crate) fn ask(&self, command: &str, arguments: &[&str]) -> (i32, String, String) {
        let mut asked = Command::new(env!("CARGO_BIN_EXE_vvm"));
        asked.env(LOCAL_DIR, self.local_dir());
        let output = asked.args([command, "--storage", &self.storage()]).args(arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    /// Where the processes of this trial tell each other to look at once: not where those of other trials do, which lead the
    /// same name.
    pub(crate) fn local_dir(&self) -> String {
        self.folder().join("local").display().to_string()
    }

    /// Every process of this trial that lives.
    pub(crate) fn processes(&self) -> Processes {
        Processes::marked(&self.mark)
    }

    /// The process whose command line begins with `command`, once there is one.
    pub(crate) fn process(&self, command: &str) -> Pid {
        let mut found = None;
        eventually(command, || {
            let mut processes = self.processes().0.into_iter();
            found = processes.find(|pid| command_line(*pid).starts_with(command));
            found.is_some()
        });
        found.unwrap()
    }

    /// What marks its processes: the value of `TRIAL` in their environment.
    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }
}

impl Drop for Trial {
    /// A test that fails leaves nothing behind either.
    fn drop(&mut self) {
        self.processes().kill();
        if let Some(group) = &self.group {
            remove_group(group);
        }
    }
}
