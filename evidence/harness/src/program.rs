//! The program under test ([`Program`]), what it inherits from a test, a folder with a storage and a mark for its processes
//! ([`Trial`]), and one `vvm run` ([`Run`], [`Running`], [`Finished`]).

use super::{
    Attempt, Late, Level, Lines, Processes, eventually, own_group,
    processes::{ancestors, is_still, remove_group},
    storage,
};
use nix::sys::signal::SigSet;
use rustix::{
    fs::Mode,
    process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, umask, waitid},
};
use std::{
    env, fs,
    os::unix::{fs::PermissionsExt as _, process::ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Once, OnceLock, atomic::AtomicBool},
};

/// Runs a command as the user `nobody`.
pub const NOBODY: [&str; 6] = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];

/// The variable with another program to test, such as an older release.
const OVERRIDE: &str = "VVM_TEST_BINARY";

/// The program under test, and the level of containment that a test binary runs it at.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    built: &'static str,
    level: Level,
}

impl Program {
    /// The program that cargo built for the test binary, `env!("CARGO_BIN_EXE_vvm")`.
    pub const fn new(built: &'static str, level: Level) -> Self {
        Self { built, level }
    }

    pub fn path(self) -> &'static str {
        static OTHER: OnceLock<Option<String>> = OnceLock::new();
        OTHER.get_or_init(|| env::var(OVERRIDE).ok()).as_deref().unwrap_or(self.built)
    }

    pub fn command(self, arguments: &[&str]) -> Command {
        let mut command = command(self.path());
        command.args(arguments);
        command
    }

    /// Returns the level of containment, or guardian on a machine without it. Other tests have a missing level refused.
    pub fn level(self) -> Level {
        if self.level.is_available() {
            return self.level;
        }
        println!("not tested: level {}, which this machine does not give", self.level.name());
        Level::Guardian
    }

    pub fn trial(self) -> Trial {
        Trial::of(self)
    }

    /// Makes attempts at a test of real time, each with a trial of its own, until one is decided ([`timed::timed`]).
    pub fn timed(self, name: &str, mut attempt: impl FnMut(&Attempt, &Trial) -> Result<(), Late>) {
        let name = format!("{name}, at level {}", self.level().name());
        timed::timed(&name, |this| {
            let trial = self.trial();
            trial.watch_server(this);
            attempt(this, &trial)
        });
    }
}

// What programs inherit from a test is the same wherever the test runs. `nohup`, or a shell that runs tests in the
// background, ignores signals. Each `vvm` would inherit and honour that, and a test that sends one would hang.

pub fn settle() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        umask(Mode::from_raw_mode(0o022));
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
        let ignored = u64::from_str_radix(ignored, 16).unwrap();
        // Rust ignores PIPE, and undoes that in programs that it starts. Two signals are refused (KILL, STOP),
        // and so are those of faults, which no caller ignores.
        let others = (1..32).filter(|signal| ![4, 8, 9, 11, 13, 19].contains(signal));
        for signal in others.filter(|signal| ignored & (1 << (signal - 1)) != 0) {
            // A caught signal has its default action after an exec (execve(2)). The test still ignores it.
            signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false))).unwrap();
        }
    });
    SigSet::empty().thread_set_mask().unwrap();
}

/// Returns a command that inherits the same everywhere: also no setting, language, proxy or service manager.
pub(super) fn command(program: &str) -> Command {
    settle();
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy().to_lowercase();
        let others =
            ["lang", "language", "notify_socket", "no_color", "bash_env", "env", "shellopts", "bashopts"];
        // The password is the one of the server under test. `cargo xtask sim --broken` names the bug at work.
        let is_setting = text.starts_with("vvm_") && !text.contains("password") && text != "vvm_broken";
        if is_setting
            || text.starts_with("lc_")
            || text.ends_with("_proxy")
            || others.contains(&text.as_str())
        {
            command.env_remove(name);
        }
    }
    // The text view needs to know a terminal.
    command.env("TERM", "xterm");
    command
}

