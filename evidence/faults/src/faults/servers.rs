//! [`FaultyServers`]: what a fault run does to servers; [`Site`]: what it knows of them. [`Servers`] are one or three.

use super::{
    NAME,
    fault::{Deletion, Fault},
    network::Tls,
};
use futures_util::TryStreamExt as _;
use object_store::{ObjectStore as _, ObjectStoreExt as _, aws::AmazonS3Builder, path::Path};
use servers::{
    cassandra::Cassandra,
    dynamodb::DynamoDbLocal,
    etcd,
    kubernetes::{Kubernetes, kubectl},
    objects::{BUCKET, ObjectServer, Product},
    owned::Server,
};
use std::{
    error::Error,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    num::NonZeroU32,
    ops::DerefMut,
    path::PathBuf,
};
use vvm_storage::ElectionKey;

const FIRST_PORT: u16 = 9100;

const OBJECTS: &str = "faults";

/// How many candidates there may be before the proxies of the second server begin.
const CANDIDATES_AT_MOST: u16 = 100;

/// Finds a loopback address that only the proxies of this run use.
fn free_front() -> Result<Ipv4Addr, String> {
    let mut addresses = (0..20).map(|_| Ipv4Addr::new(127, fastrand::u8(1..255), fastrand::u8(1..255), 1));
    let is_free = |address: &Ipv4Addr| TcpListener::bind((*address, FIRST_PORT)).is_ok();
    addresses.find(is_free).ok_or_else(|| "no free loopback address".into())
}

/// What stays as it is while faults come and go: servers, and the proxies between them and the candidates.
pub(super) struct Site {
    pub(super) name: String,
    /// The proxies do TLS with the server, and none with the clients.
    pub(super) tls: Option<Tls>,
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) faults: &'static [Fault],
    /// `None` if the proxies listen at the addresses of the servers.
    front: Option<Ipv4Addr>,
    url: Box<UrlAt>,
}

impl Site {
    pub(super) fn new(
        name: String,
        addresses: Vec<SocketAddr>,
        faults: &'static [Fault],
        url: impl Fn(&[SocketAddr]) -> String + 'static,
    ) -> Result<Self, String> {
        let (front, url) = (Some(free_front()?), Box::new(url));
        Ok(Self { name, tls: None, addresses, faults, front, url })
    }

    pub(super) fn proxy(&self, candidate: usize, server: usize) -> SocketAddr {
        let port = FIRST_PORT + candidate as u16;
        match self.front {
            Some(front) => SocketAddr::from((front, port + CANDIDATES_AT_MOST * server as u16)),
            None => SocketAddr::new(self.addresses[server].ip(), port),
        }
    }

    pub(super) fn url(&self, candidate: Option<usize>) -> String {
        let Some(candidate) = candidate else { return (self.url)(&self.addresses) };
        let proxies = (0..self.addresses.len()).map(|server| self.proxy(candidate, server));
        (self.url)(&proxies.collect::<Vec<_>>())
    }
}

/// Servers with faults. [`repair`](Self::repair) ends a fault. Dropping the value ends the servers.
pub(super) trait FaultyServers {
    fn site(&self) -> &Site;

    fn inject(&mut self, fault: Fault, rng: &mut fastrand::Rng) -> Result<(), String>;

    /// Deletes what the candidates stored, by the means of an operator. Fails if a server refuses, or if no record of
    /// these servers is one object for operators.
    fn delete(&self, what: Deletion) -> Result<(), String>;

    /// Ends the fault, and waits until every server answers.
    fn repair(&mut self) -> Result<(), String>;
}

type Act = fn(&mut Server) -> Result<(), String>;

type UrlAt = dyn Fn(&[SocketAddr]) -> String;

type Delete = dyn Fn(Deletion) -> Result<(), String>;

pub(super) struct Servers {
    site: Site,
    /// Does something to the server with this index. Owns the servers.
    act: Box<dyn FnMut(usize, Act) -> Result<(), String>>,
    /// Deletes what is stored, where a record is one object for operators, too.
    delete: Option<Box<Delete>>,
    stopped: Vec<usize>,
    killed: Vec<usize>,
}

const OF_THREE: &[Fault] = &[Fault::StopOne, Fault::StopMost, Fault::KillOne];
const OF_ONE: &[Fault] = &[Fault::StopOne, Fault::KillOne];

/// The same where records are deleted by hand, too.
const DELETED: &[Fault] = &[Fault::StopOne, Fault::KillOne, Fault::DeleteRecord, Fault::DeleteAll];

impl Servers {
    /// Three nodes of Apache Cassandra, with every record on each. The client library learns the other nodes from the
    /// first one, and uses the port of its first connection. So the proxies of a candidate listen on the nodes'
    /// addresses, at a port for that candidate.
    pub(super) fn cassandra() -> Result<Self, String> {
        let mut cluster = Cassandra::start(3, &servers::target()).map_err(text)?;
        let addresses = cluster.nodes().iter().map(|node| node.address()).collect();
        let name = "Apache Cassandra 5.0.5, 3 nodes, replication 3".to_owned();
        let url = |at: &[SocketAddr]| format!("scylla://{}/faults?replication=3", listed(at));
        let site = Site::new(name, addresses, OF_THREE, url)?;
        let act = move |index: usize, act: Act| act(&mut cluster.nodes()[index]);
        Ok(Self::new(Site { front: None, ..site }, act))
    }

    pub(super) fn etcd() -> Result<Self, String> {
        let program = etcd::Program::built().map_err(text)?;
        let mut cluster = etcd::Cluster::start(&program, 3).map_err(text)?;
        let addresses = cluster.members().iter().map(|member| member.address()).collect();
        let name = format!("{}, three members", program.version());
        let url = |at: &[SocketAddr]| format!("etcd://{}/faults?request_timeout=1s", listed(at));
        let site = Site::new(name, addresses, OF_THREE, url)?;
        Ok(Self::new(site, move |index: usize, act: Act| act(&mut cluster.members()[index])))
    }

