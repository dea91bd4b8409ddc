//! Three nodes of Apache Cassandra, every record on each.
//!
//! The client library finds the other nodes by what the first one says, at the port that it came to: so the
//! proxies of a contender listen on the nodes' own addresses, at a port of that contender's.

use super::{bed::Bed, fault::Fault, happened::Happened, network::Protocol};
use servers::cassandra::{Cassandra, Plan};
use std::{net::SocketAddr, time::Duration};

/// The proxies of the first contender.
const FIRST_PORT: u16 = 9100;

pub(super) struct CassandraBed {
    name: String,
    cluster: Cassandra,
    addresses: Vec<SocketAddr>,
    stopped: Vec<usize>,
    killed: Vec<usize>,
}

impl CassandraBed {
    pub(super) fn start(ahead: Duration) -> Result<Self, String> {
        let plan = Plan::of(3).with_a_clock_ahead(ahead);
        let mut cluster = plan.start(&servers::target()).map_err(|error| error.to_string())?;
        let addresses = cluster.nodes().iter().map(|node| node.client_address()).collect();
        let name = format!("Apache Cassandra 5.0.5, {plan}, replication 3");
        Ok(Self { name, cluster, addresses, stopped: Vec::new(), killed: Vec::new() })
    }

    fn stop(&mut self, index: usize) -> Result<(), String> {
        self.stopped.push(index);
        self.cluster.nodes()[index].stop().map_err(|error| error.to_string())
    }
}

impl Bed for CassandraBed {
    fn name(&self) -> &str {
        &self.name
    }

    fn protocol(&self) -> Protocol {
        Protocol::cql()
    }

    fn servers(&self) -> Vec<SocketAddr> {
        self.addresses.clone()
    }

    fn front(&self, contender: usize, server: SocketAddr) -> SocketAddr {
        SocketAddr::new(server.ip(), FIRST_PORT + contender as u16)
    }

    fn url(&self, contender: Option<usize>) -> String {
        let points = self.addresses.iter().map(|server| match contender {
            Some(contender) => self.front(contender, *server).to_string(),
            None => server.to_string(),
        });
        format!("scylla://{}/faults?replication=3", points.collect::<Vec<_>>().join(","))
    }

    fn must_happen(&self) -> &'static [Happened] {
        &[Happened::ServerStopped, Happened::QuorumLost, Happened::ServerRestarted]
    }

    fn faults(&self) -> &'static [Fault] {
        &[Fault::StopOne, Fault::StopMost, Fault::KillOne]
    }

    fn inject(&mut self, fault: Fault, dice: &mut fastrand::Rng) -> Result<Vec<Happened>, String> {
        let chosen = dice.usize(..self.addresses.len());
        match fault {
            Fault::StopOne => {
                self.stop(chosen)?;
                Ok(vec![Happened::ServerStopped])
            }
            Fault::StopMost => {
                self.stop(chosen)?;
                self.stop((chosen + 1) % self.addresses.len())?;
                Ok(vec![Happened::ServerStopped, Happened::ServerStopped, Happened::QuorumLost])
            }
            Fault::KillOne => {
                self.killed.push(chosen);
                self.cluster.nodes()[chosen].kill().map_err(|error| error.to_string())?;
                Ok(vec![Happened::ServerRestarted])
            }
            _ => Ok(Vec::new()),
        }
    }

    fn mend(&mut self) -> Result<(), String> {
        for index in self.stopped.drain(..) {
            self.cluster.nodes()[index].go_on().map_err(|error| error.to_string())?;
        }
        for index in self.killed.drain(..) {
            self.cluster.nodes()[index].start_again().map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}