/// A `vvm run` before its start.
#[derive(Debug)]
pub struct Run {
    program: Program,
    verb: &'static str,
    before: Vec<String>,
    options: Vec<String>,
    command: Vec<String>,
    environment: Vec<(String, String)>,
    stdin: Stdio,
    mark: String,
    group: Option<PathBuf>,
}

#[derive(Debug)]
pub struct Running {
    pub guardian: Pid,
    child: Child,
    pub stdout: Lines,
    pub stderr: Lines,
    mark: String,
}

impl Run {
    pub(super) fn new<'a>(trial: &Trial, command: impl IntoIterator<Item = &'a str>) -> Self {
        let (storage, name) = (trial.storage(), trial.name());
        let level = trial.program.level().name();
        let options = ["--storage", &storage, "--name", &name, "--containment", level];
        let options = options.map(String::from).to_vec();
        Self {
            program: trial.program,
            verb: "run",
            before: Vec::new(),
            options,
            command: command.into_iter().map(String::from).collect(),
            environment: vec![(LOCAL_DIR.into(), trial.local_dir())],
            stdin: Stdio::null(),
            mark: trial.mark().into(),
            group: trial.group.clone(),
        }
    }

    pub fn once(self, period: &str) -> Self {
        Self { verb: "once", ..self }.with(["--period", period])
    }

    /// Makes it a `vvm elect` with these hooks, which demotes nothing at its start.
    fn elect(self, on_lead: &str, on_loss: &str) -> Self {
        let run = Self { verb: "elect", ..self }.without(["--containment"]);
        run.with(["--on-start", "keep", "--on-lead", on_lead, "--on-loss", on_loss])
    }

    /// An option that is already there is replaced.
    pub fn with<'a>(mut self, options: impl IntoIterator<Item = &'a str>) -> Self {
        let mut options = options.into_iter().map(String::from).peekable();
        while let Some(option) = options.next() {
            let value = options.next_if(|next| !next.starts_with("--"));
            if let Some(place) = self.options.iter().position(|there| *there == option) {
                self.options.drain(place..place + 2);
            }
            self.options.extend([option].into_iter().chain(value));
        }
        self
    }

    pub fn without<'a>(mut self, options: impl IntoIterator<Item = &'a str>) -> Self {
        for option in options {
            let place = self.options.iter().position(|there| *there == option).unwrap();
            self.options.drain(place..place + 2);
        }
        self
    }

    /// Starts it by another command, such as `unshare …`.
    pub fn through<'a>(mut self, command: impl IntoIterator<Item = &'a str>) -> Self {
        self.before = command.into_iter().map(String::from).collect();
        self
    }

    /// Starts a copy of the program as the user `nobody`, who may write to the folder of `trial`. The program itself
    /// may be in a folder that only its owner can read. Only root can do that.
    pub fn as_ordinary_user(self, trial: &Trial) -> Self {
        let copy = trial.folder().join("vvm");
        if !copy.exists() {
            // By another process: a file that this process has open for writing could not be executed.
            let copied = Command::new("cp").arg(self.program.path()).arg(&copy).status().unwrap();
            assert!(copied.success());
        }
        fs::set_permissions(trial.folder(), fs::Permissions::from_mode(0o777)).unwrap();
        let shift = format!("shift; exec '{}' \"$@\"", copy.display());
        self.through([&NOBODY[..], &["sh", "-c", &shift, "sh"]].concat())
    }

    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    pub fn stdin(mut self, stdin: impl Into<Stdio>) -> Self {
        self.stdin = stdin.into();
        self
    }

    pub fn command_line(&self) -> Vec<String> {
        let vvm = [self.program.path().to_owned(), self.verb.into()];
        let enter = self.group.iter().flat_map(|group| {
            let enter = format!("echo 0 > {}/cgroup.procs && exec \"$@\"", group.display());
            ["sh".into(), "-c".into(), enter, "sh".into()]
        });
        let enter = enter.collect::<Vec<String>>();
        let line = [&enter[..], &self.before, &vvm, &self.options].concat();
        if self.command.is_empty() { line } else { [&line[..], &["--".to_owned()], &self.command].concat() }
    }

    pub fn quoted(&self) -> String {
        let quoted = self.command_line().into_iter().map(|word| format!("'{}'", word.replace('\'', "'\\''")));
        quoted.collect::<Vec<_>>().join(" ")
    }

    pub fn start(self) -> Running {
        let line = self.command_line();
        let mut child = command(&line[0])
            .args(&line[1..])
            .envs(self.environment)
            .env("TRIAL", &self.mark)
            .stdin(self.stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = Lines::of("stdout", child.stdout.take().unwrap());
        let stderr = Lines::of("stderr", child.stderr.take().unwrap());
        Running { guardian: Pid::from_child(&child), child, stdout, stderr, mark: self.mark }
    }

    pub fn up(self) -> Running {
        let mut running = self.start();
        running.stdout.wait_for("up");
        running
    }

    /// Starts it beside another leader, and waits until it is a candidate.
    pub fn waiting(self) -> Running {
        let mut running = self.start();
        running.stderr.wait_for("waiting for leadership");
        running
    }

    pub fn finish(self) -> Finished {
        self.start().finish()
    }
}

