//! [`Trial`]: a folder with a storage, and a mark for the processes. Dropping it ends the processes.

use super::{
    HANG_LIMIT, Level, Processes, Program, Run, command_line, eventually, own_group, program, remove_group,
    storage,
};
use rustix::process::Pid;
use std::path::{Path, PathBuf};

/// The variable with the folder of local wake-ups.
pub(super) const LOCAL_DIR: &str = "VVM_LOCAL_DIR";

/// One trial: a folder with a storage, and a mark for its processes.
#[derive(Debug)]
pub struct Trial {
    pub(super) program: Program,
    folder: tempfile::TempDir,
    mark: String,
    /// Between its processes and the server, where the storage is on one.
    pub(super) proxy: Option<storage::Proxy>,
    /// At level control group, the one that all runs begin in, so that the groups that they make can be
    /// found.
    pub(super) group: Option<PathBuf>,
}

impl Trial {
    /// A trial of `program`, with an empty storage.
    pub(super) fn of(program: Program) -> Self {
        program::settle();
        let folder = tempfile::tempdir().unwrap();
        // The name of the folder is unique.
        let mark = folder.path().file_name().unwrap().to_str().unwrap().to_owned();
        let group = (program.level() == Level::ControlGroup).then(|| {
            let group = own_group().unwrap().join(format!("vvm-trial-{mark}"));
            std::fs::create_dir(&group).unwrap();
            group
        });
        Self { program, folder, mark, proxy: storage::proxy(program), group }
    }

    /// Returns its folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the URL of the storage that all runs of this trial share.
    pub fn storage(&self) -> String {
        // The temporary folder may be on overlayfs. All processes of a trial see the same one.
        let file = || format!("sqlite:{}?allow=overlay", self.folder.path().join("leader.db").display());
        self.proxy.as_ref().map_or_else(file, storage::behind)
    }

    /// Returns the name to lead: `payroll`, or a name for this trial on a shared server.
    pub fn name(&self) -> String {
        if self.proxy.is_some() { format!("payroll-{}", self.mark) } else { "payroll".into() }
    }

    /// Returns a `vvm run` on the storage, for the trial's name. The TTL is the default, long enough for a
    /// busy machine.
    pub fn run<'a>(&self, command: impl IntoIterator<Item = &'a str>) -> Run {
        Run::new(self, command)
    }

    /// Returns a `vvm run` of a shell script.
    pub fn run_script(&self, script: &str) -> Run {
        self.run(["sh", "-c", script])
    }

    /// Locks the storage until the value is dropped. No other process can write meanwhile.
    pub fn lock_storage(&self) -> rusqlite::Connection {
        let connection = rusqlite::Connection::open(self.folder.path().join("leader.db")).unwrap();
        connection.busy_timeout(HANG_LIMIT).unwrap();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        connection
    }

    /// Runs `vvm status --no-wait` on the storage. Returns exit status, standard output and standard error.
    pub fn status(&self, arguments: &[&str]) -> (i32, String, String) {
        self.ask("status", &[arguments, &["--no-wait"]].concat())
    }

    /// Returns what `vvm status --json` shows of each slot, without the age of its record, which changes.
    pub fn slots(&self) -> Vec<serde_json::Value> {
        let (_, out, _) = self.status(&["--name", &self.name(), "--json"]);
        let mut slots: Vec<serde_json::Value> = serde_json::from_str(&out).unwrap();
        for slot in slots.iter_mut().filter_map(|slot| slot.as_object_mut()) {
            slot.remove("age_ms");
        }
        slots
    }

    /// Runs another command on the storage, in the same way.
    pub fn ask(&self, command: &str, arguments: &[&str]) -> (i32, String, String) {
        let mut asked = self.program.command(&[]);
        asked.env(LOCAL_DIR, self.local_dir());
        let output = asked.args([command, "--storage", &self.storage()]).args(arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    /// Returns the folder of this trial for local wake-ups. Other trials lead the same name, so they need
    /// other folders.
    pub fn local_dir(&self) -> String {
        self.folder().join("local").display().to_string()
    }

    /// Returns all living processes of this trial.
    pub fn processes(&self) -> Processes {
        Processes::marked(&self.mark)
    }

    /// Waits for a process whose command line begins with `command`, and returns it.
    pub fn process(&self, command: &str) -> Pid {
        let mut found = None;
        eventually(command, || {
            let mut processes = self.processes().0.into_iter();
            found = processes.find(|pid| command_line(*pid).starts_with(command));
            found.is_some()
        });
        found.unwrap()
    }

    /// Returns the mark of its processes: the value of `TRIAL` in their environment.
    pub fn mark(&self) -> &str {
        &self.mark
    }
}

impl Drop for Trial {
    /// Kills all processes of the trial, also after a failure.
    fn drop(&mut self) {
        self.processes().kill();
        if let Some(group) = &self.group {
            remove_group(group);
        }
    }
}
