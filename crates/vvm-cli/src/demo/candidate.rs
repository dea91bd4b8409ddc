//! One candidate: how its `vvm run` is started, and how it is crashed, stopped, or made to hang.
//!
//! Whatever is done to a process is done to exactly the one that we started, or that it started ([`Family`]).

use super::{args::DemoCandidateArgs, event::Lane};
use crate::{announce::say, cli::exit, worker::environment::is_ours};
use ielections::Ttl;
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal, setsid};
use std::{
    env,
    ffi::OsString,
    fs::{self, OpenOptions},
    io,
    os::{fd::OwnedFd, unix::process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};
use vvm_containment::Family;
use vvm_containment::OWN_BINARY;

/// The name of the hidden command that becomes a candidate's `vvm run`.
const CANDIDATE: &str = "demo-candidate";
/// The name of the hidden command that is its worker.
const WORKER: &str = "demo-worker";

/// What is led.
pub(crate) const NAME: &str = "demo";

/// Where the files of a run are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Folder<'run>(pub(crate) &'run Path);

impl Folder<'_> {
    /// The storage, as a URL. All candidates of a demo see its own temporary folder, overlay or not.
    pub(crate) fn storage(self) -> String {
        format!("sqlite:{}?allow=overlay", self.0.join("elections.db").display())
    }

    /// What a lane's workers have written.
    pub(crate) fn log(self, lane: Lane) -> PathBuf {
        self.0.join(format!("{lane}.log"))
    }

    /// How a lane's last `vvm run` has ended.
    pub(crate) fn result(self, lane: Lane) -> PathBuf {
        self.0.join(format!("{lane}.result.json"))
    }

    /// What a lane's `vvm run` has said.
    pub(crate) fn said(self, lane: Lane) -> PathBuf {
        self.0.join(format!("{lane}.said"))
    }
}

/// Starts the `vvm run` of `lane`.
///
/// # Errors
/// When the system has no room for another process or file.
pub(crate) fn start(folder: Folder<'_>, lane: Lane, ttl: Ttl) -> io::Result<Pid> {
    // Of the one before: nobody shall take its end for this one's.
    let _ = fs::remove_file(folder.result(lane));
    let said = OpenOptions::new().append(true).create(true).open(folder.said(lane))?;
    let mut command = Command::new(OWN_BINARY);
    command.arg0("vvm").args([CANDIDATE, "--demo", &getpid().to_string(), "--", "run"]);
    command.args(["--storage", &folder.storage(), "--name", NAME, "--holder", lane.name()]);
    command
        .args(["--ttl", &format!("{}ms", ttl.get().as_millis()), "--result-file"])
        .arg(folder.result(lane));
    command.args(["--", OWN_BINARY, WORKER]).arg(folder.log(lane));
    command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said);
    Ok(Pid::from_child(&command.spawn()?))
}

/// Becomes a `vvm run` that ends with the demo.
pub(crate) fn main(candidate: &DemoCandidateArgs) -> ExitCode {
    let refusal = become_candidate(candidate);
    say!("a candidate of `vvm demo` can't be started: {refusal}");
    exit::SYSTEM.into()
}

/// Returns only when it failed.
fn become_candidate(candidate: &DemoCandidateArgs) -> io::Error {
    // Whatever ends the demo, its own kill -9 too: the kernel ends this process then, and the guardian that it becomes,
    // and with a guardian ends all that is its.
    let tied = set_parent_process_death_signal(Some(Signal::KILL))
        // A session of its own: the demo alone is what a Ctrl-C at the terminal is meant for.
        .and_then(|()| setsid());
    if let Err(refusal) = tied {
        return refusal.into();
    }
    // A demo that ended before the kernel was asked has left us to somebody else.
    if getppid() != Pid::from_raw(candidate.demo) {
        return io::Error::other("the demo has ended");
    }
    let arguments: &[OsString] = &candidate.arguments;
    // Settings in the environment are for a `vvm run` of somebody's own.
    let environment = env::vars_os().filter(|(name, _)| !is_ours(name));
    Command::new(OWN_BINARY).arg0("vvm").args(arguments).env_clear().envs(environment).exec()
}

/// Ends guardian, host and worker by SIGKILL, as a machine that crashes would.
///
/// The host goes first: it alone can hand the record back, and would if it saw one of the others go.
pub(crate) fn crash(family: &Family, guardian: Pid) {
    for member in family.children_of(guardian).into_iter().chain(family.tree_of(guardian)) {
        // One that is gone by now went with its parent.
        let _ = family.signal(member, Signal::KILL);
    }
}

/// Asks a `vvm run` to stop.
pub(crate) fn ask_to_stop(family: &Family, guardian: Pid) {
    let found = family.tree_of(guardian).into_iter().find(|member| member.pid == guardian);
    // One that is gone needs no asking.
    let _ = found.map(|guardian| family.signal(guardian, Signal::TERM));
}

/// Stops the host of a `vvm run` for ever, and hands over a descriptor that tells when it is dead.
///
/// # Errors
/// When there is no host.
pub(crate) fn hang(family: &Family, guardian: Pid) -> io::Result<OwnedFd> {
    let host = family.children_of(guardian).into_iter().next();
    let host = host.ok_or_else(|| io::Error::other("there is no host to stop"))?;
    let pinned = family.pin(host)?;
    family.signal(host, Signal::STOP)?;
    Ok(pinned)
}
