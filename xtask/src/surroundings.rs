//! `cargo xtask test-surroundings`: the step `tests` as others run it: below `/tmp`, in a path with a space, with and without
//! a terminal, environment, privileges and time. All runs share one clone, and so one build.

use crate::{ci::limit, workspace::Workspace};
use clap::Args;
use rustix::process::geteuid;
use std::{
    env,
    ffi::OsStr,
    fmt,
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::Command,
};
use timed::loaded;

/// The options.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only these runs, by their numbers, separated by commas.
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    only: Vec<usize>,
    /// Where the clone and the logs are, and stay. A new folder below /tmp, which is removed after success, if it is not
    /// given.
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

/// How many loops per processor are busy beside a run.
const LOOPS: usize = 2;

/// What a run has, and others don't.
#[derive(Clone, Copy, Debug)]
enum Surrounding {
    /// As a service starts it: no terminal, no environment, a strict umask, an ordinary user.
    Service,
    /// As a developer of another country starts it, as this user.
    Terminal,
    /// Beside busy loops.
    Busy,
}

/// The first one builds what the others run: a package may have files that only its owner can read.
const RUNS: [Surrounding; 4] =
    [Surrounding::Terminal, Surrounding::Service, Surrounding::Busy, Surrounding::Busy];

/// The step, as people start it.
const STEP: &str = "cargo xtask ci --only tests";

/// The user of [`Surrounding::Service`], if this user is root.
const USER: &str = "nobody";

/// Why nothing was run.
#[derive(Debug, thiserror::Error)]
enum SurroundingError {
    #[error("{what}: {cause}")]
    System { what: &'static str, cause: io::Error },
    #[error("{0}")]
    Other(String),
}

fn at(what: &'static str) -> impl Fn(io::Error) -> SurroundingError {
    move |cause| SurroundingError::System { what, cause }
}

/// Runs the step in each surrounding. Returns whether it held in all of them.
pub(crate) fn run(options: &Options) -> bool {
    match run_all(options) {
        Ok(held) => held,
        Err(error) => {
            eprintln!("test-surroundings: {error}");
            false
        }
    }
}

fn run_all(options: &Options) -> Result<bool, SurroundingError> {
    let root = Workspace::read().map_err(|error| SurroundingError::Other(error.to_string()))?.root;
    limit::heed_interrupts().map_err(at("no handler for signals"))?;
    let folder = match &options.folder {
        Some(folder) => folder.clone(),
        None => {
            let new = tempfile::Builder::new().prefix("vvm surroundings ").tempdir_in("/tmp");
            new.map_err(at("no folder below /tmp"))?.keep()
        }
    };
    fs::create_dir_all(&folder).map_err(at("no folder"))?;
    let place = Place { tree: folder.join("tree"), folder };
    place.clone_from(&root)?;
    let mut lines = Vec::new();
    for (number, surrounding) in (1..).zip(RUNS) {
        if (options.only.is_empty() || options.only.contains(&number)) && !limit::is_interrupted() {
            println!("==> {number}: {surrounding}");
            let held = place.run(number, surrounding)?;
            lines.push((held, format!("{number}: {surrounding}: {}", if held { "held" } else { "FAILED" })));
        }
    }
    lines.iter().for_each(|(_, line)| println!("{line}"));
    let all_held = !limit::is_interrupted() && lines.iter().all(|(held, _)| *held);
    if all_held && options.folder.is_none() {
        place.own(None)?;
        fs::remove_dir_all(&place.folder).map_err(at("the folder stays"))?;
    }
    Ok(all_held)
}

/// The folder of all runs, and the clone in it.
struct Place {
    folder: PathBuf,
    tree: PathBuf,
}

impl Place {
    /// Clones the last commit, or brings an earlier clone to it.
    fn clone_from(&self, root: &Path) -> Result<(), SurroundingError> {
        self.own(None)?;
        let git = |arguments: &[&str], paths: &[&Path]| {
            let mut git = Command::new("git");
            git.args(arguments).args(paths);
            succeed(&mut git)
        };
        if !self.tree.exists() {
            return git(&["clone", "--quiet", "--no-hardlinks"], &[root, &self.tree]);
        }
        let there = self.tree.to_string_lossy();
        git(&["-C", &there, "fetch", "--quiet"], &[root, Path::new("HEAD")])?;
        git(&["-C", &there, "checkout", "--quiet", "--force", "--detach", "FETCH_HEAD"], &[])
    }

    /// Gives all files to a user, or to this one: programs distrust the folders of others.
    fn own(&self, user: Option<&str>) -> Result<(), SurroundingError> {
        if !geteuid().is_root() {
            return Ok(());
        }
        succeed(Command::new("chown").args(["-R", user.unwrap_or("root")]).arg(&self.folder))
    }

