//! Gets the programs of servers. Those from Go modules or packages of npm, and Go programs of our own, are made once
//! per version and machine, outside the clone, which may be new. Maven fetches those on Java into the target folder.

use crate::owned::{self, StartError, run, system};
use std::{
    env,
    ffi::OsString,
    fs::{self, File},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A program in Go: a server, or one of our own.
#[derive(Clone, Copy, Debug)]
pub struct GoProgram {
    pub name: &'static str,
    /// The release of a server, such as `1.8.0`. Of our own the files are the version.
    pub release: Option<&'static str>,
    /// The files of our own by name: module, sums and sources. Versions are those of the sums.
    pub files: &'static [(&'static str, &'static str)],
    /// If there is no module file: the modules that it needs, as `path@version`.
    pub modules: &'static [&'static str],
    pub package: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub struct Artifact {
    pub group: &'static str,
    pub name: &'static str,
    pub version: &'static str,
}

/// A candidate of client-go's leader election. Its version is that of Kubernetes 1.36.3.
pub const CLIENT_GO: GoProgram = GoProgram {
    name: "client-go",
    release: None,
    files: &[
        ("go.mod", include_str!("../client-go/go.mod")),
        ("go.sum", include_str!("../client-go/go.sum")),
        ("main.go", CLIENT_GO_SOURCE),
    ],
    modules: &[],
    package: ".",
};

const CLIENT_GO_SOURCE: &str = include_str!("../client-go/main.go");

/// The last release of the last minor version whose candidates wait for their own `LeaseDuration`, not the record's.
pub const OLD_CLIENT_GO: GoProgram = GoProgram {
    name: "old-client-go",
    files: &[("main.go", CLIENT_GO_SOURCE)],
    modules: &["k8s.io/client-go@v0.26.15", "k8s.io/apimachinery@v0.26.15"],
    ..CLIENT_GO
};

/// The checker of recorded histories, with porcupine 1.3.1. Package `faults` has their format.
pub const HISTORY_CHECKER: GoProgram = GoProgram {
    name: "history-go",
    files: &[
        ("go.mod", include_str!("../history-go/go.mod")),
        ("go.sum", include_str!("../history-go/go.sum")),
        ("main.go", include_str!("../history-go/main.go")),
    ],
    ..CLIENT_GO
};

/// The version of [`CLIENT_GO`], for people.
pub const CLIENT_GO_VERSION: &str = "client-go 0.36.3";

impl Artifact {
    /// Fetches its jars and their dependencies into a folder below `target`, unless they are there, and returns it.
    pub fn fetch(&self, target: &Path) -> Result<PathBuf, StartError> {
        let Self { group, name, version } = self;
        let folder = target.join("servers").join(format!("{name}-{version}"));
        // Absolute, because Maven and servers have other working folders.
        let folder = std::path::absolute(&folder).map_err(file(&folder))?;
        let (jars, complete) = (folder.join("lib"), folder.join("complete"));
        if complete.exists() {
            return Ok(jars);
        }
        fs::create_dir_all(&folder).map_err(file(&folder))?;
        let pom = folder.join("pom.xml");
        let text = format!(
            "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
             <groupId>vvm</groupId><artifactId>servers</artifactId><version>1</version><dependencies>\
             <dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>\
             </dependency></dependencies></project>\n"
        );
        fs::write(&pom, text).map_err(file(&pom))?;
        let wanted = "a JDK, 17 or later, and Maven";
        let mut maven = owned::command("mvn");
        maven.args(["-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"]);
        run(maven.current_dir(&folder).stdin(Stdio::null()), wanted).map_err(|why| {
            let mend =
                format!("install {wanted}, or correct its settings or the network, then run this again");
            StartError::Failed(format!("{why}\nMaven can't fetch {group}:{name}:{version}: {mend}"))
        })?;
        fs::write(&complete, "").map_err(file(&complete))?;
        Ok(jars)
    }
}

pub(crate) fn cached(name: &str, release: &str) -> Option<PathBuf> {
    Some(program(&folder()?, name, release)).filter(|program| program.exists())
}

pub(crate) fn npm_package(name: &'static str, version: &str) -> Result<PathBuf, StartError> {
    build(name, version, |work| {
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--prefix", name, &format!("{name}@{version}")]);
        npm.current_dir(work.join("module")).env("npm_config_cache", work.join("cache"));
        run(&mut npm, "Node with npm").map(drop)
    })
}

impl GoProgram {
    /// Returns the program, and builds it first unless it was built (minutes). Another process's build is awaited.
    pub fn build(&self) -> Result<PathBuf, StartError> {
        let version = self.release.map_or_else(|| self.digest(), str::to_owned);
        build(self.name, &version, |work| {
            for (name, text) in self.files {
                let path = work.join("module").join(name);
                fs::write(&path, text).map_err(file(&path))?;
            }
            let mut may_change = "readonly";
            if !self.modules.is_empty() {
                may_change = "mod";
                go(work, may_change, &["mod", "init", "program"])?;
                go(work, may_change, &[&["get"], self.modules].concat())?;
            }
            go(work, may_change, &[&BUILD[..], &[self.name, self.package]].concat())
        })
    }

    fn digest(&self) -> String {
        // Of the same files it is the same in each process, and after an update of Rust at worst another one.
        let mut hasher = DefaultHasher::new();
        self.files.hash(&mut hasher);
        self.modules.iter().for_each(|module| module.hash(&mut hasher));
        format!("{:016x}", hasher.finish())
    }
}

/// Returns the program of this version. If there is none, `make` builds it in `module` of the folder that it gets.
pub(crate) fn build(
    name: &'static str,
    version: &str,
    make: impl FnOnce(&Path) -> Result<(), StartError>,
) -> Result<PathBuf, StartError> {
    let folder = folder().ok_or(StartError::Failed(NO_FOLDER.into()))?;
    let program = program(&folder, name, version);
    fs::create_dir_all(&folder).map_err(file(&folder))?;
    let lock = folder.join("lock");
    let locked = File::create(&lock).map_err(file(&lock))?;
    locked.lock().map_err(file(&lock))?;
    if program.exists() {
        return Ok(program);
    }
    eprintln!("building {name} {version} once, into {}", program.display());
    // The compiler's caches grow by gigabytes, and are of no use afterwards.
    let work = tempfile::TempDir::new_in(&folder).map_err(file(&folder))?;
    let module = work.path().join("module");
    fs::create_dir(&module).map_err(file(&module))?;
    make(work.path())?;
    let home = program.parent().unwrap_or(&folder);
    fs::create_dir_all(home).map_err(file(home))?;
    fs::rename(module.join(name), &program).map_err(file(&program))?;
    Ok(program)
}

/// Builds a small program; its name and its package follow.
pub(crate) const BUILD: [&str; 4] = ["build", "-ldflags", "-s -w", "-o"];

/// Runs `go` in the folder `module` of `work`. `modules` is what it may do to the module file (`-mod`).
pub(crate) fn go(work: &Path, modules: &str, arguments: &[&str]) -> Result<(), StartError> {
    let mut command = Command::new("go");
    command
        .args(arguments)
        .current_dir(work.join("module"))
        .env("GOCACHE", work.join("cache"))
        .env("GOMODCACHE", work.join("modules"))
        .env("GOFLAGS", format!("-mod={modules} -modcacherw -buildvcs=false -trimpath"))
        .env("CGO_ENABLED", "0");
    run(&mut command, "Go, 1.24 or later").map(drop)
}

pub(crate) fn file(path: &Path) -> impl Fn(io::Error) -> StartError + use<> {
    let what = path.display().to_string();
    move |cause| system(&what)(cause)
}

const NO_FOLDER: &str = "there is no folder for built servers: set HOME, or XDG_CACHE_HOME";

fn program(folder: &Path, name: &str, version: &str) -> PathBuf {
    folder.join(format!("{name}-{version}")).join(name)
}

/// Returns the folder of built servers: below `XDG_CACHE_HOME`, or `.cache` of the user.
fn folder() -> Option<PathBuf> {
    let of = |variable| env::var_os(variable).filter(|value: &OsString| !value.is_empty()).map(PathBuf::from);
    let caches = of("XDG_CACHE_HOME").or_else(|| of("HOME").map(|home| home.join(".cache")))?;
    Some(caches.join("vvm-servers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_another_version() {
        let digest = |files, modules| GoProgram { files, modules, ..CLIENT_GO }.digest();
        let a = digest(&[("main.go", "a")], &[]);
        assert_eq!(digest(&[("main.go", "a")], &[]), a);
        assert_ne!(digest(&[("main.go", "b")], &[]), a);
        assert_ne!(digest(&[("main.go", "a")], &["b@v1.0.0"]), a);
    }
}
