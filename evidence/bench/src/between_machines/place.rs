//! Servers on loopback, and the storage's URL for a candidate that reaches them at another address.

use super::BetweenMachinesError;
use servers::{
    etcd::{Cluster, Program},
    kubernetes::{self, Kubernetes},
    owned,
    postgres::{Pooler, Postgres},
};
use std::{env, fs, io, net::SocketAddr, path::PathBuf, process::Command, time::Duration};

/// A storage. Dropping it ends its servers.
pub(super) enum Place {
    Postgres(Postgres),
    /// Transactions may change the connection, so there are no notifications.
    Pooled {
        pooler: Pooler,
        _server: Postgres,
    },
    Etcd(Cluster),
    /// Its candidates log in by this context.
    Kubernetes(Kubernetes, &'static str),
}

/// Starts a storage. `None`: this machine lacks it.
type Start = fn() -> Result<Option<Place>, BetweenMachinesError>;

/// May do everything.
const ADMIN: &str = "admin";

/// When a role must be in force.
const IN_FORCE: Duration = Duration::from_secs(30);

/// May not watch, so there are no notifications.
const WORKER: &str = "worker";

impl Place {
    pub(super) const STARTS: [Start; 5] =
        [Self::postgres, Self::pooled, Self::etcd, || Self::kubernetes(ADMIN), || Self::kubernetes(WORKER)];

    fn postgres() -> Result<Option<Self>, BetweenMachinesError> {
        Ok(Some(Self::Postgres(Postgres::start(&servers::target(), &[], &[])?)))
    }

    fn pooled() -> Result<Option<Self>, BetweenMachinesError> {
        let server = Postgres::start(&servers::target(), &[], &[])?;
        let pooler = Pooler::start(&server)?;
        if pooler.is_none() {
            eprintln!("not measured: PostgreSQL without notifications (install Debian's package pgbouncer)");
        }
        Ok(pooler.map(|pooler| Self::Pooled { pooler, _server: server }))
    }

    fn etcd() -> Result<Option<Self>, BetweenMachinesError> {
        Ok(Some(Self::Etcd(Cluster::start(&Program::built()?, 3)?)))
    }

    fn kubernetes(context: &'static str) -> Result<Option<Self>, BetweenMachinesError> {
        let server = match Kubernetes::start() {
            Err(why @ kubernetes::StartError::NotBuilt) => {
                eprintln!("not measured: Kubernetes ({why})");
                return Ok(None);
            }
            started => started?,
        };
        // Its certificate names loopback alone.
        let config = fs::read_to_string(server.kubeconfig())?;
        const AUTHORITY: &str = "certificate-authority:";
        let named = config.replace(AUTHORITY, &format!("tls-server-name: localhost, {AUTHORITY}"));
        fs::write(elsewhere(&server), named)?;
        let role =
            ["create", "role", WORKER, "--verb=get,create,update", "--resource=leases.coordination.k8s.io"];
        let binding = ["create", "rolebinding", WORKER, "--role=worker", "--user=worker"];
        let created = server.kubectl(&role) && server.kubectl(&binding);
        // The server learns of a role a moment after it was created.
        let may = ["auth", "can-i", "update", "leases.coordination.k8s.io", "--as=worker"];
        if !created || !owned::wait_until(IN_FORCE, || Ok::<_, io::Error>(server.kubectl(&may)))? {
            return Err(BetweenMachinesError::Role);
        }
        Ok(Some(Self::Kubernetes(server, context)))
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Postgres(_) => "PostgreSQL",
            Self::Pooled { .. } => "PostgreSQL behind PgBouncer, so without notifications",
            Self::Etcd(_) => "three members of etcd",
            Self::Kubernetes(_, WORKER) => "Kubernetes, without the right to watch",
            Self::Kubernetes(..) => "Kubernetes",
        }
    }

    pub(super) fn has_notifications(&self) -> bool {
        !matches!(self, Self::Pooled { .. } | Self::Kubernetes(_, WORKER))
    }

    /// Creates what candidates need. On Kubernetes that is nothing.
    pub(super) fn init(&mut self) -> Result<(), BetweenMachinesError> {
        if matches!(self, Self::Kubernetes(..)) {
            return Ok(());
        }
        let init = Command::new(env::current_exe()?.with_file_name("vvm"))
            .args(["init-storage", "--storage", &self.url("127.0.0.1")])
            .status()?;
        if init.success() { Ok(()) } else { Err(BetweenMachinesError::Init) }
    }

    /// Where its servers listen.
    pub(super) fn addresses(&mut self) -> Vec<SocketAddr> {
        match self {
            Self::Postgres(server) => vec![server.address()],
            Self::Pooled { pooler, .. } => vec![pooler.address()],
            Self::Etcd(cluster) => cluster.members().iter().map(|member| member.address()).collect(),
            Self::Kubernetes(server, _) => vec![server.address()],
        }
    }

    /// The URL, with the servers' ports at `host`.
    pub(super) fn url(&mut self, host: &str) -> String {
        let ports = self.addresses();
        let hosts: Vec<String> = ports.iter().map(|address| format!("{host}:{}", address.port())).collect();
        let hosts = hosts.join(",");
        match self {
            Self::Postgres(_) | Self::Pooled { .. } => {
                format!("postgres://postgres@{hosts}/postgres?sslmode=disable")
            }
            Self::Etcd(_) => format!("etcd://{hosts}/bench"),
            Self::Kubernetes(server, context) => {
                let config = elsewhere(server).display().to_string();
                format!("k8s://default?kubeconfig={config}&context={context}&server=https://{hosts}")
            }
        }
    }
}

/// The kubeconfig for clients that reach the server at another address. Beside its own, whose paths are
/// relative.
fn elsewhere(server: &Kubernetes) -> PathBuf {
    server.kubeconfig().with_file_name("elsewhere")
}
