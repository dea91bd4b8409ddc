//! Servers on loopback, and the storage's URL for a candidate that reaches them at another address.

use super::BetweenMachinesError;
use servers::{
    etcd::{Cluster, Program},
    kubernetes::{self, Kubernetes},
    postgres::{Pooler, Postgres},
};
use std::{fs, net::SocketAddr, path::PathBuf};

/// A storage. Dropping it ends its servers.
pub(super) enum Place {
    Postgres(Postgres),
    /// Transactions may change the connection, so there are no notifications.
    Pooled {
        pooler: Pooler,
        _server: Postgres,
    },
    Etcd(Cluster),
    Kubernetes(Kubernetes),
}

impl Place {
    /// Starts those that this machine has.
    pub(super) fn all() -> Result<Vec<Self>, BetweenMachinesError> {
        let server = || Postgres::start(&servers::target(), &[], &[]);
        let mut places = vec![Self::Postgres(server()?)];
        let pooled = server()?;
        match Pooler::start(&pooled)? {
            Some(pooler) => places.push(Self::Pooled { pooler, _server: pooled }),
            None => eprintln!("not measured: without notifications (install Debian's package pgbouncer)"),
        }
        places.push(Self::Etcd(Cluster::start(&Program::built()?, 3)?));
        match Kubernetes::start() {
            Ok(server) => {
                // Its certificate names loopback alone.
                let config = fs::read_to_string(server.kubeconfig())?;
                const AUTHORITY: &str = "certificate-authority:";
                let named = config.replace(AUTHORITY, &format!("tls-server-name: localhost, {AUTHORITY}"));
                fs::write(elsewhere(&server), named)?;
                places.push(Self::Kubernetes(server));
            }
            Err(why @ kubernetes::StartError::NotBuilt) => eprintln!("not measured: Kubernetes ({why})"),
            Err(error) => return Err(error.into()),
        }
        Ok(places)
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Postgres(_) => "PostgreSQL",
            Self::Pooled { .. } => "PostgreSQL behind PgBouncer, so without notifications",
            Self::Etcd(_) => "three members of etcd",
            Self::Kubernetes(_) => "Kubernetes",
        }
    }

    pub(super) fn has_notifications(&self) -> bool {
        !matches!(self, Self::Pooled { .. })
    }

    /// Where its servers listen.
    pub(super) fn addresses(&mut self) -> Vec<SocketAddr> {
        match self {
            Self::Postgres(server) => vec![server.address()],
            Self::Pooled { pooler, .. } => vec![pooler.address()],
            Self::Etcd(cluster) => cluster.members().iter().map(|member| member.address()).collect(),
            Self::Kubernetes(server) => vec![server.address()],
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
            Self::Kubernetes(server) => {
                let config = elsewhere(server).display().to_string();
                format!("k8s://default?kubeconfig={config}&server=https://{hosts}")
            }
        }
    }
}

/// The kubeconfig for clients that reach the server at another address. Beside its own, whose paths are
/// relative.
fn elsewhere(server: &Kubernetes) -> PathBuf {
    server.kubeconfig().with_file_name("elsewhere")
}
