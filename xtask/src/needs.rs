//! What a step needs that some machines lack, and where tests keep their files: in memory, where that is possible.

use rustix::fs::{StatVfsMountFlags, statvfs};
use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// The variable with the address of a server that runs already. Without it, one is started.
    pub(crate) server_at: Option<&'static str>,
    pub(crate) server: Server,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Server {
    /// Maven fetches it.
    OnJava,
    /// The same, with a checker that Go builds.
    OnJavaWithGo,
    /// etcd, with its client.
    Etcd,
    /// Go builds it, unless it was built before.
    BuiltByGo,
    /// kube-apiserver, which was built on this machine, on an etcd that is installed or built.
    Kubernetes,
    /// PostgreSQL, which Maven fetches, reached from network namespaces.
    InNamespaces,
    /// etcd, installed or built.
    AnyEtcd,
    /// None, but the language of a client.
    Python,
    Node,
}

/// Programs that a server needs, each with an argument that ends it at once.
const JAVA: [(&str, &str); 2] = [("java", "-version"), ("mvn", "-version")];
const ETCD: [(&str, &str); 2] = [("etcd", "--version"), ("etcdctl", "version")];
const GO: [(&str, &str); 1] = [("go", "version")];
const PYTHON: [(&str, &str); 1] = [("python3", "--version")];
const NODE: [(&str, &str); 1] = [("node", "--version")];
/// The second makes a network namespace, with a shell that has no input.
const NAMESPACES: [(&str, &str); 2] = [("ip", "-Version"), ("unshare", "--net")];
const KUBERNETES: [(&str, &str); 2] =
    [("kube-apiserver-1.36.3/kube-apiserver", "--version"), ("kubectl", "--help")];

impl Server {
    /// Returns a program without which the server can't be started, and how to get it. Either will do for `AnyEtcd`.
    fn lacks(self, starts: impl Fn(&str, &str) -> bool) -> Option<(&'static str, &'static str)> {
        let java = "install a JDK, 17 or later, and Maven";
        let packages = "install Debian's packages etcd-server and etcd-client";
        let etcd = "install Go, or Debian's package etcd-server";
        let go = "install Go, 1.24 or later";
        let needed: &[(&[(&str, &str)], &str)] = match self {
            Self::OnJava => &[(&JAVA, java)],
            Self::InNamespaces => &[(&JAVA, java), (&NAMESPACES, "run as root, with iproute2")],
            Self::AnyEtcd if starts("etcd", "--version") => &[],
            Self::AnyEtcd => &[(&GO, etcd)],
            Self::Etcd => &[(&ETCD, packages)],
            Self::BuiltByGo => &[(&GO, go)],
            Self::OnJavaWithGo => &[(&JAVA, java), (&GO, go)],
            Self::Python => &[(&PYTHON, "install Python, 3.9 or later")],
            Self::Node => &[(&NODE, "install Node, 18 or later")],
            Self::Kubernetes => {
                let built =
                    "`cargo xtask servers kubernetes` builds it once, in ten minutes; and install kubectl";
                let etcd_is_installed = starts("etcd", "--version");
                &[(if etcd_is_installed { &[] } else { &GO }, etcd), (&KUBERNETES, built)]
            }
        };
        needed.iter().find_map(|(programs, way_out)| {
            let (missing, _) = programs.iter().find(|(program, argument)| !starts(program, argument))?;
            Some((*missing, *way_out))
        })
    }
}

impl Need {
    /// Whether CI may pass without it: kube-apiserver takes ten minutes to build, and 3 GB.
    pub(crate) fn is_optional(self) -> bool {
        matches!(self.server, Server::Kubernetes)
    }

    pub(crate) fn missing(self) -> Option<String> {
        if self.server_at.is_some_and(|variable| env::var_os(variable).is_some()) {
            return None;
        }
        let (missing, way_out) = self.server.lacks(starts)?;
        let named = self.server_at.map(|variable| format!(", or name a server with {variable}=…"));
        Some(format!("`{missing}` can't be started: {way_out}{}", named.unwrap_or_default()))
    }
}

fn starts(program: &str, argument: &str) -> bool {
    let mut command = Command::new(place(program));
    command.arg(argument).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A server that is built once is kept in the cache folder, where the package `servers` looks for it.
fn place(program: &str) -> PathBuf {
    let of = |variable| env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let caches = of("XDG_CACHE_HOME").or_else(|| of("HOME").map(|home| home.join(".cache")));
    match caches {
        Some(caches) if program.contains('/') => caches.join("vvm-servers").join(program),
        _ => program.into(),
    }
}

/// A file system in memory on every Linux (shm_overview(7)).
const IN_MEMORY: &str = "/dev/shm";

/// The need of the largest step, a node of Cassandra.
const NEEDED_BYTES: u64 = 4 << 30;

const SCRATCH: &str = "TMPDIR";

/// Returns the place, as a variable for programs. Tests use TTLs of a second or two; a disk that is busy with a build
/// has been seen to take 700 ms for one fsync, which costs leaderships. Tests of broken disks make their own.
pub(crate) fn scratch_variable() -> Option<(&'static str, &'static str)> {
    scratch().map(|place| (SCRATCH, place))
}

/// Returns the place. `None` if `TMPDIR` is set, without room, or if no program can be started there, as tests do.
pub(super) fn scratch() -> Option<&'static str> {
    let is_chosen = std::env::var_os(SCRATCH).is_some();
    (!is_chosen && has_room(Path::new(IN_MEMORY), NEEDED_BYTES)).then_some(IN_MEMORY)
}

fn has_room(place: &Path, bytes: u64) -> bool {
    let unfit = StatVfsMountFlags::NOEXEC | StatVfsMountFlags::RDONLY;
    statvfs(place).is_ok_and(|found| {
        found.f_bavail.saturating_mul(found.f_frsize) >= bytes && !found.f_flag.intersects(unfit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_missing_program_is_named() {
        assert_eq!(Server::OnJava.lacks(|_, _| true), None);
        let lacks = Server::OnJava.lacks(|program, _| program == "java");
        assert_eq!(lacks.map(|(program, _)| program), Some("mvn"));
        let built = Server::Kubernetes.lacks(|program, _| !program.contains('/'));
        assert!(built.is_some_and(|(_, way_out)| way_out.contains("builds it once")), "{built:?}");
        assert_eq!(Server::AnyEtcd.lacks(|program, _| program == "go"), None);
        assert_eq!(Server::AnyEtcd.lacks(|program, _| program == "etcd"), None);
        assert!(Server::AnyEtcd.lacks(|_, _| false).is_some());
        assert_eq!(Server::Etcd.lacks(|_, _| false).map(|(program, _)| program), Some("etcd"));
    }

    #[test]
    fn a_place_without_room_is_none() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(has_room(here, 1));
        assert!(!has_room(here, u64::MAX));
        assert!(!has_room(&here.join("nowhere"), 0));
        assert!(!has_room(Path::new("/proc"), 1), "there is no room at all");
    }
}
