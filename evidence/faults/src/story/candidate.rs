//! One `vvm run` of the story, and the worker that it runs while it leads.

use super::Stage;
use rustix::process::{Pid, Signal, kill_process};
use servers::owned::{self, Owned};
use std::{
    fmt, fs, io,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

/// Says who it is, and works.
const SCRIPT: &str = r#"echo $$ $VVM_LEADER_EPOCH > "$1"; exec sleep 1000"#;

/// How long a process has for its end; its worker dies of the first signal.
const END: Duration = Duration::from_secs(20);

/// A process of the story. It ends when this is dropped.
pub(crate) struct Candidate {
    pub(crate) name: &'static str,
    process: Owned,
    /// What the worker says.
    said: PathBuf,
}

/// The command that runs while a candidate leads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Worker {
    process: u32,
    pub(crate) epoch: u64,
}

impl Candidate {
    pub(crate) fn start(name: &'static str, stage: &Stage, ttl: Duration) -> Result<Self, String> {
        /// The same name is started more than once.
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let file = |what| stage.folder().join(format!("{number}-{name}.{what}"));
        let said = file("worker");
        let system = |error: io::Error| format!("{name} can't be started: {error}");
        let mut command = owned::command(stage.vvm()).map_err(system)?;
        command
            .args(["run", "--storage", stage.url(), "--name", "story", "--holder", name])
            .args(["--ttl", &format!("{}ms", ttl.as_millis())])
            .args(["--", "sh", "-c", SCRIPT, "worker"])
            .arg(&said);
        let process = Owned::start(command, &file("log")).map_err(system)?;
        Ok(Self { name, process, said })
    }

    /// Its worker, once it has one.
    pub(crate) fn worker(&self) -> Result<Option<Worker>, String> {
        let said = match fs::read_to_string(&self.said) {
            Ok(said) => said,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("what {} says: {error}", self.name)),
        };
        // Without its end the line is still being written.
        let Some((process, epoch)) = said.strip_suffix('\n').and_then(|line| line.split_once(' ')) else {
            return Ok(None);
        };
        let worker = process.parse().ok().zip(epoch.parse().ok());
        let (process, epoch) = worker.ok_or_else(|| format!("{} says `{said}`", self.name))?;
        Ok(Some(Worker { process, epoch }))
    }

    /// Whether it has its storage open and waits for leadership.
    pub(crate) fn waits(&self) -> Result<bool, String> {
        Ok(self.process.log_end().contains("waiting for leadership"))
    }

    /// Tells it to stop, and waits until it has: with its record released.
    pub(crate) fn stop(mut self) -> Result<(), String> {
        self.signal(Signal::TERM)?;
        self.wait()?;
        if self.process.log_end().contains("stopped") {
            return Ok(());
        }
        Err(format!("{} has not stopped in order. {self}", self.name))
    }

    /// Kills it and all that it runs, and waits until it is gone.
    ///
    /// The host, its child, goes first: it alone can hand the record back, and would if it saw the guardian
    /// go.
    pub(crate) fn crash(mut self) -> Result<(), String> {
        let guardian = self.process.id();
        let children = fs::read_to_string(format!("/proc/{guardian}/task/{guardian}/children"));
        let children = children.map_err(|error| format!("who belongs to {}: {error}", self.name))?;
        for child in children.split_whitespace().filter_map(|child| Pid::from_raw(child.parse().ok()?)) {
            // Gone already is as good.
            let _gone = kill_process(child, Signal::KILL);
        }
        self.signal(Signal::KILL)?;
        self.wait()
    }

    fn signal(&mut self, signal: Signal) -> Result<(), String> {
        self.process.signal(signal).map_err(|error| format!("{} can't be told: {error}", self.name))
    }

    fn wait(&mut self) -> Result<(), String> {
        let ended = owned::wait_until(END, || self.process.ended().map(|ended| ended.is_some()));
        match ended {
            Ok(true) => Ok(()),
            Ok(false) => Err(format!("{} has not ended after {END:?}. {self}", self.name)),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Its last words.
impl fmt::Display for Candidate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "The end of its log:\n{}", self.process.log_end())
    }
}

impl Worker {
    /// Whether it still runs. A zombie acts no more.
    pub(crate) fn is_alive(self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process));
        // The name may contain blanks and brackets; the last bracket ends it (proc(5)).
        stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X'])))
    }
}
