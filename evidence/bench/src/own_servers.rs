//! Measures on a server that it starts and ends.

use crate::storage::LEADERS;
use clap::ValueEnum;
use servers::{
    dynamodb::DynamoDbLocal,
    etcd::{Cluster, Program},
    kubernetes::Kubernetes,
    objects::{CREDENTIALS, ObjectServer, Product},
    postgres::Postgres,
};
use std::{any::Any, env, error::Error, process::Command};

/// Named by the scheme of its URL.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Server {
    /// DynamoDB Local.
    Dynamodb,
    /// Three members of etcd.
    Etcd,
    /// An API server of Kubernetes on one etcd.
    K8s,
    /// PostgreSQL.
    Postgres,
    /// versitygw.
    S3,
}

/// A server, which ends when it is dropped, and its storage's URL.
type Started = (Box<dyn Any>, String);

impl Server {
    /// Starts the server, and this program again with credentials for it and `options`.
    pub(crate) fn measure(self, options: &[&str]) -> Result<(), Box<dyn Error>> {
        let (_server, url) = self.start()?;
        let mut bench = Command::new(env::current_exe()?);
        // DynamoDB Local accepts any.
        bench.envs(CREDENTIALS);
        match bench.args(["--storage", &url]).args(options).status()? {
            status if status.success() => Ok(()),
            status => Err(format!("measuring on {url} ended with {status}").into()),
        }
    }

    fn start(self) -> Result<Started, Box<dyn Error>> {
        Ok(match self {
            Self::Dynamodb => {
                let server = DynamoDbLocal::start(&servers::target())?;
                let url = format!("dynamodb://eu-west-1/bench?endpoint={}", server.endpoint());
                (Box::new(server), url)
            }
            Self::Etcd => {
                let cluster = Cluster::start(&Program::built()?, 3)?;
                let url = format!("etcd://{}/bench", cluster.addresses());
                (Box::new(cluster), url)
            }
            Self::K8s => {
                let server = Kubernetes::start()?;
                let url = server.url("default");
                (Box::new(server), url)
            }
            Self::Postgres => {
                let server = Postgres::start(&servers::target(), &[], &[])?;
                // As many connections as the bare writers have.
                let url = format!("{}?connections={LEADERS}", server.url("postgres"));
                (Box::new(server), url)
            }
            Self::S3 => {
                let server = ObjectServer::start(Product::Versitygw)?;
                let url = server.url("bench");
                (Box::new(server), url)
            }
        })
    }
}