    /// Returns whether the step held. Its output goes to a file, and what it comes to is printed.
    fn run(&self, number: usize, surrounding: Surrounding) -> Result<bool, SurroundingError> {
        let mut command = match surrounding {
            Surrounding::Service => self.service()?,
            Surrounding::Terminal => self.terminal()?,
            Surrounding::Busy => {
                self.own(None)?;
                words("sh", &["-c", STEP])
            }
        };
        command.current_dir(&self.tree);
        let path = self.folder.join(format!("{number}.log"));
        let mut log = File::create(&path).map_err(at("no log"))?;
        let mut is_summary = false;
        let mut step = || {
            limit::watch(&mut command, limit::STEP, |line| {
                // Without the line, the failure is shown all the same.
                let _ = writeln!(log, "{line}");
                is_summary |= line.starts_with("tests: ");
                if is_summary || line.contains("  FAILED  ") {
                    println!("{line}");
                }
                false
            })
        };
        let ended = if let Surrounding::Busy = surrounding { loaded(LOOPS, step) } else { step() };
        let held = ended.as_ref().is_ok_and(|status| status.success());
        if !held {
            let how = ended.map_or_else(|cause| cause.to_string(), |status| status.to_string());
            println!("{how}; all that it said is in {}", path.display());
        }
        Ok(held)
    }

    /// `setpriv` ends the step when the process that waits for the session is killed.
    fn service(&self) -> Result<Command, SurroundingError> {
        let mut line = Vec::new();
        let home = env::home_dir().unwrap_or_default();
        if geteuid().is_root() {
            line.extend(self.mounts(&home)?);
            self.own(Some(USER))?;
        } else {
            println!("left out: another user than this one, since it is not root");
        }
        let path = format!("{}/.cargo/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", home.display());
        let step = format!("umask 077; exec {STEP}");
        line.extend(["nohup", "env", "-i"].map(str::to_owned));
        line.extend([format!("PATH={path}"), format!("HOME={}", home.display())]);
        line.extend(["setsid", "--wait", "setpriv", "--pdeathsig", "TERM"].map(str::to_owned));
        if geteuid().is_root() {
            line.extend(["--reuid", USER, "--regid", USER_GROUP, "--clear-groups"].map(str::to_owned));
        }
        line.extend(["sh".to_owned(), "-c".to_owned(), step]);
        Ok(words("env", &line))
    }

    /// Shows this user's Rust to another one, who may not enter the home folder that it is in. At the same path, or cargo
    /// would build everything anew.
    fn mounts(&self, home: &Path) -> Result<Vec<String>, SurroundingError> {
        let kept = self.folder.join("rust");
        for name in ["cargo", "rustup"] {
            fs::create_dir_all(kept.join(name)).map_err(at("no folder"))?;
        }
        let script = format!(
            "set -e; cd '{kept}'; mount --bind '{home}/.cargo' cargo; mount --bind '{home}/.rustup' rustup
             mount -t tmpfs -o mode=0777 home '{home}'; mkdir '{home}/.cargo' '{home}/.rustup'
             mount --bind cargo '{home}/.cargo'; mount --bind rustup '{home}/.rustup'
             cd \"$OLDPWD\"; exec \"$@\"",
            kept = kept.display(),
            home = home.display()
        );
        Ok(["unshare", "--mount", "sh", "-c", &script, "sh"].map(str::to_owned).to_vec())
    }

    fn terminal(&self) -> Result<Command, SurroundingError> {
        self.own(None)?;
        let mut command = words("script", &["--quiet", "--return", "--command", STEP, "/dev/null"]);
        command.envs([("LANG", "de_DE.UTF-8"), ("LC_ALL", "de_DE.UTF-8"), ("TERM", "xterm")]);
        for name in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
            command.env(name, "http://127.0.0.1:1");
        }
        let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
        let here = device(&self.folder);
        let others = ["/dev/shm", "/var/tmp", "/run/shm"].map(Path::new);
        match others.into_iter().find(|place| device(place).is_some_and(|there| Some(there) != here)) {
            Some(place) => drop(command.env("TMPDIR", place)),
            None => println!("left out: TMPDIR on another file system, since there is none"),
        }
        if !geteuid().is_root() {
            println!("left out: root, since this user is not");
        }
        Ok(command)
    }
}

/// The group of [`USER`].
const USER_GROUP: &str = "nogroup";

/// Returns a command that finds the cargo of this one by its name, as people start it.
fn words(program: &str, arguments: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    // Of this program's own cargo.
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_") && name != "CARGO_HOME" {
            command.env_remove(name);
        }
    }
    command.env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN");
    command
}

fn succeed(command: &mut Command) -> Result<(), SurroundingError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let ran = limit::output(command, limit::STEP);
    let ran = ran.map_err(|cause| SurroundingError::Other(format!("{name} could not be run: {cause}")))?;
    if ran.status.success() {
        return Ok(());
    }
    Err(SurroundingError::Other(format!("{name}: {}", String::from_utf8_lossy(&ran.stderr))))
}

impl fmt::Display for Surrounding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service => out.write_str("nohup, env -i, setsid, no terminal, umask 077, an ordinary user"),
            Self::Terminal => out
                .write_str("a terminal, German, TMPDIR on another file system, a proxy that is closed, root"),
            Self::Busy => write!(out, "{LOOPS} busy loops per processor"),
        }
    }
}
