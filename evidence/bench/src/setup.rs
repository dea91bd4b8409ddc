//! The set-up of measurements on `mem`: a runtime of one thread, the system's clock, and elections through
//! the public API.

use crate::report::Failure;
use clap::ValueEnum;
use ielections::{
    AcquireError, Candidacy, Elections, Env, Holder, Leadership, OsEntropy, Terms, TokioSpawn, Ttl,
};
use serde::de::DeserializeOwned;
use servers::{
    cassandra::Cassandra,
    dynamodb::DynamoDbLocal,
    etcd::{Cluster, Program},
    kubernetes::Kubernetes,
    mysql::MariaDb,
    objects::{CREDENTIALS, ObjectServer, Product},
    owned,
    postgres::Postgres,
};
use std::{any::Any, env, io, net::SocketAddr, num::NonZeroU32, ops::DerefMut, process::Command, sync::Arc};
use tokio::runtime::{Handle, Runtime};
use vvm_clock::{Clock, Instant, SystemClock, SystemWallClock};
use vvm_deadman::{Deadman, Subject, SystemOptions, Trigger};
use vvm_storage::{ClusterName, ElectionKey, ElectionsTtlStorage, SlotNumber, mem::MemDatabase};

/// How many leaders renew at once, beside as many bare writers.
pub(crate) const LEADERS: u32 = 64;

/// The deadman's trigger during a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Deadline {
    /// No trigger: deadlines are ordered and have no effect.
    Ignored,
    /// That of production: a thread and a kernel timer. At most one setup of a process can have it.
    System,
}

/// Elections on `mem`, and the cluster that they are for.
pub(crate) struct Setup {
    pub(crate) runtime: Runtime,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) storage: Arc<ElectionsTtlStorage>,
    pub(crate) elections: Arc<Elections<ElectionKey>>,
    cluster: ClusterName,
    pub(crate) holder: Holder,
}

impl Setup {
    pub(crate) fn make(deadline: Deadline) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start()?);
        let storage = Arc::new(ElectionsTtlStorage::new(MemDatabase::new(Arc::clone(&clock)).open()));
        let deadman = match deadline {
            Deadline::Ignored => Deadman::with_trigger(Arc::new(Ignores)),
            Deadline::System => Deadman::system(SystemOptions::default())?,
        };
        let elections =
            elections_on(Arc::clone(&storage), Arc::clone(&clock), deadman, runtime.handle().clone());
        let (cluster, holder) = (ClusterName::from("bench"), Holder::new("bench")?);
        Ok(Self { runtime, clock, storage, elections, cluster, holder })
    }

    pub(crate) fn key(&self, slot: NonZeroU32) -> ElectionKey {
        ElectionKey { cluster: self.cluster.clone(), slot: SlotNumber::new(slot) }
    }

    pub(crate) async fn acquire(&self, slot: NonZeroU32, ttl: Ttl) -> Result<Leadership, AcquireError> {
        let terms = Terms::new(self.holder.clone(), ttl);
        let candidacy = Candidacy { slots: vec![self.key(slot)], terms };
        self.elections.acquire(candidacy).await.map(|(_, leadership)| leadership)
    }
}

