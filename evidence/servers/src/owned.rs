//! A process that ends with its owner: it is killed on drop, and by the kernel when the owner dies.
//!
//! The child must request that signal itself, and unsafe code would be needed to do so between fork and exec.
//! So the owner starts its own program a second time: [`guard`] requests the signal and executes the server.
//! A program that owns processes calls it first.

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

/// The first argument of a program that becomes another one.
pub const GUARD: &str = "guard";

/// Returns a command that dies with this process. The caller adds arguments.
///
/// Spawn it from the main thread: the kernel kills it when the *thread* that spawned it ends.
///
/// # Errors
/// The path of this program is unknown.
pub fn command(program: impl AsRef<OsStr>) -> io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command.arg(GUARD).arg(std::process::id().to_string()).arg(program);
    Ok(command)
}

/// Executes the server if this program was started to guard one. Returns an error if that failed, and `None`
/// if it was started for another purpose.
pub fn guard() -> Option<io::Error> {
    let mut arguments = env::args_os().skip(1);
    let is_guard = arguments.next().is_some_and(|first| first == GUARD);
    is_guard.then(|| become_command(arguments))
}

/// Requests the signal, and executes the command behind [`GUARD`] in the arguments. Returns why it could not.
fn become_command(mut arguments: impl Iterator<Item = OsString>) -> io::Error {
    let wrong = || io::Error::other("`guard` is followed by an owner and a command");
    let owner = arguments.next().and_then(|owner| owner.to_str()?.parse().ok()).and_then(Pid::from_raw);
    let (Some(owner), Some(program)) = (owner, arguments.next()) else { return wrong() };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return error.into();
    }
    // The kernel does not report an owner that died before the line above.
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
    /// Starts a command of [`command`], with its output in `log`.
    ///
    /// # Errors
    /// The log can't be written or the program can't be started.
    pub fn start(mut command: Command, log: &Path) -> io::Result<Self> {
        let file = File::create(log)?;
        let child = command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn()?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// Its process id, which is not reused before this is dropped.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns its status if it has ended by itself.
    ///
    /// # Errors
    /// The status can't be read.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Sends it a signal, unless it has ended.
    ///
    /// # Errors
    /// The signal can't be sent.
    pub fn signal(&mut self, signal: Signal) -> io::Result<()> {
        if self.ended()?.is_none()
            && let Some(pid) = Pid::from_raw(self.child.id().cast_signed())
        {
            kill_process(pid, signal)?;
        }
        Ok(())
    }

    /// Kills it, and waits until it has ended.
    ///
    /// # Errors
    /// The signal can't be sent.
    pub fn end(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// The last lines of its log.
    pub fn log_end(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // It may have ended already.
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Waits until `holds`, with a look every 50 ms. Returns whether it did within `patience`.
///
/// # Errors
/// Those of `holds`.
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
