//! etcd, with its data in a temporary folder.

use crate::{
    answers,
    built::GoProgram,
    certificates::{self, ForServer},
    free_address,
    owned::{self, Plan, Server, StartError, run},
};
use std::{
    env, io,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use tempfile::TempDir;

const BUILT: GoProgram = GoProgram {
    name: "etcd",
    release: Some("3.7.3"),
    files: &[],
    modules: &["go.etcd.io/etcd/server/v3@v3.7.3"],
    package: "go.etcd.io/etcd/server/v3",
};

#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    version: String,
}

impl Program {
    /// The variable that makes tests start servers of this program.
    pub const NAMED: &'static str = "VVM_TEST_ETCD_PROGRAM";

    /// Version 3.7.3, built once.
    pub fn built() -> Result<Self, StartError> {
        Ok(Self { path: BUILT.build()?, version: "etcd 3.7.3".into() })
    }

    /// The machine's own.
    pub fn installed() -> Result<Self, StartError> {
        Ok(Self { path: "etcd".into(), version: version("etcd", "--version")? })
    }

    pub fn installed_or_built() -> Result<Self, StartError> {
        Self::installed().or_else(|_| Self::built())
    }

    pub fn installed_with_client() -> Result<Self, StartError> {
        version("etcdctl", "version")?;
        Self::installed()
    }

    pub fn named() -> Option<Self> {
        let path = PathBuf::from(env::var_os(Self::NAMED)?);
        Some(Self { version: path.display().to_string(), path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn version(&self) -> &str {
        &self.version
    }
}

/// A running cluster. Dropping it ends it and removes its data.
#[derive(Debug)]
pub struct Cluster {
    members: Vec<Server>,
    folder: TempDir,
}

impl Cluster {
    pub fn start(program: &Program, members: usize) -> Result<Self, StartError> {
        let folder = TempDir::with_prefix("etcd-")?;
        Self::start_in(folder, program, members, "http", &[])
    }

    /// Starts a cluster of one member that requires TLS with a certificate of the client: see [`file`](Self::file).
    pub fn start_with_tls(program: &Program) -> Result<Self, StartError> {
        let folder = TempDir::with_prefix("etcd-")?;
        let server = ForServer { file: "server".into(), names: vec!["localhost".into()] };
        certificates::make(folder.path(), &[server])?;
        let file = |name| folder.path().join(name).display().to_string();
        let options = [
            ("--cert-file", file("server.pem")),
            ("--key-file", file("server.key")),
            ("--trusted-ca-file", file(certificates::AUTHORITY)),
            ("--client-cert-auth", "true".into()),
        ];
        let options: Vec<String> = options.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Self::start_in(folder, program, 1, "https", &options)
    }

    /// A file of `certificates::make`, for a cluster with TLS whose certificate is for the name `localhost` alone.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start_in(
        folder: TempDir,
        program: &Program,
        members: usize,
        scheme: &str,
        options: &[String],
    ) -> Result<Self, StartError> {
        let addresses = || (0..members).map(|_| free_address()).collect::<io::Result<Vec<_>>>();
        let (clients, peers, health) = (addresses()?, addresses()?, addresses()?);
        let list: Vec<String> =
            peers.iter().enumerate().map(|(number, peer)| format!("m{number}=http://{peer}")).collect();
        let list = list.join(",");
        let mut started = Vec::new();
        for (number, ((clients, peer), health)) in clients.into_iter().zip(peers).zip(health).enumerate() {
            let data = folder.path().join(format!("m{number}")).display().to_string();
            let (name, url) = (format!("m{number}"), format!("{scheme}://{clients}"));
            let (peer, watched) = (format!("http://{peer}"), format!("http://{health}"));
            let arguments = [
                ("--name", &name),
                ("--data-dir", &data),
                ("--listen-client-urls", &url),
                ("--advertise-client-urls", &url),
                ("--listen-peer-urls", &peer),
                ("--initial-advertise-peer-urls", &peer),
                ("--listen-metrics-urls", &watched),
                ("--initial-cluster", &list),
                ("--log-level", &"error".into()),
                ("--logger", &"zap".into()),
            ];
            let arguments = arguments.iter().map(|(name, value)| format!("{name}={value}"));
            let arguments: Vec<String> = arguments.chain(options.iter().cloned()).collect();
            let program = program.path.clone();
            let server = Server::launch(Plan {
                name: "etcd".into(),
                address: clients,
                log: folder.path().join(format!("m{number}.log")),
                // A second on an idle machine.
                patience: Duration::from_secs(60),
                command: Box::new(move || {
                    let mut etcd = owned::command(&program);
                    etcd.args(&arguments);
                    Ok(etcd)
                }),
                // Once it knows a leader of a majority.
                is_ready: Box::new(move || answers(health, "/health", "\"health\":\"true\"")),
            })?;
            started.push(server);
        }
        let mut cluster = Self { members: started, folder };
        cluster.members.iter_mut().try_for_each(|member| member.wait_until_ready())?;
        Ok(cluster)
    }

    pub fn members(&mut self) -> &mut [Server] {
        &mut self.members
    }

    pub fn addresses(&self) -> String {
        self.members.iter().map(|member| member.address().to_string()).collect::<Vec<_>>().join(",")
    }
}

fn version(program: &str, option: &str) -> Result<String, StartError> {
    let wanted = "Debian's packages etcd-server and etcd-client";
    let said = run(Command::new(program).arg(option).env("ETCDCTL_API", "3"), wanted)?;
    Ok(said.lines().next().unwrap_or(program).replace(" Version:", ""))
}
