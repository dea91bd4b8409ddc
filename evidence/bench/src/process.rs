//! A `vvm run` with a storage of a server.

use harness::{Level, Program, Running, Trial};
use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process},
};
use servers::owned::{self, GUARD};
use std::{
    env,
    ffi::OsString,
    fs,
    io::{self, BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{self, Child, ChildStderr, ChildStdout, Stdio},
    time::Duration,
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

/// Why there is no program to measure.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramError {
    #[error("the path of this program is unknown: {0}")]
    Path(#[from] io::Error),
    #[error("{} is missing; build it with `cargo build --profile dist -p vvm-cli`", .0.display())]
    NotBuilt(PathBuf),
}

/// Each command holds the lock for as long as it, or what it leaves behind, lives.
const SCRIPT: &str = "exec 9>>\"$0\"; flock -n 9 && echo alone || echo beside another; exec sleep 1000";

/// The TTL of all.
const TTL: [&str; 2] = ["--ttl", "20s"];

/// Returns the `vvm` beside this program, to be run at `level`.
pub(crate) fn program(level: Level) -> Result<Program, ProgramError> {
    let vvm = env::current_exe()?.with_file_name("vvm");
    if !vvm.exists() {
        return Err(ProgramError::NotBuilt(vvm));
    }
    Ok(Program::new(vvm.display().to_string().leak(), level))
}

/// Starts a candidate through the command `before`, with `options`. It dies with this process. Its command
/// prints `alone` if no other holds the lock.
pub(crate) fn start(trial: &Trial, before: &[&str], options: &[&str]) -> Result<Running, io::Error> {
    let (own, id) = (env::current_exe()?.display().to_string(), process::id().to_string());
    let lock = trial.folder().join("lock").display().to_string();
    let run = trial.run(["sh", "-c", SCRIPT, &lock]).with(TTL).with(options.iter().copied());
    Ok(run.through([&[&own, GUARD, &id], before].concat()).start())
}

/// The kernel's account could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResourcesError {
    #[error("{path} could not be read: {cause}. Memory and CPU are measured on Linux only")]
    Read { path: String, cause: io::Error },
    #[error("{path} has an unknown form: {text}")]
    Understand { path: String, text: String },
}

/// Bytes resident in memory.
pub(crate) fn resident_bytes() -> Result<u64, ResourcesError> {
    resident_bytes_of("self")
}

/// The same for another process.
pub(crate) fn resident_bytes_of(process: &str) -> Result<u64, ResourcesError> {
    Ok(field(&format!("/proc/{process}/statm"), 1)? * rustix::param::page_size() as u64)
}

/// The memory of a process, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Memory {
    /// PSS: a shared page is divided among its processes.
    pub(crate) proportional: u64,
    /// Pages that no other process shares.
    pub(crate) private: u64,
}

/// The memory of another process.
pub(crate) fn memory_of(process: i32) -> Result<Memory, ResourcesError> {
    let path = format!("/proc/{process}/smaps_rollup");
    let text = read(&path)?;
    let bytes = |name: &str| number_behind(&text, name).map(|kilobytes| kilobytes * 1024);
    let memory = (|| {
        let private = bytes("Private_Clean:")? + bytes("Private_Dirty:")?;
        Some(Memory { proportional: bytes("Pss:")?, private })
    })();
    memory.ok_or(ResourcesError::Understand { path, text })
}

/// Proportional memory (PSS) of another process.
pub(crate) fn proportional_bytes_of(process: i32) -> Result<u64, ResourcesError> {
    memory_of(process).map(|memory| memory.proportional)
}

/// CPU time of all threads that run now, in nanoseconds; `getrusage` is less exact.
pub(crate) fn cpu_time() -> Result<Duration, ResourcesError> {
    cpu_time_of("self")
}

/// The same for another process.
pub(crate) fn cpu_time_of(process: &str) -> Result<Duration, ResourcesError> {
    let each = texts_of_threads(process, "schedstat")?.into_iter();
    each.map(|(path, text)| Ok(Duration::from_nanos(number_at(path, text, 0)?))).sum()
}

/// How often all threads of a process that run now have stopped waiting.
pub(crate) fn wake_ups_of(process: &str) -> Result<u64, ResourcesError> {
    let each = texts_of_threads(process, "status")?.into_iter();
    each.map(|(path, text)| {
        let number = number_behind(&text, "voluntary_ctxt_switches:");
        number.ok_or(ResourcesError::Understand { path, text })
    })
    .sum()
}

/// The path and text of this file of each thread that has not ended meanwhile.
fn texts_of_threads(process: &str, file: &str) -> Result<Vec<(String, String)>, ResourcesError> {
    let threads = format!("/proc/{process}/task");
    let unreadable = |cause| ResourcesError::Read { path: threads.clone(), cause };
    let mut texts = Vec::new();
    for thread in fs::read_dir(&threads).map_err(unreadable)? {
        let path = thread.map_err(unreadable)?.path().join(file).display().to_string();
        match fs::read_to_string(&path) {
            Ok(text) => texts.push((path, text)),
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => {}
            Err(gone) if gone.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {}
            Err(cause) => return Err(ResourcesError::Read { path, cause }),
        }
    }
    Ok(texts)
}

/// The number behind a name at the beginning of a line.
fn number_behind(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

fn read(path: &str) -> Result<String, ResourcesError> {
    fs::read_to_string(path).map_err(|cause| ResourcesError::Read { path: path.to_owned(), cause })
}

fn field(path: &str, index: usize) -> Result<u64, ResourcesError> {
    number_at(path.to_owned(), read(path)?, index)
}

fn number_at(path: String, text: String, index: usize) -> Result<u64, ResourcesError> {
    let number = text.split_whitespace().nth(index).and_then(|field| field.parse().ok());
    number.ok_or(ResourcesError::Understand { path, text })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_touched_is_resident() {
        let before = resident_bytes().unwrap();
        let touched = std::hint::black_box(vec![1_u8; 64 << 20]);
        assert!(resident_bytes().unwrap() >= before + (60 << 20));
        drop(touched);
    }

    #[test]
    fn work_takes_cpu_time() {
        let clock = vvm_clock::SystemClock::read;
        let (started, used) = (clock(), cpu_time().unwrap());
        while cpu_time().unwrap() < used + Duration::from_millis(5) {
            assert!(clock().since(started) < Duration::from_secs(60), "no CPU time was counted");
        }
    }
}
