//! [`Candidate`]: one `vvm run`, and the worker that it runs while it leads.

use super::TestStorage;
use rustix::process::{Pid, Signal, kill_process};
use servers::owned::{self, Owned};
use std::{
    fmt, fs, io,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

/// The worker: writes its process id and its epoch, and then sleeps.
const SCRIPT: &str = r#"echo $$ $VVM_LEADER_EPOCH > "$1"; exec sleep 1000"#;

/// How long a process may take to end. Its worker ends on the first signal.
const END: Duration = Duration::from_secs(20);

/// One process. Dropping the value ends it.
pub(crate) struct Candidate {
    pub(crate) name: &'static str,
    process: Owned,
    /// The file that the worker writes.
    worker_file: PathBuf,
}

/// The command that runs while a candidate leads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Worker {
    process: u32,
    pub(crate) epoch: u64,
}

impl Candidate {
    pub(crate) fn start(name: &'static str, storage: &TestStorage, ttl: Duration) -> Result<Self, String> {
        /// A name can be started more than once, so each start has a number.
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let file = |what| storage.folder().join(format!("{number}-{name}.{what}"));
        let worker_file = file("worker");
        let system = |error: io::Error| format!("{name} can't be started: {error}");
        let mut command = owned::command(storage.vvm()).map_err(system)?;
        command
            .args(["run", "--storage", storage.url(), "--name", "story", "--holder", name])
            .args(["--ttl", &format!("{}ms", ttl.as_millis())])
            .args(["--", "sh", "-c", SCRIPT, "worker"])
            .arg(&worker_file);
        let process = Owned::start(command, &file("log")).map_err(system)?;
        Ok(Self { name, process, worker_file })
    }

    /// Returns its worker, if it has one.
    pub(crate) fn worker(&self) -> Result<Option<Worker>, String> {
        let said = match fs::read_to_string(&self.worker_file) {
            Ok(said) => said,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("the worker file of {} can't be read: {error}", self.name)),
        };
        // Without a line end, the line is still being written.
        let Some((process, epoch)) = said.strip_suffix('\n').and_then(|line| line.split_once(' ')) else {
            return Ok(None);
        };
        let worker = process.parse().ok().zip(epoch.parse().ok());
        let (process, epoch) = worker.ok_or_else(|| format!("the worker of {} wrote `{said}`", self.name))?;
        Ok(Some(Worker { process, epoch }))
    }

    /// Whether it has opened its storage and waits for leadership.
    pub(crate) fn waits(&self) -> Result<bool, String> {
        Ok(self.process.log_end().contains("waiting for leadership"))
    }

    /// Stops it, and waits until it has released its record and ended.
    pub(crate) fn stop(mut self) -> Result<(), String> {
        self.signal(Signal::TERM)?;
        self.wait()?;
        if self.process.log_end().contains("stopped") {
            return Ok(());
        }
        Err(format!("{} has not stopped in order. {self}", self.name))
    }

    /// Kills all its processes, and waits until they have ended.
    ///
    /// The host is killed first, because it would release the record after the death of the guardian.
    pub(crate) fn crash(mut self) -> Result<(), String> {
        let guardian = self.process.id();
        let children = fs::read_to_string(format!("/proc/{guardian}/task/{guardian}/children"));
        let children =
            children.map_err(|error| format!("the children of {} can't be listed: {error}", self.name))?;
        for child in children.split_whitespace().filter_map(|child| Pid::from_raw(child.parse().ok()?)) {
            // It may have ended already.
            let _gone = kill_process(child, Signal::KILL);
        }
        self.signal(Signal::KILL)?;
        self.wait()
    }

    fn signal(&mut self, signal: Signal) -> Result<(), String> {
        self.process.signal(signal).map_err(|error| format!("{} can't be signalled: {error}", self.name))
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

/// The end of its log.
impl fmt::Display for Candidate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "The end of its log:\n{}", self.process.log_end())
    }
}

impl Worker {
    /// Whether it still runs. A zombie does not.
    pub(crate) fn is_alive(self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process));
        // The name may contain blanks and brackets; the last bracket ends it (proc(5)).
        stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X'])))
    }
}
