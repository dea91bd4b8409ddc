//! `cargo xtask dist --try`: installs from each file as a user would, and prints what a user would see.
//!
//! Each trial ends with a fail-over, and takes less than a minute.

mod image;
mod names;

use super::{DistError, build::Source, line, write};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};
use vvm_clock::{Span, SystemClock};

/// What is tried.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(super) enum Kind {
    /// Each of the others.
    All,
    /// The Debian package, in a root folder of its own.
    Deb,
    /// The wheel, in a virtual environment of its own.
    Wheel,
    /// The container image, by podman.
    Image,
    /// Host names, by the static program in a root folder with nothing else.
    Names,
}

/// The time in which a user has installed the program and seen it fail over.
const LIMIT: Duration = Duration::from_secs(60);

type Trial = fn(&Transcript, &Path, &Path) -> Result<(), DistError>;

/// Each with the end of the file that it needs.
const TRIALS: [(Kind, &str, Trial); 4] = [
    (Kind::Deb, ".deb", run_deb),
    (Kind::Wheel, ".whl", run_wheel),
    (Kind::Image, ".oci.tar", image::run),
    (Kind::Names, ".deb", names::run),
];

/// Tries the files in `folder`.
///
/// # Errors
/// A file is missing or does not work.
pub(super) fn run(source: &Source, folder: &Path, kind: Kind) -> Result<(), DistError> {
    for (_, ending, trial) in TRIALS.iter().filter(|(one, ..)| [*one, Kind::All].contains(&kind)) {
        let file = find(folder, ending)?;
        let scratch = tempfile::Builder::new().prefix("vvm-try-").tempdir()?;
        let transcript = Transcript::new(&[(&source.root, "."), (scratch.path(), "/tmp/try")]);
        transcript.title(&file.file_name().unwrap_or_default().to_string_lossy());
        let start = SystemClock::read();
        trial(&transcript, &file, scratch.path())?;
        let took = SystemClock::read().since(start);
        transcript.remark(&format!("{}", Span(took)));
        if took > LIMIT {
            return Err(DistError::Unexpected(format!("it took longer than {}", Span(LIMIT))));
        }
    }
    Ok(())
}

/// Returns the file with this end.
fn find(folder: &Path, ending: &str) -> Result<PathBuf, DistError> {
    let missing = || DistError::Missing(format!("target/packages/*/*{ending}"));
    let mut entries = fs::read_dir(folder).map_err(|_| missing())?.filter_map(Result::ok);
    let found = entries.find(|entry| entry.file_name().to_string_lossy().ends_with(ending));
    found.map(|entry| entry.path()).ok_or_else(missing)
}

/// Tries the Debian package, installed by dpkg into a root folder of its own.
///
/// # Errors
/// It can't be installed, or what is installed does not work.
fn run_deb(transcript: &Transcript, package: &Path, scratch: &Path) -> Result<(), DistError> {
    transcript.show(Command::new("dpkg-deb").arg("--info").arg(package))?;
    let root = scratch.join("root");
    for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "var/log"] {
        fs::create_dir_all(root.join(folder))?;
    }
    for file in ["var/lib/dpkg/status", "var/lib/dpkg/available"] {
        write(&root.join(file), b"")?;
    }
    // A user namespace, in which any user may give files to root.
    let mut install = Command::new("unshare");
    install.args(["--map-root-user", "dpkg"]).arg(of_root(&root));
    install.args(["--force-not-root", "--install"]).arg(package);
    transcript.show(&mut install)?;
    transcript.show(Command::new("dpkg").arg(of_root(&root)).args(["--listfiles", "vvm-cli"]))?;
    transcript.remark("The root folder has no library.");
    let alone = ["--map-root-user", "--root"];
    transcript.show(Command::new("unshare").args(alone).arg(&root).args(["/usr/bin/vvm", "--version"]))?;
    fail_over(transcript, &root.join("usr/bin/vvm"), scratch)
}

fn of_root(root: &Path) -> String {
    format!("--root={}", root.display())
}

