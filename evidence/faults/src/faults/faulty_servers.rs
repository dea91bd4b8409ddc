//! [`FaultyServers`]: what a fault run needs of a kind of server.

use super::{
    fault::{Event, Fault},
    network::{Dialect, Protocol},
};
use servers::etcd::{Cluster, Program};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// The port of the proxy of the first candidate before the first server.
const FIRST_PORT: u16 = 9100;

/// How many candidates there may be before the proxies of the second server begin.
const CANDIDATES_AT_MOST: u16 = 100;

/// A loopback address that only the proxies of this run use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Front(Ipv4Addr);

impl Front {
    /// Finds one.
    ///
    /// # Errors
    /// Twenty random ones are in use.
    pub(super) fn find() -> Result<Self, String> {
        let mut addresses =
            (0..20).map(|_| Ipv4Addr::new(127, fastrand::u8(1..255), fastrand::u8(1..255), 1));
        let is_free = |address: &Ipv4Addr| TcpListener::bind((*address, FIRST_PORT)).is_ok();
        addresses.find(is_free).map(Self).ok_or_else(|| "no free loopback address".into())
    }

    /// Returns where the proxy between a candidate and a server listens.
    pub(super) fn proxy(self, candidate: usize, server: usize) -> SocketAddr {
        let port = FIRST_PORT + candidate as u16 + CANDIDATES_AT_MOST * server as u16;
        SocketAddr::from((self.0, port))
    }
}

/// Servers with faults. [`repair`](Self::repair) ends a fault. Dropping the value ends the servers.
pub(super) trait FaultyServers {
    /// Returns a name for reports.
    fn name(&self) -> &str;

    /// Returns their protocol.
    fn protocol(&self) -> Protocol;

    /// Returns the addresses of the servers.
    fn servers(&self) -> Vec<SocketAddr>;

    /// Returns where the proxy between `candidate` and `server` listens.
    fn proxy_address(&self, candidate: usize, server: SocketAddr) -> SocketAddr;

    /// Returns the URL of the storage through the proxies of `candidate`, or directly.
    fn url(&self, candidate: Option<usize>) -> String;

    /// Returns the events that a run must have, beyond those of connections.
    fn required_events(&self) -> &'static [Event];

    /// Returns the faults of these servers.
    fn faults(&self) -> &'static [Fault];

    /// Injects the fault into a random server. Returns what was done.
    ///
    /// # Errors
    /// If the system refuses.
    fn inject(&mut self, fault: Fault, rng: &mut fastrand::Rng) -> Result<Vec<Event>, String>;

    /// Ends the fault, and waits until every server answers.
    ///
    /// # Errors
    /// If a server does not answer.
    fn repair(&mut self) -> Result<(), String>;
}

pub(super) struct EtcdServers {
    name: String,
    cluster: Cluster,
    addresses: Vec<SocketAddr>,
    front: Front,
    stopped: Vec<usize>,
    killed: Vec<usize>,
}

impl EtcdServers {
    pub(super) fn start() -> Result<Self, String> {
        let program = Program::built().map_err(text)?;
        let mut cluster = Cluster::start(&program, 3).map_err(text)?;
        let addresses = cluster.members().iter().map(|member| member.address()).collect();
        let name = format!("{}, three members", program.version());
        let front = Front::find()?;
        Ok(Self { name, cluster, addresses, front, stopped: Vec::new(), killed: Vec::new() })
    }

    fn stop(&mut self, index: usize) -> Result<(), String> {
        self.stopped.push(index);
        self.cluster.members()[index].stop().map_err(text)
    }
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

impl FaultyServers for EtcdServers {
    fn name(&self) -> &str {
        &self.name
    }

    fn protocol(&self) -> Protocol {
        Protocol::Http(Dialect::Etcd, None)
    }

    fn servers(&self) -> Vec<SocketAddr> {
        self.addresses.clone()
    }

    fn proxy_address(&self, candidate: usize, server: SocketAddr) -> SocketAddr {
        let index = self.addresses.iter().position(|address| *address == server);
        self.front.proxy(candidate, index.unwrap_or_default())
    }

    fn url(&self, candidate: Option<usize>) -> String {
        let endpoints = self.addresses.iter().map(|server| match candidate {
            Some(candidate) => self.proxy_address(candidate, *server).to_string(),
            None => server.to_string(),
        });
        format!("etcd://{}/faults?request_timeout=1s", endpoints.collect::<Vec<_>>().join(","))
    }

    fn required_events(&self) -> &'static [Event] {
        &[
            Event::ForgedRefused,
            Event::Throttled,
            Event::ServerStopped,
            Event::QuorumLost,
            Event::ServerRestarted,
        ]
    }

    fn faults(&self) -> &'static [Fault] {
        &[Fault::StopOne, Fault::StopMost, Fault::KillOne]
    }

    fn inject(&mut self, fault: Fault, rng: &mut fastrand::Rng) -> Result<Vec<Event>, String> {
        let chosen = rng.usize(..self.addresses.len());
        match fault {
            Fault::StopOne => {
                self.stop(chosen)?;
                Ok(vec![Event::ServerStopped])
            }
            Fault::StopMost => {
                self.stop(chosen)?;
                self.stop((chosen + 1) % self.addresses.len())?;
                Ok(vec![Event::ServerStopped, Event::ServerStopped, Event::QuorumLost])
            }
            Fault::KillOne => {
                self.killed.push(chosen);
                self.cluster.members()[chosen].kill().map_err(text)?;
                Ok(vec![Event::ServerRestarted])
            }
            _ => Ok(Vec::new()),
        }
    }

    fn repair(&mut self) -> Result<(), String> {
        for index in self.stopped.drain(..) {
            self.cluster.members()[index].go_on().map_err(text)?;
        }
        for index in self.killed.drain(..) {
            self.cluster.members()[index].restart().map_err(text)?;
        }
        Ok(())
    }
}