#[derive(Debug)]
pub struct Finished {
    pub status: ExitStatus,
    pub stdout: Vec<String>,
    pub stderr: Vec<String>,
}

impl Running {
    /// Waits for the host, and returns it. What started the guardian may be between.
    pub fn host(&self) -> Pid {
        let mut host = None;
        eventually("a host", || {
            host = Processes::marked(&self.mark)
                .with(" stage-host ")
                .into_iter()
                .find(|pid| ancestors(*pid).any(|pid| pid == self.guardian));
            host.is_some()
        });
        host.unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.guardian, signal).unwrap();
    }

    /// Kills guardian and host at one moment, as the end of a machine does: no process releases the record.
    pub fn crash(&self) {
        let host = self.host();
        // A stopped guardian does nothing after the host. Not the guardian first: the kernel continues a
        // stopped host whose process group that orphans.
        self.signal(Signal::STOP);
        kill_process(host, Signal::STOP).unwrap();
        eventually("both are stopped", || is_still(self.guardian) && is_still(host));
        kill_process(host, Signal::KILL).unwrap();
        self.signal(Signal::KILL);
    }

    pub fn stop(self) -> Finished {
        self.signal(Signal::TERM);
        self.finish()
    }

    /// Waits for its end, and for the end of all processes that hold its outputs.
    pub fn finish(mut self) -> Finished {
        let status = self.child.wait().unwrap();
        Finished { status, stdout: self.stdout.rest(), stderr: self.stderr.rest() }
    }

    /// Waits until the guardian has ended, without reaping it.
    pub fn wait(&self) {
        let ended_but_kept = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.guardian), ended_but_kept).unwrap();
    }
}

impl Finished {
    /// If it died of a signal.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("{}: {:#?}", self.status, self.stderr))
    }

    pub fn signal(&self) -> i32 {
        self.status.signal().unwrap_or_else(|| panic!("{}: {:#?}", self.status, self.stderr))
    }

    #[track_caller]
    pub fn assert_code(&self, expected: i32) {
        assert_eq!(self.status.code(), Some(expected), "{}: {:#?}", self.status, self.stderr);
    }

    #[track_caller]
    pub fn assert_ended(&self, code: i32, text: &str) {
        self.assert_code(code);
        self.assert_says(text);
    }

    #[track_caller]
    pub fn assert_says(&self, text: &str) {
        assert!(self.says(text), "no {text:?}: {:#?}", self.stderr);
    }

    pub fn says(&self, text: &str) -> bool {
        self.stderr.iter().any(|line| line.contains(text))
    }
}

pub(super) const LOCAL_DIR: &str = "VVM_LOCAL_DIR";

/// One trial: a folder with a storage, and a mark for its processes.
#[derive(Debug)]
pub struct Trial {
    pub(super) program: Program,
    folder: tempfile::TempDir,
    mark: String,
    /// Between its processes and the server, where the storage is on one.
    pub(super) proxy: Option<storage::Proxy>,
    /// At level control group, the one that all runs begin in, so that the groups that they make can be found.
    pub(super) group: Option<PathBuf>,
}

