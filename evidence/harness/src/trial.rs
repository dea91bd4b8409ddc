//! A place for one trial: its storage, the mark of its processes, and their removal.

use super::{
    Level, Processes, Program, Run, command_line, door, eventually, ignored, own_group, remove_group,
};
use crate::{PATIENCE, storage};
use rustix::process::Pid;
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// The variable that says where that is.
pub(super) const LOCAL_DIR: &str = "VVM_LOCAL_DIR";

/// A place for one trial: a folder with a storage in it, and a mark for its processes.
#[derive(Debug)]
pub struct Trial {
    pub(super) program: Program,
    folder: tempfile::TempDir,
    mark: String,
    /// Between its processes and the server, where the storage is on one.
    pub(super) door: Option<door::Door>,
    /// At level control group, the one that all runs begin in, so that the groups that they make can be
    /// found.
    pub(super) group: Option<PathBuf>,
}

impl Trial {
    /// A trial of `program`, with an empty storage.
    pub(super) fn of(program: Program) -> Self {
        ignored::ignore_nothing();
        let folder = tempfile::tempdir().unwrap();
        // The folder's name is unlike any other's.
        let mark = folder.path().file_name().unwrap().to_str().unwrap().to_owned();
        let group = (program.level() == Level::ControlGroup).then(|| {
            let group = own_group().unwrap().join(format!("vvm-trial-{mark}"));
            std::fs::create_dir(&group).unwrap();
            group
        });
        Self { program, folder, mark, door: storage::door(program), group }
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The storage that all runs of this trial share.
    pub fn storage(&self) -> String {
        // The temporary folder may be on a container's own layer, which all processes of a trial see.
        let file = || format!("sqlite:{}?allow=overlay", self.folder.path().join("leader.db").display());
        self.door.as_ref().map_or_else(file, storage::behind)
    }

    /// What is led: `payroll`, or on a server that others use a name of this trial's own.
    pub fn name(&self) -> String {
        if self.door.is_some() { format!("payroll-{}", self.mark) } else { "payroll".into() }
    }

    /// `vvm run` on the storage, for the trial's name. The TTL is the default, long enough for a busy
    /// machine.
    pub fn run<'a>(&self, command: impl IntoIterator<Item = &'a str>) -> Run {
        Run::new(self, command)
    }

    /// `vvm run` of a shell script.
    pub fn run_script(&self, script: &str) -> Run {
        self.run(["sh", "-c", script])
    }

    /// Keeps the storage locked until the value is dropped: writes of others are not applied meanwhile.
    pub fn lock_storage(&self) -> rusqlite::Connection {
        let connection = rusqlite::Connection::open(self.folder.path().join("leader.db")).unwrap();
        connection.busy_timeout(PATIENCE).unwrap();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        connection
    }

    /// `vvm status` on the storage: exit status, standard output, standard error.
    pub fn status(&self, arguments: &[&str]) -> (i32, String, String) {
        self.ask("status", arguments)
    }

    /// Returns what `vvm status --json` shows of each slot, without the age of its record, which passes.
    pub fn slots(&self) -> Vec<serde_json::Value> {
        let (_, out, _) = self.status(&["--name", &self.name(), "--json"]);
        let mut slots: Vec<serde_json::Value> = serde_json::from_str(&out).unwrap();
        for slot in slots.iter_mut().filter_map(|slot| slot.as_object_mut()) {
            slot.remove("age_ms");
        }
        slots
    }

    /// Another command about the storage, likewise.
    pub fn ask(&self, command: &str, arguments: &[&str]) -> (i32, String, String) {
        let mut asked = Command::new(self.program.path());
        asked.env(LOCAL_DIR, self.local_dir());
        let output = asked.args([command, "--storage", &self.storage()]).args(arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    /// Where the processes of this trial tell each other to look at once: not where those of other trials do,
    /// which lead the same name.
    pub fn local_dir(&self) -> String {
        self.folder().join("local").display().to_string()
    }

    /// Every process of this trial that lives.
    pub fn processes(&self) -> Processes {
        Processes::marked(&self.mark)
    }

    /// The process whose command line begins with `command`, once there is one.
    pub fn process(&self, command: &str) -> Pid {
        let mut found = None;
        eventually(command, || {
            let mut processes = self.processes().0.into_iter();
            found = processes.find(|pid| command_line(*pid).starts_with(command));
            found.is_some()
        });
        found.unwrap()
    }

    /// What marks its processes: the value of `TRIAL` in their environment.
    pub fn mark(&self) -> &str {
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
