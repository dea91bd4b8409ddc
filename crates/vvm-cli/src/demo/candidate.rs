//! [`Candidate`]: one `vvm run` after another, and the log of their workers.

use super::{
    DemoCandidateArgs,
    timeline::{CandidateId, Event, What},
    work::WorkPeriod,
    worker::Log,
};
use crate::{announce::say, exit, leadership::is_ours};
use ielections::Ttl;
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal, setsid};
use serde_json::Value;
use std::{
    convert::Infallible,
    env,
    fs::{self, File},
    io,
    os::{fd::OwnedFd, unix::process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};
use vvm_clock::Instant;
use vvm_containment::{Ended, Family, OWN_BINARY};

/// The name that the candidates lead.
pub(super) const NAME: &str = "demo";

#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) id: CandidateId,
    /// The path of its files, without extensions.
    files: PathBuf,
    /// The guardian of the present `vvm run`.
    pub(super) guardian: Option<Pid>,
    /// What the demo did to it.
    done: Option<What>,
    /// The host that was stopped, readable once it is dead, and when the demo saw that it was.
    pub(super) host: Option<OwnedFd>,
    pub(super) host_died: Option<Instant>,
    pub(super) log: Log,
    pub(super) work: Vec<WorkPeriod>,
}

impl Candidate {
    /// Returns a candidate without a `vvm run`.
    pub(super) fn new(id: CandidateId, folder: &Path) -> io::Result<Self> {
        let files = folder.join(id.name());
        let log = Log::create(&files.with_extension("log"))?;
        let (guardian, done, host, host_died, work) = (None, None, None, None, Vec::new());
        Ok(Self { id, files, guardian, done, host, host_died, log, work })
    }

    /// Starts a `vvm run` on `storage`, and returns its guardian.
    pub(super) fn start(&mut self, storage: &str, ttl: Ttl) -> io::Result<Pid> {
        let [log, result, messages] = ["log", "result", "messages"].map(|end| self.files.with_extension(end));
        // The result of the `vvm run` before must not pass for the result of this one.
        let _ = fs::remove_file(&result);
        let messages = File::options().append(true).create(true).open(messages)?;
        let mut command = Command::new(OWN_BINARY);
        command.arg0("vvm").args(["demo-candidate", "--demo", &getpid().to_string(), "--", "run"]);
        command.args(["--storage", storage, "--name", NAME, "--holder", self.id.name()]);
        command.args(["--ttl", &format!("{}ms", ttl.get().as_millis()), "--result-file"]).arg(result);
        command.args(["--", OWN_BINARY, "demo-worker"]).arg(log);
        command.stdin(Stdio::null()).stdout(messages.try_clone()?).stderr(messages);
        let guardian = Pid::from_child(&command.spawn()?);
        (self.guardian, self.done) = (Some(guardian), None);
        Ok(guardian)
    }

    /// Sends the signal of `what` to the processes of the `vvm run` that it is for.
    pub(super) fn signal(&mut self, family: &Family, what: What) {
        self.done = Some(what);
        let Some(guardian) = self.guardian else { return };
        let host = || family.children_of(guardian).into_iter();
        let all = || family.tree_of(guardian).into_iter();
        let (members, signal) = match what {
            // The host goes first: it would release the record if it saw one of the others go.
            What::Crashed => (host().chain(all()).collect::<Vec<_>>(), Signal::KILL),
            What::HostStopped => (host().collect(), Signal::STOP),
            _ => (all().take(1).collect(), Signal::TERM),
        };
        for member in members {
            self.host = family.pin(member).ok().filter(|_| what == What::HostStopped);
            // A process that is gone needs none.
            let _ = family.signal(member, signal);
        }
    }

    /// Returns whether the `vvm run` may end in this way after what the demo did to it.
    pub(super) fn should_end(&self, ended: Ended) -> bool {
        match self.done {
            // A guardian that sees its host's end before its own signal exits first.
            Some(What::Crashed) => true,
            // The status of a host that was killed.
            Some(What::HostStopped) => ended == Ended::Exited(137),
            // The status of its worker; without one, the signal.
            Some(_) => [Ended::Exited(0), Ended::Signalled(15)].contains(&ended),
            None => false,
        }
    }

    /// Reads the log, and returns which workers began since the last call.
    pub(super) fn new_work(&mut self) -> io::Result<Vec<Event>> {
        let lines = self.log.new_lines()?.into_iter();
        let periods = lines.filter_map(|line| WorkPeriod::add(&mut self.work, self.id, line));
        let began = |period: WorkPeriod| (period.first, What::WorkBegan(period.epoch, period.worker));
        Ok(periods.map(began).map(|(at, what)| Event { at, id: self.id, what }).collect())
    }

    /// Notes that the `vvm run` has `left`. Returns that, and the end of a stopped host, known only now.
    pub(super) fn ended(&mut self, left: Event) -> Vec<Event> {
        self.guardian = None;
        let result = match self.done {
            Some(What::HostStopped) => fs::read(self.files.with_extension("result")).unwrap_or_default(),
            _ => Vec::new(),
        };
        let result = serde_json::from_slice::<Value>(&result).unwrap_or_default();
        let moment = |name: &str| result[name].as_u64().map(Instant::from_nanos);
        // Guardian and demo both saw the end some time after it: the earlier one was nearer.
        let died = moment("host_ended_ns").into_iter().chain(self.host_died).min();
        let deadline = moment("kill_deadline_ns");
        let events = [(deadline, What::Deadline), (died, What::HostDied), (Some(left.at), left.what)];
        events.into_iter().filter_map(|(at, what)| Some(Event { at: at?, id: left.id, what })).collect()
    }
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
    // The demo ignores settings in the environment.
    let environment = env::vars_os().filter(|(name, _)| !is_ours(name));
    Err(Command::new(OWN_BINARY).arg0("vvm").args(&candidate.arguments).env_clear().envs(environment).exec())
}
