//! kube-apiserver on an etcd of its own, with roles (`--authorization-mode=RBAC`). Nothing else of Kubernetes
//! runs: no controllers, no scheduler, no Pods.
//!
//! It is built once, in ten minutes: a module that requires `k8s.io/kubernetes` and, for each module that its
//! own module file replaces by one of `./staging`, requires that module's version 0.36.3 instead.

use crate::{
    built::GoServer,
    certificates::{self, AUTHORITY, ForServer},
    etcd::{self, Etcd},
    free_address,
    owned::{self, Owned},
};
use rustix::process::Signal;
use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};
use tempfile::TempDir;

/// Starting takes 3 s on two idle cores, and longer under load.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// The server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It was never built.
    #[error(
        "kube-apiserver {} was never built here: the head of evidence/servers/src/kubernetes.rs says how",
        SERVER.version
    )]
    NotBuilt,
    /// Its etcd.
    #[error(transparent)]
    Etcd(#[from] etcd::StartError),
    /// A file or a process could not be made.
    #[error("kube-apiserver: {0}")]
    System(#[from] io::Error),
    /// It ended, or did not answer in time.
    #[error("kube-apiserver at {address} {how}. The end of its log:\n{log_end}")]
    Server {
        /// Its address.
        address: SocketAddr,
        /// What happened.
        how: &'static str,
        /// The end of its log.
        log_end: String,
    },
}

/// A running server. Dropping it ends it and removes its data.
#[derive(Debug)]
pub struct Kubernetes {
    /// Before its etcd, without which it hangs.
    process: Owned,
    etcd: Etcd,
    address: SocketAddr,
    /// Keys and the kubeconfig.
    folder: TempDir,
}

/// Users by token, and what each may do.
const TOKENS: &str = "secret,admin,1,\"system:masters\"\nworker,worker,2\nstranger,stranger,3\n";

/// Its dependencies are replaced in its own module file, so `GoServer::build` does not build it.
const SERVER: GoServer = GoServer {
    name: "kube-apiserver",
    module: "k8s.io/kubernetes",
    version: "v1.36.3",
    package: "k8s.io/kubernetes/cmd/kube-apiserver",
};

impl Kubernetes {
    /// Starts a server without objects of ours.
    ///
    /// Call it from the main thread: the kernel kills the server when the *thread* that started it ends.
    ///
    /// # Errors
    /// See [`StartError`]. No process is left.
    pub fn start() -> Result<Self, StartError> {
        let program = SERVER.cached().ok_or(StartError::NotBuilt)?;
        let etcd = Etcd::start()?;
        let folder = TempDir::with_prefix("kubernetes-")?;
        let address = free_address()?;
        let names = vec!["127.0.0.1".into(), "localhost".into()];
        certificates::make(folder.path(), &[ForServer { file: "server".into(), names }])?;
        fs::write(folder.path().join("tokens.csv"), TOKENS)?;
        fs::write(folder.path().join("config"), kubeconfig(address))?;
        let process = run(&program, folder.path(), address, &etcd.endpoint())?;
        let mut server = Self { process, etcd, address, folder };
        server.wait_until_ready()?;
        Ok(server)
    }

    fn wait_until_ready(&mut self) -> Result<(), StartError> {
        let mut has_ended = false;
        let is_ready = owned::wait_until(START_TIMEOUT, || {
            has_ended = self.process.ended()?.is_some();
            // The namespace is created by the server itself, after it is ready.
            Ok::<_, io::Error>(
                has_ended
                    || (self.kubectl(&["get", "--raw=/readyz"]) && self.kubectl(&["get", "ns/default"])),
            )
        })?;
        let how = match (is_ready, has_ended) {
            (true, false) => return Ok(()),
            (_, true) => "has ended",
            (false, false) => "is not ready",
        };
        Err(StartError::Server { address: self.address, how, log_end: self.process.log_end() })
    }

    /// Returns whether `kubectl` succeeds with these arguments, as a user that may do everything.
    pub fn kubectl(&self, arguments: &[&str]) -> bool {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(self.kubeconfig()).arg("--request-timeout=2s").args(arguments);
        let ended = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        ended.is_ok_and(|status| status.success())
    }

    /// Its kubeconfig. The contexts are `admin` (by token, may do everything), `worker` and `stranger` (by
    /// token, may do nothing at first) and `client` (by certificate, likewise).
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("config")
    }

    /// The storage's URL for a namespace.
    pub fn url(&self, namespace: &str) -> String {
        format!("k8s://{namespace}?kubeconfig={}", self.kubeconfig().display())
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// The signal can't be sent.
    pub fn signal(&mut self, signal: Signal) -> io::Result<()> {
        self.process.signal(signal)
    }

    /// Kills it, and starts it again at the same address with the same objects.
    ///
    /// Call it from the main thread, as [`start`](Self::start).
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn restart(&mut self) -> Result<(), StartError> {
        self.process.end()?;
        let program = SERVER.cached().ok_or(StartError::NotBuilt)?;
        self.process = run(&program, self.folder.path(), self.address, &self.etcd.endpoint())?;
        self.wait_until_ready()
    }

    /// The certificate of the authority that certifies it as `127.0.0.1`.
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join(AUTHORITY)
    }

    /// What it is, for people.
    pub fn version(&self) -> String {
        format!("kube-apiserver {}", SERVER.version)
    }
}

fn run(program: &Path, folder: &Path, address: SocketAddr, etcd: &str) -> io::Result<Owned> {
    let mut server = owned::command(program)?;
    let file = |name: &str| folder.join(name).display().to_string();
    let port = address.port();
    server
        .arg(format!("--etcd-servers={etcd}"))
        .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
        .arg(format!("--secure-port={port}"))
        .arg(format!("--cert-dir={}", file("certs")))
        .arg(format!("--tls-cert-file={}", file("server.pem")))
        .arg(format!("--tls-private-key-file={}", file("server.key")))
        .arg(format!("--client-ca-file={}", file(AUTHORITY)))
        .arg(format!("--token-auth-file={}", file("tokens.csv")))
        .arg("--authorization-mode=RBAC")
        .arg("--service-account-issuer=https://kubernetes.default.svc")
        .arg(format!("--service-account-key-file={}", file("server.pem")))
        .arg(format!("--service-account-signing-key-file={}", file("server.key")))
        .args(["--service-cluster-ip-range=10.0.0.0/24", "--disable-admission-plugins=ServiceAccount"])
        .arg("--endpoint-reconciler-type=none");
    Owned::start(server, &folder.join("log"))
}

fn kubeconfig(address: SocketAddr) -> String {
    let token = |name: &str, token: &str| format!("- {{name: {name}, user: {{token: {token}}}}}\n");
    let contexts = ["admin", "worker", "stranger", "client"]
        .map(|name| format!("- {{name: {name}, context: {{cluster: test, user: {name}}}}}\n"));
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: admin\nclusters:\n\
         - {{name: test, cluster: {{server: \"https://{address}\", certificate-authority: {AUTHORITY}}}}}\n\
         users:\n{}{}{}\
         - {{name: client, user: {{client-certificate: client.pem, client-key: client.key}}}}\n\
         contexts:\n{}",
        token("admin", "secret"),
        token("worker", "worker"),
        token("stranger", "stranger"),
        contexts.concat()
    )
}