impl Trial {
    pub(super) fn of(program: Program) -> Self {
        settle();
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

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn group(&self) -> Option<&Path> {
        self.group.as_deref()
    }

    pub fn storage(&self) -> String {
        // The temporary folder may be on overlayfs. All processes of a trial see the same one.
        let file = || format!("sqlite:{}?allow=overlay", self.folder.path().join("leader.db").display());
        self.proxy.as_ref().map_or_else(file, storage::behind)
    }

    /// Returns the name to lead: `payroll`, or a name for this trial on a shared server.
    pub fn name(&self) -> String {
        if self.proxy.is_some() { format!("payroll-{}", self.mark) } else { "payroll".into() }
    }

    /// Returns a `vvm run` on the storage, for the trial's name, with the default TTL: long enough for a busy machine.
    pub fn run<'a>(&self, command: impl IntoIterator<Item = &'a str>) -> Run {
        Run::new(self, command)
    }

    pub fn elect(&self, on_lead: &str, on_loss: &str) -> Run {
        self.run([]).elect(on_lead, on_loss)
    }

    pub fn run_script(&self, script: &str) -> Run {
        self.run(["sh", "-c", script])
    }

    /// Returns a `vvm run` of a command that prints `up`, and works until it is ended.
    pub fn run_forever(&self) -> Run {
        self.run_script("echo up; exec sleep 1000")
    }

    pub fn run_trapping(&self, on_term: &str) -> Run {
        self.run_script(&format!("trap '{on_term}' TERM; echo up; while :; do sleep 0.01; done"))
    }

    /// Locks the storage until the value is dropped. No other process can write meanwhile.
    pub fn lock_storage(&self) -> rusqlite::Connection {
        self.locked("BEGIN IMMEDIATE")
    }

    pub(super) fn locked(&self, begin: &str) -> rusqlite::Connection {
        storage::locked(&self.folder.path().join("leader.db"), begin)
    }

    /// Runs `vvm status --no-wait` for its name. Returns exit status, standard output and standard error.
    pub fn status(&self, arguments: &[&str]) -> (i32, String, String) {
        self.about("status", &[arguments, &["--no-wait"]].concat())
    }

    /// Returns the state of slot 1, as `vvm status --json` shows it.
    pub fn slot_state(&self) -> String {
        self.slots()[0]["state"].as_str().unwrap().to_owned()
    }

    /// Returns what `vvm status --json` shows of each slot, without the age of its record, which changes.
    pub fn slots(&self) -> Vec<serde_json::Value> {
        let (_, out, _) = self.status(&["--json"]);
        let mut slots: Vec<serde_json::Value> = serde_json::from_str(&out).unwrap();
        for slot in slots.iter_mut().filter_map(|slot| slot.as_object_mut()) {
            slot.remove("age_ms");
        }
        slots
    }

    pub fn about(&self, command: &str, arguments: &[&str]) -> (i32, String, String) {
        self.ask(command, &[&["--name", &self.name()], arguments].concat())
    }

    pub fn must(&self, command: &str, arguments: &[&str]) -> String {
        let (code, out, error) = self.about(command, arguments);
        assert_eq!(code, 0, "{command} {arguments:?}: {out}{error}");
        out
    }

    pub fn ask(&self, command: &str, arguments: &[&str]) -> (i32, String, String) {
        let mut asked = self.program.command(&[]);
        asked.env(LOCAL_DIR, self.local_dir());
        let output = asked.args([command, "--storage", &self.storage()]).args(arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    /// Returns this trial's folder for local wake-ups: other trials lead the same name, so they need other folders.
    pub fn local_dir(&self) -> String {
        self.folder().join("local").display().to_string()
    }

    pub fn result_file(&self) -> String {
        self.folder().join("result.json").display().to_string()
    }

    pub fn result(&self) -> serde_json::Value {
        serde_json::from_slice(&fs::read(self.result_file()).unwrap()).unwrap()
    }

    pub fn processes(&self) -> Processes {
        Processes::marked(&self.mark)
    }

    pub fn process(&self, command: &str) -> Pid {
        let mut found = None;
        eventually(command, || {
            found = self.processes().of(command).first().copied();
            found.is_some()
        });
        found.unwrap()
    }

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
