//! A process that does not outlive its owner: it is killed when dropped, and by the kernel when the owner
//! dies.
//!
//! Asking the kernel for that is the child's business, and between fork and exec only unsafe code could do
//! it. So the owner's own program is started a second time, asks, and becomes what was to be started:
//! [`guard`] does that, and a program that owns processes calls it before anything else.

use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use std::{
    env,
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};
use vvm_clock::SystemClock;

/// The first argument of a program that is to become another one.
pub const GUARD: &str = "guard";

/// A command that dies with this process; its arguments are to be added.
///
/// To be spawned from the main thread: the kernel kills it when the *thread* that spawned it ends.
///
/// # Errors
/// When the system does not say which program this is.
pub fn command(program: impl AsRef<OsStr>) -> io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command.arg(GUARD).arg(std::process::id().to_string()).arg(program);
    Ok(command)
}

/// If this program was started to guard a server, it becomes that. Returns why it could not; `None` if it was
/// started for anything else.
pub fn guard() -> Option<io::Error> {
    let mut arguments = env::args_os().skip(1);
    let is_guard = arguments.next().is_some_and(|first| first == GUARD);
    is_guard.then(|| become_command(arguments))
}

/// Dies with the owner from now on, and becomes the command that follows [`GUARD`] in the arguments. Returns
/// why it could not.
fn become_command(mut arguments: impl Iterator<Item = OsString>) -> io::Error {
    let wrong = || io::Error::other("`guard` is followed by an owner and a command");
    let owner = arguments.next().and_then(|owner| owner.to_str()?.parse().ok()).and_then(Pid::from_raw);
    let (Some(owner), Some(program)) = (owner, arguments.next()) else { return wrong() };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return error.into();
    }
    // An owner that died before the line above can't be told by the kernel.
    if getppid() != Some(owner) {
        return io::Error::other("the owner is gone");
    }
    Command::new(program).args(arguments).exec()
}

/// A running server.
#[derive(Debug)]
pub struct Owned {
    child: Child,
    log: PathBuf,
}

impl Owned {
    /// Starts `command`, which [`command`] made, and lets it write into `log`.
    ///
    /// # Errors
    /// When the log can't be written or the program can't be started.
    pub fn start(mut command: Command, log: &Path) -> io::Result<Self> {
        let file = File::create(log)?;
        let child = command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn()?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// Its number, which nobody else can have before this is dropped.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended by itself.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Sends it a signal, unless it has ended.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn signal(&mut self, signal: Signal) -> io::Result<()> {
        if self.ended()?.is_none()
            && let Some(pid) = Pid::from_raw(self.child.id().cast_signed())
        {
            kill_process(pid, signal)?;
        }
        Ok(())
    }

    /// The last lines it wrote.
    pub fn last_words(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // Gone already is as good.
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Waits until `holds`, looking every 50 ms; whether it did within `patience`.
///
/// # Errors
/// Whatever `holds` says.
pub fn wait_until<E>(patience: Duration, mut holds: impl FnMut() -> Result<bool, E>) -> Result<bool, E> {
    let give_up_at = SystemClock::read().after(patience);
    while !holds()? {
        if SystemClock::read() >= give_up_at {
            return Ok(false);
        }
        SystemClock::block_for(Duration::from_millis(50));
    }
    Ok(true)
}
