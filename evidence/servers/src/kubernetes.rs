//! kube-apiserver on an etcd of its own, with roles (`--authorization-mode=RBAC`): no controllers, scheduler or Pods.

use crate::{
    built::{self, cached},
    certificates::{self, AUTHORITY, ForServer},
    etcd::{Cluster, Program},
    free_address,
    owned::{self, Plan, Server, StartError, is_a_server},
};
use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};
use tempfile::TempDir;

/// A running server. Dropping it ends it and removes its data.
#[derive(Debug)]
pub struct Kubernetes {
    /// Before its etcd, without which it hangs.
    server: Server,
    _etcd: Cluster,
    folder: TempDir,
}

is_a_server!(Kubernetes);

/// Users by token, and what each may do.
const TOKENS: &str = "secret,admin,1,\"system:masters\"\nworker,worker,2\nstranger,stranger,3\n";

const PROGRAM: &str = "kube-apiserver";
const RELEASE: &str = "1.36.3";

/// The version of the modules that are developed in its repository.
const STAGED: &str = "v0.36.3";

/// Builds the server, unless it was built before on this machine: in ten minutes, with 3 GB of memory and disk.
pub fn build() -> Result<PathBuf, StartError> {
    built::build(PROGRAM, RELEASE, |work| {
        let go = |arguments: &[&str]| built::go(work, "mod", arguments);
        let module = format!("k8s.io/kubernetes@v{RELEASE}");
        go(&["mod", "init", "program"])?;
        go(&["mod", "download", &module])?;
        // Its own module file replaces these modules by folders, which counts in its repository alone.
        let file = work.join(format!("modules/cache/download/k8s.io/kubernetes/@v/v{RELEASE}.mod"));
        let text = fs::read_to_string(&file).map_err(built::file(&file))?;
        let staged = text.lines().filter_map(|line| line.trim().split_once(" => ./staging/"));
        let replaced = staged.map(|(module, _)| format!("-replace={module}={module}@{STAGED}"));
        let edits: Vec<String> = replaced.chain([format!("-require={module}")]).collect();
        let edits: Vec<&str> = edits.iter().map(String::as_str).collect();
        go(&[&["mod", "edit"], &edits[..]].concat())?;
        go(&[&built::BUILD[..], &[PROGRAM, "k8s.io/kubernetes/cmd/kube-apiserver"]].concat())
    })
}

impl Kubernetes {
    pub fn start() -> Result<Self, StartError> {
        let program = cached(PROGRAM, RELEASE).ok_or(StartError::NotBuilt(RELEASE))?;
        let etcd = Cluster::start(&Program::installed_or_built()?, 1)?;
        let folder = TempDir::with_prefix("kubernetes-")?;
        let address = free_address()?;
        let names = vec!["127.0.0.1".into(), "localhost".into()];
        certificates::make(folder.path(), &[ForServer { file: "server".into(), names }])?;
        fs::write(folder.path().join("tokens.csv"), TOKENS)?;
        let config = folder.path().join("config");
        fs::write(&config, kubeconfig(address))?;
        let (etcd_url, home) = (format!("http://{}", etcd.addresses()), folder.path().to_owned());
        let server = Server::start(Plan {
            name: PROGRAM.into(),
            address,
            log: folder.path().join("log"),
            // 3 s on two idle cores.
            patience: Duration::from_secs(120),
            command: Box::new(move || Ok(command(&program, &home, address, &etcd_url))),
            // The namespace is created by the server itself, after it is ready.
            is_ready: Box::new(move || {
                kubectl(&config, &["get", "--raw=/readyz"]) && kubectl(&config, &["get", "ns/default"])
            }),
        })?;
        Ok(Self { server, _etcd: etcd, folder })
    }

    pub fn kubectl(&self, arguments: &[&str]) -> bool {
        kubectl(&self.kubeconfig(), arguments)
    }

    /// Its kubeconfig. The contexts are `admin` (by token, may do everything), `worker` and `stranger` (by
    /// token, may do nothing at first) and `client` (by certificate, likewise).
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("config")
    }

    pub fn url(&self, namespace: &str) -> String {
        format!("k8s://{namespace}?kubeconfig={}", self.kubeconfig().display())
    }

    /// The certificate of the authority that certifies it as `127.0.0.1`.
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join(AUTHORITY)
    }

    pub fn version(&self) -> String {
        format!("kube-apiserver {RELEASE}")
    }
}

pub fn kubectl(config: &Path, arguments: &[&str]) -> bool {
    let mut command = Command::new("kubectl");
    command.arg("--kubeconfig").arg(config).arg("--request-timeout=2s").args(arguments);
    let ended = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    ended.is_ok_and(|status| status.success())
}

fn command(program: &Path, folder: &Path, address: SocketAddr, etcd: &str) -> Command {
    let mut server = owned::command(program);
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
    server
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
