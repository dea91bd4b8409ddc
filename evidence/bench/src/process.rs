//! A `vvm run` with a storage of a server.

use rustix::process::{Pid, Signal, kill_process};
use servers::owned;
use std::{
    env,
    ffi::OsString,
    fs,
    io::{self, BufRead as _, BufReader},
    path::Path,
    process::{Child, ChildStderr, ChildStdout, Stdio},
};
use vvm_clock::{Instant, SystemClock};

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CandidateError {
    #[error("vvm could not be started or read: {0}")]
    System(#[from] io::Error),
    #[error("vvm ended before it led or waited")]
    Ended,
    #[error("vvm has no host process")]
    NoHost,
}

/// Dies with this process.
pub(crate) struct Candidate {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// Kept open: `vvm` writes more.
    stderr: BufReader<ChildStderr>,
}

impl Candidate {
    /// Starts it, through the command `before`, which must execute it, so that the process id stays.
    pub(crate) fn start(before: &[&str], url: &str, local_dir: &Path) -> Result<Self, CandidateError> {
        let vvm = env::current_exe()?.with_file_name("vvm").into_os_string();
        let mut words = before.iter().map(OsString::from).chain([vvm]);
        let mut command = owned::command(words.next().unwrap_or_default())?;
        command.args(words).args(["run", "--name", "bench", "--ttl", "20s", "--storage", url, "--local-dir"]);
        command.arg(local_dir).args(["--", "sh", "-c", "echo works; exec sleep 1000"]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
        };
        Ok(Self { child, stdout: BufReader::new(stdout), stderr: BufReader::new(stderr) })
    }

    /// Waits until its command works. Returns when that was.
    pub(crate) fn leads(&mut self) -> Result<Instant, CandidateError> {
        match self.stdout.read_line(&mut String::new())? {
            0 => Err(CandidateError::Ended),
            _ => Ok(SystemClock::read()),
        }
    }

    /// Waits until it campaigns.
    pub(crate) fn waits(&mut self) -> Result<(), CandidateError> {
        let mut line = String::new();
        while !line.contains("waiting for leadership") {
            line.clear();
            if self.stderr.read_line(&mut line)? == 0 {
                return Err(CandidateError::Ended);
            }
        }
        Ok(())
    }

    /// Sends TERM to it, or KILL to its host. Returns when that was.
    pub(crate) fn end(&self, signal: Signal) -> Result<Instant, CandidateError> {
        let target = if signal == Signal::KILL { self.host()? } else { Pid::from_child(&self.child) };
        let at = SystemClock::read();
        kill_process(target, signal).map_err(io::Error::from)?;
        Ok(at)
    }

    pub(crate) fn wait(&mut self) -> Result<(), CandidateError> {
        self.child.wait()?;
        Ok(())
    }

    /// The only child of the guardian, which has one thread.
    fn host(&self) -> Result<Pid, CandidateError> {
        let guardian = self.child.id().to_string();
        let children = Path::new("/proc").join(&guardian).join("task").join(&guardian).join("children");
        let children = fs::read_to_string(children)?;
        let host = children.split_whitespace().next().and_then(|host| Pid::from_raw(host.parse().ok()?));
        host.ok_or(CandidateError::NoHost)
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        // It may have ended already.
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}
