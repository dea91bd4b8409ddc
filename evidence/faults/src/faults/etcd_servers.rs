//! Three members of etcd.

use super::{
    event::Event,
    fault::Fault,
    faulty_servers::{FaultyServers, Front},
    network::{Dialect, Protocol},
};
use servers::etcd::{Cluster, Program};
use std::net::SocketAddr;

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