    pub(super) fn dynamodb() -> Result<Self, String> {
        let server = DynamoDbLocal::start(&servers::target()).map_err(text)?;
        let address = server.address();
        let url = |at: &[SocketAddr]| format!("dynamodb://eu-west-1/faults?endpoint=http://{}", listed(at));
        let name = "DynamoDB Local 2.6.1".into();
        let site = Site::new(name, vec![address], OF_ONE, url)?;
        Ok(Self::new(site, on_one(server)))
    }

    pub(super) fn s3() -> Result<Self, String> {
        let server = ObjectServer::start(Product::Versitygw).map_err(text)?;
        let (address, own) = (server.address(), server.url(OBJECTS));
        let url = move |at: &[SocketAddr]| {
            let through = own.replace(&address.to_string(), &listed(at));
            format!("{through}&min_ttl=2s&request_timeout=1s")
        };
        let delete = Some(delete_objects(address).map_err(text)?);
        let site = Site::new(Product::Versitygw.to_string(), vec![address], DELETED, url)?;
        Ok(Self { delete, ..Self::new(site, on_one(server)) })
    }

    pub(super) fn kubernetes() -> Result<Self, String> {
        let server = Kubernetes::start().map_err(text)?;
        let tls = Tls::of(&server.authority(), "127.0.0.1").map_err(text)?;
        let (name, address, own) = (server.version(), server.address(), server.url("default"));
        let url = move |at: &[SocketAddr]| {
            let scheme = if at == [address] { "https" } else { "http" };
            format!("{own}&server={scheme}://{}&request_timeout=1s", listed(at))
        };
        let delete = Some(delete_leases(server.kubeconfig()));
        // The folder with the kubeconfig is the server's.
        let site = Site { tls: Some(tls), ..Site::new(name, vec![address], DELETED, url)? };
        Ok(Self { delete, ..Self::new(site, on_one(server)) })
    }

    fn new(site: Site, act: impl FnMut(usize, Act) -> Result<(), String> + 'static) -> Self {
        Self { site, act: Box::new(act), delete: None, stopped: Vec::new(), killed: Vec::new() }
    }

    fn stop(&mut self, index: usize) -> Result<(), String> {
        self.stopped.push(index);
        (self.act)(index, |server| server.stop().map_err(text))
    }
}

fn on_one(mut server: impl DerefMut<Target = Server>) -> impl FnMut(usize, Act) -> Result<(), String> {
    move |_, act| act(&mut server)
}

fn delete_leases(config: PathBuf) -> Box<Delete> {
    Box::new(move |what| {
        let which = match what {
            Deletion::Record(slot) if slot.get() == NonZeroU32::MIN => NAME.to_owned(),
            Deletion::Record(slot) => format!("{NAME}.{slot}"),
            Deletion::All => "--all".to_owned(),
        };
        let is_deleted = kubectl(&config, &["delete", "lease", "--ignore-not-found", &which]);
        is_deleted.then_some(()).ok_or_else(|| format!("kubectl can't delete the Lease {which}"))
    })
}

fn delete_objects(server: SocketAddr) -> Result<Box<Delete>, Box<dyn Error>> {
    let bucket = AmazonS3Builder::from_env()
        .with_bucket_name(BUCKET)
        .with_region("us-east-1")
        .with_endpoint(format!("http://{server}"))
        .with_allow_http(true)
        .build()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(Box::new(move |what| {
        runtime.block_on(async {
            let stored: Vec<_> = bucket.list(Some(&OBJECTS.into())).try_collect().await.map_err(text)?;
            let is_meant = |path: &Path| match what {
                Deletion::Record(slot) => {
                    let key = ElectionKey { cluster: NAME.into(), slot };
                    path.filename() == Some(&format!("{}.cell", key.partition().encoded()))
                }
                // Not the mark of `init-storage`, without which no storage is opened.
                Deletion::All => path.as_ref().ends_with(".cell"),
            };
            for object in stored.iter().filter(|object| is_meant(&object.location)) {
                bucket.delete(&object.location).await.map_err(text)?;
            }
            Ok(())
        })
    }))
}

pub(super) fn listed(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",")
}

pub(super) fn text(error: impl ToString) -> String {
    error.to_string()
}

impl FaultyServers for Servers {
    fn site(&self) -> &Site {
        &self.site
    }

    fn inject(&mut self, fault: Fault, rng: &mut fastrand::Rng) -> Result<(), String> {
        let chosen = rng.usize(..self.site.addresses.len());
        match fault {
            Fault::StopOne => self.stop(chosen),
            Fault::StopMost => {
                self.stop(chosen)?;
                self.stop((chosen + 1) % self.site.addresses.len())
            }
            Fault::KillOne => {
                self.killed.push(chosen);
                (self.act)(chosen, |server| server.kill().map_err(text))
            }
            _ => Ok(()),
        }
    }

    fn delete(&self, what: Deletion) -> Result<(), String> {
        let delete = self.delete.as_ref().ok_or("no record of these servers is one object")?;
        delete(what)
    }

    fn repair(&mut self) -> Result<(), String> {
        let (stopped, killed) = (std::mem::take(&mut self.stopped), std::mem::take(&mut self.killed));
        for index in stopped {
            (self.act)(index, |server| server.go_on().map_err(text))?;
        }
        // With its data.
        killed.into_iter().try_for_each(|index| (self.act)(index, |server| server.restart().map_err(text)))
    }
}