/// Tries the wheel, installed by pip into a fresh virtual environment.
///
/// # Errors
/// It can't be installed, or what is installed does not work.
fn run_wheel(transcript: &Transcript, wheel: &Path, scratch: &Path) -> Result<(), DistError> {
    let environment = scratch.join("venv");
    let programs = environment.join("bin");
    transcript.show(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    let options = ["install", "--disable-pip-version-check", "--no-index"];
    transcript.show(Command::new(programs.join("pip")).args(options).arg(wheel))?;
    transcript.show(Command::new(programs.join("pip")).args(["show", "--files", "vvm-cli"]))?;
    transcript.show(Command::new(programs.join("vvm")).arg("--version"))?;
    fail_over(transcript, &programs.join("vvm"), scratch)
}

/// Shows the first fail-over with the program at `vvm`, and its files in `folder`: two candidates on one machine, and the
/// leader's process is killed.
///
/// # Errors
/// The second candidate does not take over.
fn fail_over(transcript: &Transcript, vvm: &Path, folder: &Path) -> Result<(), DistError> {
    let storage = format!("sqlite:{}/payroll.db", folder.display());
    let candidate = |holder: &str| {
        let mut command = Command::new(vvm);
        command.args(["run", "--storage", &storage, "--name", "payroll", "--ttl", "5s", "--holder", holder]);
        command.args(["--", "sh", "-c", "echo I lead with epoch $VVM_LEADER_EPOCH; exec sleep 1d"]);
        command
    };
    let mut first = transcript.start(&mut candidate("first"), folder.join("first.log"))?;
    first.wait_for("I lead with epoch")?;
    let mut second = transcript.start(&mut candidate("second"), folder.join("second.log"))?;
    second.wait_for("waiting for leadership")?;
    transcript.show(Command::new("kill").args(["-s", "KILL", &first.id().to_string()]))?;
    second.wait_for("I lead with epoch")?;
    let status = ["status", "--storage", &storage, "--name", "payroll"];
    transcript.show(Command::new(vvm).args(status))?;
    transcript.show(Command::new("kill").arg(second.id().to_string()))?;
    second.ended()?;
    Ok(())
}

/// The time after which a process that says nothing has hung.
const SILENCE: Duration = Duration::from_secs(30);
const PACE: Duration = Duration::from_millis(20);

/// Runs commands and prints them with what they said, as a session at a shell, to standard output, with other names for folders of this machine.
#[derive(Debug)]
struct Transcript {
    names: Vec<(String, &'static str)>,
}

impl Transcript {
    fn new(names: &[(&Path, &'static str)]) -> Self {
        Self { names: names.iter().map(|(path, name)| (path.display().to_string(), *name)).collect() }
    }

    fn title(&self, text: &str) {
        println!("\n== {text}\n");
    }

    fn remark(&self, text: &str) {
        println!("# {}", self.renamed(text));
    }

    /// Runs a command that must succeed, and returns what it said.
    ///
    /// # Errors
    /// It can't be started, or fails.
    fn show(&self, command: &mut Command) -> Result<String, DistError> {
        let (status, said) = self.run(command)?;
        if status.success() {
            return Ok(said);
        }
        Err(DistError::Failed { command: line(command), status: status.to_string(), said: String::new() })
    }

    /// Runs a command that must end with this status, and returns what it said.
    ///
    /// # Errors
    /// It can't be started, or ends with another status.
    fn show_status(&self, command: &mut Command, expected: i32) -> Result<String, DistError> {
        let (status, said) = self.run(command)?;
        println!("# exit status {}", status.code().unwrap_or(-1));
        if status.code() == Some(expected) {
            return Ok(said);
        }
        Err(DistError::Failed { command: line(command), status: status.to_string(), said: String::new() })
    }

    /// Runs a command and returns how it ended and what it said, errors last.
    ///
    /// # Errors
    /// It can't be started.
    fn run(&self, command: &mut Command) -> Result<(ExitStatus, String), DistError> {
        println!("$ {}", self.renamed(&line(command)));
        let ended = command.stdin(Stdio::null()).output();
        let ended = ended.map_err(|cause| DistError::Start { program: line(command), cause })?;
        let said = [ended.stdout, ended.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        print!("{}", self.renamed(&said));
        Ok((ended.status, said))
    }

    /// Starts a command that goes on, and whose output goes to `log`.
    ///
    /// # Errors
    /// It can't be started.
    fn start(&self, command: &mut Command, log: PathBuf) -> Result<Running<'_>, DistError> {
        println!("$ {} &", self.renamed(&line(command)));
        let failed = |cause| DistError::File { path: log.clone(), cause };
        let output = File::create(&log).map_err(failed)?;
        let errors = output.try_clone().map_err(failed)?;
        let started = command.stdin(Stdio::null()).stdout(output).stderr(errors).spawn();
        let child = started.map_err(|cause| DistError::Start { program: line(command), cause })?;
        Ok(Running { transcript: self, child, log, shown: 0 })
    }

    fn renamed(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, (path, name)| text.replace(path, name))
    }
}

/// A process that is ended with this value.
#[derive(Debug)]
struct Running<'a> {
    transcript: &'a Transcript,
    child: Child,
    log: PathBuf,
    /// How many bytes of the log are printed.
    shown: usize,
}

impl Running<'_> {
    fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns whether it has not ended.
    ///
    /// # Errors
    /// The system can't tell.
    fn is_there(&mut self) -> Result<bool, DistError> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Waits until it has said this, prints what is new, and returns it.
    ///
    /// # Errors
    /// It says it not within half a minute.
    fn wait_for(&mut self, text: &str) -> Result<String, DistError> {
        let start = SystemClock::read();
        loop {
            let said = fs::read(&self.log).unwrap_or_default();
            let new = String::from_utf8_lossy(said.get(self.shown..).unwrap_or_default()).into_owned();
            if new.contains(text) && new.ends_with('\n') {
                self.shown = said.len();
                print!("{}", self.transcript.renamed(&new));
                return Ok(new);
            }
            if SystemClock::read().since(start) > SILENCE {
                let limit = Span(SILENCE);
                return Err(DistError::Unexpected(format!("`{text}` was not said within {limit}: {new}")));
            }
            SystemClock::block_for(PACE);
        }
    }

    /// Waits for its end, and returns its status.
    ///
    /// # Errors
    /// It does not end within half a minute.
    fn ended(&mut self) -> Result<ExitStatus, DistError> {
        let start = SystemClock::read();
        loop {
            if let Some(status) = self.child.try_wait()? {
                let said = fs::read(&self.log).unwrap_or_default();
                let new = String::from_utf8_lossy(said.get(self.shown..).unwrap_or_default()).into_owned();
                self.shown = said.len();
                print!("{}", self.transcript.renamed(&new));
                return Ok(status);
            }
            if SystemClock::read().since(start) > SILENCE {
                return Err(DistError::Unexpected(format!("it does not end within {}", Span(SILENCE))));
            }
            SystemClock::block_for(PACE);
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // Its descendants end with it: that is what it is for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
