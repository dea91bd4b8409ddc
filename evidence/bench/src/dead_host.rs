//! Fail-over after `kill -9` of the leader's host process, with a standby on the machine: the guardian
//! releases the record, so the TTL does not matter.

use crate::figure::{Figure, Side, Statistic, Unit};
use rustix::process::{Pid, Signal, kill_process};
use servers::owned;
use std::{
    env, fs,
    io::{self, BufRead as _, BufReader},
    path::Path,
    process::{Child, ChildStderr, ChildStdout, Stdio},
};
use tempfile::TempDir;
use vvm_clock::SystemClock;

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeadHostError {
    #[error("vvm could not be started or read: {0}; build it with `cargo build --profile dist -p vvm-cli`")]
    System(#[from] io::Error),
    #[error("the command of the next leader printed `{0}` instead of `alone`")]
    NotAlone(String),
    #[error("vvm has no host process")]
    NoHost,
}

pub(crate) fn measure(quick: bool) -> Result<Figure, DeadHostError> {
    let rounds = if quick { 5 } else { 50 };
    let folder = tempfile::tempdir()?;
    let mut leader = Candidate::start(&folder)?;
    leader.leads()?;
    let mut samples = Vec::new();
    for _ in 0..rounds {
        let mut standby = Candidate::start(&folder)?;
        standby.waits()?;
        let host = leader.host()?;
        let killed_at = SystemClock::read();
        kill_process(host, Signal::KILL).map_err(io::Error::from)?;
        standby.leads()?;
        samples.push(SystemClock::read().since(killed_at).as_secs_f64());
        leader.child.wait()?;
        leader = standby;
    }
    kill_process(Pid::from_child(&leader.child), Signal::TERM).map_err(io::Error::from)?;
    leader.child.wait()?;
    Ok(Figure::new("next command after kill -9 of the host, TTL 20 s", Unit::Seconds, samples)
        .with_goal(Statistic::Median, Side::AtMost, 0.1)
        .with_goal(Statistic::Max, Side::AtMost, 0.5))
}

/// A `vvm run`, which dies with this process.
struct Candidate {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// Kept open: `vvm` writes more.
    stderr: BufReader<ChildStderr>,
}

impl Candidate {
    fn start(folder: &TempDir) -> Result<Self, DeadHostError> {
        let at = |name: &str| folder.path().join(name).display().to_string();
        // Each command holds a lock for as long as it, or what it leaves behind, lives.
        let script = format!(
            "exec 9>>'{}'; flock -n 9 && echo alone || echo beside another; exec sleep 1000",
            at("lock")
        );
        let mut command = owned::command(env::current_exe()?.with_file_name("vvm"))?;
        command.args(["run", "--name", "bench", "--ttl", "20s", "--storage"]);
        command.arg(format!("sqlite:{}", at("leader.db"))).args(["--local-dir", &at("local")]);
        command.args(["--", "sh", "-c", &script]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
        };
        Ok(Self { child, stdout: BufReader::new(stdout), stderr: BufReader::new(stderr) })
    }

    /// Waits until its command works.
    fn leads(&mut self) -> Result<(), DeadHostError> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        if line == "alone\n" { Ok(()) } else { Err(DeadHostError::NotAlone(line.trim().into())) }
    }

    /// Waits until it campaigns.
    fn waits(&mut self) -> Result<(), DeadHostError> {
        let mut line = String::new();
        while !line.contains("waiting for leadership") {
            line.clear();
            if self.stderr.read_line(&mut line)? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
        Ok(())
    }

    /// The only child of the guardian, which has one thread.
    fn host(&self) -> Result<Pid, DeadHostError> {
        let guardian = self.child.id().to_string();
        let children = Path::new("/proc").join(&guardian).join("task").join(&guardian).join("children");
        let children = fs::read_to_string(children)?;
        let host = children.split_whitespace().next().and_then(|host| Pid::from_raw(host.parse().ok()?));
        host.ok_or(DeadHostError::NoHost)
    }
}