/// Runs this program once more, for one round, and returns what it prints: an allocator returns little memory, so a
/// second round in one process would seem to cost nothing.
pub(crate) fn in_own_process<F: DeserializeOwned>(command: &str, arguments: &[String]) -> Result<F, Failure> {
    let output = Command::new(env::current_exe()?).arg(command).args(arguments).output()?;
    if !output.status.success() {
        return Err(
            format!("a round's process failed: {}", String::from_utf8_lossy(&output.stderr).trim()).into()
        );
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Elections in this process.
pub(crate) fn elections_on(
    storage: Arc<ElectionsTtlStorage>,
    clock: Arc<dyn Clock>,
    deadman: Deadman,
    runtime: Handle,
) -> Arc<Elections<ElectionKey>> {
    let env = Env {
        clock,
        wall: Arc::new(SystemWallClock),
        deadman,
        entropy: Arc::new(OsEntropy::default()),
        spawn: Arc::new(TokioSpawn::on(runtime)),
    };
    Arc::new(Elections::new(storage, env))
}

/// Does nothing at any deadline.
#[derive(Debug)]
pub(crate) struct Ignores;

impl Trigger for Ignores {
    fn set_earliest(&self, _earliest: Option<(Instant, &Subject)>) -> io::Result<()> {
        Ok(())
    }

    fn now(&self) -> Instant {
        SystemClock::read()
    }
}

/// Named by the scheme of its URL.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Server {
    /// DynamoDB Local.
    Dynamodb,
    /// Three members of etcd.
    Etcd,
    /// An API server of Kubernetes on one etcd.
    K8s,
    /// MariaDB.
    Mysql,
    /// PostgreSQL.
    Postgres,
    /// versitygw.
    S3,
    /// Three nodes of Apache Cassandra, or one with `--quick`.
    Scylla,
}

/// A server that runs. It ends when this is dropped.
pub(crate) struct Started {
    pub(crate) server: Box<dyn Any>,
    pub(crate) addresses: Vec<SocketAddr>,
    /// Of a storage there.
    pub(crate) url: String,
}

impl Started {
    fn one(server: impl DerefMut<Target = owned::Server> + 'static, url: String) -> Self {
        Self { addresses: vec![server.address()], server: Box::new(server), url }
    }
}

impl Server {
    /// Starts the server, and this program again with credentials for it and `options`: on its storage, or, with
    /// `is_of_vvm`, with trials of `vvm` there.
    pub(crate) fn measure(self, is_of_vvm: bool, quick: bool, options: &[String]) -> Result<(), Failure> {
        let Started { server: _server, addresses, url } = self.start(quick)?;
        let mut bench = Command::new(env::current_exe()?);
        // DynamoDB Local accepts any.
        bench.envs(CREDENTIALS).args(options);
        if is_of_vvm {
            bench.env("VVM_TEST_STORAGE", &url).env("VVM_TEST_STORAGE_AT", addresses[0].to_string());
        } else {
            bench.args(["--storage", &url]);
        }
        match bench.status()? {
            status if status.success() => Ok(()),
            status => Err(format!("measuring on {url} ended with {status}").into()),
        }
    }

    pub(crate) fn start(self, quick: bool) -> Result<Started, Failure> {
        let target = servers::target();
        Ok(match self {
            Self::Dynamodb => {
                let server = DynamoDbLocal::start(&target)?;
                let url = format!("dynamodb://eu-west-1/bench?endpoint={}", server.endpoint());
                Started::one(server, url)
            }
            Self::Etcd => {
                let mut cluster = Cluster::start(&Program::built()?, 3)?;
                let url = format!("etcd://{}/bench", cluster.addresses());
                let addresses = cluster.members().iter().map(|member| member.address()).collect();
                Started { server: Box::new(cluster), addresses, url }
            }
            Self::K8s => {
                let server = Kubernetes::start()?;
                let url = server.url("default");
                Started::one(server, url)
            }
            Self::Mysql => {
                let server = MariaDb::start(&target, &["bench"], &[])?;
                let url = format!("{}?connections={LEADERS}", server.url("bench"));
                Started::one(server, url)
            }
            Self::Postgres => {
                let server = Postgres::start(&target, &[], &[])?;
                // As many connections as the bare writers have.
                let url = format!("{}?sslmode=disable&connections={LEADERS}", server.url("postgres"));
                Started::one(server, url)
            }
            Self::S3 => {
                let server = ObjectServer::start(Product::Versitygw)?;
                let url = server.url("bench");
                Started::one(server, url)
            }
            Self::Scylla => {
                let mut cluster = Cassandra::start(if quick { 1 } else { 3 }, &target)?;
                let url = cluster.url("bench");
                let addresses = cluster.nodes().iter().map(|node| node.address()).collect();
                Started { server: Box::new(cluster), addresses, url }
            }
        })
    }
}
