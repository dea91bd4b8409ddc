//! [`Run`], [`Running`] and [`Finished`]: one `vvm run`.

use super::{Lines, Program, Trial, eventually, processes, surroundings, trial::LOCAL_DIR};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::{
    iter::successors,
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::{Child, ExitStatus, Stdio},
};

/// A `vvm run` before its start.
#[derive(Debug)]
pub struct Run {
    program: Program,
    before: Vec<String>,
    options: Vec<String>,
    command: Vec<String>,
    environment: Vec<(String, String)>,
    stdin: Stdio,
    mark: String,
    group: Option<PathBuf>,
}

/// A running `vvm run`.
#[derive(Debug)]
pub struct Running {
    /// The process that the test started.
    pub guardian: Pid,
    child: Child,
    /// Its standard output, which is the command's.
    pub stdout: Lines,
    /// Its standard error.
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
            before: Vec::new(),
            options,
            command: command.into_iter().map(String::from).collect(),
            environment: vec![(LOCAL_DIR.into(), trial.local_dir())],
            stdin: Stdio::null(),
            mark: trial.mark().into(),
            group: trial.group.clone(),
        }
    }

    /// Adds options. An option that is already there is replaced.
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

    /// Removes options and their values.
    pub fn without<'a>(mut self, options: impl IntoIterator<Item = &'a str>) -> Self {
        for option in options {
            let place = self.options.iter().position(|there| *there == option).unwrap();
            self.options.drain(place..place + 2);
        }
        self
    }

    /// Removes `--` and the command.
    pub fn without_command(mut self) -> Self {
        self.command.clear();
        self
    }

    /// Starts it by another command, such as `unshare …`.
    pub fn through<'a>(mut self, command: impl IntoIterator<Item = &'a str>) -> Self {
        self.before = command.into_iter().map(String::from).collect();
        self
    }

    /// Adds a variable to its environment.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Sets its standard input.
    pub fn stdin(mut self, stdin: impl Into<Stdio>) -> Self {
        self.stdin = stdin.into();
        self
    }

    /// Returns the whole command line.
    pub fn command_line(&self) -> Vec<String> {
        let vvm = [self.program.path().to_owned(), "run".into()];
        let enter = self.group.iter().flat_map(|group| {
            let enter = format!("echo 0 > {}/cgroup.procs && exec \"$@\"", group.display());
            ["sh".into(), "-c".into(), enter, "sh".into()]
        });
        let enter = enter.collect::<Vec<String>>();
        let dashes = (!self.command.is_empty()).then(|| "--".to_owned());
        let dashes = dashes.as_slice();
        [&enter[..], &self.before, &vvm, &self.options, dashes, &self.command].concat()
    }

    /// Starts it.
    pub fn start(self) -> Running {
        let line = self.command_line();
        let mut child = surroundings::command(&line[0])
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

    /// Starts it, and waits for its end.
    pub fn finish(self) -> Finished {
        self.start().finish()
    }
}

/// A finished `vvm run`.
#[derive(Debug)]
pub struct Finished {
    /// The exit status of the guardian.
    pub status: ExitStatus,
    /// The unread lines of standard output.
    pub stdout: Vec<String>,
    /// The unread lines of standard error.
    pub stderr: Vec<String>,
}

impl Running {
    /// Waits for the host, and returns it. What started the guardian may be between.
    pub fn host(&self) -> Pid {
        let mut host = None;
        processes::eventually("a host", || {
            host = processes::Processes::marked(&self.mark)
                .with(" stage-host ")
                .into_iter()
                .find(|pid| successors(Some(*pid), |pid| parent(*pid)).any(|pid| pid == self.guardian));
            host.is_some()
        });
        host.unwrap()
    }

    /// Sends a signal to the guardian.
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
        eventually("both are stopped", || processes::is_still(self.guardian) && processes::is_still(host));
        kill_process(host, Signal::KILL).unwrap();
        self.signal(Signal::KILL);
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
    /// Returns the exit status.
    ///
    /// # Panics
    /// If it died of a signal.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("{}: {:#?}", self.status, self.stderr))
    }

    /// Returns the signal that it died of.
    pub fn signal(&self) -> i32 {
        self.status.signal().unwrap_or_else(|| panic!("{}: {:#?}", self.status, self.stderr))
    }

    /// Whether a line on standard error contains `text`.
    pub fn says(&self, text: &str) -> bool {
        self.stderr.iter().any(|line| line.contains(text))
    }
}

fn parent(pid: Pid) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Pid::from_raw(stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()?)
}
