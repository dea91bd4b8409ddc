//! [`Candidate`]: one `vvm run` after another, and the log of their workers.

use super::{
    DemoCandidateArgs,
    course::{CandidateEnd, Course},
    worker::{Log, WorkPeriod, WorkerLine},
};
use crate::{announce::say, exit, leadership::is_ours};
use ielections::Ttl;
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal, setsid};
use serde_json::Value;
use std::{
    convert::Infallible,
    env,
    ffi::OsStr,
    fs::{self, File},
    io,
    os::{fd::OwnedFd, unix::process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};
use vvm_clock::Instant;
use vvm_containment::{Family, OWN_BINARY, ProcessEnd};

pub(super) const NAME: &str = "demo";

#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) name: &'static str,
    files: PathBuf,
    pub(super) guardian: Option<Pid>,
    done: Option<CandidateEnd>,
    /// The host that was stopped, readable once it is dead.
    pub(super) host: Option<OwnedFd>,
    messages: Log,
    log: Log,
    pub(super) work: Vec<WorkPeriod>,
}

impl Candidate {
    pub(super) fn new(name: &'static str, folder: &Path) -> io::Result<Self> {
        let files = folder.join(name);
        let [messages, log] = ["messages", "log"].map(|end| Log::create(&files.with_extension(end)));
        let (messages, log, work) = (messages?, log?, Vec::new());
        Ok(Self { name, files, guardian: None, done: None, host: None, messages, log, work })
    }

    pub(super) fn start(&mut self, storage: &str, ttl: Ttl) -> io::Result<Pid> {
        let [log, result, messages] = ["log", "result", "messages"].map(|end| self.files.with_extension(end));
        // The result of the `vvm run` before must not pass for the result of this one.
        let _ = fs::remove_file(&result);
        let messages = File::options().append(true).open(messages)?;
        let mut command = Command::new(OWN_BINARY);
        command.arg0("vvm").args(["demo-candidate", "--demo", &getpid().to_string(), "--", "run"]);
        command.args(["--storage", storage, "--name", NAME, "--holder", self.name]);
        command.args(["--ttl", &format!("{}ms", ttl.get().as_millis()), "--result-file"]).arg(result);
        command.args(["--", OWN_BINARY, "demo-worker"]).arg(log);
        command.stdin(Stdio::null()).stdout(messages.try_clone()?).stderr(messages);
        let guardian = Pid::from_child(&command.spawn()?);
        (self.guardian, self.done) = (Some(guardian), None);
        Ok(guardian)
    }

    pub(super) fn signal(&mut self, family: &Family, done: CandidateEnd) {
        self.done = Some(done);
        let Some(guardian) = self.guardian else { return };
        let host = || family.children_of(guardian).into_iter();
        let all = || family.tree_of(guardian).into_iter();
        let (members, signal) = match done {
            // The host goes first: it would release the record if it saw one of the others go.
            CandidateEnd::Crashed => (host().chain(all()).collect::<Vec<_>>(), Signal::KILL),
            CandidateEnd::HostStopped => (host().collect(), Signal::STOP),
            CandidateEnd::AskedToStop => (all().take(1).collect(), Signal::TERM),
        };
        for member in members {
            self.host = family.pin(member).ok().filter(|_| done == CandidateEnd::HostStopped);
            let _ = family.signal(member, signal);
        }
    }

    /// Returns whether the `vvm run` may end in this way after what the demo did to it.
    pub(super) fn should_end(&self, ended: ProcessEnd) -> bool {
        match self.done {
            // A guardian that sees its host's end before its own signal exits first.
            Some(CandidateEnd::Crashed) => true,
            // The status of a host that was killed.
            Some(CandidateEnd::HostStopped) => ended == ProcessEnd::Exited(137),
            // The status of its worker; without one, the signal.
            Some(CandidateEnd::AskedToStop) => {
                [ProcessEnd::Exited(0), ProcessEnd::Signalled(15)].contains(&ended)
            }
            None => false,
        }
    }

    pub(super) fn new_lines(&mut self) -> io::Result<Vec<String>> {
        let messages = self.messages.new_lines()?.into_iter().map(|line| {
            let line = String::from_utf8_lossy(&line);
            line.split_once(" vvm: ").map_or(&*line, |(_time, said)| said).trim_end().to_owned()
        });
        let mut said = messages.collect::<Vec<_>>();
        for line in self.log.new_lines()? {
            // A damaged line would hide work.
            let line = WorkerLine::from_text(&line).ok_or(io::ErrorKind::InvalidData)?;
            if WorkPeriod::add(&mut self.work, self.name, line) {
                said.push(format!("its worker begins (process {})", line.worker));
            }
        }
        Ok(said)
    }

    /// Notes that the `vvm run` has ended, and what its guardian has written about a stopped host.
    pub(super) fn end(&mut self, course: &mut Course) {
        self.guardian = None;
        if self.done != Some(CandidateEnd::HostStopped) {
            return;
        }
        let result = fs::read(self.files.with_extension("result")).unwrap_or_default();
        let result = serde_json::from_slice::<Value>(&result).unwrap_or_default();
        let moment = |name: &str| result[name].as_u64().map(Instant::from_nanos);
        // Guardian and demo both saw the end some time after it: the earlier one was nearer.
        course.host_died = course.host_died.into_iter().chain(moment("host_ended_ns")).min();
        course.deadline = moment("kill_deadline_ns");
    }
}

pub(super) fn vvm(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let environment = env::vars_os().filter(|(name, _)| !is_ours(name));
    let mut command = Command::new(OWN_BINARY);
    command.arg0("vvm").args(arguments).env_clear().envs(environment);
    command
}

/// `vvm demo-candidate`: becomes a `vvm run` that ends with the demo.
pub(crate) fn main(candidate: &DemoCandidateArgs) -> ExitCode {
    let Err(refusal) = become_candidate(candidate);
    say!("a candidate of `vvm demo` can't be started: {refusal}");
    exit::SYSTEM.into()
}

fn become_candidate(candidate: &DemoCandidateArgs) -> io::Result<Infallible> {
    // However the demo ends, the kernel then ends this process. Without its guardian, a `vvm run` ends.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Ctrl-C at the terminal is for the demo alone.
    setsid()?;
    // The kernel sends no signal if the demo ended before the request.
    if getppid() != Pid::from_raw(candidate.demo) {
        return Err(io::Error::other("the demo has ended"));
    }
    Err(vvm(&candidate.arguments).exec())
}
