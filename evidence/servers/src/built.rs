//! Servers that are built from Go modules, once per version and machine: outside the clone, which may be new.

use std::{
    env,
    ffi::OsString,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::Command,
};

/// A server, and the module that it is built from.
#[derive(Clone, Copy, Debug)]
pub struct GoServer {
    /// The name of its program.
    pub name: &'static str,
    /// The module, such as `github.com/versity/versitygw`.
    pub module: &'static str,
    /// The module's version, such as `v1.8.0`.
    pub version: &'static str,
    /// The package of the program.
    pub package: &'static str,
}

/// A server could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// There is no folder for built servers.
    #[error("there is no folder for built servers: set HOME, or XDG_CACHE_HOME")]
    NoFolder,
    /// The folder can't be written.
    #[error("{}: {cause}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// Go is missing.
    #[error("`go` can't be started ({0}): install Go, 1.24 or later")]
    NoGo(io::Error),
    /// Go failed.
    #[error("`go {command}` failed for {name}:\n{output}")]
    Go {
        /// The server.
        name: &'static str,
        /// The arguments of `go`.
        command: String,
        /// What it printed.
        output: String,
    },
}

impl GoServer {
    /// Returns the program if it was built before.
    pub fn cached(&self) -> Option<PathBuf> {
        self.program(&folder()?).filter(|program| program.exists())
    }

    /// Returns the program, and builds it first unless it was built before. That takes minutes. A build by
    /// another process is waited for.
    ///
    /// # Errors
    /// See [`BuildError`]. Nothing that is incomplete is left in place of the program.
    pub fn build(&self) -> Result<PathBuf, BuildError> {
        let folder = folder().ok_or(BuildError::NoFolder)?;
        let program = self.program(&folder).ok_or(BuildError::NoFolder)?;
        let file = |path: &Path| {
            let path = path.to_owned();
            move |cause| BuildError::File { path, cause }
        };
        fs::create_dir_all(&folder).map_err(file(&folder))?;
        let lock = folder.join("lock");
        let locked = File::create(&lock).map_err(file(&lock))?;
        locked.lock().map_err(file(&lock))?;
        if program.exists() {
            return Ok(program);
        }
        eprintln!("building {} {} once, into {}", self.name, self.version, program.display());
        // The compiler's caches grow by gigabytes, and are of no use afterwards.
        let work = tempfile::TempDir::new_in(&folder).map_err(file(&folder))?;
        let module = work.path().join("module");
        fs::create_dir(&module).map_err(file(&module))?;
        self.go(work.path(), &["mod", "init", "server"])?;
        self.go(work.path(), &["get", &format!("{}@{}", self.module, self.version)])?;
        self.go(work.path(), &["build", "-ldflags", "-s -w", "-o", self.name, self.package])?;
        let home = program.parent().unwrap_or(&folder);
        fs::create_dir_all(home).map_err(file(home))?;
        fs::rename(module.join(self.name), &program).map_err(file(&program))?;
        Ok(program)
    }

    fn program(&self, folder: &Path) -> Option<PathBuf> {
        let version = self.version.strip_prefix('v')?;
        Some(folder.join(format!("{}-{version}", self.name)).join(self.name))
    }

    fn go(&self, work: &Path, arguments: &[&str]) -> Result<(), BuildError> {
        let mut command = Command::new("go");
        command
            .args(arguments)
            .current_dir(work.join("module"))
            .env("GOCACHE", work.join("cache"))
            .env("GOMODCACHE", work.join("modules"))
            .env("GOFLAGS", "-mod=mod -modcacherw -buildvcs=false -trimpath")
            .env("CGO_ENABLED", "0");
        let output = command.output().map_err(BuildError::NoGo)?;
        if output.status.success() {
            return Ok(());
        }
        let output = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(BuildError::Go { name: self.name, command: arguments.join(" "), output })
    }
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
    fn program_has_a_place_for_each_version() {
        let server = GoServer {
            name: "etcd",
            module: "go.etcd.io/etcd/server/v3",
            version: "v3.7.3",
            package: "go.etcd.io/etcd/server/v3",
        };
        let program = server.program(Path::new("/cache")).unwrap();
        assert_eq!(program, Path::new("/cache/etcd-3.7.3/etcd"));
    }
}
