//! Three nodes of Apache Cassandra, with every record on each.
//!
//! The client library learns the other nodes from the first one, and uses the port of its first connection.
//! So the proxies of a candidate listen on the nodes' addresses, at a port for that candidate.

use super::{fault::Event, fault::Fault, faulty_servers::FaultyServers, network::Protocol};
use servers::cassandra::{Cassandra, Plan};
use std::{net::SocketAddr, time::Duration};

/// The port of the proxies of the first candidate.
const FIRST_PORT: u16 = 9100;

pub(super) struct CassandraServers {
    name: String,
    cluster: Cassandra,
    addresses: Vec<SocketAddr>,
    stopped: Vec<usize>,
    killed: Vec<usize>,
}

impl CassandraServers {
    pub(super) fn start(ahead: Duration) -> Result<Self, String> {
        let plan = Plan::of(3).with_a_clock_ahead(ahead);
        let mut cluster = plan.start(&servers::target()).map_err(|error| error.to_string())?;
        let addresses = cluster.nodes().iter().map(|node| node.address()).collect();
        let name = format!("Apache Cassandra 5.0.5, {plan}, replication 3");
        Ok(Self { name, cluster, addresses, stopped: Vec::new(), killed: Vec::new() })
    }

    fn stop(&mut self, index: usize) -> Result<(), String> {
        self.stopped.push(index);
        self.cluster.nodes()[index].stop().map_err(|error| error.to_string())
    }
}

impl FaultyServers for CassandraServers {
    fn name(&self) -> &str {
        &self.name
    }

    fn protocol(&self) -> Protocol {
        Protocol::cql()
    }

    fn servers(&self) -> Vec<SocketAddr> {
        self.addresses.clone()
    }

    fn proxy_address(&self, candidate: usize, server: SocketAddr) -> SocketAddr {
        SocketAddr::new(server.ip(), FIRST_PORT + candidate as u16)
    }

    fn url(&self, candidate: Option<usize>) -> String {
        let points = self.addresses.iter().map(|server| match candidate {
            Some(candidate) => self.proxy_address(candidate, *server).to_string(),
            None => server.to_string(),
        });
        format!("scylla://{}/faults?replication=3", points.collect::<Vec<_>>().join(","))
    }

    fn required_events(&self) -> &'static [Event] {
        &[Event::ForgedRefused, Event::ServerStopped, Event::QuorumLost, Event::ServerRestarted]
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
                self.cluster.nodes()[chosen].kill().map_err(|error| error.to_string())?;
                Ok(vec![Event::ServerRestarted])
            }
            _ => Ok(Vec::new()),
        }
    }

    fn repair(&mut self) -> Result<(), String> {
        for index in self.stopped.drain(..) {
            self.cluster.nodes()[index].go_on().map_err(|error| error.to_string())?;
        }
        for index in self.killed.drain(..) {
            self.cluster.nodes()[index].restart().map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}
