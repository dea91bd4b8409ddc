//! PostgreSQL with one standby, which is synchronous but before a fail-over that forgets writes. Primary and
//! standby take turns at two addresses.

use super::{
    TTL,
    fault::Event,
    fault::Fault,
    faulty_servers::{FaultyServers, Front},
    network::Protocol,
};
use servers::{owned::StartError, postgres::Postgres};
use std::{io, net::SocketAddr};

const STANDBYS: &str = "synchronous_standby_names";

pub(super) struct PostgresServers {
    name: String,
    primary: Postgres,
    /// `None` after it was promoted.
    standby: Option<Postgres>,
    /// In the order of the URL.
    addresses: [SocketAddr; 2],
    front: Front,
    to_repair: Option<Fault>,
}

impl PostgresServers {
    pub(super) fn start() -> Result<Self, String> {
        let mut primary = Postgres::start(&servers::target(), &[], &[]).map_err(text)?;
        let mut standby = primary.standby().map_err(text)?;
        standby.set(STANDBYS, "").map_err(text)?;
        primary.set(STANDBYS, "standby").map_err(text)?;
        let addresses = [primary.address(), standby.address()];
        let name = format!("{} with a standby", primary.version());
        Ok(Self { name, primary, standby: Some(standby), addresses, front: Front::find()?, to_repair: None })
    }

    /// Makes the standby the primary. The primary is gone.
    fn fail_over(&mut self) -> Result<(), StartError> {
        self.primary.kill()?;
        if let Some(standby) = self.standby.take() {
            standby.promote()?;
            self.primary = standby;
        }
        Ok(())
    }

    /// A new synchronous standby, at the address that is free. Its primary is restarted.
    fn replace_standby(&mut self) -> Result<(), StartError> {
        let address = self.addresses.iter().find(|address| **address != self.primary.address());
        let Some(address) = address else { return Ok(()) };
        let set = |server: &mut Postgres, value| {
            let what = STANDBYS.to_owned();
            server.set(STANDBYS, value).map_err(|cause| StartError::System { what, cause })
        };
        set(&mut self.primary, "")?;
        self.standby = Some(self.primary.standby_at(*address)?);
        set(&mut self.primary, "standby")
    }

    fn standby(&mut self) -> io::Result<&mut Postgres> {
        self.standby.as_mut().ok_or_else(|| io::Error::other("no standby"))
    }
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

impl FaultyServers for PostgresServers {
    fn name(&self) -> &str {
        &self.name
    }

    fn protocol(&self) -> Protocol {
        Protocol::Postgres
    }

    fn servers(&self) -> Vec<SocketAddr> {
        self.addresses.to_vec()
    }

    fn proxy_address(&self, candidate: usize, server: SocketAddr) -> SocketAddr {
        self.front.proxy(candidate, usize::from(server != self.addresses[0]))
    }

    fn url(&self, candidate: Option<usize>) -> String {
        let hosts = self.addresses.map(|server| match candidate {
            Some(candidate) => self.proxy_address(candidate, server).to_string(),
            None => server.to_string(),
        });
        let bound = TTL.get().as_secs();
        format!("postgres://postgres@{}/postgres?max_ttl={bound}s&request_timeout=1s", hosts.join(","))
    }

    fn required_events(&self) -> &'static [Event] {
        &[
            Event::ForgedRefused,
            Event::Throttled,
            Event::ServerStopped,
            Event::QuorumLost,
            Event::ServerRestarted,
            Event::FailedOver,
            Event::FailedOverLagging,
        ]
    }

    fn faults(&self) -> &'static [Fault] {
        &[Fault::StopOne, Fault::StopMost, Fault::KillOne, Fault::FailOver, Fault::FailOverLagging]
    }

    fn inject(&mut self, fault: Fault, _: &mut fastrand::Rng) -> Result<Vec<Event>, String> {
        self.to_repair = Some(fault);
        match fault {
            // Without it the primary waits before it answers.
            Fault::StopOne => {
                self.standby().and_then(Postgres::stop).map_err(text)?;
                Ok(vec![Event::ServerStopped])
            }
            Fault::StopMost => {
                self.primary.stop().map_err(text)?;
                self.standby().and_then(Postgres::stop).map_err(text)?;
                Ok(vec![Event::ServerStopped, Event::ServerStopped, Event::QuorumLost])
            }
            Fault::KillOne => {
                self.primary.kill().map_err(text)?;
                Ok(vec![Event::ServerRestarted])
            }
            Fault::FailOver => {
                self.fail_over().map_err(text)?;
                Ok(vec![Event::FailedOver])
            }
            // From now on the standby lags.
            Fault::FailOverLagging => {
                self.primary.set(STANDBYS, "").map_err(text)?;
                self.standby().map_err(text)?.kill().map_err(text)?;
                Ok(vec![Event::FailedOverLagging])
            }
            _ => Ok(Vec::new()),
        }
    }

    fn repair(&mut self) -> Result<(), String> {
        match self.to_repair.take() {
            Some(Fault::StopOne | Fault::StopMost) => {
                self.primary.go_on().map_err(text)?;
                self.standby().and_then(Postgres::go_on).map_err(text)
            }
            Some(Fault::KillOne) => self.primary.restart().map_err(text),
            Some(Fault::FailOver) => self.replace_standby().map_err(text),
            Some(Fault::FailOverLagging) => {
                self.primary.kill().map_err(text)?;
                self.standby().map_err(text)?.restart().map_err(text)?;
                self.fail_over().map_err(text)?;
                self.replace_standby().map_err(text)
            }
            _ => Ok(()),
        }
    }
}
