//! Processes that end with their owner: each is killed on drop, and by the kernel when the owner dies. [`Server`]
//! is one that is ready at some time, and can be started again.

use rustix::process::{Pid, Signal, kill_process};
use std::{
    ffi::OsStr,
    fmt,
    fs::{self, File},
    io,
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};
use vvm_clock::SystemClock;

/// What a command line begins with whose process dies with the thread that starts it. The child must request that signal
/// itself, and unsafe code would be needed to do so between fork and exec.
pub const DIES_WITH_ITS_OWNER: [&str; 2] = ["setpriv", "--pdeathsig=KILL"];

/// Returns a command that dies with this process. The caller adds arguments. Spawn it from the main thread: the kernel
/// kills it when the *thread* that spawned it ends.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let [setpriv, option] = DIES_WITH_ITS_OWNER;
    let mut command = Command::new(setpriv);
    command.arg(option).arg(program);
    command
}

/// Runs a command to its end. Returns what it printed. `wanted` is what to install if its program is missing. The error
/// has its line and all that it printed.
pub fn run(command: &mut Command, wanted: &'static str) -> Result<String, StartError> {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let missing = |cause| StartError::Missing { program: words[0].clone(), wanted, cause };
    let output = command.output().map_err(missing)?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(printed);
    }
    let (line, said) = (words.join(" "), String::from_utf8_lossy(&output.stderr));
    Err(StartError::Failed(format!("`{line}`: {}\n{printed}{said}", output.status)))
}

#[derive(Debug)]
pub struct Owned {
    child: Child,
    log: PathBuf,
}

