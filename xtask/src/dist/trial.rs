//! `cargo xtask dist --try`: installs from each file as a user would, and prints what a user would see.
//!
//! Each trial ends with a fail-over, and takes less than a minute.

mod names;

use super::{DistError, build::Source, line, write};
use std::{
    fs::{self, File, Permissions},
    os::unix::fs::PermissionsExt as _,
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
    (Kind::Image, ".oci.tar", run_image),
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

/// A kind of user's command that can be told to take all memory.
const WORKER: &str = "#!/bin/sh
echo \"I lead with epoch $VVM_LEADER_EPOCH, as process $$\"
[ -e /data/take-all-memory ] && exec busybox tail /dev/zero
exec busybox sleep 86400
";

/// How a user's image gets the program.
const CONTAINERFILE: &str = include_str!("../../../packaging/Containerfile");

const SETTINGS: &str = "storage = \"sqlite:/data/payroll.db\"
name = \"payroll\"
ttl = \"3s\"
command = [\"/usr/bin/worker\"]
";

/// A base image with a shell, in place of a distribution's.
const BASE: &str = "FROM scratch\nCOPY busybox /bin/busybox\nCOPY busybox /bin/sh\nENV PATH=/bin:/usr/bin\n";

/// Groups by cgroupfs, because systemd may not be there. Podman's own limits may be above what root has here.
/// crun does not know the mixed groups of both versions that some systems have, and runc does.
const CONTAINERS: &str = "[engine]\ncgroup_manager = \"cgroupfs\"\nruntime = \"runc\"\n\
    [containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n";

/// Tries the container image, run by podman: alone, and as the source of the program for a user's own image.
///
/// Needs Debian's packages podman, runc and busybox-static, and root. Nothing is fetched: the user's image is made of a
/// static busybox.
///
/// # Errors
/// It can't be loaded, or does not work.
fn run_image(transcript: &Transcript, image: &Path, scratch: &Path) -> Result<(), DistError> {
    let podman = Podman::new(scratch)?;
    let said = transcript.show(podman.command(&["load", "--input"]).arg(image))?;
    let loaded = said.split_whitespace().find(|word| word.starts_with("localhost/vvm:"));
    let vvm = loaded.ok_or_else(|| DistError::Unexpected("podman load names no image".into()))?;
    alone(transcript, &podman, vvm)?;
    in_image_of_a_user(transcript, &podman, vvm)
}

/// The image has no command but vvm itself, so vvm runs `vvm watch`.
fn alone(transcript: &Transcript, podman: &Podman, vvm: &str) -> Result<(), DistError> {
    transcript.remark("The image alone: no shell, so its only command is vvm itself.");
    transcript.show(&mut podman.command(&["run", "--rm", vvm, "--version"]))?;
    let container = |name: &str, storage: &str, command: &[&str]| {
        let mut run = podman.run(name);
        run.args([vvm, "run", "--storage", storage, "--name", "watch", "--"]).args(command);
        run
    };
    transcript.remark("Its root folder is read-only.");
    transcript
        .show_status(&mut container("refused", "sqlite:/leader.db?allow=overlay", &["/usr/bin/vvm"]), 69)?;
    let storage = "sqlite:/data/watch.db";
    let watch = ["/usr/bin/vvm", "watch", "--storage", storage, "--name", "watch"];
    let mut running = transcript.start(&mut container("alone", storage, &watch), podman.log("alone"))?;
    running.wait_for("held by")?;
    transcript.remark("Process 1 is the guardian. It heeds TERM.");
    transcript.show(&mut podman.command(&["top", "alone", "pid", "ppid", "user", "args"]))?;
    transcript.show(&mut podman.command(&["stop", "--time", "20", "alone"]))?;
    ended_with(transcript, &mut running, 128 + 15)
}

fn in_image_of_a_user(transcript: &Transcript, podman: &Podman, vvm: &str) -> Result<(), DistError> {
    transcript.remark("An image of a user, with a shell and a command, by packaging/Containerfile.");
    let context = podman.scratch.join("context");
    write(&context.join("Base"), BASE.as_bytes())?;
    write(&context.join("Containerfile"), CONTAINERFILE.as_bytes())?;
    write(&context.join("worker"), WORKER.as_bytes())?;
    fs::set_permissions(context.join("worker"), Permissions::from_mode(0o755))?;
    fs::copy("/bin/busybox", context.join("busybox"))
        .map_err(|cause| DistError::File { path: "/bin/busybox".into(), cause })?;
    write(&podman.scratch.join("vvm.toml"), SETTINGS.as_bytes())?;
    let build = |file: &Path, tag: &str, arguments: &[&str]| {
        let mut build = podman.command(&["build", "--quiet", "--network=none", "--file"]);
        build.arg(file).args(["--tag", tag]).args(arguments).arg(&context);
        build
    };
    transcript.show(&mut build(&context.join("Base"), "localhost/base", &[]))?;
    let names = ["--build-arg", "BASE=localhost/base", "--build-arg", &format!("VVM={vvm}")];
    transcript.show(&mut build(&context.join("Containerfile"), "localhost/payroll", &names))?;
    let candidate = |name: &str| {
        let mut run = podman.run(name);
        run.arg("--volume").arg(format!("{}/vvm.toml:/etc/vvm/vvm.toml:ro", podman.scratch.display()));
        run.args(["--env", &format!("VVM_HOLDER={name}"), "localhost/payroll"]);
        run
    };
    let mut first = transcript.start(&mut candidate("first"), podman.log("first"))?;
    let said = first.wait_for("I lead with epoch")?;
    let mut second = transcript.start(&mut candidate("second"), podman.log("second"))?;
    second.wait_for("waiting for leadership")?;

    transcript.remark("The worker is killed: its container ends with its status, and the other one leads.");
    let worker = said.rsplit(' ').next().unwrap_or_default().trim();
    transcript.show(&mut podman.command(&["exec", "first", "/bin/busybox", "kill", "-9", worker]))?;
    ended_with(transcript, &mut first, 128 + 9)?;
    second.wait_for("I lead with epoch")?;

    transcript.remark("A whole container is killed: the other one leads when the TTL has passed.");
    let mut first = transcript.start(&mut candidate("third"), podman.log("third"))?;
    first.wait_for("waiting for leadership")?;
    transcript.show(&mut podman.command(&["kill", "--signal", "KILL", "second"]))?;
    first.wait_for("I lead with epoch")?;
    transcript.show(&mut podman.command(&["stop", "--time", "20", "third"]))?;
    ended_with(transcript, &mut first, 128 + 15)?;

    transcript.remark("The worker needs more than the 64 MiB of its container.");
    write(&podman.data().join("take-all-memory"), b"")?;
    let mut fourth = transcript.start(&mut candidate("fourth"), podman.log("fourth"))?;
    ended_with(transcript, &mut fourth, 128 + 9)
}

fn ended_with(transcript: &Transcript, running: &mut Running<'_>, expected: i32) -> Result<(), DistError> {
    let status = running.ended()?;
    transcript.remark(&format!("exit status {}", status.code().unwrap_or(-1)));
    if status.code() == Some(expected) {
        return Ok(());
    }
    Err(DistError::Unexpected(format!("{expected} was expected, and not {status}")))
}

/// Podman with folders of its own, which end with this value.
struct Podman {
    scratch: PathBuf,
}

impl Podman {
    fn new(scratch: &Path) -> Result<Self, DistError> {
        let podman = Self { scratch: scratch.into() };
        write(&scratch.join("containers.conf"), CONTAINERS.as_bytes())?;
        fs::create_dir_all(podman.data())?;
        // For a user of no machine.
        fs::set_permissions(podman.data(), Permissions::from_mode(0o777))?;
        fs::set_permissions(scratch, Permissions::from_mode(0o755))?;
        Ok(podman)
    }

    fn data(&self) -> PathBuf {
        self.scratch.join("data")
    }

    fn log(&self, name: &str) -> PathBuf {
        self.scratch.join(name).with_extension("log")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("podman");
        command
            .arg("--root")
            .arg(self.scratch.join("storage"))
            .arg("--runroot")
            .arg(self.scratch.join("run"));
        command.args(arguments).env("CONTAINERS_CONF", self.scratch.join("containers.conf"));
        // Podman's monitor leaves files where it was started.
        command.current_dir(&self.scratch);
        command
    }

    /// Returns a container with the least that vvm needs: any user, a read-only root folder, little memory.
    fn run(&self, name: &str) -> Command {
        let mut run = self.command(&["run", "--name", name, "--network=none", "--read-only"]);
        run.args(["--user=4711:4711", "--cap-drop=all", "--security-opt=no-new-privileges"]);
        run.args(["--memory=64m", "--memory-swap=64m", "--volume"]);
        run.arg(format!("{}:/data", self.data().display()));
        run
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let quiet = |command: &mut Command| {
            // Nothing is lost but space in a folder of temporary files.
            let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        };
        quiet(&mut self.command(&["rm", "--all", "--force", "--time=0"]));
        quiet(&mut self.command(&["rmi", "--all", "--force"]));
        quiet(Command::new("umount").arg(self.scratch.join("storage/overlay")));
    }
}
