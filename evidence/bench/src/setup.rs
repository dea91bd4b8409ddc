//! The set-up of measurements: elections through the public API with the system's clock, and servers.

use crate::report::Failure;
use clap::ValueEnum;
use ielections::{
    AcquireError, Candidacy, Claim, Elections, Entry, Env, Epoch, Holder, Incarnation, Leadership, OsEntropy,
    Terms, TokioSpawn, Ttl, TtlStorage as _, Vacant, Version,
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
use vvm_deadman::{Deadman, Subject, Trigger};
use vvm_storage::{ClusterName, ElectionKey, ElectionsTtlStorage, SlotNumber};

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

pub(crate) const REFUSED: &str = "a write without a competitor was refused";

#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) storage: Arc<ElectionsTtlStorage>,
    pub(crate) elections: Arc<Elections<ElectionKey>>,
    pub(crate) cluster: ClusterName,
    pub(crate) holder: Holder,
}

impl Scene {
    pub(crate) async fn open(url: &str, cluster: &str, deadline: Deadline) -> Result<Self, Failure> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start()?);
        let storage = vvm_storage::open(url, Arc::clone(&clock)).await?;
        let storage = Arc::new(ElectionsTtlStorage::new(storage));
        let deadman = match deadline {
            Deadline::Ignored => Deadman::with_trigger(Arc::new(Ignores)),
            Deadline::System => Deadman::system()?,
        };
        let env = Env {
            clock: Arc::clone(&clock),
            wall: Arc::new(SystemWallClock),
            deadman,
            entropy: Arc::new(OsEntropy::default()),
            spawn: Arc::new(TokioSpawn::on(Handle::current())),
        };
        let elections = Arc::new(Elections::new(Arc::clone(&storage) as _, env));
        let (cluster, holder) = (ClusterName::from(cluster), Holder::new("10.0.0.7")?);
        Ok(Self { clock, storage, elections, cluster, holder })
    }

    /// In memory, with a runtime that waits for nothing outside.
    pub(crate) fn in_memory(deadline: Deadline) -> Result<(Runtime, Self), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let scene = runtime.block_on(Self::open("mem:", "bench", deadline))?;
        Ok((runtime, scene))
    }

    pub(crate) fn key(&self, slot: u32) -> ElectionKey {
        let slot = SlotNumber::new(NonZeroU32::MIN.saturating_add(slot));
        ElectionKey { cluster: self.cluster.clone(), slot }
    }

    pub(crate) async fn acquire(&self, key: ElectionKey, ttl: Ttl) -> Result<Leadership, AcquireError> {
        let candidacy = Candidacy { slots: vec![key], terms: Terms::new(self.holder.clone(), ttl) };
        self.elections.acquire(candidacy).await.map(|(_, leadership)| leadership)
    }

    /// Claims a slot without an engine. Returns its entry.
    pub(crate) async fn claim(&self, key: &ElectionKey, ttl: Ttl) -> Result<Entry, Failure> {
        let version = Version { incarnation: Incarnation::from_bytes([7; 16]), write: 0 };
        let entry = Entry { holder: self.holder.clone(), version, ttl, epoch: Epoch::new(1)? };
        match self.storage.insert_if_not_exist(key, Vacant::default(), &entry).await? {
            Claim::Claimed => Ok(entry),
            Claim::Refused(_) => Err(REFUSED.into()),
        }
    }

    pub(crate) async fn writes(&self, key: &ElectionKey) -> Result<u64, Failure> {
        let slot = self.storage.get(key).await?;
        slot.entry().map(|entry| entry.version.write).ok_or_else(|| REFUSED.into())
    }
}

pub(crate) fn in_own_process<F: DeserializeOwned>(command: &str, arguments: &[String]) -> Result<F, Failure> {
    let mut round = Command::new(env::current_exe()?);
    Ok(serde_json::from_str(&owned::run(round.arg(command).args(arguments), "this program")?)?)
}

#[derive(Debug)]
struct Ignores;

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

pub(crate) struct Started {
    pub(crate) server: Box<dyn Any>,
    pub(crate) addresses: Vec<SocketAddr>,
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