impl Owned {
    pub fn start(mut command: Command, log: &Path) -> io::Result<Self> {
        let file = File::create(log)?;
        let child = command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn()?;
        Ok(Self { child, log: log.to_owned() })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    pub fn signal(&mut self, signal: Signal) -> io::Result<()> {
        if self.ended()?.is_none()
            && let Some(pid) = Pid::from_raw(self.child.id().cast_signed())
        {
            kill_process(pid, signal)?;
        }
        Ok(())
    }

    pub fn log_end(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{what}: {cause}")]
    System { what: String, cause: io::Error },
    #[error("`{program}` can't be started ({cause}): install {wanted}")]
    Missing { program: String, wanted: &'static str, cause: io::Error },
    /// A program that the server needs failed, or there is no place for it. With the reason.
    #[error("{0}")]
    Failed(String),
    #[error(
        "kube-apiserver {0} was never built here: `cargo xtask servers kubernetes` does it, in ten minutes"
    )]
    NotBuilt(&'static str),
    /// It ended, or did not answer in time.
    #[error("{name} at {address} {how}. The end of its log:\n{log_end}")]
    Server { name: String, address: SocketAddr, how: &'static str, log_end: String },
}

pub(crate) fn system(what: impl ToString) -> impl Fn(io::Error) -> StartError {
    move |cause| StartError::System { what: what.to_string(), cause }
}

impl From<io::Error> for StartError {
    fn from(cause: io::Error) -> Self {
        system("a file, a port or a process of a server")(cause)
    }
}

pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    pub(crate) log: PathBuf,
    /// How long it may take on a busy machine.
    pub(crate) patience: Duration,
    pub(crate) command: Box<dyn Fn() -> Result<Command, StartError> + Send + Sync>,
    pub(crate) is_ready: Box<dyn Fn() -> bool + Send + Sync>,
}

impl fmt::Debug for Plan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Plan")
            .field("name", &self.name)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// A server's process. Dropping it ends it. Start it on the main thread: the kernel kills it when that *thread* ends.
#[derive(Debug)]
pub struct Server {
    process: Owned,
    plan: Plan,
    /// What ends it without notice.
    pub(crate) killed_by: Signal,
}

impl Server {
    pub(crate) fn start(plan: Plan) -> Result<Self, StartError> {
        let mut server = Self::launch(plan)?;
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Starts a server that is ready when others are started, too.
    pub(crate) fn launch(plan: Plan) -> Result<Self, StartError> {
        Ok(Self { process: plan.launch()?, plan, killed_by: Signal::KILL })
    }

    pub(crate) fn wait_until_ready(&mut self) -> Result<(), StartError> {
        let mut has_ended = false;
        let is_ready = wait_until(self.plan.patience, || {
            has_ended = self.process.ended()?.is_some();
            Ok::<_, io::Error>(has_ended || (self.plan.is_ready)())
        });
        match (is_ready.map_err(system(&self.plan.name))?, has_ended) {
            (true, false) => Ok(()),
            (_, true) => Err(self.failed("has ended")),
            (false, false) => Err(self.failed("does not answer")),
        }
    }

    pub(crate) fn failed(&self, how: &'static str) -> StartError {
        let Plan { name, address, .. } = &self.plan;
        StartError::Server { name: name.clone(), address: *address, how, log_end: self.log_end() }
    }

    pub(crate) fn log_end(&self) -> String {
        self.process.log_end()
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Its address for clients: the same after a restart.
    pub fn address(&self) -> SocketAddr {
        self.plan.address
    }

    pub fn signal(&mut self, signal: Signal) -> io::Result<()> {
        self.process.signal(signal)
    }

    /// The processes of its connections, where each has one.
    fn signal_children(&self, signal: Signal) {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.id()));
        for child in children.unwrap_or_default().split_whitespace() {
            if let Some(pid) = child.parse().ok().and_then(Pid::from_raw) {
                let _gone = kill_process(pid, signal);
            }
        }
    }

    /// Stops it as it stands (`SIGSTOP`), with its children: it answers no request, and its connections stay open.
    pub fn stop(&mut self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        self.signal_children(Signal::STOP);
        Ok(())
    }

    pub fn go_on(&mut self) -> io::Result<()> {
        self.signal_children(Signal::CONT);
        self.signal(Signal::CONT)
    }

    /// Ends it without notice, and waits until it has ended.
    pub fn kill(&mut self) -> Result<(), StartError> {
        self.end(self.killed_by)
    }

    pub(crate) fn end(&mut self, signal: Signal) -> Result<(), StartError> {
        self.signal(signal).map_err(system("kill"))?;
        let ended = wait_until(self.plan.patience, || self.process.ended().map(|ended| ended.is_some()));
        if ended.map_err(system(&self.plan.name))? { Ok(()) } else { Err(self.failed("has not ended")) }
    }

    /// Ends it without notice, if it has not ended, and starts it again with its data.
    pub fn restart(&mut self) -> Result<(), StartError> {
        self.kill()?;
        self.start_again()
    }

    pub(crate) fn start_again(&mut self) -> Result<(), StartError> {
        self.process = self.plan.launch()?;
        self.wait_until_ready()
    }
}

impl Drop for Server {
    /// Children that are stopped would not notice its end.
    fn drop(&mut self) {
        self.signal_children(Signal::CONT);
    }
}

impl Plan {
    fn launch(&self) -> Result<Owned, StartError> {
        Owned::start((self.command)()?, &self.log).map_err(system(&self.name))
    }
}

pub(crate) fn listens(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_ok()
}

macro_rules! is_a_server {
    ($($name:ty),+) => {$(
        impl std::ops::Deref for $name {
            type Target = $crate::owned::Server;

            fn deref(&self) -> &Self::Target {
                &self.server
            }
        }

        impl std::ops::DerefMut for $name {
            fn deref_mut(&mut self) -> &mut Self::Target {
                &mut self.server
            }
        }
    )+};
}
pub(crate) use is_a_server;

/// Waits until `holds`, with a look every 50 ms. Returns whether it did within `patience`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_that_is_missing_or_fails_is_named_with_what_it_printed() {
        let missing = run(&mut Command::new("no-such-program"), "it").unwrap_err().to_string();
        assert!(
            missing.starts_with("`no-such-program` can't be started (") && missing.ends_with("install it")
        );
        let fails = run(Command::new("sh").args(["-c", "echo first; echo last >&2; exit 3"]), "sh");
        let fails = fails.unwrap_err().to_string();
        assert!(fails.ends_with("exit 3`: exit status: 3\nfirst\nlast\n"), "{fails}");
        assert!(run(Command::new("echo").arg("done"), "it").is_ok_and(|printed| printed == "done\n"));
    }
}
